"""The section `bgp` of the cloud-config, and the prefixes that come of it."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import ConfigError
from proreus.cloudprovider.config import read
from proreus.providers.local.addresses import AddressRange, Pool
from proreus.providers.local.bgp import communities, prefixes
from proreus.providers.local.bgp.config import BGP
from proreus.providers.local.bgp.frr import desired, router_id
from proreus.providers.local.config import LocalConfig
from proreus.testing import objects

POOLS = "{web: {addresses: [192.0.2.64/27, '2001:db8::100/120']}, odd: {addresses: [192.0.2.5]}}"
PEER = "{address: 10.9.0.1, as: 64513}"
INTERNAL = "{address: 10.9.0.2, as: 64512}"


def config(section: str, *, gateway: str = "{enabled: false}", pools: str = POOLS) -> LocalConfig:
    text = f"pools: {pools}\ngateway: {gateway}\nbgp: {section}\n"
    return read(text, LocalConfig, source="local.yaml")


def problems(section: str, **more: str) -> str:
    with pytest.raises(ConfigError) as raised:
        config(section, **more)
    return "\n".join(raised.value.problems)


def with_peer(fields: str) -> str:
    return f"{{as: 64512, peers: {{tor: {{address: 10.9.0.1, as: 64513, {fields}}}}}}}"


def with_advertisement(fields: str, peers: str = f"tor: {PEER}") -> str:
    return f"{{as: 64512, peers: {{{peers}}}, advertisements: {{all: {{{fields}}}}}}}"


def test_a_peer_and_our_as_are_enough() -> None:
    found = config(f"{{as: 64512, peers: {{tor: {PEER}}}}}").bgp
    assert found.peers["tor"].as_ == 64513
    assert found.announcing["default"].length(4) == 32


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{as: 64512}", "peers: give one, or take the section out"),
        (f"{{peers: {{tor: {PEER}}}}}", "as: 0 is not an AS number"),
        (f"{{as: 4294967295, peers: {{tor: {PEER}}}}}", "as: 4294967295 is not an AS number"),
        (f"{{as: 23456, peers: {{tor: {PEER}}}}}", "as: 23456 is not an AS number"),
        (f"{{as: 64512, peers: {{Tor 1: {PEER}}}}}", "peers 'Tor 1': name it with a-z"),
        (
            f"{{as: 64512, peers: {{a: {PEER}, b: {PEER}}}}}",
            "peers b address: 10.9.0.1 is that of a, too",
        ),
        ("{as: 64512, peers: {a: {address: tor, as: 1}}}", "address: 'tor' is not an IP address"),
        ("{as: 64512, peers: {a: {address: 224.0.0.1, as: 1}}}", "224.0.0.1 can be no router's"),
        ("{as: 64512, peers: {a: {address: 'fe80::1', as: 1}}}", "fe80::1 is link-local"),
        (with_peer("port: 0"), "port: 0 is not a port"),
        (with_peer("hold-time: 1s"), "hold-time: give a whole number from 3s to 65535s"),
        (with_peer("hold-time: 3500ms"), "hold-time: give a whole number from 3s to 65535s"),
        (with_peer("keepalive-time: 31s"), "keepalive-time: must be at most a third of hold-time"),
        (with_peer("bfd-profile: fast"), "bfd-profile: 'fast' is not there, but none"),
        (
            f"{{as: 64513, peers: {{tor: {PEER[:-1]}, ebgp-multihop: true}}}}}}",
            "ebgp-multihop: take it out, the peer has our own AS",
        ),
        (
            (
                f"{{as: 64512, peers: {{tor: {PEER}}}, bfd-profiles: {{fast: {{receive-interval: 5ms,"
                " transmit-interval: 90s, detect-multiplier: 1, minimum-ttl: 255}}}"
            ),
            "receive-interval: give a whole number from 10ms to 60000ms",
        ),
        (
            f"{{as: 64512, peers: {{tor: {PEER}}}, communities: {{x: '1:2:3'}}}}",
            "communities x: '1:2:3' is not a community",
        ),
        (with_advertisement("peers: [no]"), "peers: 'no' is not there, but tor"),
        (with_advertisement("pools: [no]"), "pools: 'no' is not there, but web, odd"),
        (with_advertisement("communities: [no]"), "communities: 'no' is not a community"),
        (with_advertisement("local-preference: 1"), "no peer of it has our own AS"),
        (
            with_advertisement("local-preference: 4294967296", f"i: {INTERNAL}"),
            "local-preference: give 0 to 4294967295",
        ),
        (with_advertisement("aggregation-length: 33"), "aggregation-length: give 1 to 32"),
        (with_advertisement("aggregation-length-v6: 0"), "aggregation-length-v6: give 1 to 128"),
        (
            with_advertisement("aggregation-length: 26, pools: [web]"),
            "aggregation-length: 192.0.2.64/26 holds addresses that are not of the pool web",
        ),
        (
            with_advertisement("aggregation-length: 31, pools: [odd]"),
            "aggregation-length: 192.0.2.4/31 holds addresses that are not of the pool odd",
        ),
        (
            (
                f"{{as: 64512, peers: {{i: {INTERNAL}}}, advertisements:"
                " {a: {local-preference: 1}, b: {local-preference: 2, communities: [no-export]}}}"
            ),
            "advertisements a, b local-preference: is different for the same prefixes and peers",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(section: str, words: str) -> None:
    assert words in problems(section)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gateway": "{}"}, "gateway enabled: set it to false"),
        ({"pools": "{}"}, "pools: give one, whose addresses bgp announces"),
    ],
)
def test_the_rest_of_the_cloud_config_must_fit(more: dict[str, str], words: str) -> None:
    assert words in problems(f"{{as: 64512, peers: {{tor: {PEER}}}}}", **more)


@pytest.mark.parametrize(
    "advertisements",
    [
        "{a: {local-preference: 1, pools: [web]}, b: {local-preference: 2, pools: [odd]}}",
        "{a: {local-preference: 1, peers: [i]}, b: {local-preference: 2, peers: [j]}}",
        "{a: {local-preference: 1}, b: {local-preference: 1}}",
        (
            "{a: {local-preference: 1, node-selectors: [{matchLabels: {a: b}}]},"
            " b: {local-preference: 2}}"
        ),
        (
            "{a: {local-preference: 1, pools: [web], aggregation-length-v6: 120},"
            " b: {local-preference: 2, aggregation-length: 28, pools: [web]}}"
        ),
    ],
)
def test_preferences_may_differ_by_pool_peer_node_and_length(advertisements: str) -> None:
    peers = f"{{i: {INTERNAL}, j: {{address: 10.9.0.3, as: 64512}}}}"
    config(f"{{as: 64512, peers: {peers}, advertisements: {advertisements}}}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("64512:100", "64512:100"),
        ("0064512:0100", None),
        ("0:1", "0:1"),
        ("65535:65281", "no-export"),
        ("NO-EXPORT", "no-export"),
        ("local-as", "local-AS"),
        ("65535:666", "blackhole"),
        ("65535:0", "graceful-shutdown"),
        ("large:4294967295:1:2", "4294967295:1:2"),
        ("65536:1", None),
        ("1:65536", None),
        ("large:4294967296:1:2", None),
        ("1:2:3", None),
        ("65535:3", None),
        ("0:0", None),
        ("internet", None),
        ("1:2 additive", None),
        ("1:2\nexit", None),
        ("", None),
    ],
)
def test_communities_are_read_and_shown_as_by_frr(text: str, shown: str | None) -> None:
    if shown is None:
        with pytest.raises(ValueError, match=r"community|take it out"):
            communities.parse_community(text)
    else:
        assert communities.parse_community(text).text == shown


def test_a_number_of_yaml_that_could_be_of_base_60_is_a_community() -> None:
    found = config(with_advertisement("communities: [64512:10, 1:59]")).bgp.announcing["all"]
    assert found.communities == ("64512:10", "1:59")


numbers = st.integers(0, 511)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), st.integers(24, 32))
def test_prefixes_of_a_pool_hold_its_addresses_and_no_others(
    ends: list[tuple[int, int]], length: int
) -> None:
    """By counting them all out, in 10.0.0.0/23."""
    base = int(ip_address("10.0.0.0"))
    own: set[int] = set()
    ranges = []
    for first, last in (sorted(pair) for pair in ends):
        if own.isdisjoint(range(first, last + 1)):
            own |= set(range(first, last + 1))
            ranges.append(AddressRange(ip_address(base + first), ip_address(base + last)))
    pool = Pool(name="some", ranges=tuple(ranges))
    needed = {prefixes.prefix(ip_address(base + one), length) for one in own}
    held = {int(one) - base for prefix in needed for one in prefix}
    stray = prefixes.strays(pool, 4, length)
    assert (stray is None) == (held == own)
    if stray is None:
        pieces = list(prefixes.pieces(pool, 4, length))
        assert all(one.prefixlen <= length for one, _ in pieces)
        assert {int(each) - base for one, _ in pieces for each in one} == own
        assert all(is_exact == (one.prefixlen == length) for one, is_exact in pieces)
    else:
        assert stray in needed
    assert prefixes.strays(pool, 6, 64) is None


def test_an_advertisement_is_told_its_peers_by_their_nodes_with_its_attributes() -> None:
    section = config(
        f"{{as: 64512, peers: {{tor: {PEER}, i: {INTERNAL}}}, advertisements: {{"
        "all: {pools: [web], communities: ['64512:7', 'large:1:2:3'], local-preference: 300},"
        "wide: {pools: [web], aggregation-length: 27, aggregation-length-v6: 120, peers: [tor]},"
        "elsewhere: {pools: [odd], node-selectors: [{matchLabels: {rack: b}}]}}}"
    )
    found = lines(section.bgp, section.address_pools)
    assert "network 192.0.2.65/32 route-map proreus-announced" in found
    assert "network 192.0.2.64/27 route-map proreus-announced" in found
    assert "network 2001:db8::100/120 route-map proreus-announced" in found
    assert not any("192.0.2.5/32" in one for one in found)
    assert found.count("set community 64512:7") == 4  # both families of both peers
    assert found.count("set large-community 1:2:3") == 4
    assert found.count("set local-preference 300") == 2  # the peer of our AS only
    assert any(one.endswith("permit 192.0.2.64/27 ge 32") for one in found)
    assert any(one.endswith("permit 192.0.2.64/27") for one in found)


def lines(bgp: BGP, pools: Any) -> list[str]:
    node = objects.node("one", addresses=("10.9.0.11", "fd00:9::11"), labels={"rack": "a"})
    announced = [ip_address(one) for one in ("192.0.2.65", "192.0.2.5", "2001:db8::101")]
    return [one[-1] for one in desired(bgp, pools, node, announced, {}).bgpd]


def test_prefixes_of_ipv6_are_not_told_by_a_node_without_ipv6() -> None:
    section = config(f"{{as: 64512, peers: {{tor: {PEER}}}}}")
    node = objects.node("one", addresses=("10.9.0.11",))
    found = desired(section.bgp, section.address_pools, node, [], {}).bgpd
    families = {one[1] for one in found if len(one) > 2 and "neighbor" in one[2]}
    assert families == {"address-family ipv4 unicast"}


def test_routers_are_told_apart_by_the_address_or_the_name_of_the_node() -> None:
    assert router_id(objects.node("one", addresses=("fd00::1", "10.9.0.11"))) == "10.9.0.11"
    six = {router_id(objects.node(name, addresses=("fd00::1",))) for name in ("one", "two")}
    assert len(six) == 2
    assert all(ip_address(one) not in ip_network("0.0.0.0/8") for one in six)
