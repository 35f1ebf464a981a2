"""Mark every object of a Service before the first of them is deleted.

What an official manager made is proven by the address in the Service's status. That proves nothing
once a deletion has begun: the address may be somebody else's by then, and a manager that starts in
the middle does not see what was there. So all that is to go gets our marks first. Then the address
is withdrawn from the status, and marks alone tell what is left.
"""

from collections.abc import Sequence

from proreus.cloudprovider.identity import marks
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.refused import Refused
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.addresses import Check, is_to_be_kept
from proreus.providers.openstack.octavia.cases import broken, is_needed
from proreus.providers.openstack.octavia.floating import goes_with, is_kept, is_proven
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia, is_immutable
from proreus.providers.openstack.octavia.plan import ACTIVE, ERROR, Change
from proreus.providers.openstack.octavia.turns import Turn


class Withdrawal:
    """The writer of marks that prove ownership once the Service's status shows no address."""

    def __init__(self, octavia: Octavia, networks: Networks, check: Check) -> None:
        """Keep the clients of Octavia and Neutron; `check` refuses what another account shows."""
        self._check = check
        self._octavia = octavia
        self._networks = networks

    async def mark(self, ref: LoadBalancerRef, found: Sequence[Described], turn: Turn) -> str:
        """Mark all objects of a Service; return what it waits for, or "" if all are marked.

        Args:
            ref: The Service.
            found: The load balancers that it uses.
            turn: The turn in which they were read.

        Raises:
            CloudError: The services refuse, or a load balancer without marks is in ERROR; or
                neither a load balancer nor a machine of the cluster is shown.
        """
        if not found:
            await self._check()
        # A load balancer with the mark of a Service that has left it needs no other.
        unmarked = [
            balancer
            for balancer in found
            if not owners.is_used_by(balancer, ref)
            and owners.made_tag(ref) not in owners.tags_of(balancer)
        ]
        for balancer in found:
            status = balancer.get("provisioning_status")
            if balancer in unmarked and status == ERROR:
                raise broken(id_of(balancer))  # Octavia gives it no tags
            if status not in {ACTIVE, ERROR} and not owners.is_made_for(balancer, ref):
                return f"Octavia works on load balancer {id_of(balancer)} ({status})"
        await self._mark_addresses(ref, found)
        for balancer in unmarked:
            if not await self._tag(balancer, ref, turn):
                return f"Octavia works on load balancer {id_of(balancer)}"
        return ""

    async def _mark_addresses(self, ref: LoadBalancerRef, found: Sequence[Described]) -> None:
        """Describe each floating IP as the Service's, and whether it is to stay."""
        every = {id_of(floating): floating for floating in await self._networks.made_for(ref)}
        for balancer in found:
            if owners.is_made_for(balancer, ref):
                continue
            # The Service that it was made for has left it; its address goes with the last user.
            floating = await self._networks.at_port(str(balancer.get("vip_port_id")))
            if floating is None or is_proven(floating):
                continue
            goes = goes_with(floating, owners.makers(balancer), ref)
            if goes and not is_needed(balancer, await self._octavia.observe(balancer, ref), ref):
                every[id_of(floating)] = floating
        for floating in every.values():
            kept = is_kept(floating) or is_to_be_kept(ref)
            await self._networks.describe(floating, ref, kept=kept)

    async def _tag(self, described: Described, ref: LoadBalancerRef, turn: Turn) -> bool:
        """Give a load balancer our tags; return whether Octavia took them."""
        made = marks(ref.cluster, ref.key, ref.uid)
        is_own = owners.is_made_for(described, ref)
        given = owners.of_parts(made, ref) if is_own else owners.of_sharer(made, ref)
        tags = owners.with_tags(described, given, ref)
        step = Change("loadbalancers", id_of(described), {"tags": tags})
        try:
            with turn.change(id_of(described)):
                await self._octavia.take(step, id_of(described), ())
        except Refused as error:
            if is_immutable(error):
                return False
            raise
        return True
