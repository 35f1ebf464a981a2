"""What we write to a real FRR: it takes all of it, and nothing of others is touched."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proreus.cloudprovider import ConfigError
from proreus.cloudprovider.selectors import Selector
from proreus.kube.objects import Node
from proreus.providers.local.addresses import Pool, parse_range
from proreus.providers.local.bgp import frr
from proreus.providers.local.bgp.changes import parse
from proreus.providers.local.bgp.config import BGP, Advertisement, BFDProfile, Peer
from proreus.providers.local.bgp.engine import Applied, Engine, too_old
from proreus.providers.local.bgp.vty import FRRError
from proreus.testing import objects

from .frr import FRR, one_frr

POOLS = (
    Pool(name="web", ranges=(parse_range("192.0.2.64/27"), parse_range("2001:db8::100/120"))),
    Pool(name="odd", ranges=(parse_range("192.0.2.5-192.0.2.9"),)),
)
HERE = objects.node("one", addresses=("10.9.0.11", "fd00:9::11"), labels={"rack": "a"})
ADDRESSES = [
    ip_address(text) for text in ("192.0.2.65", "192.0.2.66", "192.0.2.5", "2001:db8::101")
]
EBGP = Peer(address="10.9.0.1", as_=64513)


@pytest.fixture(scope="module")
def shared() -> Iterator[FRR]:
    with one_frr() as (found,):
        yield found


@pytest.fixture
def own() -> Iterator[FRR]:
    with one_frr() as (found,):
        yield found


def bgp(**fields: Any) -> BGP:
    return BGP(**{"as_": 64512, "peers": {"tor": EBGP}, **fields})


async def apply(
    frr_: FRR,
    settings_: BGP,
    announced: Any = ADDRESSES,
    passwords: Mapping[str, str | None] = {},
    node: Node | None = HERE,
) -> Applied:
    wanted = frr.desired(settings_, POOLS, node, announced, passwords)
    return await Engine(str(frr_.directory)).apply(wanted)


async def taken(frr_: FRR, *args: Any, **more: Any) -> None:
    """All is taken at once, and there is nothing left to do."""
    applied = await apply(frr_, *args, **more)
    assert applied.problems == ()
    again = await apply(frr_, *args, **more)
    assert (again.changed, again.problems) == ((), ())


names = st.sampled_from(["tor", "spine", "edge"])
seconds = st.integers(3, 300).map(lambda number: timedelta(seconds=number))
milliseconds = st.sampled_from([10, 50, 300, 60000]).map(lambda one: timedelta(milliseconds=one))
communities = st.lists(
    st.sampled_from(
        ["64512:1", "1:65535", "no-export", "blackhole", "65535:65282", "local-as", "no-peer",
         "65535:0", "large:64512:2:3", "large:1:2:3", "0:1"]
    ),
    max_size=5,
).map(tuple)  # fmt: skip
selectors = st.sampled_from(
    [(), (Selector(match_labels={"rack": "a"}),), (Selector(match_labels={"rack": "b"}),)]
)
addresses_of_peers = st.sampled_from(
    ["10.9.0.1", "10.9.0.2", "fd00:9::1", "203.0.113.7", "2001:DB8:0::7"]
)


@st.composite
def peers(draw: Any) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    for name in draw(st.sets(names, min_size=1)):
        as_ = draw(st.sampled_from([64512, 64513, 4200000000]))
        one = Peer(
            address=draw(addresses_of_peers),
            as_=as_,
            port=draw(st.sampled_from([179, 1790])),
            password_file=draw(st.sampled_from(["", "/a/file"])),
            hold_time=draw(seconds),
            connect_time=draw(st.sampled_from([timedelta(0), timedelta(seconds=5)])),
            ebgp_multihop=draw(st.booleans()) and as_ != 64512,
            bfd_profile=draw(st.sampled_from(["", "fast", "slow"])),
            graceful_restart=draw(st.booleans()),
            node_selectors=draw(selectors),
        )
        if one.host not in {other.host for other in found.values()}:
            found[name] = one
    return found


@st.composite
def sections(draw: Any) -> BGP:
    profile = st.builds(
        BFDProfile,
        receive_interval=milliseconds,
        transmit_interval=milliseconds,
        detect_multiplier=st.integers(2, 255),
        minimum_ttl=st.integers(1, 254),
        passive_mode=st.booleans(),
    )
    some = draw(peers())
    is_internal = any(one.as_ == 64512 for one in some.values())
    advertisement = st.builds(
        Advertisement,
        pools=st.sampled_from([(), ("web",), ("odd",)]),
        communities=communities,
        local_preference=st.sampled_from([None, 100, 200] if is_internal else [None]),
        node_selectors=selectors,
        aggregation_length_v6=st.sampled_from([128, 126, 120]),
    )
    try:
        return BGP(
            as_=64512,
            peers=some,
            bfd_profiles={"fast": draw(profile), "slow": draw(profile)},
            advertisements=draw(st.dictionaries(st.sampled_from("abc"), advertisement)),
        )
    except ConfigError:  # a preference where no peer has our AS
        return BGP(as_=64512, peers={"tor": EBGP})


secrets = st.text(
    st.sampled_from("abcXYZ019!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), min_size=1, max_size=80
)


@pytest.mark.parametrize("examples", [15, pytest.param(300, marks=pytest.mark.long)])
async def test_frr_takes_any_configuration_from_any_other(shared: FRR, examples: int) -> None:
    """Each example goes on with what the last one has left."""
    steps: list[Any] = []

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        section=sections(),
        announced=st.sets(st.sampled_from(ADDRESSES)),
        secret=secrets,
        node=st.sampled_from([HERE, HERE, HERE, None, objects.node("six", addresses=("fd00::6",))]),
    )
    def collect(section: BGP, announced: set[Any], secret: str, node: Node | None) -> None:
        steps.append((section, announced, secret, node))

    collect()
    for section, announced, secret, node in steps:
        passwords = {name: secret for name, one in section.peers.items() if one.password_file}
        await taken(shared, section, announced, passwords, node)
    await taken(shared, BGP(), ())
    left = shared.configuration()
    assert "neighbor" not in left
    assert "proreus" not in left
    assert "network 1" not in left


OPERATORS = (
    "configure terminal",
    "router bgp 64512",
    "neighbor 10.9.0.77 remote-as 65000",
    "neighbor 10.9.0.77 description core",
    "neighbor 10.9.0.77 password theirs",
    "address-family ipv4 unicast",
    "network 203.0.113.0/24",
    "neighbor 10.9.0.77 activate",
    "exit-address-family",
    "exit",
    "ip prefix-list mine seq 5 permit 203.0.113.0/24",
    "route-map mine permit 10",
    "match ip address prefix-list mine",
    "end",
)


def of_operators(shown: str) -> set[str]:
    """Of "activate" FRR shows only what is not by default, which we change."""
    lines = shown.splitlines()
    words = ("mine", "0.77", "203")
    return {one for one in lines if any(word in one for word in words) and "activate" not in one}


async def test_what_an_operator_has_configured_stays(own: FRR) -> None:
    own.commands("bgpd", *OPERATORS)
    before = of_operators(own.configuration())
    await taken(own, bgp())
    assert of_operators(own.configuration()) == before
    assert "neighbor 10.9.0.1 remote-as 64513" in own.configuration()
    await taken(own, BGP(), ())
    assert of_operators(own.configuration()) == before
    assert "10.9.0.1 " not in own.configuration()


async def test_another_as_of_an_operator_is_refused_and_stays(own: FRR) -> None:
    own.commands("bgpd", *OPERATORS)
    before = own.configuration()
    applied = await apply(own, bgp(as_=64999))
    assert "router bgp 64512, which is not ours" in applied.problems[0]
    assert own.configuration() == before


@pytest.mark.parametrize("has_ours", [False, True], ids=["theirs alone", "beside ours"])
async def test_what_an_operator_redistributes_stays_with_another_as(
    own: FRR, *, has_ours: bool
) -> None:
    """It is neither a neighbor nor a network, and went with the instance that it is in."""
    if has_ours:
        await taken(own, bgp())
    lines = ("router bgp 64512", "address-family ipv4 unicast", "redistribute connected", "end")
    own.commands("bgpd", "configure terminal", *lines)
    before = own.configuration()
    applied = await apply(own, bgp(as_=64999))
    assert "router bgp 64512, which is not ours" in applied.problems[0]
    assert own.configuration() == before


async def test_a_peer_of_an_operator_is_refused_and_stays_and_prefixes_do_not_wait(
    own: FRR,
) -> None:
    own.commands("bgpd", *OPERATORS)
    core = Peer(address="10.9.0.77", as_=64999)
    await taken(own, bgp(), ADDRESSES[:1])
    before = of_operators(own.configuration())
    applied = await apply(own, bgp(peers={"core": core, "tor": EBGP}), ADDRESSES[1:2])
    assert "10.9.0.77" in applied.problems[0]
    assert "theirs" not in repr(applied)
    shown = own.configuration()
    assert of_operators(shown) == before
    assert "network 192.0.2.65/32" not in shown
    assert "network 192.0.2.66/32" in shown
    assert "neighbor 10.9.0.1 remote-as 64513" in shown


async def test_a_network_of_an_operator_stays_and_others_do_not_wait(own: FRR) -> None:
    """FRR has one entry for a network: ours would take its place, and go with it."""
    theirs = ("address-family ipv4 unicast", "network 192.0.2.65/32", "end")
    own.commands("bgpd", *OPERATORS[:2], *theirs)
    applied = await apply(own, bgp(), ADDRESSES[:2])
    assert "192.0.2.65/32" in applied.problems[0]
    assert "network 192.0.2.65/32\n" in own.configuration()
    assert "network 192.0.2.66/32 route-map proreus-announced" in own.configuration()
    await taken(own, BGP(), ())
    assert "network 192.0.2.65/32\n" in own.configuration()


@pytest.mark.parametrize("kind", ["vrf", "view"])
async def test_a_neighbor_of_an_operator_in_another_instance_has_an_address_of_ours(
    own: FRR, kind: str
) -> None:
    """Networks apart may have the same addresses: for that there are VRFs."""
    other = f"router bgp 64512 {kind} red"
    lines = (other, "neighbor 10.9.0.1 remote-as 65000", "neighbor 10.9.0.1 password theirs", "end")
    await taken(own, bgp())
    own.commands("bgpd", "configure terminal", *lines)
    before = own.configuration()
    assert (await apply(own, bgp())) == Applied()
    assert own.configuration() == before
    await taken(own, BGP(), ())
    await taken(own, bgp())
    shown = own.configuration()
    assert shown.partition(other)[2].partition("exit\n")[0] in before
    assert shown.count("neighbor 10.9.0.1 remote-as") == 2


async def test_another_as_replaces_ours(own: FRR) -> None:
    await taken(own, bgp())
    await taken(own, bgp(as_=64600))
    assert "router bgp 64512" not in own.configuration()


async def test_a_neighbor_of_which_only_the_first_line_was_written_is_completed(own: FRR) -> None:
    lines = ("router bgp 64512", "neighbor 10.9.0.1 remote-as 64513", "end")
    own.commands("bgpd", "configure terminal", *lines)
    await taken(own, bgp())
    assert "neighbor 10.9.0.1 description proreus tor" in own.configuration()


async def test_a_peer_whose_password_cannot_be_read_stays_and_others_do_not_wait(own: FRR) -> None:
    two = bgp(peers={"tor": EBGP, "spine": Peer(address="10.9.0.2", as_=64513)})
    await taken(own, two, ADDRESSES[:1], {"tor": "secret"})
    changed = bgp(
        peers={
            "tor": Peer(address="10.9.0.1", as_=64513, port=1790),
            "spine": Peer(address="10.9.0.2", as_=64513, port=1790),
        }
    )
    await taken(own, changed, ADDRESSES[1:2], {"tor": None})
    shown = own.configuration()
    assert "neighbor 10.9.0.1 password secret" in shown
    assert "neighbor 10.9.0.1 port" not in shown
    assert "neighbor 10.9.0.2 port 1790" in shown
    assert "network 192.0.2.66/32" in shown
    assert "network 192.0.2.65/32" not in shown


async def test_an_frr_that_starts_anew_gets_everything_again(own: FRR) -> None:
    await taken(own, bgp(), passwords={"tor": "secret"})
    before = own.configuration()
    engine = Engine(str(own.directory))
    own.kill("bgpd")
    with pytest.raises(FRRError, match="start it"):
        await engine.sessions()
    with pytest.raises(FRRError, match="start it"):
        await apply(own, bgp())
    own.start("bgpd")
    assert "router bgp" not in own.configuration()
    await taken(own, bgp(), passwords={"tor": "secret"})
    assert own.configuration() == before


async def test_a_password_is_in_no_text_about_a_change_or_a_refusal(own: FRR) -> None:
    applied = await apply(own, bgp(), passwords={"tor": "s3cret-one"})
    assert "password <hidden>" in repr(applied.changed)
    refused = await apply(own, bgp(), passwords={"tor": "s3cret with spaces"})
    assert refused.problems
    assert "s3cret" not in repr(applied) + repr(refused.problems)


async def test_sessions_are_shown_by_peer(own: FRR) -> None:
    assert await Engine(str(own.directory)).sessions() == {}
    await taken(own, bgp(peers={"tor": EBGP, "six": Peer(address="FD00:9::0:1", as_=64512)}))
    found = await Engine(str(own.directory)).sessions()
    assert found.keys() == {"10.9.0.1", "fd00:9::1"}
    assert not any(one.is_up for one in found.values())


async def test_what_would_be_changed_is_told_without_changing_it(own: FRR) -> None:
    own.commands("bgpd", *OPERATORS)
    before = own.configuration()
    engine = Engine(str(own.directory))
    wanted = frr.desired(bgp(), POOLS, HERE, ADDRESSES, {"tor": "secret"})
    found = await engine.differences(wanted)
    assert "router bgp 64512 / neighbor 10.9.0.1 password <hidden>" in [
        one.text for one in found.changed
    ]
    taken_by_others = frr.desired(
        bgp(peers={"core": Peer(address="10.9.0.77", as_=65000)}), POOLS, HERE, ADDRESSES, {}
    )
    assert "10.9.0.77" in (await engine.differences(taken_by_others)).problems[0]
    assert own.configuration() == before
    assert (await engine.apply(wanted)).changed == found.changed
    assert await engine.differences(wanted) == Applied()


@pytest.mark.parametrize(
    ("first", "named"),
    [
        ("frr version 7.5.1", True),
        ("frr version 8.3", True),
        ("frr version 8.4.4", False),
        ("frr version 10.2.1-my-build", False),
        ("frr version unknown", False),
        ("router bgp 1", False),
    ],
)
def test_an_old_frr_is_named_beside_what_it_does_not_take(first: str, named: object) -> None:
    assert bool(too_old("bgpd", parse(f"{first}\nfrr defaults traditional"))) is named


async def test_the_version_is_where_a_real_frr_shows_it(shared: FRR) -> None:
    (line,) = [one for one in parse(shared.configuration()) if one[0].startswith("frr version")]
    assert too_old("bgpd", [line]) == ()
    assert too_old("bgpd", [("frr version 7.2",), line]) != ()
