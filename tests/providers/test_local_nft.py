"""The gateway's state as a program of nftables, as comments, and as routes: tables and figures."""

import ipaddress
import shutil
import subprocess
from typing import Any

import msgspec
import pytest
from tests.providers.local_namespace import own_namespace

from proreus.providers.local import addresses, memo, network, nft, nft_changes
from proreus.providers.local.config import Gateway
from proreus.providers.local.network import Interface, Ways
from proreus.providers.local.nft import Program, Rule, Settings
from proreus.providers.local.plan import (
    Balancer,
    Check,
    Condition,
    Machine,
    Member,
    Pool,
    State,
    Target,
    judged,
)

SETTINGS = Settings()
GATEWAY = Gateway()
CHECK = Check(10256, "/healthz")


def state(nodes: int = 2, **changes: Any) -> State:
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    one = Balancer(
        cluster="cluster-uid",
        service="default/web",
        addresses={"IPv4": "192.0.2.1"},
        ports=(("tcp", 80), ("udp", 53)),
        ranges={"IPv4": ("0.0.0.0/0",)},
        pools={"IPv4": "key"},
    )
    return State(
        {"uid": msgspec.structs.replace(one, **changes)},
        {"key": Pool("IPv4", CHECK, tuple(Member(name) for name in names))},
        {
            name: Machine(number, {"IPv4": f"10.0.{number // 250}.{number % 250 + 1}"})
            for number, name in enumerate(names, 1)
        },
    )


def kept(program: Program) -> Program:
    """What nft shows of a program: the comments of its rules."""
    chains = {
        name: nft.Chain(tuple(Rule(one) for one in chain.comments), chain.hook)
        for name, chain in program.chains.items()
    }
    return msgspec.structs.replace(program, chains=chains)


def changed(before: State, after: State) -> list[tuple[str, str]]:
    commands = nft_changes.changes(
        nft.program(after, SETTINGS), kept(nft.program(before, SETTINGS)), "proreus"
    )
    found = []
    for command in commands:
        ((verb, things),) = command.items()
        ((kind, thing),) = things.items()
        found.append((f"{verb} {kind}", thing.get("chain") or thing["name"]))
    return list(dict.fromkeys(found))


def test_what_is_as_desired_needs_no_command() -> None:
    assert changed(state(), state()) == []
    affine = state(affinity=60)
    assert changed(affine, affine) == []


def test_a_dead_node_changes_its_pool_and_nothing_of_its_services() -> None:
    dead = judged(state(), {Target("10.0.0.2", CHECK): Condition.SILENT})
    assert changed(state(), dead) == [
        ("flush chain", "pool-key"),
        ("flush chain", "memo-pool-key"),
        ("add rule", "pool-key"),
        ("add rule", "memo-pool-key"),
    ]


@pytest.mark.parametrize("affinity", [None, 60])
def test_before_a_node_has_answered_its_needed_check_packets_are_dropped_and_not_refused(
    affinity: int | None,
) -> None:
    needed = msgspec.structs.replace(CHECK, needed=True)
    new = state(affinity=affinity)
    pool = msgspec.structs.replace(new.pools["key"], check=needed)
    new = State(new.balancers, {"key": pool}, new.machines)
    chain = "pool-key" if affinity is None else nft.service_chain("uid", "IPv4")
    one_serves = judged(new, {Target("10.0.0.2", needed): Condition.SERVING})
    none_does = judged(
        new, {Target(f"10.0.0.{last}", needed): Condition.REFUSING for last in (2, 3)}
    )

    last_rules = [
        nft.program(one, SETTINGS).chains[chain].rules[-1].expressions
        for one in (new, one_serves, none_does)
    ]

    assert [says == ({"drop": None},) for says in last_rules] == [True, False, False]


def test_a_port_more_is_one_element() -> None:
    more = state(ports=(("tcp", 80), ("tcp", 81), ("udp", 53)))
    assert changed(state(), more) == [
        ("flush chain", "memo-service-uid"),
        ("add rule", "memo-service-uid"),
        ("add element", "services4"),
    ]


