"""Decisions of gateways of the provider `local`: who answers for which address."""

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec
import pytest

from proreus.providers.local.gateways.plan import (
    SHARES,
    Fitness,
    Holding,
    Namesake,
    Note,
    Share,
    announced,
    configuration,
    farewell,
    fitness,
    held,
    is_news,
    key,
    namesake,
    noted,
    owners,
    priority,
    share_of,
    standing_for,
    withheld,
)

ADDRESSES = [f"192.0.2.{number}" for number in range(256)]
EVERY = frozenset(("eth0", number) for number in range(SHARES))
ONE: Share = ("eth0", 5)


def stronger(share: Share, *names: str) -> str:
    return max(names, key=lambda name: priority(name, share[1]))


def note(
    before: Note,
    shares: Collection[Share],
    seen: Mapping[str, int] = MappingProxyType({}),
    *,
    reaches: bool = True,
) -> Note:
    return noted(before, shares, seen, reaches=reaches, addresses=())


def test_addresses_are_spread_over_shares_and_shares_over_gateways() -> None:
    assert set(Counter(map(share_of, ADDRESSES)).values()) == {len(ADDRESSES) / SHARES}
    assert share_of("2001:db8::1") == share_of("2001:0db8:0::1")
    for names in (("a", "b"), ("gateway-a", "gateway-b"), ("n-1", "n-2", "n-3")):
        had = Counter(stronger(("eth0", number), *names) for number in range(SHARES))
        assert min(had.values()) > SHARES / len(names) / 2


def test_gateways_that_are_named_take_turns_and_the_others_step_in() -> None:
    names = ("a", "b", "c")
    for number in range(SHARES):
        given = {name: priority(name, number, names) for name in (*names, "new")}
        assert max(given, key=given.__getitem__) == names[number % 3]
        assert list(given.values()).count(254) == 1
    seconds = Counter(
        max(("b", "c"), key=lambda name: priority(name, number, names))
        for number in range(0, SHARES, 3)
    )
    assert min(seconds.values()) > 4, "who goes leaves its shares to all"


def test_only_the_shares_of_a_gateway_that_goes_move() -> None:
    for number in range(SHARES):
        before = stronger(("eth0", number), "a", "b", "c")
        if before != "c":
            assert stronger(("eth0", number), "a", "b") == before


def test_priorities_are_those_that_vrrp_allows() -> None:
    found = {priority(name, share) for name in "abcdefgh" for share in range(SHARES)}
    assert 1 <= min(found) <= max(found) <= 253


def test_a_share_is_held_whose_sign_the_machine_has() -> None:
    every = ["eth0", "eth1"]
    assert held([standing_for(1, 5), "192.0.2.1", "127.0.0.1"], every) == {("eth1", 5)}
    assert held([standing_for(1, 5)], ["eth0"]) == frozenset()


def test_what_is_announced_is_in_a_share_that_is_held_and_not_withheld() -> None:
    wanted = {(address, interface) for address in ADDRESSES for interface in ("eth0", "eth1")}
    mine = {each for each in wanted if (each[1], share_of(each[0])) == ONE}
    assert mine
    assert announced(wanted, (), Holding(frozenset({ONE}))) == mine
    assert announced(wanted, mine, Holding(frozenset({ONE}), frozenset({ONE}))) == frozenset()
    assert announced(wanted, mine, Holding()) == frozenset()


def test_what_is_announced_stays_so_until_vrrp_has_spoken() -> None:
    wanted = {("192.0.2.1", "eth0"), ("192.0.2.2", "eth0")}
    before = {("192.0.2.1", "eth0"), ("192.0.2.9", "eth0")}
    assert announced(wanted, before, Holding(settled=False)) == {("192.0.2.1", "eth0")}


def test_the_configuration_has_a_virtual_router_for_each_share() -> None:
    text = configuration(
        "node-1", ["eth0", "bond0.7"], first_router=128, interval=0.3, handicap="/h", farewell="/f"
    )
    assert text.count("vrrp_instance ") == 2 * SHARES
    block = text[text.index("vrrp_instance bond0.7/5 {") :].partition("\n}")[0].split("\n    ")
    assert block[1:] == [
        "state BACKUP",
        "interface bond0.7",
        "virtual_router_id 133",
        f"priority {priority('node-1', 5)}",
        "advert_int 0.3",
        "track_file {",
        "    handicap",
        "}",
        "virtual_ipaddress {",
        "    127.118.1.6/32 dev lo",
        "}",
    ]


