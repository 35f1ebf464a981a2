"""Blocks: each is given once, none is lost, and all of it is quick."""

import random
from collections import Counter
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proreus.controllers.networks import Network
from proreus.controllers.node_ipam.cidrset import Blocks, CidrSet, Claim, Range

V4 = Range(IPv4Network("10.0.0.0/16"), 24)
V6 = Range(IPv6Network("fd00::/48"), 64)
SMALL = Range(IPv4Network("10.0.0.0/21"), 24)
SMALL_V6 = Range(IPv6Network("fd00::/62"), 64)


def net(text: str) -> Network:
    return ip_network(text)


def taken(blocks: Blocks, uid: str) -> tuple[str, ...]:
    reserved = blocks.reserve(uid)
    assert isinstance(reserved, tuple)
    return tuple(map(str, reserved))


class Count:
    """Counts what the meter is told."""

    def __init__(self) -> None:
        self.used = 0
        self.tries: list[int] = []

    def changed(self, delta: int) -> None:
        self.used += delta

    def tried(self, count: int) -> None:
        self.tries.append(count)


@pytest.mark.parametrize("of", [Range(net("10.0.0.0/8"), 25), Range(net("fd00::/48"), 64)])
@pytest.mark.parametrize("allocations", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_allocations_are_all_different_while_nodes_come_and_go(of: Range, allocations: int) -> None:
    blocks, chance = Blocks([of]), random.Random(1)  # noqa: S311 - repeatable, and no secret
    most = min(of.size, allocations // 2)
    living: dict[str, str] = {}
    order: list[str] = []
    for number in range(allocations):
        if len(order) == most:
            for _ in range(most // 10):
                index = chance.randrange(len(order))
                order[index], order[-1] = order[-1], order[index]
                cidr = order.pop()
                del living[cidr]
                assert blocks.release([cidr])
        uid = f"uid-{number}"
        (cidr,) = taken(blocks, uid)
        assert cidr not in living
        assert blocks.hold(uid, [cidr]) == Claim((), ())
        living[cidr] = uid
        order.append(cidr)


def test_every_block_of_a_range_is_given_before_it_is_exhausted() -> None:
    count = Count()
    cidrs = CidrSet(V4, count)
    given_out = [cidrs.take() for _ in range(256)]
    assert set(given_out) == set(V4.cluster.subnets(new_prefix=24))
    assert cidrs.take() is None
    assert count.used == 256
    assert count.tries == [1] * 256


def test_a_block_that_is_released_is_given_again_after_all_others() -> None:
    cidrs = CidrSet(SMALL)
    first, second = cidrs.take(), cidrs.take()
    assert first is not None
    assert second is not None
    assert cidrs.release(first)
    rest = [cidrs.take() for _ in range(6)]
    assert first not in rest
    assert cidrs.take() == first
    assert cidrs.take() is None


def test_the_tries_count_the_blocks_that_were_looked_at() -> None:
    count = Count()
    cidrs = CidrSet(SMALL, count)
    for index in (0, 1, 2):
        cidrs.hold(net(f"10.0.{index}.0/24"))
    assert cidrs.take() == net("10.0.3.0/24")
    for _ in range(4):
        cidrs.take()
    cidrs.release(net("10.0.2.0/24"))
    assert cidrs.take() == net("10.0.2.0/24")
    assert count.tries == [4, 1, 1, 1, 1, 3]


@pytest.mark.parametrize(
    ("held", "free"),
    [
        ("10.0.0.0/24", 7),
        ("10.0.0.128/25", 7),  # a part of a block
        ("10.0.2.0/23", 6),  # two blocks
        ("10.0.0.0/21", 0),
        ("10.0.0.0/8", 0),  # more than the cluster has
        ("10.1.0.0/24", 8),  # elsewhere
        ("fd00::/64", 8),  # of the other family
    ],
)
def test_what_overlaps_services_or_other_nodes_is_not_given(held: str, free: int) -> None:
    cidrs = CidrSet(SMALL)
    cidrs.hold(net(held))
    assert sum(cidrs.take() is not None for _ in range(9)) == free
    cidrs.release(net(held))


def test_a_block_with_two_holders_is_free_only_without_either() -> None:
    cidrs = CidrSet(SMALL)
    one = net("10.0.0.0/24")
    assert cidrs.hold(one)
    assert not cidrs.hold(one)
    assert not cidrs.release(one)
    assert cidrs.take() != one
    assert cidrs.release(one)
    assert not cidrs.release(one)


def test_a_block_with_too_many_holders_to_count_stays_taken() -> None:
    cidrs = CidrSet(Range(net("10.0.0.0/24"), 24))
    for _ in range(300):
        cidrs.hold(cidrs.cluster)
    assert not any(cidrs.release(cidrs.cluster) for _ in range(300))
    assert cidrs.take() is None


def test_nothing_is_kept_of_the_first_family_when_the_second_has_no_block_left() -> None:
    first, second = Count(), Count()
    blocks = Blocks([SMALL, SMALL_V6], (), {SMALL.cluster: first, SMALL_V6.cluster: second})
    for number in range(4):
        blocks.reserve(f"uid-{number}")
    for _ in range(20):
        assert blocks.reserve("late") == SMALL_V6.cluster
    assert (first.used, second.used) == (4, 4)
    assert blocks.forget("uid-0")
    assert len(taken(blocks, "late")) == 2
    assert (first.used, second.used) == (4, 4)


def test_services_keep_their_part_of_the_cluster_cidr() -> None:
    blocks = Blocks([SMALL], [net("10.0.0.0/22"), net("fd00::/108")])
    assert [taken(blocks, f"uid-{number}")[0] for number in range(4)] == [
        f"10.0.{number}.0/24" for number in range(4, 8)
    ]
    assert blocks.reserve("late") == SMALL.cluster


def test_a_reservation_stays_the_same_until_the_node_holds_it() -> None:
    blocks = Blocks([SMALL])
    mine = taken(blocks, "a")
    assert taken(blocks, "a") == mine
    assert blocks.hold("a", mine) == Claim((), ())
    assert not blocks.forget("a")
    assert blocks.release(mine)


def test_a_refused_write_gives_its_blocks_back_unless_another_may_have_taken_effect() -> None:
    blocks = Blocks([SMALL])
    blocks.reserve("sure")
    assert blocks.refused("sure")
    mine = taken(blocks, "unsure")
    blocks.unsure("unsure")
    assert not blocks.refused("unsure")
    assert taken(blocks, "unsure") == mine
    assert blocks.forget("unsure")
    blocks.unsure("unsure")  # of what is not reserved, nothing is kept
    assert not blocks.refused("unsure")


def test_what_a_node_has_of_somebody_else_frees_what_was_reserved_for_it() -> None:
    count = Count()
    blocks = Blocks([SMALL], (), {SMALL.cluster: count})
    blocks.reserve("a")
    assert blocks.hold("a", ["10.0.7.0/24"]) == Claim((), ())
    assert count.used == 1


def test_cidrs_outside_unreadable_or_shared_are_named() -> None:
    blocks = Blocks([SMALL, SMALL_V6], [net("10.0.7.0/24")])
    blocks.hold("a", ["10.0.1.0/24", "fd00::/64"])
    claim = blocks.hold("b", ["10.0.1.0/25", "10.99.0.0/24", "nonsense", "10.0.7.0/24"])
    assert claim.outside == ("10.99.0.0/24", "nonsense")
    assert claim.shared == ("10.0.1.0/25", "10.0.7.0/24")
    assert not blocks.release(["nonsense", "10.99.0.0/24", "10.0.1.0/25"])


class Cluster(RuleBasedStateMachine):
    """Nodes come, are written to (or not, or perhaps), and go, in any order."""

    @initialize(dual=st.booleans())
    def begin(self, dual: bool) -> None:  # noqa: FBT001 - hypothesis gives it by name
        self.count = Count()
        ranges = [SMALL, SMALL_V6] if dual else [SMALL]
        self.blocks = Blocks(ranges, (), {ranges[-1].cluster: self.count})
        self.size = min(one.size for one in ranges)
        self.waiting: dict[str, tuple[str, ...]] = {}
        self.nodes: dict[str, tuple[str, ...]] = {}
        self.number = 0

    @rule()
    def reserve(self) -> None:
        self.number += 1
        found = self.blocks.reserve(f"uid-{self.number}")
        is_full = len(self.nodes) + len(self.waiting) == self.size
        assert isinstance(found, tuple) is not is_full
        if isinstance(found, tuple):
            self.waiting[f"uid-{self.number}"] = tuple(map(str, found))

    @precondition(lambda self: self.waiting)
    @rule(chance=st.randoms(), outcome=st.sampled_from(["seen", "refused", "unsure", "gone"]))
    def end_a_write(self, chance: random.Random, outcome: str) -> None:
        uid = chance.choice(sorted(self.waiting))
        if outcome == "seen":
            self.nodes[uid] = self.waiting.pop(uid)
            assert self.blocks.hold(uid, self.nodes[uid]) == Claim((), ())
        elif outcome == "refused":
            if self.blocks.refused(uid):
                del self.waiting[uid]
        elif outcome == "unsure":
            self.blocks.unsure(uid)
        else:
            del self.waiting[uid]
            assert self.blocks.forget(uid)

    @precondition(lambda self: self.nodes)
    @rule(chance=st.randoms())
    def delete(self, chance: random.Random) -> None:
        uid = chance.choice(sorted(self.nodes))
        assert self.blocks.release(self.nodes.pop(uid))

    @invariant()
    def every_block_has_one_holder(self) -> None:
        given_out = Counter(
            cidr for cidrs in (*self.nodes.values(), *self.waiting.values()) for cidr in cidrs
        )
        assert all(times == 1 for times in given_out.values())
        assert self.count.used == len(self.nodes) + len(self.waiting)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(cidrs=st.lists(st.sampled_from([str(n) for n in SMALL.cluster.subnets(new_prefix=24)])))
def test_a_restart_in_the_middle_gives_no_block_twice(cidrs: list[str]) -> None:
    """A new process knows what the nodes have, and only that."""
    has = dict(enumerate(set(cidrs)))
    blocks = Blocks([SMALL])
    for number, cidr in has.items():
        blocks.hold(f"old-{number}", [cidr])
    new = [taken(blocks, f"new-{number}")[0] for number in range(SMALL.size - len(has))]
    assert not set(new) & set(has.values())
    assert blocks.reserve("late") == SMALL.cluster