@pytest.mark.skipif(not shutil.which("nft"), reason="nft is missing: apt install nftables")
def test_every_protocol_of_services_is_led_by_its_ports() -> None:
    ports = (("tcp", 80), ("udp", 80), ("sctp", 80))
    program = nft.program(state(ports=ports), SETTINGS)
    with own_namespace():
        rules = {"nftables": nft_changes.changes(program, None, "proreus")}
        subprocess.run(
            ["nft", "-j", "-f", "-"], input=msgspec.json.encode(rules), check=True, timeout=60
        )
        shown = subprocess.run(
            ["nft", "-j", "list", "table", "inet", "proreus"],
            capture_output=True,
            check=True,
            timeout=60,
        )
        observed = nft_changes.parse_program(msgspec.json.decode(shown.stdout))

    chain = nft.service_chain("uid", "IPv4")
    assert observed.elements["services4"] == {("192.0.2.1", *port): chain for port in ports}
    assert nft_changes.changes(program, observed, "proreus") == []


def test_a_new_address_leaves_the_old_one_before_it_takes_the_new_one() -> None:
    moved = changed(state(), state(addresses={"IPv4": "192.0.2.2"}))
    assert moved.index(("delete element", "services4")) < moved.index(("add element", "services4"))


def test_a_table_of_another_version_is_made_anew() -> None:
    program = nft.program(state(), SETTINGS)
    old = dict(kept(program).chains)
    old["prerouting"] = nft.Chain(hook=("filter", "prerouting", -200))
    commands = nft_changes.changes(program, msgspec.structs.replace(program, chains=old), "proreus")
    assert [*commands[0]] == ["delete"]
    assert commands[1:] == nft_changes.changes(program, None, "proreus")


@pytest.mark.parametrize("nodes", [0, 1, 200])
def test_a_new_process_reads_what_the_last_one_wrote(nodes: int) -> None:
    written = memo.written(state(nodes))
    assert memo.read(written) == state(nodes)
    assert all(len(one) <= 128 for comments in written.values() for one in comments)


@pytest.mark.parametrize("lost", ["memo-service-uid", "memo-pool-key", "memo-nodes"])
@pytest.mark.parametrize("how", ["all", "the first part", "garbage"])
def test_an_incomplete_memo_is_not_used(lost: str, how: str) -> None:
    written = dict(memo.written(state()))
    written[lost] = {"all": (), "the first part": written[lost][1:], "garbage": ("AAAA",)}[how]
    assert memo.read(written).balancers == {}


@pytest.mark.parametrize(
    ("mask", "marks", "third"),
    [(0x0FF00000, 255, 0x00300000), (0xFF, 255, 3), (0xFFF0000, 4095, 0x30000)],
)
def test_marks_are_bits_of_the_mask(mask: int, marks: int, third: int) -> None:
    assert Settings(mask=mask).marks == marks
    assert Settings(mask=mask).mark(3) == third


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name, tuple(ipaddress.ip_interface(one) for one in addresses))


LAN, NODES = interface("lan", "192.0.2.254/24"), interface("nodes", "10.0.0.1/16")