@pytest.mark.parametrize(
    ("rounds", "is_fit"),
    [
        ([], True),
        ([(0, 0)], True),
        ([(1, 2)], True),
        ([(2, 2)], False),
        ([(2, 2), (1, 2)], False),
        ([(2, 2), (0, 2)], True),
        ([(2, 2), (0, 0)], True),
        ([(2, 2), (1, 2), (1, 2), (1, 2), (1, 2)], False),
        ([(2, 2), (1, 2), (1, 2), (1, 2), (1, 2), (1, 2)], True),
        ([(2, 2), (1, 2), (1, 2), (2, 2), (1, 2), (1, 2), (1, 2)], False),
        ([(2, 2), (1, 2), (0, 2), (1, 2)], True),
    ],
)
def test_a_gateway_is_fit_again_once_all_nodes_have_been_asked_again(
    rounds: list[tuple[int, int]], *, is_fit: bool
) -> None:
    found = Fitness()
    for second, (silent, asked) in enumerate(rounds):
        found = fitness(found, silent, asked, float(second), patience=4.0)
    assert found.is_fit is is_fit


@pytest.mark.parametrize(
    ("rounds", "is_fit"),
    [
        ([(0, 2)], True),
        ([(1, 2)], False),
        ([(1, 2), (0, 2)], True),
        ([(1, 2), (1, 2), (1, 2), (1, 2)], False),
        ([(1, 2), (1, 2), (1, 2), (1, 2), (1, 2), (1, 2)], True),
    ],
)
def test_a_gateway_without_addresses_gets_none_before_a_silent_node_has_been_asked_again(
    rounds: list[tuple[int, int]], *, is_fit: bool
) -> None:
    """Its cable was out for a moment: what it knows of nodes is from then."""
    found = Fitness()
    for second, (silent, asked) in enumerate(rounds):
        found = fitness(found, silent, asked, float(second), patience=4.0, is_idle=True)
    assert found.is_fit is is_fit


def test_a_gateway_that_leaves_others_behind_has_its_kernel_answer_no_more() -> None:
    first, test, *flushes = farewell(202, "/tmp/x/others").splitlines()
    assert first == "#!/bin/sh"
    assert test == "test -e '/tmp/x/others' || exit 0"
    assert flushes == [
        "ip neigh flush proxy protocol 202",
        "ip -6 neigh flush proxy protocol 202",
    ]


def test_a_note_counts_and_says_since_when_each_share_is_claimed() -> None:
    first = note(Note(number=7), {ONE})
    assert (first.number, first.claims) == (8, {key(ONE): 8})
    second = note(first, {ONE, ("eth0", 6)}, {"b": 3})
    assert (second.claims, second.seen) == ({key(ONE): 8, "eth0/6": 9}, {"b": 3})
    assert note(note(second, ()), {ONE}).claims == {key(ONE): 11}


def test_a_note_shows_some_addresses_and_how_many_more_there_are() -> None:
    found = noted(Note(), (), {}, reaches=True, addresses=ADDRESSES)
    assert (len(found.addresses), found.more) == (20, 236)
    assert noted(Note(), (), {}, reaches=True, addresses=["192.0.2.1"]).more == 0


def test_a_note_is_news_if_it_says_something_else() -> None:
    own = note(Note(), {ONE})
    again = note(own, {ONE}, {"b": 5})
    assert not is_news(own, again, {"b": note(Note(number=4), {("eth0", 6)})})
    assert is_news(own, note(own, ()), {})
    assert is_news(own, note(own, {ONE}, reaches=False), {})


def test_that_a_rival_is_known_is_news_to_it_once() -> None:
    own = note(Note(), {ONE})
    rival = note(Note(number=4), {ONE})
    answer = note(own, {ONE}, {"b": 5})
    assert is_news(own, answer, {"b": rival})
    assert not is_news(answer, note(answer, {ONE}, {"b": 6}), {"b": note(rival, {ONE}, {"a": 2})})


def played(first: str, second: str, **reaching: bool) -> tuple[bool, bool]:
    """`second` becomes master, too; whether each withholds the share once both have read."""
    old = note(Note(), {ONE}, reaches=reaching.get(first, True))
    new = note(Note(), {ONE}, {first: old.number}, reaches=reaching.get(second, True))
    assert not withheld(second, new, {first: old}, {ONE}), "it may be dead"
    answer = note(old, {ONE}, {second: new.number}, reaches=reaching.get(first, True))
    reply = note(new, {ONE}, {first: answer.number}, reaches=reaching.get(second, True))
    return (
        bool(withheld(first, answer, {second: reply}, {ONE})),
        bool(withheld(second, reply, {first: answer}, {ONE})),
    )


