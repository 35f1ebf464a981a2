"""Convert the state to an nftables program. Pure.

The table has a chain for each Service and family, for each pool and for each node:

    prerouting, output  -> balance4, balance6     for our addresses only
    balance4            -> service4-<uid>         by address, protocol and port
    service4-<uid>      counts, drops strangers  -> pool-<key>
    pool-<key>          the connection's mark, else a hash of the connection  -> node-<number>
    node-<number>       marks packet and connection: rules lead the packet to the node's table

A Service with ClientIP affinity chooses in its own chain: for each node there is a set of the
clients that it serves, which forgets them after the timeout; unknown clients are given a node by
a hash of their address. What gets no node is routed to a device that leads nowhere, and refused.

Rules are compared by their comments, which are digests of what was asked for: nft shows rules
differently from how they are given.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.providers.local import expressions as ex
from proreus.providers.local import memo
from proreus.providers.local.expressions import Json
from proreus.providers.local.plan import (
    HERE,
    Pool,
    State,
    chosen,
    digest,
    is_asking,
    keeping,
)
from proreus.providers.local.slots import slots

ALIVE: Final = "alive"
"""The set that the manager keeps filled where another gateway may take over."""
SHARED: Final = "shared"
"""The chain, without rules, by which others see that gateways share the addresses."""
PROTOCOLS: Final = MappingProxyType({"inet": ("ip", "ip6"), "arp": ("arp",)})
"""The protocols whose addresses the set holds, by the family of the table."""
FAMILY: Final = MappingProxyType({"IPv4": "4", "IPv6": "6"})

_KIND: Final = MappingProxyType({"IPv4": "ipv4_addr", "IPv6": "ipv6_addr"})
_ICMP: Final = MappingProxyType({"IPv4": "icmp", "IPv6": "ipv6-icmp"})
_EVERYWHERE: Final = frozenset({"0.0.0.0/0", "::/0"})
_SEED: Final = 0x70726F72
_RAW, _MANGLE, _AFTER_DNAT, _FILTER = -300, -150, -95, 0
_ALIVE_SET: Final[Json] = {"type": "ether_type", "flags": ["timeout"]}
_SYN: Final = 0x02
_FLAGS: Final = 0x17  # FIN, SYN, RST and ACK
_MOST_CLIENTS: Final = 65535
_BEGINNING: Final = 60  # seconds that a client may take for its second packet
_DEAD: Final = ex.match(ex.meta("protocol"), f"@{ALIVE}", "!=")
_DNAT: Final[Json] = {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}


class Rule(msgspec.Struct, frozen=True):
    """A rule of nftables: its expressions, and its comment."""

    comment: str
    expressions: tuple[Json, ...] = ()


class Chain(msgspec.Struct, frozen=True):
    """The rules of a chain; `hook` is its type, hook and priority if it is a base chain."""

    rules: tuple[Rule, ...] = ()
    hook: tuple[str, str, int] | None = None

    @property
    def comments(self) -> tuple[str, ...]:
        """The comments of the rules, by which chains are compared."""
        return tuple(rule.comment for rule in self.rules)


class Program(msgspec.Struct, frozen=True):
    """An nftables table: chains, sets with their attributes, elements by set, and counters.

    The value of an element is the chain that it leads to, or "" in a set. Elements that packets
    add are not shown.
    """

    chains: Mapping[str, Chain] = MappingProxyType({})
    sets: Mapping[str, Mapping[str, Json]] = MappingProxyType({})
    elements: Mapping[str, Mapping[tuple[str | int, ...], str]] = MappingProxyType({})
    counters: frozenset[str] = frozenset()


class Settings(msgspec.Struct, frozen=True):
    """Names and numbers of the gateway.

    `direct` says that nodes answer clients past this machine, which sees half of a connection;
    `held` that the machine answers only while the set `alive` has members, which expire; `shared`
    that it has a share of the addresses only.
    """

    table: str = "proreus"
    device: str = "proreus0"
    mask: int = 0x0FF00000
    direct: bool = False
    held: bool = False
    shared: bool = False

    @property
    def marks(self) -> int:
        """The number of nodes for which the mask has room."""
        return self.mask // self._lowest

    def mark(self, number: int) -> int:
        """Return the bits of a packet's mark that stand for the node of this number."""
        return number * self._lowest

    @property
    def _lowest(self) -> int:
        return self.mask & -self.mask