@pytest.mark.parametrize(
    ("named", "expected"),
    [((), ("lan",)), (("nodes",), ("nodes",)), (("nodes", "lan", "gone"), ("lan", "nodes"))],
)
def test_where_an_address_is_announced(named: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert network.announcing("192.0.2.1", (LAN, NODES), named) == expected


def test_an_address_in_no_network_is_announced_nowhere() -> None:
    assert network.announcing("203.0.113.1", (LAN, NODES), ()) == ()


def test_a_pool_that_reaches_out_of_every_network_is_named_with_the_remedy() -> None:
    ranges = ("192.0.2.64/27", "192.0.2.250-192.0.3.9", "203.0.113.1")
    pools = [addresses.Pool(name="web", ranges=tuple(map(addresses.parse_range, ranges)))]
    partly, wholly = network.beyond(pools, (LAN, NODES), ())
    assert "192.0.2.250-192.0.3.9 of the pool web" in partly
    assert "203.0.113.1 of the pool web" in wholly
    assert "let routers lead it here" in wholly
    assert network.beyond(pools, (LAN, NODES), ("lan",)) == (), "announced where it is to be"
    assert len(network.beyond(pools, (LAN, NODES), ("gone",))) == len(ranges)


def test_ways_are_made_before_packets_are_led_there_and_removed_after() -> None:
    desired = network.ways(state(1), (LAN, NODES), GATEWAY)["IPv4"]
    assert list(network.added("IPv4", desired, Ways(), GATEWAY)) == [
        "route add 0.0.0.0/0 via 10.0.0.2 table 7301 proto 202",
        "rule add fwmark 0x100000/0xff00000 lookup 7301 pref 7300 protocol 202",
        "route add 192.0.2.1/32 dev proreus0 proto 202",
        "neigh replace proxy 192.0.2.1 dev lan protocol 202",
    ]
    assert list(network.removed("IPv4", Ways(), desired, GATEWAY)) == [
        "neigh del proxy 192.0.2.1 dev lan",
        "route del 192.0.2.1/32 dev proreus0 proto 202",
        "rule del fwmark 0x100000/0xff00000 lookup 7301 pref 7300 protocol 202",
        "route del 0.0.0.0/0 table 7301 proto 202",
    ]
    assert not [*network.added("IPv4", desired, desired, GATEWAY)]
    assert not [*network.removed("IPv4", desired, desired, GATEWAY)]


def test_only_what_has_our_protocol_is_ours() -> None:
    rule = {"table": "7301", "fwmark": "0x100000", "protocol": "202"}
    proxy = {"dst": "192.0.2.1", "dev": "lan", "protocol": "202"}
    found = network.parse_ways(
        [rule, rule | {"protocol": "2"}, {"table": "254"}, rule | {"fwmark": "0x1"}],
        [],
        [proxy, proxy | {"dev": "nodes", "protocol": "2"}, {"dst": "192.0.2.2", "dev": "lan"}],
        GATEWAY,
        known=("192.0.2.1",),
    )
    assert found.announced == {("192.0.2.1", "lan")}
    assert found.rules == frozenset(), "the table has a rule with a wrong mark"


def test_what_another_manager_has_with_our_protocol_is_not_ours() -> None:
    """It has another device, and other routing tables."""
    route = {"dst": "default", "gateway": "10.0.0.2", "protocol": "202"}
    proxy = {"dst": "192.0.2.1", "dev": "lan", "protocol": "202"}
    found = network.parse_ways(
        [{"table": "8301", "fwmark": "0x3e900000", "protocol": "202"}],
        [
            route | {"table": "8301"},
            route | {"table": "7300"},
            route | {"table": "7301"},
            {"dst": "192.0.2.1", "dev": "second0"},
            {"dst": "192.0.2.2", "dev": "proreus0"},
        ],
        [proxy, proxy | {"dst": "192.0.2.2"}],
        GATEWAY,
    )
    assert found.rules == frozenset()
    assert found.nodes == {1: "10.0.0.2"}
    assert found.announced == {("192.0.2.2", "lan")}
    assert found.others == {("192.0.2.1", "lan")}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"ipv4/ip_forward": 1, "ipv4/conf/all/rp_filter": 0, "ipv4/conf/nodes/rp_filter": 2}, []),
        ({"ipv4/ip_forward": 0, "ipv6/conf/all/forwarding": 0}, ["net.ipv4.ip_forward=1"]),
        ({"ipv4/conf/all/rp_filter": 1}, ["net.ipv4.conf.nodes.rp_filter=2"]),
        ({"ipv4/conf/nodes/rp_filter": 1}, ["net.ipv4.conf.nodes.rp_filter=2"]),
        ({"ipv4/conf/all/rp_filter": 1, "ipv4/conf/nodes/rp_filter": 2}, []),
    ],
)
def test_settings_that_stop_traffic_are_named_with_the_remedy(
    settings: dict[str, int], names: list[str]
) -> None:
    problems = network.obstacles(state(), settings, (LAN, NODES))
    assert len(problems) == len(names)
    for problem, name in zip(problems, names, strict=True):
        assert name in problem
