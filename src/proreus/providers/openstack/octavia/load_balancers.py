"""Load balancers of Octavia for Services: one for each family.

A verb does one thing at most and answers `Pending` while Octavia works on it. A load balancer is
found by the tag with its Service's uid, or as the official manager's by its name and the address
in the Service's status; then it is given our tags.

A Service may use a load balancer that was not made for it: another Service's of its namespace, or
one that somebody has made by hand (`cloudprovider.ownership`). There it has listeners of its own
and changes nothing else; the load balancer goes with the last Service, if it was made for one.

What a verb changes it has seen as it is: see `turns`. So Services that share a load balancer need
not wait for one another's verbs.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.adapters import per_service
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    Pending,
)
from proreus.cloudprovider.ownership import refusal
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import LoadBalancerIngress, Service
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia import owners, wishes
from proreus.providers.openstack.octavia.addresses import Addresses, Placed
from proreus.providers.openstack.octavia.annotations import PREFIX, Says, says, selector
from proreus.providers.openstack.octavia.finding import Finder
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia, is_immutable
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    ERROR,
    Broken,
    Change,
    Look,
    MakeBalancer,
    MakeListener,
    MakePool,
    SetMembers,
    Step,
    Taken,
    Wait,
    deletion,
    departure,
    plan,
)
from proreus.providers.openstack.octavia.security_groups import SecurityGroups
from proreus.providers.openstack.octavia.turns import Turn, Turns

PACE: Final = tuple(min(1.5**times, 15.0) for times in range(8))
"""Seconds until Octavia is asked again whether it is ready; an amphora takes a minute or two."""


class OctaviaLoadBalancers:
    """The verbs for one Service."""

    def __init__(
        self,
        octavia: Octavia,
        networks: Networks,
        groups: SecurityGroups,
        config: OpenStackConfig,
    ) -> None:
        """Work as the cloud-config says."""
        self._octavia = octavia
        self._networks = networks
        self._groups = groups
        self._settings = config.load_balancer
        self._classes = config.load_balancer_class
        self._tenants = config.tenants
        self._finder = Finder(octavia, networks, config)
        self._addresses = Addresses(octavia, networks)
        self._turns = Turns()
        self._deleted: set[str] = set()
        self._waited: dict[str, int] = {}

    def offered(self) -> LoadBalancers:
        """The verbs as the framework wants them."""
        return per_service(
            self.ensure,
            self.delete,
            host_policy=self.host_policy,
            list_owned=self.list_owned,
        )

    def host_policy(self, service: Service) -> HostPolicy:
        """The nodes with certain labels, if the Service or the cloud-config names any."""
        return HostPolicy(selector(service.metadata.annotations, self._settings.node_selector))

    async def ensure(self, of: LoadBalancer) -> EnsureAnswer:
        """One load balancer for each family, one step for each."""
        asked = says(of.service.metadata.annotations, self._settings, self._classes)
        subnets: dict[str, str] = {}
        with self._turns.begin() as turn:
            answers = [
                await self._ensure(of, asked, family, subnets, turn) for family in of.families
            ]
        waiting = [one for one in answers if isinstance(one, Pending)]
        if waiting:
            return waiting[0]
        if (pending := await self._groups.ensure(of, subnets)) is not None:
            return pending
        done = [one for one in answers if isinstance(one, Ensured)]
        return Ensured(
            ingress=tuple(ingress for one in done for ingress in one.ingress),
            annotations=done[0].annotations,
        )

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """The floating addresses first, since nothing leads to them afterwards."""
        with self._turns.begin() as turn:
            found = await self._finder.found(ref)
            observed = [(one, await self._octavia.observe(one, ref)) for one in found]
            steps = [
                (actual.id, step)
                for one, actual in observed
                if (step := self._undoing(one, actual, ref)) is not None
            ]
            if steps:
                self._deleted.add(ref.uid)
            if steps and all(isinstance(step, Wait) for _, step in steps):
                return self._pending(ref, "Octavia deletes the load balancer", is_waiting=True)
            gone = [
                one
                for one, actual in observed
                if actual.status in {ACTIVE, ERROR} and not is_needed(one, actual, ref)
            ]
            floating = await self._addresses.delete(ref, gone, turn)
            for id_, step in steps:
                if isinstance(step, Broken):
                    raise _broken(id_)
                if not isinstance(step, Wait):
                    await self._take(step, id_, (), turn)
        if steps:
            return self._pending(ref, "Octavia deletes the load balancer", is_waiting=False)
        self._waited.pop(ref.uid, None)
        group = await self._groups.remove(ref)
        if isinstance(group, Pending):
            return group
        was_there = ref.uid in self._deleted or floating or group
        self._deleted.discard(ref.uid)
        return Done(found=was_there)

    def _undoing(self, described: Described, actual: Balancer, ref: LoadBalancerRef) -> Step | None:
        """The next step to delete it, or to leave it to others; None if there is none."""
        if is_needed(described, actual, ref):
            return departure(actual, owners.without(described, ref))
        return deletion(actual, cascade=self._settings.cascade_delete)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """The load balancers and security groups with the cluster's tag.

        Of a load balancer that was not made in the cluster, its Services have the listeners.
        """
        found = await self._octavia.balancers({"tags": owners.cluster_tag(cluster.uid)})
        balancers = [
            OwnedObject(
                "load balancer"
                if owners.is_made_in(one, cluster)
                else "listeners of load balancer",
                id_of(one),
                user.key,
                user.service_uid,
            )
            for one in found
            for user in owners.users(one, cluster)
        ]
        return [*balancers, *await self._groups.owned(cluster)]

    async def _ensure(
        self, of: LoadBalancer, asked: Says, family: str, subnets: dict[str, str], turn: Turn
    ) -> Ensured | Pending:
        found = await self._one(of, asked, family, turn)
        is_own = found is None or owners.is_made_for(found, of.ref)
        if found is None:
            await self._check_place(of, asked)
            subnet = await self._networks.subnet(of, asked, family)
        else:
            subnet = str(found.get("vip_subnet_id") or "")
        members = await self._networks.member_subnet(asked, family, subnet)
        subnets[family] = members
        provider = self._settings.lb_provider
        wanted = wishes.wish(of, asked, family, provider=provider, member_subnet=members)
        tags = owners.of_parts(of.marks, of.ref)
        actual = None
        if found is None:
            placed = self._place(of, asked, family, subnet)
            wanted = msgspec.structs.replace(wanted, placed=placed)
        else:
            actual = await self._octavia.observe(found, of.ref)
            on_it = tags if is_own else owners.of_sharer(of.marks, of.ref)
            labels = {"tags": owners.with_tags(found, on_it, of.ref)}
            fields = {**wanted.fields, **labels} if is_own else labels
            wanted = msgspec.structs.replace(wanted, fields=fields)
        step, actual = await self._next(wanted, actual, is_known=_is_known(of, is_own=is_own))
        id_ = actual.id if actual is not None else ""
        if isinstance(step, Broken):
            raise _broken(id_)
        if isinstance(step, Taken):
            raise InvalidRequest(
                f"port {step.port}/{step.transport} of load balancer {id_} is taken by another"
                " listener"
            )
        if isinstance(step, Wait):
            text = f"Octavia works on load balancer {id_} ({step.status})"
            return self._pending(of.ref, text, is_waiting=True)
        if step is not None:
            await self._check_parts(of, asked, actual, step)
            await self._take(step, id_, tags, turn)
            what = "makes" if isinstance(step, MakeBalancer) else "changes"
            return self._pending(of.ref, f"Octavia {what} the load balancer", is_waiting=False)
        self._waited.pop(of.ref.uid, None)
        if found is None or actual is None:
            raise CloudError("there is no load balancer, and nothing to do")
        address = await self._addresses.ensure(of, asked, Placed(family, found, actual), turn)
        return Ensured(
            ingress=(self._ingress(asked, address),),
            annotations={
                f"{PREFIX}load-balancer-id": id_of(found),
                f"{PREFIX}load-balancer-address": address,
            },
        )

    async def _next(
        self, wanted: Balancer, actual: Balancer | None, *, is_known: bool
    ) -> tuple[Step | None, Balancer | None]:
        """The next step, and what has been seen until then."""
        while True:
            step = plan(
                wanted,
                actual,
                at_once=not self._settings.provider_requires_serial_api_calls,
                cascade=self._settings.cascade_delete,
                is_known=is_known,
            )
            if not isinstance(step, Look) or actual is None:
                return step, actual
            actual = await self._octavia.look(actual, step.pool)

    async def _check_place(self, of: LoadBalancer, asked: Says) -> None:
        """Refuse to make one where the Service may not have it.

        Raises:
            InvalidRequest: An annotation names what is another's, or in use.
        """
        if port := asked.named.get("port-id"):
            for one in await self._octavia.balancers({"vip_port_id": port}):
                makers = ", ".join(map(str, owners.makers(one))) or "nobody known"
                raise InvalidRequest(
                    f"annotation {PREFIX}port-id: load balancer {id_of(one)} uses it, which belongs"
                    f" to {makers}"
                )
        await self._networks.check(of, wishes.places(asked))

    async def _check_parts(
        self, of: LoadBalancer, asked: Says, actual: Balancer | None, step: Step
    ) -> None:
        """Refuse parts that name what the Service may not, unless it has such parts already."""
        if not isinstance(step, MakeBalancer | MakeListener | MakePool | SetMembers | Change):
            return
        new = wishes.new_parts(asked, actual)
        member_subnet = {name: id_ for name, id_ in new.items() if name == "member-subnet-id"}
        await self._networks.check(of, member_subnet)
        name = "default-tls-container-ref"
        # Barbican's containers bear no marks.
        if name in new and (no := refusal((), of.ref, self._tenants, (new[name],))):
            raise InvalidRequest(f"annotation {PREFIX}{name}: {no}")

    async def _take(self, step: Step, id_: str, tags: Sequence[str], turn: Turn) -> None:
        """Take a step, unless Octavia works on the load balancer after all."""
        try:
            with turn.change(id_):
                await self._octavia.take(step, id_, tags)
        except Refused as error:
            if not is_immutable(error):
                raise

    def _pending(self, ref: LoadBalancerRef, reason: str, *, is_waiting: bool) -> Pending:
        """Ask again: soon after a step, and the longer nothing happens the later."""
        waited = self._waited.get(ref.uid, 0) if is_waiting else 0
        self._waited[ref.uid] = waited + 1
        return Pending(PACE[min(waited, len(PACE) - 1)], reason)

    def _place(self, of: LoadBalancer, asked: Says, family: str, subnet: str) -> dict[str, object]:
        """What stays as it was made."""
        requested = of.requested_address
        is_own = bool(requested) and wishes.version_of(requested) == family and asked.internal
        found = {
            "provider": self._settings.lb_provider,
            "vip_port_id": asked.port_id,
            "vip_subnet_id": "" if asked.port_id else subnet,
            "vip_network_id": "" if asked.port_id or subnet else asked.network_id,
            "vip_address": requested if is_own else "",
            "flavor_id": asked.flavor_id,
            "availability_zone": asked.availability_zone,
        }
        return {name: value for name, value in found.items() if value}

    def _ingress(self, asked: Says, address: str) -> LoadBalancerIngress:
        if asked.hostname:
            return LoadBalancerIngress(hostname=asked.hostname)
        if asked.proxy and self._settings.enable_ingress_hostname:
            name = address.replace(":", "-")
            suffix = self._settings.ingress_hostname_suffix
            return LoadBalancerIngress(hostname=f"{name}.{suffix}")
        return LoadBalancerIngress(ip=address, ip_mode="Proxy" if asked.proxy else None)

    async def _one(
        self, of: LoadBalancer, asked: Says, family: str, turn: Turn
    ) -> Described | None:
        """The load balancer of a family; None if it is to be made.

        Raises:
            InvalidRequest: The Service names one that it cannot use.
        """
        every = await self._finder.found(of.ref)
        found = [one for one in every if wishes.family_of(one) == family]
        for extra in found[1:]:
            # A request without an answer had made one after all.
            if owners.is_made_for(extra, of.ref) and not owners.others(extra, (), of.ref):
                actual = await self._octavia.observe(extra, of.ref)
                step = deletion(actual, cascade=self._settings.cascade_delete)
                if step is not None and not isinstance(step, Wait | Broken) and not actual.others:
                    await self._take(step, actual.id, (), turn)
        named = await self._finder.named(of, asked, every)
        if named is not None:
            return named if wishes.family_of(named) == family else None
        return found[0] if found else None


def is_needed(described: Described, actual: Balancer, ref: LoadBalancerRef) -> bool:
    """Whether a load balancer stays when the Service goes.

    One that was made for another Service goes with the last that leaves it. Parts of old managers
    bear no tags, so any listener that is left may be another's.
    """
    if actual.others:
        return True
    is_left = not actual.taken and owners.is_made_in(described, ref.cluster)
    return not (is_left or owners.is_made_for(described, ref))


def _is_known(of: LoadBalancer, *, is_own: bool) -> bool:
    """Whether somebody may know its address, or it was not made for the Service."""
    return bool(of.ref.last_ingress) or not is_own


def _broken(id_: str) -> CloudError:
    return CloudError(f"load balancer {id_} is in the state {ERROR}: repair or delete it")
