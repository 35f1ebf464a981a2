"""Find the parts of single Services among those of all, each list gone through once. Pure."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.balancers import listed
from proreus.providers.azure.balancing.desired import base_of, ports_by_protocol
from proreus.providers.azure.balancing.documents import named_id
from proreus.providers.azure.balancing.parts import State
from proreus.providers.azure.machines import Resource, part, properties

_FRONTENDS = "frontendIPConfigurations"
_RULES = "loadBalancingRules"
_KINDS = (_RULES, "inboundNatRules", "inboundNatPools")
_LAST = 65535
_OF_SERVICE = re.compile(r"a[0-9a-f]{31}")
"""The beginning of the names of a Service's parts, which have its UID."""


class Opened(msgspec.Struct, frozen=True):
    """A port that a rule of a load balancer leads to: whose, and Azure's word for the protocol.

    Of the port at which clients come, `pool` is the id of the pool that the rule leads to, and
    `end` the last port of a rule for several, of which `port` is the first.
    """

    base: str
    protocol: str
    port: int
    pool: str = ""
    end: int = 0

    def has(self, protocol: str, number: int) -> bool:
        """Tell whether clients come by the rule at a port; SCTP stands for all protocols."""
        is_same = self.protocol == protocol or "*" in {self.protocol, protocol}
        return is_same and self.port <= number <= max(self.port, self.end)


class Index(msgspec.Struct, frozen=True):
    """An index of the parts of Services; a `base` is the beginning of the names of a Service's.

    Attributes:
        frontends: The load balancer, name and address of each frontend, by base.
        used: The addresses of the frontends that the Service's rules use, by base.
        ports: The ports of rules that lead to the address of their frontend, by address.
        asked: The ports at which clients come to rules, wherever these lead, by address.
        node_ports: The ports of rules that lead to nodes' own addresses.
        by_user: The public addresses by the Services that the official tag names.
        by_owner: The public addresses by the UID of the Service that they were made for.
        by_hand: The ports of rules whose names are not those of a Service's, by address.
    """

    frontends: Mapping[str, list[tuple[str, str, str]]]
    used: Mapping[str, set[str]]
    ports: Mapping[str, list[Opened]]
    asked: Mapping[str, list[Opened]]
    node_ports: list[Opened]
    by_user: Mapping[str, list[Resource]]
    by_owner: Mapping[str, list[Resource]]
    by_hand: Mapping[str, list[Opened]]

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of all frontends that have one."""
        every = (address for found in self.frontends.values() for _, _, address in found)
        return frozenset(filter(None, every))

    def reached(self, base: str) -> set[str]:
        """Return the addresses of a Service's frontends, and of those that its rules use."""
        own = {address for _, _, address in self.frontends.get(base, ())}
        return own | self.used.get(base, set())

    def addresses_of(self, ref: LoadBalancerRef) -> list[Resource]:
        """Return the public IPs that the official tag or our mark gives to a Service."""
        found = [*self.by_user.get(ref.key, ()), *self.by_owner.get(ref.uid, ())]
        return list({str(one["id"]).lower(): one for one in found}.values())

    def others_ports(
        self, base: str, targets: Iterable[str], *, at_nodes: bool
    ) -> dict[str, frozenset[int]]:
        """Return the ports by protocol that other Services have on addresses, or on nodes."""
        opened = [one for target in targets for one in self.ports.get(target, ())]
        every = (*opened, *(self.node_ports if at_nodes else ()))
        return ports_by_protocol((one.protocol, one.port) for one in every if one.base != base)


def frontend_address(one: Resource, state: State) -> str:
    """Return the address of a frontend; "" if it has none yet."""
    public = named_id(one, "publicIPAddress")
    if public:
        return str(part(state.addresses.get(public, {}), "ipAddress") or "")
    return str(properties(one).get("privateIPAddress") or "")


def index(state: State) -> Index:
    """Make the index of all Services' parts from the observed state."""
    node_ports: list[Opened] = []
    frontends: dict[str, list[tuple[str, str, str]]] = {}
    used: dict[str, set[str]] = {}
    ports: dict[str, list[Opened]] = {}
    asked: dict[str, list[Opened]] = {}
    by_hand: dict[str, list[Opened]] = {}
    for at, balancer in state.balancers.items():
        by_name: dict[str, str] = {}
        for one in listed(balancer, _FRONTENDS):
            name, address = str(one["name"]), frontend_address(one, state)
            by_name[name.lower()] = address
            frontends.setdefault(base_of(name), []).append((at, name, address))
        for kind, rule in ((of, one) for of in _KINDS for one in listed(balancer, of)):
            base = base_of(str(rule["name"]))
            address = by_name.get(named_id(rule, "frontendIPConfiguration").rpartition("/")[2], "")
            opened, floats = _opened(base, rule)
            (ports.setdefault(address, []) if floats else node_ports).append(opened)
            if kind == _RULES:
                used.setdefault(base, set()).add(address)
                asked.setdefault(address, []).append(_reached(rule))
            if _OF_SERVICE.fullmatch(base) is None:
                by_hand.setdefault(address, []).append(_reached(rule))
    by_user: dict[str, list[Resource]] = {}
    by_owner: dict[str, list[Resource]] = {}
    for address_ in state.addresses.values():
        for user in marks.users(address_):
            by_user.setdefault(user, []).append(address_)
        own = marks.owner(address_)
        if own is not None:
            by_owner.setdefault(own.service_uid, []).append(address_)
    return Index(frontends, used, ports, asked, node_ports, by_user, by_owner, by_hand)


def _reached(rule: Resource) -> Opened:
    """Return the ports at which clients reach a rule, wherever it leads."""
    base, found = base_of(str(rule["name"])), properties(rule)
    first = int(found.get("frontendPort") or found.get("frontendPortRangeStart") or 0)
    # A rule of all ports of an internal load balancer has the number 0.
    end = int(found.get("frontendPortRangeEnd") or 0) if first else _LAST
    return Opened(base, _protocol(rule), first, named_id(rule, "backendAddressPool"), end)


def _opened(base: str, rule: Resource) -> tuple[Opened, bool]:
    """Return what a rule leads to, and whether that is the address of its frontend."""
    floats = bool(properties(rule).get("enableFloatingIP"))
    port = _reached(rule).port if floats else properties(rule).get("backendPort")
    return Opened(base, _protocol(rule), int(port or 0)), floats


def _protocol(rule: Resource) -> str:
    """Return the word of rules of the security group for the protocol of a rule."""
    protocol = str(properties(rule).get("protocol"))
    return "*" if protocol == "All" else protocol