def program(state: State, settings: Settings) -> Program:
    """Return the nftables table that does what `state` says."""
    chains = dict(_base(state, settings))
    sets: dict[str, Mapping[str, Json]] = {}
    elements: dict[str, dict[tuple[str | int, ...], str]] = {}
    for family in FAMILY:
        services, addresses = f"services{FAMILY[family]}", f"addresses{FAMILY[family]}"
        sets[services] = {"type": [_KIND[family], "inet_proto", "inet_service"], "map": "verdict"}
        sets[addresses] = {"type": _KIND[family]}
        elements |= {services: {}, addresses: {}}
        if settings.direct:
            sets[f"begun{FAMILY[family]}"] = _begun_set(family)
    if settings.held:
        sets[ALIVE] = _ALIVE_SET
    for uid, one in state.balancers.items():
        for family, address in one.addresses.items():
            name = service_chain(uid, family)
            elements[f"addresses{FAMILY[family]}"][address,] = ""
            for protocol, port in one.ports:
                elements[f"services{FAMILY[family]}"][address, protocol, port] = name
            chains |= _service(state, settings, uid, family)
            sets |= _clients_sets(state, uid, family)
    for key, pool in state.pools.items():
        chains[f"pool-{key}"] = _chain(_pool_rules(state, settings, pool))
    for number in {machine.mark for machine in state.machines.values()}:
        chains[f"node-{number}"] = _chain(_node_rules(settings, number))
    for name, comments in memo.written(state).items():
        chains[name] = Chain(tuple(Rule(text, ({"continue": None},)) for text in comments))
    counters = frozenset(
        service_chain(uid, family)
        for uid, one in state.balancers.items()
        for family in one.addresses
    )
    return Program(chains, sets, elements, counters)


def silence(state: State) -> Program:
    """Return the table of the family arp that keeps a machine silent while it is not alive."""
    addresses = _addresses(state, "IPv4")
    target_field = {"payload": {"protocol": "arp", "field": "daddr ip"}}
    rules = (
        [_rule(ex.match(target_field, {"set": addresses}), _DEAD, {"drop": None})]
        if addresses
        else []
    )
    chains = {"input": _chain(rules, ("filter", "input", _FILTER))}
    return Program(chains, {ALIVE: _ALIVE_SET})


def service_chain(uid: str, family: str) -> str:
    """Return the chain of a Service, which is also the name of its counter."""
    return f"service{FAMILY[family]}-{uid}"


def _addresses(state: State, family: str) -> list[str]:
    """Return every address once; Services may share them."""
    every = (balancer.addresses.get(family) for balancer in state.balancers.values())
    return sorted({one for one in every if one})


def _rule(*expressions: Json) -> Rule:
    return Rule(digest(expressions), expressions)


def _chain(rules: Iterable[Rule], hook: tuple[str, str, int] | None = None) -> Chain:
    return Chain(tuple(rules), hook)


