"""Give load balancers their floating IPs, and delete these."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal

import msgspec

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef, PartChange
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.ownership import kept_by_name
from proreus.cloudprovider.steps import nothing
from proreus.cloudprovider.waits import Missed
from proreus.kube.objects import vip_addresses
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.annotations import INTERNAL, PREFIX, Options
from proreus.providers.openstack.octavia.conflicts import is_taken
from proreus.providers.openstack.octavia.desired import (
    family_of,
    of_family,
    requested_address,
    version_of,
)
from proreus.providers.openstack.octavia.floating import (
    description,
    goes_with,
    is_kept,
    is_made_for,
    owner,
)
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.turns import Turn

Find = Callable[[LoadBalancerRef], Awaitable[Sequence[Described]]]
"""Finds the load balancers of a Service."""

Check = Callable[[], Awaitable[None]]
"""Raises a CloudError where the project shows no machine of the cluster's nodes."""


class Placed(msgspec.Struct, frozen=True):
    """The load balancer of a family as Octavia describes it, with the parts that are a Service's.

    Both are None if the load balancer is to be made; then `subnet` says where, if it is known.
    """

    family: str
    described: Described | None
    observed: Balancer | None
    subnet: str = ""


class Addresses:
    """The floating IPs at the ports of load balancers."""

    def __init__(self, networks: Networks, *, internal: bool) -> None:
        """Keep the client of Neutron, and whether all load balancers are to be `internal`."""
        self._networks = networks
        self._internal = internal

    async def ensure(
        self,
        lb: LoadBalancer,
        options: Options,
        at: Placed,
        turn: Turn,
        before: Callable[[], Awaitable[None]] = nothing,
    ) -> str:
        """Return the address of a load balancer; first give it its floating IP, if it needs one.

        Raises:
            InvalidRequest: The Service asks for a floating IP where there cannot be one, or for
                none where there must be one.
            CloudError: Neutron refuses, or does not answer.
        """
        found, observed = at.described, at.observed
        if found is None or observed is None:
            raise CloudError("the load balancer is gone, so it gets no floating IP")
        floating = await self._networks.at_port(str(found["vip_port_id"]))
        address = str(found["vip_address"])
        match _decide(lb, options, at, floating):
            case "give" if (network := await self._network(lb, options, at)) is not None:
                await before()
                with turn.change(id_of(found)):
                    port, asking = str(found["vip_port_id"]), _apart(lb, found)
                    floating = await self._networks.give(asking, options, network, port)
            case "mark" if floating is not None:
                await before()
                await self._networks.describe(floating, lb.ref, kept=options.keep)
            case "free" | "take" as step if floating is not None:
                await before()
                with turn.change(observed.id):
                    if step == "free":
                        await self._networks.free(floating)
                    else:
                        await self._networks.take_away(floating)
        is_external = at.family == "IPv4" and not options.internal and floating is not None
        return str(floating["floating_ip_address"]) if is_external and floating else address

    async def has_left(
        self,
        find: Find,
        missed: Missed,
        check: Check,
        ref: LoadBalancerRef,
        error: CloudError | None = None,
    ) -> bool:
        """Tell whether the status shows an address that the Service has surely given up.

        Neutron gives it to whoever comes next. What only the status proves is not judged, nor
        anything if Octavia or Neutron does not answer. What the Service names is not given up,
        unless others have it.

        Args:
            find: Finds the load balancers of a Service.
            missed: Knows which Services have none; what is found counts as a look.
            check: Raises a CloudError where what shows nothing may be another account.
            ref: The Service.
            error: Why its load balancer is not as desired; None while Octavia works on it.
        """
        shown: dict[str, set[str]] = {}
        for ip in vip_addresses(ref.last_ingress):
            shown.setdefault(version_of(ip), set()).add(plain_address(ip))
        if not shown:
            return False
        if is_taken(error, set().union(*shown.values())):
            return True

        async def lacks() -> bool:
            every = await find(ref)
            there = {family: [one for one in every if family_of(one) == family] for family in shown}
            if not all(there.values()):
                await check()
            gone = {
                family
                for family, found in there.items()
                if missed.is_sure(of_family(ref, family), is_there=bool(found))
            }
            return await self._lacks(ref, shown, there, gone)

        return await attempt(lacks) is True

    async def _lacks(
        self,
        ref: LoadBalancerRef,
        shown: Mapping[str, Collection[str]],
        found: Mapping[str, Sequence[Described]],
        gone: Collection[str],
    ) -> bool:
        """Tell whether the Service has given up one of the addresses, by their families.

        Of the families in `gone` it surely has no load balancer where none is found.
        """
        for family, addresses in shown.items():
            there = found[family]
            is_judged = bool(there) or family in gone
            if is_judged and all(owners.is_proven(one, ref) for one in there):
                left = set(addresses) - {plain_address(str(one["vip_address"])) for one in there}
                if await self._has_given_up(ref, left, there):
                    return True
        return False

    async def _has_given_up(
        self, ref: LoadBalancerRef, left: Collection[str], there: Sequence[Described]
    ) -> bool:
        """Tell whether one of these addresses is neither a floating IP's of the Service nor named.

        Floating IPs at the ports of its load balancers (`there`) are its own, too, and none that
        somebody has attached to another port. One of IPv6 is named in vain, unless it is internal.
        """
        ports = {str(one["vip_port_id"]) for one in there}
        named = set(map(plain_address, kept_by_name(ref, self._networks.services.all())))
        if not (self._internal or _is_true(ref, INTERNAL)):
            named = {address for address in named if version_of(address) == "IPv4"}
        for address in left:
            floating = await self._networks.floating({"floating_ip_address": address})
            if (floating or address not in named) and not any(
                _may_be_used(one, ref, ports) for one in floating
            ):
                return True
        return False

    async def foresee(
        self, lb: LoadBalancer, options: Options, at: Placed
    ) -> tuple[PartChange, ...]:
        """Return what `ensure` would change.

        Raises:
            InvalidRequest: The Service asks for a floating IP where there cannot be one, or for
                none where there must be one.
            CloudError: Neutron does not answer.
        """
        floating = None
        if at.described is not None:
            floating = await self._networks.at_port(str(at.described["vip_port_id"]))
        part = "floating IP" if floating is None else f"floating IP {_address_of(floating)}"
        match _decide(lb, options, at, floating):
            case "give" if (network := await self._network(lb, options, at)) is not None:
                asking = _apart(lb, at.described)
                loose = await self._networks.loose(asking)
                if not loose:
                    await self._networks.sources(asking, options, network)
                detail = _address_of(loose[0]) if loose else lb.requested_address
                return (PartChange("create", part, detail or f"of network {network}"),)
            case "mark" if floating is not None:
                detail = "kept" if options.keep else "not kept"
                is_same = is_kept(floating) == options.keep
                return (PartChange("change", part, "marked" if is_same else detail),)
            case "free":
                return (PartChange("change", part, "attached to no port"),)
            case "take":
                return (PartChange("delete", part),)
        return ()

    async def _network(self, lb: LoadBalancer, options: Options, at: Placed) -> str | None:
        """Return the network of a new floating IP; None if the load balancer is in one already.

        Raises:
            InvalidRequest: There is no such network, or what the Service asks for is no address.
            CloudError: Neutron does not answer.
        """
        requested_address(lb)
        external = await self._networks.external()
        if at.described is not None:
            stands = str(at.described.get("vip_network_id"))
        else:
            stands = options.network_id or await self._networks.network_of(at.subnet)
        if stands in external:
            return None
        if at.described is not None and not owners.is_made_for(at.described, lb.ref):
            # What shares it may be meant to be internal.
            raise InvalidRequest(
                f"load balancer {id_of(at.described)} has no floating IP, and a Service that it"
                " was not made for cannot give it one: attach one in OpenStack"
            )
        return _floating_network(options, external)

    async def delete(self, ref: LoadBalancerRef, gone: Sequence[Described], turn: Turn) -> None:
        """Delete the floating IPs that go with a Service.

        These are the floating IPs that were made for it and are at no port but that of a load
        balancer that is deleted, and the floating IPs of these load balancers; but none that is to
        stay, by what the Service asked last or asks now.

        Args:
            ref: The Service.
            gone: The load balancers that are deleted with the Service.
            turn: The turn in which the load balancers were read.

        Raises:
            CloudError: Neutron refuses, or does not answer.
        """
        if is_to_be_kept(ref):
            return
        found: dict[str, tuple[str, Described]] = {}
        ports = {str(one.get("vip_port_id")): one for one in gone}
        for one in await self._networks.made_for(ref):
            port = str(one.get("port_id") or "")
            # At another port somebody else has attached it, or others are reached there.
            if is_kept(one) or (port and port not in ports):
                continue
            found[id_of(one)] = (id_of(ports[port]) if port in ports else "", one)
        for port, balancer in ports.items():
            at_port = await self._networks.at_port(port)
            if at_port is not None and goes_with(at_port, owners.makers(balancer), ref):
                found[id_of(at_port)] = (id_of(balancer), at_port)
        for balancer_id, one in found.values():
            with turn.change(balancer_id):
                await self._networks.take_away(one)


