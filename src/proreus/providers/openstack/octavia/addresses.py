"""Gives load balancers their floating addresses, and deletes these."""

from collections.abc import Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.annotations import PREFIX, Says
from proreus.providers.openstack.octavia.floating import goes_with, is_kept, is_made_for
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.turns import Turn


class Placed(msgspec.Struct, frozen=True):
    """The load balancer of a family: as Octavia describes it, and what a Service has of it."""

    family: str
    described: Described
    actual: Balancer


class Addresses:
    """Floating addresses at the ports of load balancers."""

    def __init__(self, octavia: Octavia, networks: Networks) -> None:
        """Ask Octavia and Neutron."""
        self._octavia = octavia
        self._networks = networks

    async def ensure(self, of: LoadBalancer, asked: Says, at: "Placed", turn: Turn) -> str:
        """The address: the floating one where there is to be one.

        Raises:
            InvalidRequest: There cannot be one, or must be one.
            CloudError: Neutron refuses, or does not answer.
        """
        found, actual = at.described, at.actual
        port, address = str(found["vip_port_id"]), str(found["vip_address"])
        floating = await self._networks.at_port(port)
        is_own = floating is not None and is_made_for(floating, of.ref)
        if at.family == "IPv4" and not asked.internal:
            if floating is None:
                floating = await self._give(of, asked, found, turn)
            elif is_own:
                await self._networks.keep(floating, of.ref, kept=asked.keep)
            address = str(floating["floating_ip_address"]) if floating is not None else address
        elif floating is not None and is_own:
            if actual.others:
                raise InvalidRequest(
                    f"load balancer {actual.id} cannot become internal while other Services use it"
                )
            with turn.change(actual.id):
                await self._networks.take_away(floating)
        return address

    async def _give(
        self, of: LoadBalancer, asked: Says, found: Described, turn: Turn
    ) -> Described | None:
        """A floating address for one that has none; None if it stands in an external network."""
        external = await self._networks.external()
        if str(found.get("vip_network_id")) in external:
            return None
        if not owners.is_made_for(found, of.ref):
            # What shares it may be meant to be internal.
            raise InvalidRequest(
                f"load balancer {id_of(found)} has no floating IP, and gets none by a Service"
                " that it was not made for: give it one"
            )
        network = _floating_network(asked, external)
        with turn.change(id_of(found)):
            return await self._networks.give(of, asked, network, str(found["vip_port_id"]))

    async def delete(self, ref: LoadBalancerRef, gone: Sequence[Described], turn: Turn) -> bool:
        """Delete those that go with a Service; whether there were any.

        They are those that were made for it and by which no others are reached, and those of its
        load balancers; none that is to stay, by what was wished last or is wished now.

        Args:
            ref: The Service.
            gone: The load balancers that go with it.
            turn: In which they were read.

        Raises:
            CloudError: Neutron refuses, or does not answer.
        """
        annotations = ref.service.metadata.annotations if ref.service is not None else {}
        if annotations.get(f"{PREFIX}keep-floatingip", "").lower() == "true":
            return False
        found: dict[str, tuple[str, Described]] = {}
        ports = {str(one.get("vip_port_id")): one for one in gone}
        for one in await self._networks.made_for(ref):
            port = str(one.get("port_id") or "")
            is_used = port and port not in ports
            if is_kept(one) or (is_used and await self._octavia.balancers({"vip_port_id": port})):
                continue
            found[id_of(one)] = (id_of(ports[port]) if port in ports else "", one)
        for port, balancer in ports.items():
            at_port = await self._networks.at_port(port)
            if at_port is not None and goes_with(at_port, owners.makers(balancer), ref):
                found[id_of(at_port)] = (id_of(balancer), at_port)
        for balancer_id, one in found.values():
            with turn.change(balancer_id):
                await self._networks.take_away(one)
        return bool(found)


def _floating_network(asked: Says, external: Mapping[str, str]) -> str:
    if asked.floating.network_id:
        return asked.floating.network_id
    if len(external) == 1:
        return next(iter(external))
    names = ", ".join(sorted(external.values())) or "none"
    raise InvalidRequest(
        f"the external network is not clear ({names}): give floating-network-id in [LoadBalancer],"
        f" or the annotation {PREFIX}floating-network-id"
    )