def _base(state: State, settings: Settings) -> Iterator[tuple[str, Chain]]:
    """Return the chains that exist without any Service."""
    alive = [ex.match(ex.meta("protocol"), f"@{ALIVE}")] if settings.held else []
    ours = [
        _rule(
            ex.match(ex.field(family, "daddr"), f"@addresses{digit}"),
            *alive,
            ex.jump(f"balance{digit}"),
        )
        for family, digit in FAMILY.items()
    ]
    # Seen from its beginning, half a connection counts as broken; from its middle, as whole.
    begins = ex.match({"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, _FLAGS]}, _SYN)
    halves = [
        _rule(ex.match(ex.field(family, "daddr"), f"@addresses{digit}"), begins, expression)
        for family, digit in FAMILY.items()
        if settings.direct
        for expression in (_noted("update", family), {"notrack": None})
    ]
    if settings.shared:
        yield SHARED, Chain()
    yield "begin", _chain(halves, ("filter", "prerouting", _RAW))
    yield "neighbours", _chain(_silent(state, settings), ("filter", "input", _FILTER))
    yield "prerouting", _chain(ours, ("filter", "prerouting", _MANGLE))
    yield "output", _chain(ours, ("route", "output", _MANGLE))
    # A machine whose own kube-proxy has taken the connection must not send it to another node.
    taken = _rule(
        _DNAT,
        {"match": {"op": "!=", "left": ex.bits("meta", settings.mask), "right": 0}},
        ex.set_mark("meta", settings.mask, 0),
    )
    yield "unmark", _chain([taken], ("filter", "prerouting", _AFTER_DNAT))
    yield "unmark-output", _chain([taken], ("route", "output", _AFTER_DNAT))
    refused = [*_refuse(settings)]
    yield "forward", _chain(refused, ("filter", "forward", _FILTER))
    yield "refuse-output", _chain([*_no_redirects(state), *refused], ("filter", "output", _FILTER))
    marks = sorted({machine.mark for machine in state.machines.values()} - {HERE})
    nodes = [(settings.mark(number), f"node-{number}") for number in marks]
    for family, digit in FAMILY.items():
        by_port = {"concat": [ex.field(family, "daddr"), ex.meta("l4proto"), ex.port("dport")]}
        # What routers say of a connection, such as that packets are too big, follows it.
        related = [
            _rule(
                ex.match(ex.meta("l4proto"), _ICMP[family]),
                ex.lead(ex.bits("ct", settings.mask), nodes),
            )
        ]
        # A client's port may have been that of another connection, which is still tracked.
        goes_on = {"match": {**begins["match"], "op": "!="}}
        unmark = ex.set_mark("ct", settings.mask, 0)
        is_begun = ex.match({"concat": _ends(family)}, f"@begun{digit}")
        forget = _rule(goes_on, is_begun, _noted("delete", family), unmark)
        services = _rule({"vmap": {"key": by_port, "data": f"@services{digit}"}})
        first = [*(related if nodes else ()), *([forget] if settings.direct else ())]
        yield f"balance{digit}", _chain([*first, services])


def _ends(family: str) -> Json:
    return [
        ex.field(family, "saddr"),
        ex.port("sport"),
        ex.field(family, "daddr"),
        ex.port("dport"),
    ]


def _begun_set(family: str) -> Json:
    ends = [_KIND[family], "inet_service"] * 2
    return {"type": ends, "flags": ["timeout"], "timeout": _BEGINNING, "size": _MOST_CLIENTS}


def _noted(op: str, family: str) -> Json:
    """Add the two ends of a connection to a set, or delete them, where only one half is seen."""
    elem = {"concat": _ends(family)}
    return {"set": {"op": op, "elem": elem, "set": f"@begun{FAMILY[family]}"}}


def _silent(state: State, settings: Settings) -> Iterator[Rule]:
    """Drop Neighbor Solicitations for our IPv6 addresses while this machine is not alive."""
    addresses = _addresses(state, "IPv6")
    if settings.held and addresses:
        asks = ex.match({"payload": {"protocol": "icmpv6", "field": "type"}}, "nd-neighbor-solicit")
        target_field = {"payload": {"base": "th", "offset": 64, "len": 128}}
        numbers = [f"{int(ipaddress.IPv6Address(address)):#x}" for address in addresses]
        yield _rule(asks, ex.match(target_field, {"set": numbers}), _DEAD, {"drop": None})


def _refuse(settings: Settings) -> Iterator[Rule]:
    # What this machine sends itself still seems to go to the device when it got another way.
    outward = ex.match(ex.meta("oifname"), settings.device)
    lost = (outward, ex.match(ex.bits("meta", settings.mask), 0))
    yield _rule(outward, _DNAT, {"accept": None})
    if settings.held:
        # Clients that still send here wait for the next gateway; a refusal would end connections.
        yield _rule(*lost, _DEAD, {"drop": None})
    yield _rule(*lost, ex.match(ex.meta("l4proto"), "tcp"), {"reject": {"type": "tcp reset"}})
    yield _rule(*lost, {"reject": {"type": "icmpx", "expr": "port-unreachable"}})


def _no_redirects(state: State) -> Iterator[Rule]:
    """Drop redirects, so that clients do not send to a node directly."""
    addresses = _addresses(state, "IPv4")
    if addresses:
        # The address is within the packet that the redirect quotes, behind eight bytes of ICMP.
        quoted = {"payload": {"base": "th", "offset": (8 + 16) * 8, "len": 32}}
        numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
        redirect = ex.match({"payload": {"protocol": "icmp", "field": "type"}}, "redirect")
        yield _rule(redirect, ex.match(quoted, {"set": numbers}), {"drop": None})


def _service(
    state: State, settings: Settings, uid: str, family: str
) -> Iterator[tuple[str, Chain]]:
    one = state.balancers[uid]
    name = service_chain(uid, family)
    rules = [_rule({"counter": name})]
    ranges = one.ranges.get(family, ())
    if not ranges:
        rules.append(_rule({"drop": None}))
    elif not _EVERYWHERE & set(ranges):
        allowed = {"set": [ex.prefix(cidr) for cidr in ranges]}
        rules.append(_rule(ex.match(ex.field(family, "saddr"), allowed, "!="), {"drop": None}))
    if one.affinity is None:
        yield name, _chain([*rules, _rule(ex.goto(f"pool-{one.pools[family]}"))])
        return
    pool = state.pools[one.pools[family]]
    clients = _clients(state, uid, family)
    source = ex.field(family, "saddr")
    rules += _kept(state, settings, pool)
    rules += [
        _rule(ex.match(source, f"@{set_}"), ex.goto(f"to-{set_}")) for set_ in clients.values()
    ]
    rules += _hashed(source, [f"to-{clients[node]}" for node in slots(tuple(clients))])
    yield name, _chain([*rules, *_postponed(pool)])
    for node, set_ in clients.items():
        elem = {"elem": {"val": source, "timeout": one.affinity}}
        remembered = _rule({"set": {"op": "update", "elem": elem, "set": f"@{set_}"}})
        yield f"to-{set_}", _chain([remembered, _rule(ex.goto(_node(state, node)))])


def _clients(state: State, uid: str, family: str) -> dict[str, str]:
    """Return the set of clients of each node that gets new connections."""
    pool = state.pools[state.balancers[uid].pools[family]]
    prefix = f"clients{FAMILY[family]}-{uid}"
    return {node: f"{prefix}-{digest(node)}" for node in chosen(pool)}


def _clients_sets(state: State, uid: str, family: str) -> Mapping[str, Mapping[str, Json]]:
    if state.balancers[uid].affinity is None:
        return {}
    kind = {"type": _KIND[family], "flags": ["timeout"], "size": _MOST_CLIENTS}
    return dict.fromkeys(_clients(state, uid, family).values(), kind)


def _pool_rules(state: State, settings: Settings, pool: Pool) -> Iterator[Rule]:
    yield from _kept(state, settings, pool)
    whose = {"concat": [ex.field(pool.family, "saddr"), ex.port("sport")]}
    yield from _hashed(whose, [_node(state, node) for node in slots(chosen(pool))])
    yield from _postponed(pool)


def _kept(state: State, settings: Settings, pool: Pool) -> Iterator[Rule]:
    """Keep connections on the node that they have."""
    marks = {state.machines[node].mark for node in keeping(pool)} - {HERE}
    if marks:
        nodes = [(settings.mark(number), f"node-{number}") for number in sorted(marks)]
        yield _rule(ex.lead(ex.bits("ct", settings.mask), nodes))


def _postponed(pool: Pool) -> Iterator[Rule]:
    """Drop new connections without a refusal, so that clients send them again."""
    if is_asking(pool):
        yield _rule({"drop": None})


def _hashed(whose: Json, chains: Sequence[str]) -> Iterator[Rule]:
    if chains:
        key = {"jhash": {"mod": len(chains), "seed": _SEED, "expr": whose}}
        yield _rule(ex.lead(key, list(enumerate(chains))))


def _node_rules(settings: Settings, number: int) -> Iterator[Rule]:
    if number != HERE:
        yield _rule(ex.set_mark("meta", settings.mask, settings.mark(number)))
        yield _rule(ex.set_mark("ct", settings.mask, settings.mark(number)))
    yield _rule({"accept": None})


def _node(state: State, node: str) -> str:
    return f"node-{state.machines[node].mark}"