def _apart(lb: LoadBalancer, found: Described | None) -> LoadBalancer:
    """Return a Service as if its status did not show the virtual address of its load balancer.

    In a network apart that may be the address of another one's floating IP, too.
    """
    virtual = str(found["vip_address"]) if found is not None else ""
    points = (one for one in lb.ref.last_ingress if one.ip != virtual or not one.ip)
    ref = msgspec.structs.replace(lb.ref, last_ingress=tuple(points))
    return msgspec.structs.replace(lb, ref=ref)


def _may_be_used(floating: Described, ref: LoadBalancerRef, ports: Collection[str]) -> bool:
    """Tell whether a floating IP is at one of these ports, or at none and nobody else's."""
    if port := str(floating.get("port_id") or ""):
        return port in ports
    return owner(floating) is None or is_made_for(floating, ref)


def is_to_be_kept(ref: LoadBalancerRef) -> bool:
    """Tell whether the Service, if it still exists, asks to keep its floating IP."""
    return _is_true(ref, f"{PREFIX}keep-floatingip")


def _is_true(ref: LoadBalancerRef, annotation: str) -> bool:
    annotations = ref.service.metadata.annotations if ref.service is not None else {}
    return annotations.get(annotation, "").strip().lower() == "true"


def _decide(
    lb: LoadBalancer, options: Options, at: Placed, floating: Described | None
) -> Literal["give", "mark", "free", "take", ""]:
    """Decide what to do about the floating IP of a load balancer.

    Raises:
        InvalidRequest: The Service becomes internal, so that the floating IP would go, while other
            Services use it.
    """
    is_own = floating is not None and is_made_for(floating, lb.ref)
    if at.family == "IPv4" and not options.internal:
        if floating is None:
            return "give"
        text = description(lb.ref, kept=options.keep)
        return "mark" if is_own and floating.get("description") != text else ""
    if not is_own:
        # Given, or attached by hand: an internal Service is not to be reached from outside.
        is_exposed = floating is not None and not (at.observed is not None and at.observed.others)
        is_alone = at.described is not None and owners.is_made_for(at.described, lb.ref)
        return "free" if is_exposed and is_alone else ""
    if at.observed is not None and at.observed.others:
        raise InvalidRequest(
            f"load balancer {at.observed.id} cannot become internal while other Services use it"
        )
    return "free" if options.keep else "take"


def _address_of(floating: Described) -> str:
    return str(floating["floating_ip_address"])


def _floating_network(options: Options, external: Mapping[str, str]) -> str:
    if options.floating.network_id:
        return options.floating.network_id
    if len(external) == 1:
        return next(iter(external))
    names = ", ".join(sorted(external.values())) or "none"
    raise InvalidRequest(
        f"there is not exactly one external network ({names}): give floating-network-id in"
        f" [LoadBalancer], or the annotation {PREFIX}floating-network-id"
    )
