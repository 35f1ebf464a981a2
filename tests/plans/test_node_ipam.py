"""What is done about a node's pod CIDRs, as tables."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import msgspec
import pytest

from proreus.app import flags
from proreus.app.options import Options, problems
from proreus.controllers.node_ipam.cidrset import Claim, Range
from proreus.controllers.node_ipam.plan import (
    Allocate,
    Assign,
    Decision,
    InCloud,
    Mode,
    Reason,
    Settled,
    Trouble,
    Write,
    claim_events,
    condition_patch,
    decide,
    event,
    exhausted,
    has_assigned,
    has_other_cidrs,
    is_askable,
    may_have_written,
    not_assigned,
    ranges,
    releasable,
    relevant,
    unassignable,
    write,
)
from proreus.controllers.settings import Settings
from proreus.controllers.table import select
from proreus.kube.errors import (
    Conflict,
    Forbidden,
    KubeError,
    RefusedByGate,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from proreus.kube.objects import Condition, Node, NodeSpec, ObjectMeta, condition
from proreus.testing import objects

from .conftest import ApplyPatch

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
V4, V6 = "10.0.1.0/24", "fd00:0:0:1::/64"
OTHER = "10.0.2.0/24"


def node(
    *cidrs: str,
    provider_id: str = "simulated://sim-1/i-1",
    deleting: bool = False,
    conditions: tuple[Condition, ...] = (),
    uid: str = "uid",
) -> Node:
    gone = NOW if deleting else None
    return objects.node(
        "a", provider_id, uid=uid, deletion_timestamp=gone, pod_cidrs=cidrs, conditions=conditions
    )


def named(name: str, *cidrs: str, age: int) -> Node:
    """A Node of so many minutes."""
    created = NOW - timedelta(minutes=age)
    return objects.node(name, uid=name, creation_timestamp=created, pod_cidrs=cidrs)


def said(status: str, reason: str) -> Condition:
    return Condition("PodCIDRsAllocated", status, reason, "m", EARLIER)


# Flags


@pytest.mark.parametrize(
    ("clusters", "sizes", "masks"),
    [
        (["10.0.0.0/16"], {}, [24]),
        (["fd00::/48"], {}, [64]),
        (["10.0.0.0/16"], {"size": 26}, [26]),
        (["fd00::/48"], {"size": 60}, [60]),
        (["10.0.0.0/16"], {"size_v4": 25}, [25]),
        (["fd00::/48"], {"size_v6": 56}, [56]),
        (["10.0.0.0/16", "fd00::/48"], {}, [24, 64]),
        (["fd00::/48", "10.0.0.0/16"], {"size_v4": 26, "size_v6": 62}, [62, 26]),
        (["10.0.0.0/24"], {}, [24]),  # one block
    ],
)
def test_masks_are_gos_defaults_or_as_the_flags_set_them(
    clusters: list[str], sizes: dict[str, int], masks: list[int]
) -> None:
    found, wrong = ranges(Mode.RANGE, clusters, **sizes)
    assert not wrong
    assert found == tuple(
        Range(ip_network(cidr), mask) for cidr, mask in zip(clusters, masks, strict=True)
    )


@pytest.mark.parametrize(
    ("clusters", "sizes", "wrong"),
    [
        ([], {}, ["--cluster-cidr: must be given"]),
        (["10.0.0.0"], {}, ["--cluster-cidr: '10.0.0.0': give a CIDR"]),
        (
            ["10.0.0.0/16", "fd00::/48"],
            {"size": 24},
            ["--node-cidr-mask-size: cannot be used with two"],
        ),
        (
            ["10.0.0.0/16"],
            {"size": 24, "size_v4": 24},
            ["--node-cidr-mask-size: cannot be combined"],
        ),
        (["10.0.0.0/16"], {"size_v6": 64}, ["--node-cidr-mask-size-ipv6: --cluster-cidr has no"]),
        (["fd00::/48"], {"size_v4": 24}, ["--node-cidr-mask-size-ipv4: --cluster-cidr has no"]),
        (["10.0.0.0/25"], {}, ["--node-cidr-mask-size-ipv4: 24 must be from 25"]),
        (["10.0.0.0/16"], {"size": 12}, ["--node-cidr-mask-size: 12 must be from 16"]),
        (["10.0.0.0/16"], {"size": 33}, ["--node-cidr-mask-size: 33 must be from 16"]),
        (["fd00::/40"], {}, ["--node-cidr-mask-size-ipv6: 64 makes too many blocks"]),
        (["0.0.0.0/0"], {"size_v4": 25}, ["--node-cidr-mask-size-ipv4: 25 makes too many"]),
        (
            ["fd00::/40", "10.0.0.0/16"],
            {"size": 24, "size_v4": 12},
            [
                "--node-cidr-mask-size: cannot be used with two",
                "--node-cidr-mask-size-ipv6: 64 makes too many blocks of fd00::/40; give at most",
                "--node-cidr-mask-size-ipv4: 12 must be from 16 (10.0.0.0/16) to 32",
            ],
        ),
        (
            ["10.0.0.0/16"],
            {"size": 24, "size_v6": 64},
            [
                "--node-cidr-mask-size: cannot be combined",
                "--node-cidr-mask-size-ipv6: --cluster-cidr",
            ],
        ),
    ],
)
def test_everything_wrong_with_the_flags_is_reported_at_once(
    clusters: list[str], sizes: dict[str, int], wrong: list[str]
) -> None:
    _, found = ranges(Mode.FROM_CLUSTER, clusters, **sizes)
    assert len(found) == len(wrong)
    for text, start in zip(found, wrong, strict=True):
        assert text.startswith(start)


def test_where_the_cloud_allocates_no_cluster_cidr_is_needed() -> None:
    assert ranges(Mode.FROM_CLOUD, []) == ((), ())


def options(*argv: str) -> Options:
    return flags.parse(Options, ["--cloud-provider=x", *argv], "test", "")[0]


def test_the_flags_are_checked_only_where_they_count() -> None:
    assert not problems(options("--node-cidr-mask-size=99"))
    (found,) = problems(
        options("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16", "--node-cidr-mask-size=99")
    )
    assert found.startswith("--node-cidr-mask-size: 99")
    (missing,) = problems(options("--allocate-node-cidrs"))
    assert missing.startswith("--cluster-cidr: ")
    assert not problems(options("--allocate-node-cidrs", "--cidr-allocator-type=IPAMFromCloud"))


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--cidr-allocator-type=Cloud", "must be one of RangeAllocator, IPAMFromCloud"),
        ("--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16", "two of different families"),
        ("--node-cidr-mask-size=-1", "must be at least 0"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_name(flag: str, text: str) -> None:
    with pytest.raises(flags.FlagError) as refused:
        options(flag)
    (problem,) = refused.value.problems
    assert problem.startswith(flag.partition("=")[0] + ": ")
    assert text in problem


@pytest.mark.parametrize("name", ["node-ipam-controller", "nodeipam"])
def test_the_controller_runs_only_if_asked_to_and_needs_the_cloud_in_two_modes(name: str) -> None:
    ((controller,), _) = select((name,))
    assert controller.why_not(Settings()) == "--allocate-node-cidrs is false"
    assert not controller.needed(Settings(cidr_allocator_type="IPAMFromCloud"))
    on = Settings(allocate_node_cidrs=True)
    assert controller.why_not(on) == ""
    assert not controller.needed(on)
    for mode in (Mode.FROM_CLOUD, Mode.FROM_CLUSTER):
        assert controller.needed(msgspec.structs.replace(on, cidr_allocator_type=mode.value))


# Decisions


def trouble_of(decision: Decision) -> Reason:
    assert isinstance(decision, Trouble)
    return decision.reason


def test_a_range_allocator_gives_blocks_whatever_the_cloud_answers() -> None:
    for in_cloud in ((), (V4,), None, KubeError("down")):
        assert decide(Mode.RANGE, node(), in_cloud) == Allocate()
        assert decide(Mode.RANGE, node(V4), in_cloud) == Settled()
    assert decide(Mode.RANGE, node(provider_id=""), None) == Allocate()
    old = Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(pod_cidr=V4))
    assert decide(Mode.RANGE, old, None) == Settled()


@pytest.mark.parametrize(
    ("has", "in_cloud", "from_cloud", "from_cluster"),
    [
        ((), (), Reason.NOT_AVAILABLE, Allocate()),
        ((), (V4,), Write((V4,)), Reason.INVALID_MODE),
        ((), (V4, V6), Write((V4, V6)), Reason.INVALID_MODE),
        ((V4,), (), Reason.INVALID_MODE, Assign((V4,))),
        ((V4,), (V4,), Settled(), Settled()),
        ((V4, V6), (V6, V4), Settled(), Settled()),
        ((V6,), ("FD00:0:0:1:0::/64",), Settled(), Settled()),  # the same, written otherwise
        ((V4,), (OTHER,), Reason.MISMATCH, Reason.MISMATCH),
        ((V4,), (V4, V6), Reason.MISMATCH, Reason.MISMATCH),
        ((), ("nonsense",), Reason.INVALID, Reason.INVALID),
        ((V4,), (V4, OTHER), Reason.INVALID, Reason.INVALID),  # the API takes one of a family
        ((), None, Reason.NOT_AVAILABLE, Reason.NOT_AVAILABLE),
        ((V4,), None, Reason.NOT_AVAILABLE, Reason.NOT_AVAILABLE),
    ],
)
def test_node_and_cloud_are_brought_together(
    has: tuple[str, ...],
    in_cloud: InCloud,
    from_cloud: Decision | Reason,
    from_cluster: Decision | Reason,
) -> None:
    for mode, wanted in ((Mode.FROM_CLOUD, from_cloud), (Mode.FROM_CLUSTER, from_cluster)):
        found = decide(mode, node(*has), in_cloud)
        assert (trouble_of(found) if isinstance(wanted, Reason) else found) == wanted


def test_a_cloud_that_fails_is_reported_without_what_changes_from_try_to_try() -> None:
    error = KubeError("no route to 10.0.0.1:43211")
    found = decide(Mode.FROM_CLOUD, node(), error)
    assert found == Trouble(
        Reason.NOT_AVAILABLE, "The call to the cloud failed: no route to <address>"
    )


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_is_done_for_a_node_that_is_being_deleted(mode: Mode) -> None:
    for one in (node(deleting=True), node(V4, deleting=True)):
        assert decide(mode, one, ()) == Settled()
        assert not is_askable(one)


@pytest.mark.parametrize("mode", [Mode.FROM_CLOUD, Mode.FROM_CLUSTER])
def test_a_machine_that_is_not_known_yet_is_waited_for(mode: Mode) -> None:
    assert decide(mode, node(provider_id=""), None) == Settled()
    assert is_askable(node())


def test_only_what_a_machine_of_the_cloud_has_must_be_taken_back() -> None:
    assert has_assigned(node(V4))
    assert not has_assigned(node())
    assert not has_assigned(node(V4, provider_id=""))


@pytest.mark.parametrize(
    ("new", "matters"),
    [
        (node(), False),
        (node(conditions=(said("False", "x"),)), False),
        (node(V4), True),
        (node(deleting=True), True),
        (node(provider_id="other"), True),
        (node(uid="another"), True),
    ],
)
def test_a_node_is_looked_at_when_what_is_read_of_it_changes(new: Node, *, matters: bool) -> None:
    assert relevant(node(), new) is matters
    assert relevant(None, new)


def test_blocks_are_counted_anew_when_they_or_the_node_are_others() -> None:
    assert not has_other_cidrs(node(V4), node(V4, deleting=True))
    assert has_other_cidrs(node(), node(V4))
    assert has_other_cidrs(node(V4), node(V4, uid="another"))
    assert has_other_cidrs(None, node())
    assert has_other_cidrs(node(V4), None)


# Writes


def test_both_fields_are_written_at_once_to_a_node_that_has_neither(
    apply_patch: ApplyPatch,
) -> None:
    after = apply_patch(node(), write(node(), (V4, V6)))
    assert after.spec.pod_cidr == V4
    assert after.spec.pod_cidrs == (V4, V6)
    for other in (node(OTHER), node(uid="another")):
        with pytest.raises(AssertionError, match="the test failed"):
            apply_patch(other, write(node(), (V4,)))


@pytest.mark.parametrize(
    ("error", "may_have"),
    [
        (Unreachable("cut", sent=True), True),
        (Unreachable("refused", sent=False), False),
        (ServerError(500, "boom"), True),
        (TooManyRequests(429, "later"), False),
        (Forbidden(403, "no"), False),
        (Conflict(409, "no"), False),
        (RefusedByGate("lease"), False),
        (RuntimeError("?"), True),
    ],
)
def test_only_a_clear_no_means_that_nothing_was_written(
    error: Exception, *, may_have: bool
) -> None:
    assert may_have_written(error) is may_have


TROUBLE = exhausted(ip_network("10.0.0.0/16"))


@pytest.mark.parametrize(
    ("before", "trouble", "after"),
    [
        (None, None, None),
        (None, TROUBLE, ("False", "CIDRNotAvailable", NOW)),
        (said("False", "CIDRNotAvailable"), TROUBLE, None),
        (said("False", "CIDRAssignmentFailed"), TROUBLE, ("False", "CIDRNotAvailable", EARLIER)),
        (said("True", "PodCIDRsAllocated"), TROUBLE, ("False", "CIDRNotAvailable", NOW)),
        (said("False", "CIDRNotAvailable"), None, ("True", "PodCIDRsAllocated", NOW)),
        (said("True", "PodCIDRsAllocated"), None, None),
    ],
)
def test_the_condition_is_written_only_when_it_changes(
    apply_patch: ApplyPatch,
    before: Condition | None,
    trouble: Trouble | None,
    after: tuple[str, str, datetime] | None,
) -> None:
    one = node(V4, conditions=(before,) if before else ())
    patch = condition_patch(one, trouble, NOW)
    assert (patch is None) is (after is None)
    if patch is not None and after is not None:
        found = condition(apply_patch(one, patch).status.conditions, "PodCIDRsAllocated")
        assert found is not None
        assert (found.status, found.reason, found.last_transition_time) == after


def test_a_condition_does_not_claim_blocks_that_the_node_lacks() -> None:
    assert condition_patch(node(conditions=(said("False", "CIDRNotAvailable"),)), None, NOW) is None


def test_troubles_are_warnings_that_name_what_they_are_about() -> None:
    found = event(TROUBLE)
    assert (found.type, found.reason) == ("Warning", "CIDRNotAvailable")
    assert "10.0.0.0/16" in found.message
    failed = not_assigned(KubeError("quota"))
    assert (failed.reason, failed.message) == (
        "CIDRAssignmentFailed",
        "The pod CIDRs were not assigned: quota",
    )


def test_what_a_node_should_not_have_is_named_one_by_one() -> None:
    claim = Claim(outside=("10.99.0.0/24",), shared=(V4,))
    outside, shared = claim_events(claim, [ip_network("10.0.0.0/16")])
    assert outside.reason == "CIDROutsideClusterCIDR"
    assert "10.99.0.0/24 is not in --cluster-cidr (10.0.0.0/16)" in outside.message
    assert shared.reason == "CIDRNotUnique"
    assert V4 in shared.message
    assert not claim_events(Claim((), ()), [])


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), (V4, V6)),
        ((node(V4, provider_id="simulated://sim-1/i-2"),), (V4, V6)),
        ((node(V4),), (V6,)),
        ((node(OTHER), node(V4, V6)), ()),
    ],
)
def test_an_instance_keeps_the_blocks_that_another_node_has_on_it(
    others: tuple[Node, ...], expected: tuple[str, ...]
) -> None:
    gone = node(V4, V6)
    gone = msgspec.structs.replace(
        gone, metadata=msgspec.structs.replace(gone.metadata, uid="gone")
    )
    clusters = (ip_network("10.0.0.0/8"), ip_network("fd00::/32"))
    assert releasable(gone, (gone, *others), clusters) == expected
    assert releasable(gone, (gone, *others), (ip_network("172.16.0.0/12"),)) == ()


@pytest.mark.parametrize(
    ("cidrs", "others", "expected"),
    [
        ((V4, V6), (), None),
        ((V4,), (named("older", V4, age=9),), Reason.SHARED),
        ((V4,), (named("older", "10.0.0.0/16", age=9),), Reason.SHARED),
        ((V4,), (named("a", V4, age=5),), Reason.SHARED),  # of one age: by name
        ((V4,), (named("younger", V4, age=1),), None),
        ((V4,), (named("older", V6, "nonsense", age=9),), None),
        ((V4,), (named("older", OTHER, age=9),), None),
        (("172.16.0.0/24",), (), Reason.OUTSIDE),
        (("10.0.0.0/7",), (), Reason.OUTSIDE),
        ((V4, "fd01::/64"), (), Reason.OUTSIDE),
    ],
)
def test_an_instance_gets_no_block_that_is_an_older_nodes_or_not_the_clusters(
    cidrs: tuple[str, ...], others: tuple[Node, ...], expected: Reason | None
) -> None:
    clusters = (ip_network("10.0.0.0/8"), ip_network("fd00::/32"))
    one = named("b", *cidrs, age=5)
    found = unassignable(one, (*others, one), clusters)
    assert (found and found.reason) == expected
