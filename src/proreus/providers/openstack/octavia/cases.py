"""What a Service has for one family, and what it is to have."""

from collections.abc import Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.ownership import refusal
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia import owners, wishes
from proreus.providers.openstack.octavia.annotations import PREFIX, Says
from proreus.providers.openstack.octavia.finding import Finder
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia
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
    deletion,
    plan,
)

_AT_WORK: Final = frozenset({"PENDING_CREATE", "PENDING_UPDATE"})


class Case(msgspec.Struct, frozen=True):
    """The load balancer of a family.

    Attributes:
        family: IPv4 or IPv6.
        found: As Octavia describes it; None if it is to be made.
        is_own: Whether it was made for the Service, or will be.
        wanted: What it is to be.
        actual: What there is of it; None if it is to be made.
        tags: Of the parts that are made.
        subnet: Where it stands; "" if only a network or a port is given.
        members: The subnet of its members.
    """

    family: str
    found: Described | None
    is_own: bool
    wanted: Balancer
    actual: Balancer | None
    tags: tuple[str, ...]
    subnet: str
    members: str


class Cases:
    """Finds them, and says what is next; it only reads."""

    def __init__(self, octavia: Octavia, networks: Networks, config: OpenStackConfig) -> None:
        """Ask Octavia and Neutron; work as the cloud-config says."""
        self._octavia = octavia
        self._networks = networks
        self._settings = config.load_balancer
        self._tenants = config.tenants
        self._finder = Finder(octavia, networks, config)

    async def found(self, ref: LoadBalancerRef, family: str = "") -> list[Described]:
        """All load balancers that a Service uses, or those of a family; the oldest first.

        Raises:
            CloudError: The services do not tell.
        """
        every = await self._finder.found(ref)
        return [one for one in every if not family or wishes.family_of(one) == family]

    async def of(
        self,
        of: LoadBalancer,
        asked: Says,
        family: str,
        every: Sequence[Described],
        *,
        at_work: bool = False,
    ) -> Case:
        """That of a family.

        Args:
            of: The framework's wish.
            asked: What annotations and cloud-config ask.
            family: IPv4 or IPv6.
            every: All that the Service uses.
            at_work: Look at what Octavia works on as if it had ended.

        Raises:
            InvalidRequest: The Service names what it cannot have.
            CloudError: The services do not tell.
        """
        found = await self._choose(of, asked, family, every)
        is_own = found is None or owners.is_made_for(found, of.ref)
        if found is None:
            await self._check_place(of, asked)
            subnet = await self._networks.subnet(of, asked, family)
        else:
            subnet = str(found.get("vip_subnet_id") or "")
        members = await self._networks.member_subnet(asked, family, subnet)
        provider = self._settings.lb_provider
        wanted = wishes.wish(of, asked, family, provider=provider, member_subnet=members)
        tags = owners.of_parts(of.marks, of.ref)
        actual = None
        if found is None:
            placed = self._place(of, asked, family, subnet)
            wanted = msgspec.structs.replace(wanted, placed=placed)
        else:
            shown = found
            if at_work and found.get("provisioning_status") in _AT_WORK:
                shown = {**found, "provisioning_status": ACTIVE}
            actual = await self._octavia.observe(shown, of.ref)
            on_it = tags if is_own else owners.of_sharer(of.marks, of.ref)
            labels = {"tags": owners.with_tags(found, on_it, of.ref)}
            fields = {**wanted.fields, **labels} if is_own else labels
            wanted = msgspec.structs.replace(wanted, fields=fields)
        return Case(family, found, is_own, wanted, actual, tags, subnet, members)

    async def next(
        self, of: LoadBalancer, asked: Says, case: Case, actual: Balancer | None
    ) -> tuple[Step | None, Balancer | None]:
        """The next step, and what has been seen until then.

        Raises:
            InvalidRequest: It makes something that the Service may not have.
            CloudError: It cannot be.
        """
        while True:
            step = plan(
                case.wanted,
                actual,
                at_once=not self._settings.provider_requires_serial_api_calls,
                cascade=self._settings.cascade_delete,
                is_known=bool(of.ref.last_ingress) or not case.is_own,
            )
            if not isinstance(step, Look) or actual is None:
                break
            actual = await self._octavia.look(actual, step.pool)
        id_ = actual.id if actual is not None else ""
        if isinstance(step, Broken):
            raise broken(id_)
        if isinstance(step, Taken):
            raise InvalidRequest(
                f"port {step.port}/{step.transport} of load balancer {id_} is taken by another"
                " listener"
            )
        if isinstance(step, MakeBalancer | MakeListener | MakePool | SetMembers | Change):
            await self._check_parts(of, asked, actual)
        return step, actual

    async def surplus(self, found: Sequence[Described], ref: LoadBalancerRef) -> list[Balancer]:
        """Those of a family that are too many: a request without an answer had made one after all.

        Raises:
            CloudError: Octavia does not tell.
        """
        extras = [
            await self._octavia.observe(one, ref)
            for one in found[1:]
            if owners.is_made_for(one, ref) and not owners.others(one, (), ref)
        ]
        return [one for one in extras if not one.others]

    def undoing(self, actual: Balancer) -> Step | None:
        """The next step to delete one; None if there is none."""
        return deletion(actual, cascade=self._settings.cascade_delete)

    async def _choose(
        self, of: LoadBalancer, asked: Says, family: str, every: Sequence[Described]
    ) -> Described | None:
        """The load balancer of a family; None if it is to be made."""
        found = [one for one in every if wishes.family_of(one) == family]
        named = await self._finder.named(of, asked, list(every))
        if named is not None:
            return named if wishes.family_of(named) == family else None
        return found[0] if found else None

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

    async def _check_parts(self, of: LoadBalancer, asked: Says, actual: Balancer | None) -> None:
        """Refuse parts that name what the Service may not, unless it has such parts already."""
        new = wishes.new_parts(asked, actual)
        member_subnet = {name: id_ for name, id_ in new.items() if name == "member-subnet-id"}
        await self._networks.check(of, member_subnet)
        name = "default-tls-container-ref"
        # Barbican's containers bear no marks.
        if name in new and (no := refusal((), of.ref, self._tenants, (new[name],))):
            raise InvalidRequest(f"annotation {PREFIX}{name}: {no}")

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


def broken(id_: str) -> CloudError:
    """What to say of a load balancer in an error."""
    return CloudError(f"load balancer {id_} is in the state {ERROR}: repair or delete it")
