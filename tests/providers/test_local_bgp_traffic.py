"""Routers learn from nodes where addresses are: with real FRRs on all, and real traffic."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import pytest

from proreus.cloudprovider.selectors import Selector
from proreus.providers.local.bgp import frr
from proreus.providers.local.bgp.config import BGP, Advertisement, BFDProfile, Peer
from proreus.providers.local.bgp.engine import Engine
from proreus.testing import objects
from proreus.testing.waiting import until

from .bgp_fabric import PATIENCE, POOLS, ROUTER, SHOP, WEB, WEB6, Fabric
from .traffic import NODES

LONG_HOLD = timedelta(hours=5)


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with ExitStack() as stack:
        yield Fabric(stack)


def section(*, peer: Mapping[str, Any] = {}, **fields: Any) -> BGP:
    tor = Peer(**{"address": ROUTER, "as_": 64513, "connect_time": timedelta(seconds=1), **peer})
    return BGP(**{"as_": 64512, "peers": {"tor": tor}, **fields})


async def speak(
    fabric: Fabric,
    node: str,
    bgp: BGP,
    announced: Iterable[str],
    passwords: Mapping[str, str | None] = {},
) -> None:
    here = objects.node(node, addresses=NODES[node], labels={"name": node})
    wanted = frr.desired(bgp, POOLS, here, [*map(ip_address, announced)], passwords)
    applied = await Engine(str(fabric.frrs[node].directory)).apply(wanted)
    assert applied.problems == ()


async def hears(fabric: Fabric, node: str, *, peer: str = ROUTER) -> None:
    engine = Engine(str(fabric.frrs[node].directory))

    async def is_up() -> bool:
        found = (await engine.sessions()).get(peer)
        return found is not None and found.is_up

    await until(f"{node} has a session", is_up, PATIENCE)


async def begin(fabric: Fabric, **more: Any) -> None:
    for node in NODES:
        await speak(fabric, node, BGP(), ())
    fabric.route(**more)


async def test_traffic_is_spread_over_the_nodes_that_announce(fabric: Fabric) -> None:
    await begin(fabric)
    bgp = section(
        advertisements={
            "each": Advertisement(communities=("64512:7", "no-export", "large:64512:1:2")),
            "all": Advertisement(aggregation_length=27, aggregation_length_v6=120),
        }
    )
    for node in NODES:
        await speak(fabric, node, bgp, (WEB, WEB6))
    for address in (WEB, WEB6):
        fabric.sent_to(address, "one", "two")
        assert fabric.answers(address, 40).keys() == {"one", "two"}
        (path, *_) = fabric.learned(address)
        assert path["community"]["list"] == ["64512:7", "noExport"]
        assert path["largeCommunity"]["string"] == "64512:1:2"
    fabric.sent_to("192.0.2.64/27", "one", "two")
    assert fabric.hops("2001:db8::100/120") == {"one", "two"}
    assert fabric.hops(SHOP) == set()

    # A node without a pod for the Service withdraws its address, and only that.
    await speak(fabric, "one", bgp, (SHOP,))
    fabric.sent_to(WEB, "two")
    fabric.sent_to(WEB6, "two")
    fabric.sent_to(SHOP, "one")
    assert fabric.answers(WEB, 10) == {"two": 10}
    assert fabric.answers(WEB6, 10) == {"two": 10}
    assert fabric.answers(SHOP, 10) == {"one": 10}


async def test_a_session_needs_the_password_of_the_router(fabric: Fabric) -> None:
    await begin(fabric, neighbor=("password right",))
    bgp = section(peer={"password_file": "/a/file"})
    await speak(fabric, "one", bgp, (WEB,), {"tor": "right"})
    await speak(fabric, "two", bgp, (WEB,), {"tor": "wrong"})
    await hears(fabric, "one")
    fabric.sent_to(WEB, "one")
    sessions = await Engine(str(fabric.frrs["two"].directory)).sessions()
    assert not sessions[ROUTER].is_up
    await speak(fabric, "two", bgp, (WEB,), {"tor": "right"})
    fabric.sent_to(WEB, "one", "two")


async def test_bfd_notices_a_cut_cable(fabric: Fabric) -> None:
    """The sessions themselves last for hours."""
    await begin(fabric, neighbor=("bfd", "timers 3600 18000"))
    bgp = section(
        peer={"bfd_profile": "fast", "hold_time": LONG_HOLD},
        bfd_profiles={"fast": BFDProfile(detect_multiplier=5)},
    )
    for node in NODES:
        await speak(fabric, node, bgp, (WEB,))
    fabric.sent_to(WEB, "one", "two")
    engine = Engine(str(fabric.frrs["one"].directory))

    async def bfd(state: str) -> None:
        async def is_so() -> bool:
            return (await engine.sessions())[ROUTER].bfd == state

        await until(f"BFD says {state}", is_so, PATIENCE)

    await bfd("Up")
    # The other end of the cable: the router's own interface stays up.
    fabric.nodes["one"].run("ip", "link", "set", "eth0", "down")
    try:
        fabric.sent_to(WEB, "two")
        await bfd("Down")
        assert fabric.answers(WEB, 10) == {"two": 10}
    finally:
        fabric.nodes["one"].run("ip", "link", "set", "eth0", "up")
        fabric.nodes["one"].run("ip", "route", "replace", "default", "via", "10.9.0.1")
        address = f"{NODES['one'][1]}/64"
        fabric.nodes["one"].run("ip", "addr", "replace", address, "dev", "eth0", "nodad")
        fabric.nodes["one"].run("ip", "-6", "route", "replace", "default", "via", "fd00:9::1")
    fabric.sent_to(WEB, "one", "two")


@pytest.mark.long
async def test_with_graceful_restart_traffic_flows_while_frr_restarts(fabric: Fabric) -> None:
    await begin(fabric, neighbor=("graceful-restart-helper",))
    bgp = section(peer={"graceful_restart": True})
    await speak(fabric, "one", bgp, (WEB, WEB6))
    fabric.sent_to(WEB, "one")
    fabric.sent_to(WEB6, "one")
    await speak(fabric, "one", bgp, (WEB, WEB6))
    fabric.frrs["one"].kill("bgpd")

    def is_stale() -> bool:
        return all(one.get("stale") for one in fabric.learned(WEB))

    await until("the router keeps a stale path", lambda: bool(fabric.learned(WEB)) and is_stale())
    assert fabric.answers(WEB, 5) == {"one": 5}
    fabric.frrs["one"].start("bgpd")
    assert fabric.answers(WEB, 5) == {"one": 5}
    await speak(fabric, "one", bgp, (WEB,))
    await hears(fabric, "one")

    def is_fresh() -> bool:
        return bool(fabric.learned(WEB)) and not is_stale()

    while not is_fresh():
        assert fabric.answers(WEB) == {"one": 1}
    # What is not announced any more goes with the end of the restart.
    fabric.sent_to(WEB6)
    fabric.sent_to(WEB, "one")


@pytest.mark.long
async def test_without_graceful_restart_the_router_forgets_at_once(fabric: Fabric) -> None:
    await begin(fabric, neighbor=("timers 3600 18000",))
    bgp = section(peer={"hold_time": LONG_HOLD})
    for node in NODES:
        await speak(fabric, node, bgp, (WEB,))
    fabric.sent_to(WEB, "one", "two")
    fabric.frrs["one"].kill("bgpd")
    fabric.sent_to(WEB, "two")
    fabric.frrs["one"].start("bgpd")
    await speak(fabric, "one", bgp, (WEB,))
    fabric.sent_to(WEB, "one", "two")


@pytest.mark.long
async def test_local_preference_chooses_nodes_within_one_as(fabric: Fabric) -> None:
    await begin(fabric, as_=64512)
    bgp = section(
        peer={"as_": 64512},
        advertisements={
            "first": Advertisement(
                local_preference=200, node_selectors=(Selector(match_labels={"name": "one"}),)
            ),
            "others": Advertisement(local_preference=100),
        },
    )
    for node in NODES:
        await speak(fabric, node, bgp, (WEB,))
    fabric.sent_to(WEB, "one")
    await until("both are learned", lambda: len(fabric.learned(WEB)) == 2, PATIENCE)
    assert sorted(one["locPrf"] for one in fabric.learned(WEB)) == [100, 200]
    await speak(fabric, "one", bgp, ())
    fabric.sent_to(WEB, "two")


@pytest.mark.long
async def test_a_session_by_ipv6_announces_both_families(fabric: Fabric) -> None:
    await begin(fabric, of="fd00:9")
    for node in NODES:
        await speak(fabric, node, section(peer={"address": "fd00:9::1"}), (WEB, WEB6))
    fabric.sent_to(WEB6, "one", "two")
    fabric.sent_to(WEB, "one", "two")
    assert fabric.answers(WEB, 30).keys() == {"one", "two"}
    assert fabric.answers(WEB6, 30).keys() == {"one", "two"}


@pytest.mark.long
async def test_a_router_beyond_the_network_needs_ebgp_multihop(fabric: Fabric) -> None:
    """It is reached by the default route, at an address of another network of its own."""
    await begin(fabric, neighbor=("ebgp-multihop 5", "update-source 10.8.1.1"))
    far = {"address": "10.8.1.1"}
    await speak(fabric, "one", section(peer=far), (WEB,))
    await speak(fabric, "two", section(peer={**far, "ebgp_multihop": True}), (WEB,))
    fabric.sent_to(WEB, "two")
    sessions = await Engine(str(fabric.frrs["one"].directory)).sessions()
    assert not sessions["10.8.1.1"].is_up