def test_of_two_that_do_not_hear_one_another_one_gives_way() -> None:
    strong = stronger(ONE, "a", "b")
    weak = "b" if strong == "a" else "a"
    assert played(strong, weak) == (False, True)
    assert played(weak, strong) == (True, False)


def test_where_gateways_are_named_the_one_whose_turn_it_is_does_not_give_way() -> None:
    for turn in (("a", "b"), ("b", "a")):
        owner = turn[ONE[1] % 2]
        notes = {name: note(Note(named=turn), {ONE}) for name in turn}
        for name in turn:
            other = "b" if name == "a" else "a"
            known = note(notes[other], {ONE}, {name: notes[name].number})
            given_way = withheld(name, notes[name], {other: known}, {ONE})
            assert given_way == (frozenset() if name == owner else {ONE})


def test_the_one_that_reaches_nodes_does_not_give_way() -> None:
    strong = stronger(ONE, "a", "b")
    weak = "b" if strong == "a" else "a"
    assert played(strong, weak, **{strong: False}) == (True, False)
    assert played(weak, strong, **{strong: False}) == (False, True)


@pytest.mark.parametrize("share", [("eth0", 6), ("eth1", 5)])
def test_what_another_one_does_not_claim_is_not_withheld(share: Share) -> None:
    own = note(Note(), {ONE})
    other = note(Note(), {share}, {"a": own.number})
    assert not withheld("a", own, {"b": other}, {ONE})
    assert not withheld("a", note(own, ()), {"b": note(other, {ONE}, {"a": 9})}, {ONE})


def test_owners_are_those_who_claim_and_do_not_give_way() -> None:
    address = next(one for one in ADDRESSES if share_of(one) == ONE[1])
    other = next(one for one in ADDRESSES if share_of(one) == 6)
    both = {name: note(Note(), {ONE}) for name in ("a", "b")}
    assert owners([address, other], both, "c") == {address: stronger(ONE, "a", "b")}
    for name in both:
        assert owners([address], both, name) == {address: name}, "the other one may be dead"
    apart = {"a": note(Note(), {ONE}), "b": note(Note(), {("eth1", 5)})}
    assert owners([address], apart, "a") == {address: "a and b"}
    blind = {**both, "a": msgspec.structs.replace(both["a"], reaches=False)}
    assert owners([address], blind, "c") == {address: "b"}


@pytest.mark.parametrize("claim", ["", "eth0", "eth0/", "eth0/x", "eth0/-1", "eth0/64", "eth0/²"])
def test_a_claim_that_names_no_share_is_none(claim: str) -> None:
    """A note may be of another version, or edited by hand."""
    address = next(one for one in ADDRESSES if share_of(one) == ONE[1])
    notes = {"a": note(Note(), {ONE}), "b": Note(number=1, claims={claim: 1})}
    assert owners([address], notes, "c") == {address: "a"}


def after(*shown: Note | None, own: int = 1, pause: float = 5.0) -> Namesake:
    """What is known of a namesake once the board has shown these notes, one after the other."""
    found, now = Namesake(), 100.0
    for one in shown:
        found = namesake(found, Note(number=own, by="us"), one, now, 15.0)
        now += pause
    return found


def theirs(number: int) -> Note:
    return Note(number=number, by="them")


OURS = Note(number=1, by="us")


def test_who_goes_on_writing_under_our_name_is_a_namesake() -> None:
    assert after(theirs(5), OURS, theirs(6), OURS, theirs(7)).is_there
    assert after(theirs(5), theirs(6), theirs(7), OURS).is_there, "ours was seen last"
    assert after(theirs(5), OURS, Note(number=6), None, Note(number=7)).is_there, "an old version"


def test_what_the_last_process_has_left_is_no_namesake() -> None:
    assert not after(*[theirs(5)] * 20).is_there
    assert not after(theirs(5), theirs(6), OURS).is_there, "it was about to end"
    assert not after(*map(theirs, range(20)), own=0).is_there, "we have posted nothing yet"
    assert not after(OURS, Note(number=2, by="us"), None).is_there
    assert noted(OURS, (), {}, reaches=True, addresses=()).by == "us"


def test_a_namesake_that_is_silent_for_a_while_is_forgotten() -> None:
    notes = [theirs(5), theirs(6), theirs(7)]
    assert after(*notes, OURS, OURS).is_there
    assert not after(*notes, OURS, OURS, OURS, OURS).is_there
    assert not after(*notes, *[theirs(7)] * 4).is_there, "its last note is no news"
    assert not after(*notes, *[OURS] * 4, theirs(7)).is_there
