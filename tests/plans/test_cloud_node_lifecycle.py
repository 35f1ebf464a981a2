"""Which nodes are deleted, held back or tainted, for each answer of the cloud."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.cloudprovider.lookups import swapped
from proreus.containment.inventory import Observation, Sighting
from proreus.controllers.cloud_node_lifecycle.ages import Ages
from proreus.controllers.cloud_node_lifecycle.breaker import (
    Breaker,
    judge,
    limit,
    pace,
    proven,
    release,
)
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE, is_declared_gone
from proreus.controllers.cloud_node_lifecycle.evidence import (
    Evidence,
    Span,
    doubted,
    proved,
    updated,
)
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Memory, Scope, ScopeMemory, Wait
from proreus.controllers.cloud_node_lifecycle.outlasting import ANNOTATION_OUTLASTING
from proreus.controllers.cloud_node_lifecycle.outlived import ANNOTATION_OUTLIVED
from proreus.controllers.cloud_node_lifecycle.outstanding import (
    Outstanding,
    is_quiet,
    stands_out,
)
from proreus.controllers.cloud_node_lifecycle.plan import (
    Delete,
    Keep,
    Pass,
    plan,
    verdict,
)
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import (
    Known,
    Question,
    Reply,
    candidates,
    eligible_witnesses,
    key_of,
    needs_age,
    questions,
    witnesses,
)
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_UNKNOWN
from proreus.controllers.cloud_node_lifecycle.taints import shutdown
from proreus.controllers.cloud_node_lifecycle.witnesses import Missing
from proreus.controllers.events import PlannedEvent
from proreus.controllers.last_ready import LastReady
from proreus.kube.objects import (
    TAINT_AUTOSCALER,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Taint,
)
from proreus.kube.patch import Patch
from proreus.testing import objects
from proreus.testing.objects import changed

UUID = "2e8c1f0a-1234-4abc-9234-0123456789ab"
OTHER_UUID = "3e8c1f0a-1234-4abc-9234-0123456789ab"

ApplyPatch = Callable[[Node, Patch], Node]

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
POLICY = Policy()
GO = Policy(
    confirmations=1,
    confirmation_interval=0.0,
    startup_grace=0.0,
    witnesses=0,
    breaker_fraction=1.0,
    delete_by_name=True,
)
UNINITIALIZED = Taint(TAINT_UNINITIALIZED, "NoSchedule", "true")
SHUTDOWN = Taint(TAINT_SHUTDOWN, "NoSchedule")
AUTOSCALER = Taint(TAINT_AUTOSCALER, "NoSchedule")
OTHER = Taint("dedicated", "NoSchedule", "db")
GONE = NotFound()
TOMBSTONE = NotFound(tombstone=True)
BROKEN = CloudError("broken")
KNOWN = Known(lambda _: Ownership.YES)


def node(
    name: str,
    ready: str = "False",
    *taints: Taint,
    age: float = 1e6,
    provider_id: str | None = None,
    deleting: bool = False,
    uid: str = "",
) -> Node:
    return objects.node(
        name,
        f"sim://{name}" if provider_id is None else provider_id,
        uid=uid or f"uid-{name}",
        creation_timestamp=NOW - timedelta(seconds=age),
        deletion_timestamp=NOW if deleting else None,
        taints=taints,
        conditions=(Condition("Ready", ready),) if ready else (),
    )


def up(name: str, *taints: Taint) -> Node:
    return node(name, "True", *taints)


def reporting(one: Node, uuid: str) -> Node:
    """The Node, whose kubelet reports this UUID of its machine."""
    info = msgspec.structs.replace(one.status.node_info, system_uuid=uuid)
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, node_info=info))


def machine(state: InstanceState = InstanceState.RUNNING) -> Instance:
    return Instance(provider_id="sim://x", state=state)


def owns(_: Node) -> Ownership:
    return Ownership.YES


def names(nodes: Sequence[Node]) -> list[str]:
    return [n.metadata.name for n in nodes]


# Whom to ask about


@pytest.mark.parametrize(
    ("candidate", "may_go"),
    [
        (node("a"), True),
        (node("a", "Unknown"), True),
        (node("a", ""), True),
        (node("a", "True"), False),
        (node("a", deleting=True), False),
        (node("a", "False", UNINITIALIZED, age=299), False),
        (node("a", "False", UNINITIALIZED, age=300), True),
        (node("a", age=0), True),
        (node("a", provider_id=""), False),
        (node("a", "False", AUTOSCALER, SHUTDOWN), True),
    ],
)
def test_candidates(candidate: Node, *, may_go: bool) -> None:
    assert candidates([candidate], NOW, owns, POLICY) == ((candidate,) if may_go else ())


@pytest.mark.parametrize(
    ("age", "known_for", "may_go"),
    [
        (300, 300, True),
        (1e6, 299, False),  # our clock has jumped, or the process has just begun
        (299, 1e6, False),  # our clock was set back
        (-100, 300, False),
        (1e6, 0, False),
    ],
)
def test_the_age_of_a_waiting_node_counts_by_both_clocks(
    age: float, known_for: float, *, may_go: bool
) -> None:
    waiting, done = node("a", "False", UNINITIALIZED, age=age), node("b", age=age)
    found = names(candidates([waiting, done], NOW, owns, POLICY, lambda _: known_for))
    assert found == (["a", "b"] if may_go else ["b"])


def test_nodes_grow_old_here_from_when_they_are_first_seen_to_wait() -> None:
    now = 0.0
    ages = Ages(lambda: now, needs_age)
    waiting, done = node("a", "False", UNINITIALIZED), node("a")
    ages.on_node(None, waiting)
    now = 7.0
    ages.on_node(waiting, waiting)
    assert ages.seconds(waiting) == 7.0
    assert ages.seconds(node("b")) == 0.0
    ages.on_node(waiting, done)
    ages.on_node(done, waiting)
    assert ages.seconds(waiting) == 0.0
    now = 9.0
    ages.on_node(waiting, None)
    assert ages.seconds(waiting) == 0.0


def test_when_a_node_ceases_to_be_ready_is_remembered_until_it_is_gone() -> None:
    now = 0.0
    last = LastReady(lambda: now)
    ready, silent = up("a"), node("a")
    last.on_node(None, ready)
    assert last.ready_until(silent) == -math.inf
    now = 7.0
    last.on_node(ready, silent)
    now = 9.0
    last.on_node(silent, silent)
    assert last.ready_until(silent) == 7.0
    last.on_node(silent, ready)
    last.on_node(ready, silent)
    assert last.ready_until(silent) == 9.0
    last.on_node(silent, None)
    last.on_node(None, None)
    assert last.ready_until(silent) == -math.inf


def test_a_node_that_is_not_ready_since_another_time_may_have_been_ready_in_between() -> None:
    now = 0.0
    last = LastReady(lambda: now)

    def since(hour: int, ready: str = "Unknown") -> Node:
        told = Condition("Ready", ready, last_transition_time=NOW.replace(hour=hour))
        status = msgspec.structs.replace(node("a").status, conditions=(told,))
        return msgspec.structs.replace(node("a"), status=status)

    last.on_node(None, since(1))
    now = 7.0
    for new in (since(1), since(1, "False"), node("a", "")):
        last.on_node(since(1), new)
    assert last.ready_until(since(1)) == -math.inf
    last.on_node(since(1), since(2))
    assert last.ready_until(since(2)) == 7.0
    now = 9.0
    last.on_node(since(2), since(3, "False"))
    assert last.ready_until(since(3)) == 9.0


def test_when_another_machine_reports_for_a_node_is_remembered_until_the_node_is_gone() -> None:
    now = 0.0
    last = LastReady(lambda: now)
    silent, first, second = node("a"), reporting(node("a"), UUID), reporting(node("a"), OTHER_UUID)
    for old, new in ((None, first), (first, reporting(node("a"), swapped(UUID).upper()))):
        last.on_node(old, new)
    for old, new in ((first, silent), (silent, first), (first, reporting(node("a"), "?"))):
        last.on_node(old, new)  # what one of them reports is not known
    last.on_node(first, changed(second, uid="of another Node"))
    assert last.taken_over(second) == math.inf
    now = 7.0
    last.on_node(silent, second)
    now = 9.0
    last.on_node(second, second)
    assert last.taken_over(second) == 7.0
    last.settle(second)
    last.on_node(second, second)
    assert last.taken_over(second) == math.inf
    last.on_node(second, first)
    assert last.taken_over(first) == 9.0
    last.on_node(first, None)
    assert last.taken_over(second) == math.inf


def test_go_checks_nodes_of_any_age() -> None:
    young = node("a", "False", UNINITIALIZED, age=0)
    assert candidates([young], NOW, owns, GO) == (young,)


def test_a_node_of_unknown_age_is_young() -> None:
    ageless = changed(node("a", "False", UNINITIALIZED), creation_timestamp=None)
    assert candidates([ageless], NOW, owns, GO) == ()


@pytest.mark.parametrize("ownership", [Ownership.NO, Ownership.UNKNOWN])
def test_only_surely_owned_nodes_are_asked_about(ownership: Ownership) -> None:
    assert candidates([node("a")], NOW, lambda _: ownership, POLICY) == ()
    assert eligible_witnesses([up("a")], Known(lambda _: ownership)) == {}


def test_by_name_only_when_asked_for_and_past_the_grace() -> None:
    by_name = Policy(delete_by_name=True)
    young, old = node("a", age=299, provider_id=""), node("b", age=300, provider_id="")
    assert names(candidates([young, old], NOW, owns, by_name)) == ["b"]
    assert candidates([young, old], NOW, owns, POLICY) == ()


@pytest.mark.parametrize(
    ("ownership", "asked"),
    [(Ownership.YES, ["b"]), (Ownership.UNKNOWN, ["b"]), (Ownership.NO, [])],
)
def test_by_name_a_node_may_go_unless_it_is_surely_of_another_cloud(
    ownership: Ownership, asked: list[str]
) -> None:
    fleet = [node("b", provider_id="")]
    assert names(candidates(fleet, NOW, lambda _: ownership, GO)) == asked
    with_id = [node("c")]
    expected = ["c"] if ownership is Ownership.YES else []
    assert names(candidates(with_id, NOW, lambda _: ownership, GO)) == expected


def test_witnesses_are_ready_and_initialised_and_stay() -> None:
    fleet = [
        up("e"),
        up("d"),
        node("c", "True", provider_id=""),
        node("b", "True", deleting=True),
        up("a", UNINITIALIZED),
        up("f", AUTOSCALER),
        node("g"),
    ]
    assert names(witnesses(eligible_witnesses(fleet, KNOWN)[""], 3, 0)) == ["d", "e"]


def test_witnesses_of_another_scope_are_none() -> None:
    fleet = [up("a"), up("b"), up("c")]
    scopes: dict[str, Scope] = {"a": "x", "b": "y", "c": None}
    found = eligible_witnesses(fleet, Known(owns, scope=lambda n: scopes[n.metadata.name]))
    assert {scope: names(those) for scope, those in found.items()} == {"x": ["a"], "y": ["b"]}


def test_witnesses_take_turns_and_are_far_from_one_another() -> None:
    fleet = [up(name) for name in "abcdefghi"]
    turns = [names(witnesses(fleet, 3, turn)) for turn in range(4)]
    assert turns == [["a", "d", "g"], ["b", "e", "h"], ["c", "f", "i"], ["d", "g", "a"]]
    assert witnesses([], 3, 1) == ()
    assert witnesses(fleet, 0, 1) == ()
    assert names(witnesses(fleet[:2], 3, 1)) == ["b", "a"]


def ask(
    fleet: Sequence[Node],
    memory: Memory | None = None,
    *,
    batch_size: int = 100,
    turn: int = 0,
    at: float = 0.0,
    policy: Policy = POLICY,
    known: Known = KNOWN,
) -> tuple[Question, ...]:
    return questions(
        fleet, NOW, known, policy, memory or Memory(), batch_size=batch_size, turn=turn, at=at
    )


def test_without_candidates_there_is_no_question() -> None:
    assert ask([up("a")]) == ()


@pytest.mark.parametrize(
    ("batch_size", "sizes"),
    [
        (1, [(7, 3)]),
        (2, [(7, 3)]),
        (5, [(7, 3)]),
        (6, [(3, 3), (3, 3), (1, 3)]),
        (10, [(7, 3)]),
        (9, [(6, 3), (1, 3)]),
        (500, [(7, 3)]),
    ],
)
def test_every_batch_has_witnesses(batch_size: int, sizes: list[tuple[int, int]]) -> None:
    fleet = [node(f"gone{i}") for i in range(7)] + [up(f"up{i}") for i in range(9)]
    asked = ask(fleet, batch_size=batch_size)
    assert [(len(q.candidates), len(q.witnesses)) for q in asked] == sizes
    assert [n for q in asked for n in q.candidates] == fleet[:7]
    assert not any(q.decides for q in asked)
    assert all(len(q.due) == 7 for q in asked)


def test_batches_and_turns_have_different_witnesses() -> None:
    crowd = [*(node(f"g{i}") for i in range(6)), *(up(f"up{i}") for i in range(12))]
    seen = [
        names(question.witnesses)
        for turn in range(2)
        for question in ask(crowd, batch_size=6, turn=turn)
    ]
    assert len(seen) == 4
    assert sorted(name for those in seen for name in those) == sorted(names(crowd[6:]))


def test_nodes_of_two_scopes_are_never_in_one_question() -> None:
    fleet = [node("ga"), up("a"), node("gb"), up("b"), node("gc")]
    known = Known(owns, scope=lambda n: {"a": "x", "b": "y"}.get(n.metadata.name[-1]))
    asked = ask(fleet, known=known)
    assert [(q.scope, names(q.candidates), names(q.witnesses)) for q in asked] == [
        ("x", ["ga"], ["a"]),
        ("y", ["gb"], ["b"]),
        (None, ["gc"], []),
    ]


def remembered(**fields: object) -> Memory:
    return Memory({"": ScopeMemory(**fields)})  # type: ignore[arg-type]  # as the test says


@pytest.mark.parametrize(
    ("evidence", "since", "at", "due", "asked"),
    [
        (None, None, 0.0, True, 3),
        (Evidence(), None, 0.0, True, 3),
        (Evidence(Span(0, 0), 1, 0.0), None, 29.0, False, 3),
        (Evidence(Span(0, 0), 1, 0.0), None, 30.0, True, 100),
        (Evidence(Span(0, 30), 2, 30.0), None, 35.0, True, 100),
        (Evidence(Span(0, 30), 2, 30.0), 0.0, 35.0, False, 3),
        (Evidence(Span(0, 30), 2, 30.0), 0.0, 600.0, True, 100),
        (Evidence(None, 2, 30.0), 0.0, 600.0, False, 3),
    ],
)
def test_the_answer_that_may_decide_has_many_witnesses(
    evidence: Evidence | None, since: float | None, at: float, asked: int, *, due: bool
) -> None:
    gone = node("gone")
    fleet = [gone, *(up(f"u{i:03}") for i in range(300))]
    known = {} if evidence is None else {key_of(gone): evidence}
    memory = remembered(evidence=known, breaker=Breaker({}, since))
    for batch_size in (500, 60, 5, 1):
        (question,) = ask(fleet, memory, batch_size=batch_size, at=at)
        assert len(question.witnesses) == asked
        assert question.decides is (asked > 3)
        assert question.due == ({"gone"} if due else set())
        (question,) = ask(fleet[:5], memory, batch_size=batch_size, at=at)
        assert len(question.witnesses) == min(asked, 4)


def test_the_nodes_that_the_cloud_did_not_know_are_asked_about_again() -> None:
    fleet = [node("gone"), *(up(f"u{i}") for i in range(9))]
    missing = {key_of(n): Missing(0, 0) for n in fleet[2:4]}
    (question,) = ask(fleet, remembered(missing=missing))
    assert {"u1", "u2"} <= set(names(question.witnesses))
    assert len(question.witnesses) == 5
    (question,) = ask(fleet, remembered(missing=missing), batch_size=6)
    assert len(question.witnesses) == 5
    many = {key_of(n): Missing(0, 0) for n in fleet[2:]}
    asked = [ask(fleet, remembered(missing=many), batch_size=6, turn=turn) for turn in range(8)]
    assert all(len(q.candidates) + len(q.witnesses) <= 6 for (q,) in asked)
    assert {n for (q,) in asked for n in names(q.witnesses)} == {f"u{i}" for i in range(9)}
    (question,) = ask(fleet, remembered(missing=many), batch_size=1)
    assert len(question.witnesses) == 9


# Evidence


def row(*steps: tuple[float, InstanceAnswer], interval: float = 30.0) -> Evidence | None:
    """Answers of which all are whole."""
    policy = Policy(confirmation_interval=interval)
    evidence: Evidence | None = None
    for began, answer in steps:
        evidence = updated(evidence, answer)
        if evidence is not None and isinstance(answer, NotFound):
            evidence = proved(evidence, began, began, policy, decides=True)
    return evidence


def test_the_first_absence_counts_once() -> None:
    assert row((7, GONE)) == Evidence(Span(7, 7), 1, 7)


@pytest.mark.parametrize(
    ("second", "confirmations", "counted"),
    [(7, 1, 7), (36, 1, 7), (36.99, 1, 7), (37, 2, 37), (90, 2, 90)],
)
def test_only_calls_that_began_far_enough_apart_count(
    second: float, confirmations: int, counted: float
) -> None:
    found = row((7, GONE), (second, GONE))
    assert found == Evidence(Span(7, second), confirmations, counted)


def test_the_distance_is_to_the_last_answer_that_counted() -> None:
    found = row(*((float(t), GONE) for t in range(0, 65, 5)))
    assert found is not None
    assert (found.confirmations, found.counted) == (3, 60)


@pytest.mark.parametrize(("second", "confirmations"), [(54.9, 1), (55.0, 2)])
def test_the_interval_begins_when_a_call_that_waited_for_the_quota_has_ended(
    second: float, confirmations: int
) -> None:
    found = proved(Evidence(), 0.0, 25.0, POLICY, decides=True)
    found = proved(found, second, second + 1, POLICY, decides=True)
    assert found.confirmations == confirmations
    assert found.proved == Span(0.0, second)


def test_only_an_answer_with_many_witnesses_is_the_last_confirmation() -> None:
    found = proved(Evidence(), 0.0, 0.0, POLICY, decides=False)
    assert found.confirmations == 1
    found = proved(found, 40.0, 40.0, POLICY, decides=False)
    assert found == Evidence(Span(0, 40), 1, 0)
    assert proved(found, 41.0, 41.0, POLICY, decides=True).confirmations == 2


def test_one_and_the_same_answer_counts_once_even_without_an_interval() -> None:
    assert row((5, GONE), (5, GONE), (4, GONE), interval=0.0) == Evidence(Span(5, 5), 1, 5)
    found = row((5, GONE), (6, GONE), interval=0.0)
    assert found is not None
    assert found.confirmations == 2


def test_a_machine_that_is_seen_clears_everything() -> None:
    for state in InstanceState:
        assert row((0, TOMBSTONE), (40, machine(state))) is None


def test_an_error_neither_counts_nor_clears() -> None:
    assert row((0, BROKEN)) is None
    assert row((0, GONE), (40, BROKEN), (41, BROKEN)) == row((0, GONE))


def test_an_answer_is_heard_before_it_proves_anything() -> None:
    assert updated(None, GONE) == Evidence()
    assert updated(None, TOMBSTONE) == Evidence(tombstone=True)


def test_a_tombstone_stays_one_whatever_becomes_of_the_answers() -> None:
    found = row((0, TOMBSTONE), (40, GONE))
    assert found == Evidence(Span(0, 40), 2, 40, tombstone=True)
    assert doubted(found) == Evidence(tombstone=True)
    assert doubted(Evidence(Span(0, 40), 2, 40)) == Evidence()


# Verdicts on one node


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (None, Keep()),
        (
            Evidence(Span(10, 10), 1, 10),
            Wait(40, "1 more answers must say that its instance is gone, with witnesses present"),
        ),
        (
            Evidence(),
            Wait(None, "2 more answers must say that its instance is gone, with witnesses present"),
        ),
        (
            Evidence(Span(10, 9999), 1, 600),
            Wait(630, "1 more answers must say that its instance is gone, with witnesses present"),
        ),
        (Evidence(Span(10, 40), 2, 40), Delete("it does not exist in the cloud provider")),
        (Evidence(tombstone=True), Delete("the cloud shows its instance as terminated")),
    ],
)
def test_verdicts(evidence: Evidence | None, expected: Keep | Wait | Delete) -> None:
    assert verdict(evidence, POLICY) == expected


def test_the_verdict_waits_for_all_confirmations_that_are_missing() -> None:
    found = verdict(Evidence(Span(0, 30), 2, 30), Policy(confirmations=5))
    assert found == Wait(
        120, "3 more answers must say that its instance is gone, with witnesses present"
    )


# The breaker


@pytest.mark.parametrize(("total", "most"), [(0, 2), (3, 2), (10, 2), (11, 2.2), (100, 20)])
def test_the_limit(total: int, most: float) -> None:
    assert limit(total, POLICY) == pytest.approx(most)
    assert limit(total, Policy(breaker_fraction=1.0, breaker_minimum=0)) == total
    assert limit(total, Policy(breaker_fraction=0.0)) == 2


def suspects(n: int, evidence: Evidence | None = None) -> Mapping[str, Evidence]:
    return {f"u{i}": evidence or Evidence(Span(0, 0), 1, 0) for i in range(n)}


@pytest.mark.parametrize(
    ("gone", "recent", "others", "trips"),
    [
        (2, 0, 0, False),
        (3, 0, 7, True),
        (2, 1, 7, True),
        (2, 1, 12, False),
        (3, 0, 12, False),
        (3, 0, 11, True),
        (20, 0, 80, False),
        (21, 0, 79, True),
    ],
)
def test_the_breaker_trips_above_its_limit(
    gone: int, recent: int, others: int, *, trips: bool
) -> None:
    before = Breaker({f"d{i}": 90.0 for i in range(recent)})
    after = judge(before, suspects(gone), others, 100.0, POLICY, disturbed=False)
    assert after == Breaker(before.deletions, 100.0 if trips else None)
    resumed = judge(
        Breaker(before.deletions, 50.0),
        suspects(gone),
        others,
        100.0,
        Policy(resume=True),
        disturbed=True,
    )
    assert resumed == Breaker(before.deletions, disturbed=100.0)


def test_a_deletion_counts_for_the_window_and_once() -> None:
    before = Breaker({"u0": 100.0, "d": 100.1})
    assert judge(before, suspects(2), 0, 300.0, POLICY, disturbed=False).since == 300.0
    after = judge(before, suspects(2), 0, 400.0, POLICY, disturbed=False)
    assert after == Breaker({"d": 100.1}, 400.0)
    after = judge(before, suspects(2), 0, 400.1, POLICY, disturbed=False)
    assert after == Breaker({}, None)
    once = judge(Breaker({"u0": 100.0}), suspects(2), 0, 300.0, POLICY, disturbed=False)
    assert once.since is None


@pytest.mark.parametrize(
    ("at", "gone", "disturbed", "since"),
    [
        (699.9, 0, False, 100.0),
        (700.0, 0, False, None),
        (700.0, 2, False, None),
        (700.0, 3, False, 100.0),
        (700.0, 0, True, 700.0),
        (150.0, 5, True, 150.0),
    ],
)
def test_the_breaker_holds_until_nothing_has_changed_for_long(
    at: float, gone: int, since: float | None, *, disturbed: bool
) -> None:
    held = Breaker({}, 100.0)
    assert judge(held, suspects(gone), 5, at, POLICY, disturbed=disturbed).since == since


def test_a_disturbance_does_not_trip_the_breaker() -> None:
    assert judge(Breaker(), suspects(1), 5, 9.0, POLICY, disturbed=True).since is None


@pytest.mark.parametrize(
    ("disturbed", "proved", "at"),
    [
        (None, Span(50, 60), 650.0),
        (100.0, Span(50, 60), 700.0),
        (100.0, Span(150, 160), 750.0),
        (100.0, None, None),
    ],
)
def test_release(disturbed: float | None, proved: Span | None, at: float | None) -> None:
    breaker = Breaker({}, 99.0, disturbed=disturbed)
    assert release(breaker, Evidence(proved), POLICY) == at


def test_proven_takes_answers_with_witnesses_for_the_whole_hold() -> None:
    held = Breaker({}, 100.0, disturbed=100.0)
    assert not proven(held, Evidence(), POLICY)
    assert not proven(held, Evidence(Span(0, 699.9)), POLICY)
    assert proven(held, Evidence(Span(0, 700)), POLICY)
    known = suspects(9, Evidence(Span(0, 700), 2, 30))
    assert judge(held, known, 9, 700.0, POLICY, disturbed=False).since is None


@pytest.mark.parametrize(("total", "most"), [(0, 2), (19, 2), (30, 3), (1000, 100)])
def test_the_pace_of_release(total: int, most: float) -> None:
    assert pace(total, POLICY) == pytest.approx(most)
    released = Breaker({}, 0.0, {"old": 5.0, "new": 5.1})
    assert judge(released, {}, 0, 15.0, POLICY, disturbed=False).released == {"new": 5.1}


# The shutdown taint


@pytest.mark.parametrize(
    ("before", "ready", "answer", "after"),
    [
        ((), "False", machine(InstanceState.STOPPED), (SHUTDOWN,)),
        ((OTHER,), "Unknown", machine(InstanceState.STOPPED), (OTHER, SHUTDOWN)),
        ((SHUTDOWN, OTHER), "False", machine(InstanceState.STOPPED), None),
        ((SHUTDOWN, OTHER), "False", machine(InstanceState.RUNNING), (OTHER,)),
        ((OTHER,), "False", machine(InstanceState.RUNNING), None),
        ((SHUTDOWN,), "False", machine(InstanceState.UNKNOWN), None),
        ((SHUTDOWN,), "False", machine(InstanceState.TERMINATING), None),
        ((), "False", machine(InstanceState.TERMINATING), None),
        ((SHUTDOWN,), "False", GONE, None),
        ((SHUTDOWN,), "False", BROKEN, None),
        ((SHUTDOWN,), "False", None, None),
        ((SHUTDOWN, OTHER), "True", None, (OTHER,)),
        ((SHUTDOWN,), "True", machine(InstanceState.STOPPED), ()),
        ((), "True", machine(InstanceState.STOPPED), None),
        (
            (Taint(TAINT_SHUTDOWN, "NoSchedule", "v"), Taint(TAINT_SHUTDOWN, "NoExecute")),
            "True",
            None,
            (Taint(TAINT_SHUTDOWN, "NoExecute"),),
        ),
    ],
)
def test_the_shutdown_taint(
    apply_patch: ApplyPatch,
    before: tuple[Taint, ...],
    ready: str,
    answer: InstanceAnswer | None,
    after: tuple[Taint, ...] | None,
) -> None:
    tainted = node("a", ready, *before)
    patch = shutdown(tainted, answer)
    if after is None:
        assert patch is None
    else:
        assert patch is not None
        assert apply_patch(tainted, patch).spec.taints == after


# Passes over a fleet


class Fleet:
    """Makes passes: asks for every candidate, answers from a table, hands the memory on."""

    def __init__(self, *nodes: Node, policy: Policy = POLICY, at: float = 1000.0) -> None:
        self.nodes = list(nodes)
        self.policy = policy
        self.memory = Memory()
        self.at = at
        self.turns = count()
        self.owns: Callable[[Node], Ownership] = owns
        self.scope: Callable[[Node], Scope] = lambda _: ""
        self.sightings: dict[str, Sighting] = {}
        self.last_ready = LastReady(lambda: self.at)
        self.declared = Ages(lambda: self.at, is_declared_gone)
        for one in nodes:
            self.see(None, one)

    @property
    def known(self) -> Known:
        return Known(
            self.owns,
            self.scope,
            lambda n: self.sightings.get(n.metadata.name, Sighting()),
            ready_until=self.last_ready.ready_until,
            ready_for=self.last_ready.ready_for,
            taken_over=self.last_ready.taken_over,
            declared_for=self.declared.seconds,
        )

    def see(self, old: Node | None, new: Node) -> None:
        """A watch shows a change."""
        self.last_ready.on_node(old, new)
        self.declared.on_node(old, new)

    def taken_over(self, name: str) -> None:
        """The kubelet of another machine reports for the Node."""
        first, second = (reporting(up(name), uuid) for uuid in (UUID, OTHER_UUID))
        self.last_ready.on_node(first, second)

    def was_ready(self, *names: str) -> None:
        """The kubelets of these nodes have reported, and are silent again."""
        for one in self.nodes:
            if one.metadata.name in names:
                self.last_ready.on_node(up(one.metadata.name), one)

    def ask(
        self,
        default: InstanceAnswer | None = GONE,
        witness: InstanceAnswer | None = None,
        **answers: InstanceAnswer | None,
    ) -> list[Reply]:
        """Candidates get `default`, witnesses are there, `answers` go before both."""
        replies = []
        for question in ask(
            self.nodes,
            self.memory,
            turn=next(self.turns),
            at=self.at,
            policy=self.policy,
            known=self.known,
        ):
            told: dict[str, InstanceAnswer | None] = {}
            told |= dict.fromkeys(names(question.candidates), default)
            told |= {n: witness or machine() for n in names(question.witnesses)}
            told |= {n: a for n, a in answers.items() if n in told}
            observed = {n: [Observation(a, self.at)] for n, a in told.items() if a is not None}
            replies.append(Reply(question, observed))
        return replies

    def decide(self, replies: Sequence[Reply]) -> Pass:
        found = self._plan(self.nodes, replies)
        some = [
            node
            for node in self.nodes
            if stands_out(node)
            or self.known.sighting(node).is_lost
            or node.metadata.name in self.last_ready.others
        ]
        # In every test: what a pass leaves out does not matter.
        if is_quiet(some, NOW, self.known, self.policy, self.memory):
            assert self._plan(some, replies) == found
        self.memory = found.memory
        return found

    def _plan(self, nodes: Sequence[Node], replies: Sequence[Reply]) -> Pass:
        return plan(nodes, replies, self.memory, self.policy, self.known, now=NOW, at=self.at)

    def after(
        self,
        seconds: float,
        default: InstanceAnswer | None = GONE,
        witness: InstanceAnswer | None = None,
        **answers: InstanceAnswer | None,
    ) -> Pass:
        """A pass that many seconds later."""
        self.at += seconds
        return self.decide(self.ask(default, witness, **answers))

    def until(
        self,
        seconds: float,
        default: InstanceAnswer | None = GONE,
        witness: InstanceAnswer | None = None,
        **answers: InstanceAnswer | None,
    ) -> list[Pass]:
        """A pass every five seconds for so long."""
        return [self.after(5.0, default, witness, **answers) for _ in range(int(seconds / 5.0))]

    def shown(self, *names: str, at: float = 0.0) -> None:
        """The cloud has shown these machines then, running."""
        self.sightings |= {name: Sighting(at, ran=at) for name in names}

    @property
    def since(self) -> float | None:
        """When the breaker tripped, or was disturbed last."""
        return self.memory.scopes.get("", ScopeMemory()).breaker.since

    @property
    def counted(self) -> Mapping[str, float]:
        """The deletions that the breaker counts."""
        return self.memory.scopes.get("", ScopeMemory()).breaker.deletions

    def replace(self, *nodes: Node) -> None:
        new = {n.metadata.name: n for n in nodes}
        for old in self.nodes:
            if old.metadata.name in new:
                self.see(old, new[old.metadata.name])
        self.nodes = [new.get(n.metadata.name, n) for n in self.nodes]


def deleted(found: Pass) -> list[str]:
    return names([deletion.node for deletion in found.delete])


def fleet(gone: int, ready: int, *, policy: Policy = POLICY) -> Fleet:
    nodes = [node(f"gone{i}") for i in range(gone)] + [up(f"up{i}") for i in range(ready)]
    return Fleet(*nodes, policy=policy)


def evidence_of(found: Pass) -> Mapping[tuple[str, str], Evidence]:
    return {k: v for scope in found.memory.scopes.values() for k, v in scope.evidence.items()}


def told(found: Pass) -> list[tuple[Alert, list[str]]]:
    return [(alarm.alert, names(alarm.nodes)) for alarm in found.alarms]


def test_two_answers_half_a_minute_apart_delete_a_node() -> None:
    one = fleet(1, 4)
    first = one.after(0)
    assert first.delete == ()
    assert first.countdown(one.at) == {"gone0": 30.0}
    assert first.countdown(one.at + 12) == {"gone0": 18.0}
    assert first.countdown(one.at + 31) == {"gone0": 0.0}
    assert first.next_look == one.at + 30
    assert first.held == {}
    assert deleted(one.after(29.9)) == []
    last = one.after(0.1)
    assert deleted(last) == ["gone0"]
    assert last.waiting == {}
    assert last.alarms == ()
    assert last.next_look is None
    assert last.delete[0].node is one.nodes[0]
    assert last.delete[0].event == PlannedEvent(
        "Normal",
        "DeletingNode",
        "Deleting node gone0 because it does not exist in the cloud provider",
    )


def test_a_quiet_fleet_costs_nothing_and_leaves_no_memory() -> None:
    quiet = fleet(0, 5)
    found = quiet.after(0)
    assert found == Pass((), (), (), (), {}, {}, {}, (), Memory(), None)
    present = fleet(2, 5)
    assert present.after(0, machine()) == found


ANNOTATED = [
    ANNOTATION_GONE, ANNOTATION_UNKNOWN, ANNOTATION_OUTLIVED, ANNOTATION_OUTLASTING,
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "does"),
    [
        (up("n"), False),
        (up("n", OTHER, AUTOSCALER, UNINITIALIZED), False),
        (changed(up("n"), annotations={"another": "true"}), False),
        (changed(up("n"), deletion_timestamp=NOW), False),
        (node("n", "False"), True),
        (node("n", "Unknown"), True),
        (node("n", ""), True),
        (up("n", OTHER, SHUTDOWN), True),
        *((changed(up("n"), annotations={name: "true"}), True) for name in ANNOTATED),
    ],
)
def test_what_stands_out(one: Node, *, does: bool) -> None:
    assert stands_out(one) is does
    kept = Outstanding()
    cache: dict[str, Node] = {}
    kept.on_node(None, one)
    assert names(kept.with_others((), cache.get)) == (["n"] if does else [])
    kept.on_node(one, up("n"))
    assert kept.with_others((), cache.get) == ()
    kept.on_node(up("n"), one)
    kept.on_node(one, None)
    assert kept.with_others((), cache.get) == ()


def test_lost_machines_are_outstanding_once_and_only_while_their_node_is_there() -> None:
    kept = Outstanding()
    kept.on_node(None, down := node("down"))
    cache = {"down": down, "up": up("up"), "other": up("other")}
    assert names(kept.with_others(["up", "down", "gone"], cache.get)) == ["down", "up"]


@pytest.mark.parametrize(
    ("one", "quiet"),
    [
        (up("n", SHUTDOWN), True),
        (node("n", deleting=True), True),
        (node("n", "False", UNINITIALIZED, age=1), True),
        (node("n"), False),
        (changed(up("n"), annotations={ANNOTATION_GONE: "true"}), True),
        (changed(up("n"), annotations={ANNOTATION_OUTLIVED: "true"}), True),
        (changed(up("n"), annotations={ANNOTATION_UNKNOWN: "true"}), False),
    ],
)
def test_a_pass_is_quiet_unless_a_node_is_in_question(one: Node, *, quiet: bool) -> None:
    assert is_quiet([one], NOW, KNOWN, POLICY, Memory()) is quiet
    Fleet(one, up("other")).after(0, machine())  # decides the same


@pytest.mark.parametrize("lost", [Sighting(missing=1.0), Sighting(tombstone=1.0)])
def test_a_pass_is_not_quiet_while_a_machine_is_lost_or_anything_is_remembered(
    lost: Sighting,
) -> None:
    known = Known(owns, sighting=lambda _: lost)
    assert not is_quiet([up("n")], NOW, known, POLICY, Memory())
    for memory in (
        remembered(strange={("u", "p"): 1.0}),
        Memory(reported={("u", Alert.UNKNOWN): 1.0}),
        Memory(outlived=frozenset({("u", "p")})),
    ):
        assert not is_quiet([], NOW, KNOWN, POLICY, memory)
    assert is_quiet([], NOW, KNOWN, POLICY, Memory())


def test_a_mark_of_another_clouds_node_disturbs_nobody() -> None:
    marked = changed(up("n"), annotations={ANNOTATION_UNKNOWN: "true"})
    known = Known(lambda _: Ownership.NO)
    assert is_quiet([marked], NOW, known, POLICY, Memory())


def test_a_ready_node_is_never_deleted_and_what_was_known_is_forgotten() -> None:
    one = fleet(1, 4)
    one.after(0)
    replies = one.ask()
    one.replace(up("gone0"))
    one.at += 40
    found = one.decide(replies)
    assert found.delete == ()
    assert found.waiting == {}
    assert evidence_of(found) == {}
    one.replace(node("gone0"))
    assert deleted(one.after(1)) == []


def test_an_answer_about_an_old_node_does_not_count_for_a_new_one_of_the_same_name() -> None:
    for new in (node("gone0", uid="new"), node("gone0", provider_id="sim://new")):
        one = fleet(1, 4)
        one.after(0)
        one.at += 40
        replies = one.ask()
        one.replace(new)
        found = one.decide(replies)
        assert found.delete == ()
        assert evidence_of(found) == {}
        assert deleted(one.after(1)) == []
        assert deleted(one.after(31)) == ["gone0"]


def test_what_was_known_does_not_delete_without_a_fresh_answer() -> None:
    for answer in (None, BROKEN):
        one = fleet(1, 4)
        one.after(0)
        assert deleted(one.after(30)) == ["gone0"]
        found = one.after(5, answer)
        assert found.delete == ()
        assert found.waiting == {
            "gone0": Wait(None, "the cloud has to say once more that its instance is gone")
        }
        assert found.countdown(one.at) == {"gone0": None}
        assert found.next_look is None
        assert deleted(one.decide([])) == []
        assert deleted(one.after(5)) == ["gone0"]


def test_a_machine_that_reappears_is_kept() -> None:
    one = fleet(1, 4)
    one.after(0)
    found = one.after(30, machine())
    assert found.delete == ()
    assert found.waiting == {}
    assert deleted(one.after(5)) == []


def test_errors_and_missing_answers_delete_nothing() -> None:
    one = fleet(1, 4)
    for answer in (BROKEN, None) * 300:
        found = one.after(5, answer)
        assert found.delete == ()
        assert found.memory == Memory()


def test_a_tombstone_needs_one_answer_and_no_witness() -> None:
    for one, witness in ((fleet(1, 4), None), (fleet(1, 0), None), (fleet(1, 4), GONE)):
        found = one.after(0, TOMBSTONE, witness)
        assert [d.reason for d in found.delete] == ["the cloud shows its instance as terminated"]


def test_a_tombstone_is_void_once_another_call_has_shown_the_machine() -> None:
    """The DELETE met a conflict, and a refresh came in between."""
    one = fleet(1, 0)
    assert deleted(one.after(0, TOMBSTONE)) == ["gone0"]
    one.sightings["gone0"] = Sighting(shown=one.at + 2, until=one.at + 3)
    assert deleted(one.after(5, GONE)) == []
    assert deleted(one.after(5, TOMBSTONE)) == ["gone0"]


def test_an_answer_counts_for_nothing_if_a_later_call_has_shown_the_machine_already() -> None:
    for answer in (TOMBSTONE, GONE):
        once = msgspec.structs.replace(POLICY, confirmations=1)
        one = fleet(1, 4, policy=once)
        one.sightings["gone0"] = Sighting(shown=one.at + 1, until=one.at + 2)
        assert one.after(0, answer).memory == Memory()
        assert deleted(one.after(5, answer)) == ["gone0"]


# Nodes that are Ready and that the cloud does not know


def test_while_a_witness_is_missing_nothing_is_deleted() -> None:
    for witness in (GONE, None):
        one = fleet(1, 4)
        found = [
            step
            for _ in range(300)
            for step in (one.after(5, GONE, witness, up0=GONE), one.after(5, GONE, witness))
        ]
        assert all(step.delete == () for step in found)


def test_a_ready_node_that_the_cloud_does_not_know_is_named_at_once() -> None:
    one = fleet(1, 4)
    found = one.after(0, GONE, None, up0=GONE)
    assert found.unknown == {"up0": False}
    (alarm,) = found.alarms
    assert (alarm.alert, names(alarm.nodes)) == (Alert.UNKNOWN, ["up0"])
    assert alarm.event == PlannedEvent(
        "Warning",
        "InstanceUnknown",
        "the cloud does not know sim://up0, although the node is Ready; while that is so, no node "
        "of its scope is deleted because the cloud does not know it: look at the account, region "
        "and inventory in the cloud-config",
    )
    assert found.waiting.keys() == {"gone0"}, "in a minute it may be seen to be dying"
    for later in one.until(55, GONE, None, up0=GONE):
        assert later.alarms == ()
        assert later.delete == ()
        assert later.held == {}
    found = one.after(5, GONE, None, up0=GONE)
    assert told(found) == [(Alert.WITNESS_MISSING, ["gone0"])]
    assert found.held == {
        "gone0": Wait(
            None, "the cloud does not know a Ready node either: up0", Alert.WITNESS_MISSING
        )
    }
    assert found.alarms[0].event == PlannedEvent(
        "Warning",
        "NodeDeletionHeld",
        "the instance looks gone, but the node is not deleted: the cloud does not know a Ready "
        "node either: up0; if the machine is surely gone, annotate the node with "
        "proreus.io/machine-gone=true",
    )


def test_a_lasting_problem_is_reported_again_after_half_an_hour() -> None:
    two = fleet(1, 2)
    for _ in range(2):
        found = [step for step in two.until(1800, GONE, None, up0=GONE) if step.alarms]
        assert len(found) == 2
    assert two.until(5, GONE, None, up0=GONE)[0].alarms != ()


def test_what_other_calls_have_shown_counts_too() -> None:
    quiet = fleet(0, 4)
    quiet.sightings["up0"] = Sighting(shown=3.0, missing=7.0)
    found = quiet.after(0)
    assert found.unknown == {"up0": False}
    assert told(found) == [(Alert.UNKNOWN, ["up0"])]
    quiet.sightings["up0"] = Sighting(shown=quiet.at)
    assert quiet.after(5).memory == Memory()


def test_a_machine_that_was_dying_neither_proves_nor_disturbs() -> None:
    many = fleet(5, 9)
    many.after(0)
    tripped = many.since
    assert tripped == many.at
    for index in range(8):
        for _ in range(8):
            found = many.after(5, GONE, None, **{f"up{index}": GONE})
            assert found.delete == ()
        many.replace(node(f"up{index}"))
    assert many.since == tripped
    while not (found := many.after(5)).delete:
        pass
    assert many.at <= tripped + 610
    assert len(found.delete) == 2


def test_an_answer_that_lacked_a_dying_machine_counts_from_when_it_was_given() -> None:
    one = fleet(1, 4)
    one.after(0, GONE, None, up0=GONE)
    begun = one.at
    one.until(25, GONE, None, up0=GONE)
    one.replace(node("up0"))
    while not (found := one.after(5)).delete:
        pass
    assert one.at - begun <= 35
    assert deleted(found) == ["gone0"]
    assert found.waiting.keys() == {"up0"}


def test_a_node_that_outlives_its_instance_is_not_deleted_when_it_falls_silent(
    apply_patch: ApplyPatch,
) -> None:
    """Another machine has taken the name of one that is gone, and the Node with its id."""
    one = fleet(0, 3)
    one.sightings["up0"] = Sighting(shown=0.0, tombstone=one.at)
    assert all(found.marks == () for found in one.until(595))
    ((judged, mark),) = one.after(5).marks
    one.replace(apply_patch(judged, mark))
    silent = apply_patch(node("up0", "Unknown"), mark)
    later = Fleet(silent, up("up1"), up("up2"))  # it starts with the mark alone
    one.replace(silent)
    for answer in (TOMBSTONE, GONE):  # EC2 shows what is gone for an hour only
        for found in (*one.until(1200, answer), *later.until(1200, answer)):
            assert found.delete == ()
            assert found.marks == ()
            assert found.held["up0"].hold is Alert.OUTLIVED
    word = {**silent.metadata.annotations, ANNOTATION_GONE: "true"}
    one.replace(changed(silent, annotations=word))
    assert deleted(one.after(5, TOMBSTONE)) == ["up0"]


@pytest.mark.parametrize("taint", [Taint(TAINT_UNINITIALIZED, "NoSchedule"), AUTOSCALER])
@pytest.mark.parametrize("shown", [None, 0.0])
def test_a_node_that_can_be_no_witness_is_not_deleted_either_if_it_was_ready_and_unknown(
    apply_patch: ApplyPatch, taint: Taint, shown: float | None
) -> None:
    one = Fleet(up("odd", taint), node("gone"), *(up(f"up{i}") for i in range(3)))
    one.sightings["odd"] = Sighting(shown=shown, missing=one.at)
    found = one.until(50)
    assert ["gone"] in [deleted(each) for each in found]  # it holds nothing else
    one.nodes = [each for each in one.nodes if each.metadata.name != "gone"]
    marks = [mark for each in one.until(560) for mark in each.marks]
    judged, mark = marks[0]
    one.replace(apply_patch(judged, mark))
    assert one.after(5).unknown == {}
    silent = apply_patch(node("odd", "Unknown", taint), mark)
    later = Fleet(silent, *(up(f"up{i}") for i in range(3)))  # it starts with the mark alone
    one.replace(silent)
    for found in (one.until(1200), later.until(1200)):
        assert all(each.delete == () for each in found)
        assert found[-1].held["odd"].hold is Alert.STRANGE
    one.shown("odd", at=one.at)
    assert ["odd"] in [deleted(each) for each in one.until(60)]


def test_a_node_that_can_be_no_witness_and_dies_soon_is_deleted() -> None:
    """Its machine has just gone, as one that the autoscaler has removed."""
    one = Fleet(up("odd", AUTOSCALER), *(up(f"up{i}") for i in range(3)))
    one.sightings["odd"] = Sighting(shown=0.0, missing=one.at)
    assert all(each.marks == () for each in one.until(590))
    one.replace(node("odd", "Unknown", AUTOSCALER))
    assert ["odd"] in [deleted(each) for each in one.until(60)]


@pytest.mark.parametrize(("seconds", "stays"), [(599, False), (600, True)])
def test_a_node_that_outlived_its_instance_stays_if_no_pass_saw_it_ready_so_late(
    seconds: float, *, stays: bool
) -> None:
    """Another machine has got its name, and is silent; the cloud took long to answer."""
    one = fleet(0, 3)
    one.sightings["up0"] = Sighting(tombstone=one.at)
    one.at += seconds
    one.replace(node("up0"))
    found = one.after(5, TOMBSTONE)
    assert (deleted(found) == ["up0"]) is not stays
    assert not stays or found.held["up0"].hold is Alert.OUTLIVED


def test_the_instance_of_a_node_that_outlived_it_may_come_back(apply_patch: ApplyPatch) -> None:
    """An inventory said that it is gone, by mistake, and is corrected."""
    one = fleet(0, 3)
    one.sightings["up0"] = Sighting(tombstone=one.at)
    ((judged, mark),) = one.after(600).marks
    one.replace(apply_patch(judged, mark))
    one.shown("up0", at=one.at)
    ((judged, unmark),) = one.after(5).marks
    after = apply_patch(judged, unmark)
    assert ANNOTATION_OUTLIVED not in after.metadata.annotations
    one.replace(msgspec.structs.replace(after, status=node("up0").status))
    assert deleted(one.after(5, TOMBSTONE)) == ["up0"]


@pytest.mark.parametrize("lost", ["missing", "tombstone"])
def test_a_node_that_another_machine_has_taken_over_does_not_go_with_the_former_one(
    apply_patch: ApplyPatch, lost: str
) -> None:
    """Also if that one was kept for a moment. The kubelet is silent until its start is done."""
    answer = TOMBSTONE if lost == "tombstone" else GONE
    one = fleet(0, 4)
    one.taken_over("up0")
    one.sightings["up0"] = Sighting(shown=one.at + 1, ran=0.0, **{lost: one.at + 5})
    ((judged, mark),) = one.after(5).marks
    marked = apply_patch(judged, mark)
    assert ANNOTATION_OUTLIVED in marked.metadata.annotations
    silent = msgspec.structs.replace(marked, status=node("up0").status)
    one.replace(silent)
    later = Fleet(silent, *(up(f"up{i}") for i in range(1, 4)))  # it starts with the mark alone
    for found in (*one.until(1200, answer), *later.until(1200, answer)):
        assert found.delete == ()
        assert found.held["up0"].hold is Alert.OUTLIVED


def test_a_node_is_marked_while_the_machine_from_which_another_took_it_over_is_kept(
    apply_patch: ApplyPatch,
) -> None:
    """A later manager does not see that the UUID has changed."""
    one = fleet(0, 4)
    one.sightings["up0"] = Sighting(shown=one.at, ran=one.at - 5)
    one.taken_over("up0")
    ((judged, mark),) = one.after(5).marks
    marked = apply_patch(judged, mark)
    later = Fleet(marked, *(up(f"up{i}") for i in range(1, 4)), at=one.at)
    later.sightings["up0"] = Sighting(shown=later.at)
    assert later.after(5).marks == (), "it is kept, and does not run"
    later.sightings["up0"] = Sighting(shown=later.at, tombstone=later.at)
    later.replace(msgspec.structs.replace(marked, status=node("up0").status))
    assert later.after(5, TOMBSTONE).held["up0"].hold is Alert.OUTLIVED
    later.shown("up0", at=later.at)
    ((judged, unmark),) = later.after(5, machine(InstanceState.RUNNING)).marks
    assert ANNOTATION_OUTLIVED not in apply_patch(judged, unmark).metadata.annotations


def test_a_word_about_a_machine_does_not_outlast_the_next_one(apply_patch: ApplyPatch) -> None:
    """From the moment in which that reports, though the mark is still that of the former one."""
    words = {ANNOTATION_OUTLIVED: UUID, ANNOTATION_GONE: "true"}
    sworn_ = changed(node("gone0"), annotations=words)
    one = Fleet(reporting(sworn_, OTHER_UUID), up("a"), up("b"))
    held = one.until(300)
    assert [found.held["gone0"].hold for found in held] == [Alert.OUTLIVED] * len(held)
    ((judged, mark),) = held[-1].marks
    marked = apply_patch(judged, mark)
    assert marked.metadata.annotations == {ANNOTATION_OUTLIVED: OTHER_UUID}
    one.replace(marked)
    assert one.after(5).marks == ()
    one.replace(changed(marked, annotations={**words, ANNOTATION_OUTLIVED: OTHER_UUID}))
    assert any(deleted(found) for found in one.until(60))


def test_a_machine_that_got_another_uuid_is_gone_when_it_goes() -> None:
    """Such as one that was restored: the cloud has shown it running since."""
    one = fleet(0, 4)
    one.taken_over("up0")
    one.sightings["up0"] = Sighting(shown=one.at + 5, ran=one.at + 5)
    assert one.after(10).marks == ()
    one.sightings["up0"] = Sighting(shown=one.at, tombstone=one.at + 5, ran=one.at)
    one.replace(node("up0"))
    assert deleted(one.after(10, TOMBSTONE)) == ["up0"]


def test_a_node_whose_machine_has_just_gone_does_not_outlive_it() -> None:
    one = fleet(0, 3)
    one.sightings["up0"] = Sighting(shown=0.0, tombstone=one.at)
    assert all(found.marks == () for found in one.until(595))
    one.replace(node("up0"))
    assert deleted(one.after(30, TOMBSTONE)) == ["up0"]


@pytest.mark.parametrize("why", ["go", "other", "going"])
def test_nodes_that_are_not_judged_get_no_mark_and_keep_it(why: str) -> None:
    for annotations in ({}, {ANNOTATION_OUTLIVED: "true"}):
        one = fleet(0, 3)
        one.policy = GO if why == "go" else POLICY
        one.owns = lambda _: Ownership.NO if why == "other" else Ownership.YES
        going = {"deletion_timestamp": NOW} if why == "going" else {}
        one.replace(changed(up("up0"), annotations=annotations, **going))
        one.sightings["up0"] = Sighting(tombstone=one.at)
        assert all(found.marks == () for found in one.until(900))
        assert one.memory.outlived == frozenset()


def test_a_node_with_a_tombstone_is_never_a_witness() -> None:
    one = fleet(1, 4)
    found = one.after(0, GONE, None, up0=TOMBSTONE, up1=TOMBSTONE)
    assert found.unknown == {}
    assert deleted(one.after(30, GONE, None, up0=TOMBSTONE, up1=TOMBSTONE)) == ["gone0"]
    alone = fleet(1, 1)
    alone.after(0, GONE, TOMBSTONE)
    assert alone.after(30, GONE, TOMBSTONE).delete == ()


@pytest.mark.parametrize("how", ["shown", "shown by another call", "ready"])
def test_an_answer_that_waits_does_not_count_for_a_machine_that_was_seen_later(how: str) -> None:
    one = fleet(1, 4)
    one.after(0, GONE, None, up0=GONE)
    if how == "shown":
        one.after(10, machine(), None, up0=GONE)
    elif how == "ready":
        one.replace(up("gone0"))
        one.after(10, GONE, None, up0=GONE, gone0=machine())
        one.replace(node("gone0"))
    else:
        one.after(10, GONE, None, up0=GONE)
        one.shown("gone0", at=one.at + 2)
    one.after(20, GONE, None, up0=GONE)
    one.replace(node("up0"))
    assert [step.delete for step in one.until(10)] == [(), ()]
    assert any(step.delete for step in one.until(30))


def test_a_node_that_was_ready_between_two_passes_is_gone_by_later_answers_only() -> None:
    one = fleet(1, 4)
    one.after(0)
    one.at += 10
    one.was_ready("gone0")
    assert one.after(20).delete == ()
    assert deleted(one.after(30)) == ["gone0"]


def test_an_answer_during_which_a_node_was_ready_counts_for_nothing() -> None:
    one = fleet(1, 4)
    replies = one.ask()
    one.at += 20
    one.was_ready("gone0")
    found = one.decide(replies)
    assert (found.waiting, evidence_of(found)) == ({}, {})
    one.after(1, GONE, None, up0=GONE)  # and waits until it is known what became of up0
    one.at += 1
    one.was_ready("gone0")
    one.replace(node("up0", "False"))  # whose machine was dying
    assert deleted(one.after(1)) == []
    assert deleted(one.after(29)) == []
    assert deleted(one.after(1)) == ["gone0", "up0"]


def test_a_tombstone_counts_for_a_node_that_was_ready_meanwhile() -> None:
    """The machine was dying."""
    one = fleet(1, 4)
    replies = one.ask(TOMBSTONE)
    one.at += 20
    one.was_ready("gone0")
    assert deleted(one.decide(replies)) == ["gone0"]


def test_a_machine_that_any_call_has_shown_is_gone_by_later_answers_only() -> None:
    one = fleet(1, 4)
    one.after(0)
    one.shown("gone0", at=one.at + 10)
    assert one.after(30).delete == ()
    assert deleted(one.after(30)) == ["gone0"]


def test_a_witness_that_the_cloud_knows_again_makes_all_answers_until_then_worthless() -> None:
    one = fleet(1, 4)
    one.after(0)
    one.after(5, GONE, None, up1=GONE)
    found = one.after(25)
    assert evidence_of(found) == {("uid-gone0", "sim://gone0"): Evidence()}
    assert found.delete == ()
    assert deleted(one.after(5)) == []
    assert deleted(one.after(29)) == []
    assert deleted(one.after(1)) == ["gone0"]


def test_after_ten_minutes_it_is_no_witness_any_more() -> None:
    """One of the nodes runs in another account: with 20 of them, one dead, this one goes."""
    for ready in (3, 19):
        one = fleet(1, ready)
        one.shown("gone0")
        begun = one.at
        while not (found := one.after(5, GONE, None, up0=GONE)).delete:
            assert one.at - begun < 700
        assert one.at - begun >= 630
        assert deleted(found) == ["gone0"]
        assert found.unknown == {"up0": True}
        assert one.memory.reported.keys() == {("uid-up0", Alert.ASIDE)}


def test_of_two_witnesses_none_is_set_aside() -> None:
    one = fleet(1, 2)
    one.shown("gone0")
    for found in one.until(1800, GONE, None, up0=GONE):
        assert found.delete == ()
        assert found.unknown == {"up0": False}
    assert found.held["gone0"].reason == "the cloud does not know a Ready node either: up0"


def test_answers_that_lack_most_set_nobody_aside() -> None:
    one = fleet(1, 20)
    one.shown("gone0")
    lost = {f"up{i}": GONE for i in range(20) if i != 7}
    for found in one.until(1800, GONE, None, **lost):
        assert found.delete == ()
        assert not any(found.unknown.values())


@pytest.mark.parametrize(("ready", "lost", "goes"), [(20, 1, True), (20, 2, False), (60, 3, True)])
def test_only_so_many_are_set_aside(ready: int, lost: int, *, goes: bool) -> None:
    one = fleet(1, ready)
    one.shown("gone0")
    strangers = {f"up{i}": GONE for i in range(lost)}
    found = one.until(1500, GONE, None, **strangers)
    assert any(step.delete for step in found) is goes
    assert set(found[-1].unknown) == set(strangers)
    if not goes:
        assert found[-1].held["gone0"].reason == (
            "the cloud does not know these Ready nodes either, more than may be set aside: up0, up1"
        )


def test_many_missing_nodes_are_named_in_part() -> None:
    one = fleet(1, 9)
    found = one.until(120, GONE, GONE)
    assert found[-1].held["gone0"].reason.endswith("up0, up1, up2, up3, up4 and 4 more")


def test_with_a_witness_set_aside_only_what_was_shown_goes() -> None:
    one = fleet(1, 9)
    found = one.until(1500, GONE, None, up0=GONE)
    assert all(step.delete == () for step in found)
    reason = "the cloud has not shown its instance to this manager while it did not know up0"
    assert found[-1].held == {"gone0": Wait(None, reason, Alert.NOT_SHOWN)}
    one.shown("gone0")
    assert deleted(one.after(5, GONE, None, up0=GONE)) == ["gone0"]


def test_a_node_that_was_unknown_while_it_was_ready_stays_when_it_is_silent() -> None:
    """Its machine lives in another account, or is dead: the cloud would say the same."""
    one = fleet(0, 5)
    one.sightings["up0"] = Sighting(missing=one.at)
    one.until(65)
    one.replace(node("up0"))
    found = one.until(1200)
    assert all(step.delete == () for step in found)
    assert found[-1].held["up0"].hold is Alert.STRANGE
    one.sightings["up0"] = Sighting(shown=one.at)
    assert any(step.delete for step in one.until(60))


@pytest.mark.parametrize(
    ("shown", "seconds", "stays"),
    [(None, 59, False), (None, 60, True), (0, 599, False), (0, 600, True)],
)
def test_a_node_that_was_unknown_while_it_was_ready_stays_if_no_pass_saw_it_so(
    shown: float | None, seconds: float, *, stays: bool
) -> None:
    """The cloud took long to answer; the node fell silent just before."""
    one = fleet(0, 5)
    one.sightings["up0"] = Sighting(shown, missing=one.at)
    one.at += seconds
    one.replace(node("up0"))
    found = one.until(1200)
    assert any(each.delete for each in found) is not stays
    assert not stays or found[-1].held["up0"].hold is Alert.STRANGE


def test_one_that_no_pass_saw_so_keeps_no_other_from_being_known_for_it() -> None:
    """Nor does it count as one of those that are Ready, of which few must be missing to be marked."""
    one = fleet(0, 4)
    one.sightings["up0"] = Sighting(missing=one.at)
    one.at += 60
    one.replace(node("up0"))
    one.after(5)
    one.sightings["up1"] = Sighting(missing=one.at)
    found = one.until(120, up1=GONE)
    marked = {node.metadata.name for each in found for node, _ in each.marks}
    assert marked == {"up0", "up1"}
    one.replace(node("up1"))
    one.nodes = [each for each in one.nodes if each.metadata.name != "up0"]
    found = one.until(1200)
    assert not any(each.delete for each in found)
    assert found[-1].held["up1"].hold is Alert.STRANGE


def test_a_node_that_the_cloud_lost_while_it_was_ready_stays_when_it_is_silent(
    apply_patch: ApplyPatch,
) -> None:
    """Somebody took it off the list of machines; it was Ready for long without it."""
    one = fleet(0, 9)
    one.sightings["up0"] = Sighting(one.at, missing=one.at + 5)
    marks = [(n, p) for found in one.until(1500) for n, p in found.marks]
    assert names([n for n, _ in marks[:1]]) == ["up0"]
    one.replace(node("up0"))
    found = one.until(1200)
    assert all(step.delete == () for step in found)
    assert found[-1].held["up0"].hold is Alert.STRANGE
    silent = apply_patch(*marks[0])
    again = Fleet(msgspec.structs.replace(silent, status=node("up0").status), *one.nodes[1:])
    assert all(found.delete == () for found in again.until(600))
    one.sightings["up0"] = Sighting(shown=one.at)
    assert any(step.delete for step in one.until(60))


@pytest.mark.parametrize("ready", [2, 20])
def test_many_that_the_cloud_lost_stay_when_they_are_silent(ready: int) -> None:
    """More than may be set aside, or too few others to set anybody aside."""
    one = fleet(0, ready)
    lost = [f"up{i}" for i in range(ready // 2)]
    for shown in (one.at, None):
        one.sightings = {name: Sighting(shown, missing=one.at + 5) for name in lost}
        one.until(1200)
        one.replace(*(node(name) for name in lost))
        found = one.until(1200)
        assert all(step.delete == () for step in found)
        assert {wait.hold for wait in found[-1].held.values()} == {Alert.STRANGE}
        one = fleet(0, ready)


def test_what_died_while_answers_were_wrong_goes_when_they_are_right_again() -> None:
    one = fleet(0, 9)
    one.sightings = {f"up{i}": Sighting(one.at, missing=one.at + 5) for i in range(9)}
    one.until(1200)
    one.replace(node("up0"))
    one.until(120)
    one.sightings |= {f"up{i}": Sighting(one.at) for i in range(1, 9)}
    assert any(step.delete for step in one.until(120))


def test_what_died_meanwhile_goes_also_when_all_others_return_at_once() -> None:
    one = fleet(0, 9)
    hidden = {f"up{i}": Sighting(one.at, missing=one.at + 5) for i in range(4)}
    one.sightings = dict(hidden)
    one.until(1200)
    one.replace(node("up0"))
    one.until(60, GONE, None, **dict.fromkeys(hidden, GONE))
    one.sightings |= {f"up{i}": Sighting(one.at) for i in range(1, 4)}
    assert any(step.delete for step in one.until(120))


def test_a_fault_that_ends_does_not_clear_whom_the_cloud_lost_long_before() -> None:
    one = fleet(0, 9)
    one.sightings["up0"] = Sighting(one.at, missing=one.at + 5)
    one.until(1500)
    one.sightings["up1"] = Sighting(one.at, missing=one.at + 5)
    one.until(300)
    one.replace(node("up0"))
    one.shown("up1", at=one.at)
    assert all(step.delete == () for step in one.until(1200))


def test_an_unknown_node_is_marked_once_and_stays_unknown_after_a_restart(
    apply_patch: ApplyPatch,
) -> None:
    one = fleet(0, 5)
    one.sightings["up0"] = Sighting(missing=one.at)
    marks = [(n, p) for found in one.until(65) for n, p in found.marks]
    assert names([n for n, _ in marks[:1]]) == ["up0"]
    one.replace(apply_patch(*marks[0]))
    assert all(found.marks == () for found in one.until(60))
    silent = msgspec.structs.replace(one.nodes[0], status=node("up0").status)
    again = Fleet(silent, *one.nodes[1:])
    assert all(found.delete == () for found in again.until(600))
    again.replace(one.nodes[0])
    again.sightings["up0"] = Sighting(shown=again.at)
    ((_, patch),) = again.after(5).marks
    assert ANNOTATION_UNKNOWN not in apply_patch(again.nodes[0], patch).metadata.annotations
    go = Fleet(*one.nodes, policy=GO)
    go.sightings["up1"] = Sighting(missing=0.0)
    assert go.after(900).marks == ()


def test_few_or_many_that_the_cloud_lost_stay_after_a_restart(apply_patch: ApplyPatch) -> None:
    """More than may be set aside are marked, too, unless the cloud knows next to nobody."""
    for ready, lost, is_marked in ((1, 1, True), (20, 2, True), (20, 10, True), (20, 11, False)):
        one = fleet(0, ready)
        names_ = [f"up{i}" for i in range(lost)]
        one.sightings = {name: Sighting(one.at, missing=one.at + 5) for name in names_}
        found = one.until(605)
        marks = {n.metadata.name: apply_patch(n, p) for step in found for n, p in step.marks}
        assert sorted(marks) == (sorted(names_) if is_marked else [])
        silent = [msgspec.structs.replace(n, status=node("a").status) for n in marks.values()]
        again = Fleet(*one.nodes)
        again.replace(*silent)
        assert all(step.delete == () for step in again.until(1200))


def test_marks_are_written_at_most_so_many_at_once() -> None:
    one = fleet(0, 202)
    one.sightings = {f"up{i}": Sighting(one.at, missing=one.at + 5) for i in range(101)}
    assert {len(found.marks) for found in one.until(700)} == {0, 100}


def test_a_taint_on_a_node_that_the_cloud_lost_does_not_make_it_known(
    apply_patch: ApplyPatch,
) -> None:
    """The autoscaler wants to remove it, cannot, and the kubelet falls silent meanwhile."""
    one = fleet(0, 9)
    one.sightings["up0"] = Sighting(one.at, missing=one.at + 5)
    ((_, mark),) = [one for found in one.until(605) for one in found.marks]
    for ready in ("True", "Unknown"):
        tainted = apply_patch(node("up0", ready, AUTOSCALER), mark)
        one.replace(tainted)
        for found in one.until(600):
            assert found.delete == ()
            assert found.marks == ()
    assert found.held["up0"].hold is Alert.STRANGE


@pytest.mark.parametrize("how", ["autoscaler", "owns", "scope"])
def test_a_missing_witness_counts_against_the_answers_while_it_is_ready(how: str) -> None:
    """Whatever keeps it from being asked about; only when it is silent it may have been dying."""
    one = fleet(1, 9)
    one.sightings["up0"] = Sighting(one.at, missing=one.at + 5)
    one.until(200, GONE, None, up0=GONE)
    if how == "autoscaler":
        one.replace(up("up0", AUTOSCALER))
    elif how == "owns":
        one.owns = lambda n: Ownership("unknown" if n.metadata.name == "up0" else "yes")
    else:
        one.scope = lambda n: None if n.metadata.name == "up0" else ""
    found = one.until(300)
    assert all(step.delete == () for step in found)
    assert found[-1].held["gone0"].hold is Alert.WITNESS_MISSING
    assert found[-1].unknown == {"up0": False}
    one.replace(node("up0", "False", AUTOSCALER))
    assert any(step.delete for step in one.until(60))


@pytest.mark.parametrize("shown", [None, 1000.0])
def test_what_left_the_answers_together_with_a_node_stays_when_that_one_is_silent(
    shown: float | None,
) -> None:
    """A reboot of the one that was set aside does not make the answers whole."""
    one = fleet(1, 9)
    if shown:
        one.shown("gone0", at=shown)
    one.sightings["up0"] = Sighting(shown, missing=one.at + 5)
    one.until(1500, GONE, None, up0=GONE)
    one.replace(node("up0"))
    found = one.until(1200)
    assert all(step.delete == () for step in found)
    assert {name: wait.hold for name, wait in found[-1].held.items()} == {
        "gone0": Alert.NOT_SHOWN,
        "up0": Alert.STRANGE,
    }
    one.shown("gone0", at=one.at)
    assert {name for step in one.until(40) for name in deleted(step)} == {"gone0"}


@pytest.mark.parametrize("before", [585, 1000])
def test_what_died_just_before_answers_were_right_again_goes(before: float) -> None:
    """Its Node is Ready for a while yet, and the cloud does not know it: it was dying."""
    one = fleet(0, 9)
    one.sightings = {f"up{i}": Sighting(one.at, missing=one.at + 5) for i in range(9)}
    one.until(before)
    one.sightings |= {f"up{i}": Sighting(one.at) for i in range(1, 9)}
    one.until(40)
    one.replace(node("up0"))
    assert any(step.delete for step in one.until(60))


@pytest.mark.parametrize("whose", ["yes", "no"])
def test_a_mark_holds_whatever_keeps_its_node_from_being_asked_about(
    apply_patch: ApplyPatch, whose: str
) -> None:
    """Else what left the answers together with it would go after a restart."""
    before = fleet(0, 9)
    before.sightings["up0"] = Sighting(missing=before.at)
    (_, mark), *_ = [one for found in before.until(65) for one in found.marks]
    one = fleet(1, 9)
    one.replace(apply_patch(up("up0", AUTOSCALER), mark))
    one.owns = lambda n: Ownership(whose if n.metadata.name == "up0" else "yes")
    found = one.until(700)
    if whose == "no":
        assert any(step.delete for step in found)
    else:
        assert all(step.delete == () for step in found)
        assert found[-1].held["gone0"].hold is Alert.NOT_SHOWN


def test_a_slow_call_that_showed_the_machine_takes_the_proofs_of_its_time() -> None:
    """It may have been sent after an answer that lacked the machine, though it began before."""
    one = fleet(1, 4)
    one.after(0)
    one.sightings["gone0"] = Sighting(one.at - 5, missing=one.at, until=one.at + 20)
    assert deleted(one.after(30)) == []
    assert deleted(one.after(30)) == ["gone0"]


def test_what_stays_unknown_after_others_returned_is_strange(apply_patch: ApplyPatch) -> None:
    one = fleet(0, 9)
    one.sightings = {f"up{i}": Sighting(one.at, missing=one.at + 5) for i in range(4)}
    marks = {
        n.metadata.name: apply_patch(n, p) for found in one.until(1000) for n, p in found.marks
    }
    one.replace(*marks.values())
    one.sightings |= {f"up{i}": Sighting(one.at) for i in range(1, 4)}
    freed = [n.metadata.name for found in one.until(70) for n, _ in found.marks]
    assert sorted(set(freed)) == ["up1", "up2", "up3"], "it is unknown still"
    one.replace(node("up0"))
    assert all(step.delete == () for step in one.until(1200))


def test_nodes_that_were_unknown_while_all_were_get_no_mark() -> None:
    one = fleet(0, 5)
    one.sightings |= {f"up{i}": Sighting(missing=one.at) for i in range(5)}
    one.until(65)
    one.replace(node("up0"))
    one.sightings = {"up0": one.sightings["up0"]}
    found = one.until(60)
    assert any(step.delete for step in found)


def test_what_left_the_answers_together_with_a_witness_stays() -> None:
    """Half a page: both machines run, and both were shown until it began."""
    one = fleet(1, 9)
    one.shown("gone0", "up0", at=one.at - 5)
    for found in one.until(1800, GONE, None, up0=GONE):
        assert found.delete == ()
    assert found.unknown == {"up0": True}
    one.shown("gone0", at=one.at)
    assert [step for step in one.until(40, GONE, None, up0=GONE) if step.delete]


def test_errors_about_few_witnesses_do_not_matter_and_about_most_do() -> None:
    one = fleet(1, 3)
    one.after(0, GONE, None, up0=BROKEN)
    assert deleted(one.after(30, GONE, None, up0=BROKEN)) == ["gone0"]
    two = fleet(1, 2)
    for found in two.until(1200, GONE, None, up0=BROKEN):
        assert found.delete == ()
    assert found.waiting.keys() == {"gone0"}


def test_witnesses_that_are_shown_without_power_do_not_count() -> None:
    """What is off cannot be a Ready node's machine: it is a replica, or that has just died."""
    off = msgspec.structs.replace(machine(InstanceState.STOPPED), powered_off=True)
    made = fleet(1, 5)
    assert not any(map(deleted, made.until(300.0, witness=off)))
    assert not any(map(deleted, made.until(300.0, up0=off, up1=off, up2=off)))
    assert deleted(made.until(300.0, up0=off, up1=off)[-1]) == ["gone0"]


def test_witnesses_in_another_call_do_not_count() -> None:
    one = fleet(1, 3)
    for _ in range(300):
        one.at += 5
        (reply,) = one.ask()
        apart = {
            name: [msgspec.structs.replace(o, call=i + 1) for o in said]
            for i, (name, said) in enumerate(reply.observations.items())
        }
        assert one.decide([Reply(reply.question, apart)]).delete == ()


def test_witnesses_before_and_after_count() -> None:
    for word, goes in ((machine(), True), (GONE, False)):
        one = fleet(1, 1)
        found = None
        for _ in range(9):
            one.at += 10
            question = Question(tuple(one.nodes[:1]), tuple(one.nodes[1:]), decides=True)
            seen = {
                "gone0": [Observation(GONE, one.at - 5, one.at - 4, 2)],
                "up0": [
                    Observation(machine(), one.at - 8, one.at - 6, 1),
                    Observation(word, one.at - 3, one.at - 2, 3),
                ],
            }
            found = found or one.decide([Reply(question, seen)]).delete
        assert bool(found) is goes


def test_wrong_answers_do_not_trip_the_breaker() -> None:
    many = fleet(5, 9)
    for found in many.until(300, GONE, GONE):
        assert Alert.BREAKER not in dict(told(found))
        assert many.since is None
    many.after(5, machine())
    assert many.after(5, machine(), None, gone0=GONE).delete == ()
    assert deleted(many.after(30, machine(), None, gone0=GONE)) == ["gone0"]


# Scopes


def test_what_is_missing_in_one_scope_holds_only_that() -> None:
    one = Fleet(*(f(f"{name}{i}") for i in "ab" for name, f in (("g", node), ("u", up), ("v", up))))
    one.scope = lambda n: n.metadata.name[-1]
    found = one.until(65, GONE, None, ua=GONE)
    assert {name for step in found for name in deleted(step)} == {"gb"}
    assert found[-1].held.keys() == {"ga"}


def test_a_breaker_holds_one_scope() -> None:
    one = Fleet(*(node(f"a{i}") for i in range(5)), node("b"), *(up(f"{s}u") for s in "ab"))
    one.scope = lambda n: n.metadata.name[0]
    found = one.until(60)
    assert {name for step in found for name in deleted(step)} == {"b"}
    assert len(found[-1].held) == 5


def test_without_a_ready_node_in_its_scope_a_node_stays_and_reports_it() -> None:
    one = Fleet(node("a"), *(up(f"b{i}") for i in range(5)))
    one.scope = lambda n: n.metadata.name[0]
    found = one.until(1800)
    assert all(step.delete == () for step in found)
    reason = "no Ready node vouches for what the cloud says"
    assert found[-1].held == {"a": Wait(None, reason, Alert.NO_WITNESS)}
    assert told(found[0]) == [(Alert.NO_WITNESS, ["a"])]


def test_five_nodes_that_are_all_gone_stay() -> None:
    for size in (1, 2, 5):
        lost = fleet(size, 0)
        for found in lost.until(1800):
            assert found.delete == ()
        assert len(found.held) == size


def test_a_node_whose_scope_nobody_knows_stays_and_is_no_witness() -> None:
    one = fleet(1, 3)
    one.scope = lambda _: None
    found = one.until(1200, TOMBSTONE)
    assert all(step.delete == () for step in found)
    assert found[-1].held["gone0"].hold is Alert.NO_SCOPE
    other = fleet(1, 3)
    other.scope = lambda n: "" if n.metadata.name == "gone0" else None
    assert all(step.delete == () for step in other.until(1200))


def sworn(name: str, value: str = "true") -> Node:
    return changed(node(name), annotations={ANNOTATION_GONE: value})


def test_an_operators_word_stands_in_for_witnesses_and_breaker() -> None:
    for ready, witness in ((0, None), (2, GONE), (9, None)):
        lost = fleet(5, ready)
        lost.replace(sworn("gone0"), sworn("gone1", "yes"))
        lost.after(0, GONE, witness)
        found = lost.until(90, GONE, witness)
        gone = {name for step in found for name in deleted(step)}
        assert gone == {"gone0"}
    alive = fleet(1, 0)
    alive.replace(sworn("gone0"))
    assert all(step.delete == () for step in alive.until(90, machine()))
    alive.replace(up("gone0"))
    assert all(step.delete == () for step in alive.until(90))


def test_an_operators_word_ends_when_the_machine_lives(apply_patch: ApplyPatch) -> None:
    """Else it would speak against the machine at the next silence, whoever else is missing then."""
    lives = changed(up("gone0"), annotations={ANNOTATION_GONE: "true", "other": "stays"})
    one = Fleet(lives, up("up0"))
    assert all(found.refuted == () for found in one.until(55))
    ((judged, patch),) = one.after(5).refuted
    after = apply_patch(judged, patch)
    assert after.metadata.annotations == {"other": "stays"}
    one.replace(after)
    assert all(found.refuted == () for found in one.until(60))
    # Now the credentials are wrong, and nobody is Ready for a while.
    one.replace(msgspec.structs.replace(after, status=node("gone0").status), node("up0"))
    assert all(found.delete == () for found in one.until(1200))


def test_an_operators_word_ends_when_the_machine_lived_between_two_passes() -> None:
    one = Fleet(node("gone0"), up("up0"))
    lives = changed(up("gone0"), annotations={ANNOTATION_GONE: "true"})
    one.replace(lives)
    one.at += 60
    one.replace(sworn("gone0"), node("up0"))
    found = one.until(1200)
    assert names([judged for judged, _ in found[0].refuted]) == ["gone0"]
    assert all(step.delete == () for step in found)  # even if nobody can write that


def test_an_operators_word_that_the_machine_has_refuted_passes_no_breaker() -> None:
    lost = fleet(6, 6)
    lost.replace(changed(up("gone0"), annotations={ANNOTATION_GONE: "true"}))
    lost.until(60)
    lost.replace(sworn("gone0"))  # nobody could write that it is refuted
    found = lost.until(300)
    assert all(step.delete == () for step in found)
    assert found[-1].held["gone0"].hold is Alert.BREAKER


def test_the_declaration_about_a_machine_that_has_just_gone_stays() -> None:
    dying = changed(up("gone0"), annotations={ANNOTATION_GONE: "true"})
    one = Fleet(dying)
    found = one.until(55)
    one.replace(sworn("gone0"))
    found += one.until(40)
    assert all(step.refuted == () for step in found)
    assert {name for step in found for name in deleted(step)} == {"gone0"}
    going = Fleet(changed(dying, deletion_timestamp=NOW))
    other = Fleet(dying)
    other.owns = lambda _: Ownership.NO
    assert all(step.refuted == () for one in (going, other) for step in one.until(90))


def test_the_next_pass_is_when_the_first_node_may_go() -> None:
    two = Fleet(node("a"), *(up(f"u{i}") for i in range(9)))
    two.after(0)
    two.replace(node("u0"))
    found = two.after(10)
    assert found.countdown(two.at) == {"a": 20.0, "u0": 30.0}
    assert found.next_look == two.at + 20
    found = two.after(20, BROKEN)
    assert found.countdown(two.at) == {"a": 0.0, "u0": 10.0}
    assert found.next_look == two.at + 10


def test_a_mass_disappearance_trips_the_breaker_before_anything_is_deleted() -> None:
    many = fleet(4, 6)
    first = many.after(0)
    (alarm,) = first.alarms
    assert alarm.nodes == first.suspects
    assert alarm.event == PlannedEvent(
        "Warning",
        "NodeDeletionHeld",
        "4 nodes look gone at once, so none is deleted until the cloud has said "
        "so for 600 s; --node-deletion-resume deletes them now",
    )
    assert sorted(first.waiting) == [f"gone{i}" for i in range(4)]
    assert names(first.suspects) == [f"gone{i}" for i in range(4)]
    second = many.after(30)
    assert second.delete == ()
    assert second.alarms == ()
    assert second.waiting == {}
    held = Wait(many.at + 570, "too many nodes look gone at once", Alert.BREAKER)
    assert second.held == {f"gone{i}": held for i in range(4)}
    assert second.countdown(many.at) == {f"gone{i}": 570.0 for i in range(4)}
    assert second.next_look == many.at + 570
    for _ in range(113):
        assert many.after(5).delete == ()
    last = many.after(5)
    assert deleted(last) == ["gone0", "gone1"], "at a bounded pace"
    assert list(last.held) == ["gone2", "gone3"]
    assert last.countdown(many.at) == {"gone2": 10.0, "gone3": 10.0}
    assert last.next_look == many.at + 10
    assert many.counted == {}
    many.nodes = many.nodes[2:]
    assert many.after(5).delete == ()
    assert deleted(many.after(5)) == ["gone2", "gone3"]


def test_the_flag_overrules_the_breaker() -> None:
    many = fleet(9, 6, policy=Policy(resume=True))
    assert many.after(0).alarms == ()
    assert len(many.after(30).delete) == 9


def test_nodes_that_ripen_one_after_another_trip_the_breaker_too() -> None:
    many = Fleet(node("a"), *(up(f"u{i}") for i in range(9)))
    many.after(0)
    many.replace(node("u0"), node("u1"))
    found = many.after(30)
    assert told(found) == [(Alert.BREAKER, ["a", "u0", "u1"])]
    assert found.delete == ()
    assert sorted(found.held) == ["a"]
    assert sorted(found.waiting) == ["u0", "u1"]


def test_deletions_of_the_last_five_minutes_count() -> None:
    few = Fleet(*(up(f"u{i}") for i in range(9)), node("a"), node("b"))
    few.after(0)
    assert deleted(few.after(30)) == ["a", "b"]
    assert few.counted == {"uid-a": few.at, "uid-b": few.at}
    assert deleted(few.after(5)) == ["a", "b"], "tried again, counted once"
    assert few.counted == {"uid-a": few.at - 5, "uid-b": few.at - 5}
    few.nodes = [n for n in few.nodes if n.metadata.name not in "ab"]
    few.replace(node("u0"))
    assert few.after(5).alarms != ()
    few = Fleet(*(up(f"u{i}") for i in range(9)), node("a"), node("b"))
    few.after(0)
    few.after(30)
    few.nodes = [n for n in few.nodes if n.metadata.name not in "ab"]
    few.replace(node("u0"))
    assert few.after(300).alarms == ()
    assert few.counted == {}
    assert deleted(few.after(30)) == ["u0"]


def test_exempt_nodes_neither_count_nor_wait_for_the_breaker() -> None:
    many = Fleet(
        *(node(f"s{i}", "False", AUTOSCALER) for i in range(5)),
        *(node(f"t{i}") for i in range(5)),
        *(node(f"d{i}", deleting=True) for i in range(5)),
        *(up(f"u{i}") for i in range(3)),
        node("a"),
    )
    tombs = {f"t{i}": TOMBSTONE for i in range(5)}
    first = many.after(0, GONE, None, **tombs)
    assert deleted(first) == [f"t{i}" for i in range(5)]
    assert first.alarms == ()
    second = many.after(30, GONE, None, **tombs)
    assert deleted(second) == [*(f"s{i}" for i in range(5)), *(f"t{i}" for i in range(5)), "a"]
    assert many.counted == {"uid-a": many.at}


def test_exempt_nodes_go_while_the_breaker_holds_the_others() -> None:
    many = Fleet(
        node("s", "False", AUTOSCALER), node("t"), *(node(f"a{i}") for i in range(5)), up("u")
    )
    tripped = many.after(0, GONE, None, t=TOMBSTONE)
    assert deleted(tripped) == ["t"]
    assert tripped.alarms != ()
    assert names(tripped.suspects) == [f"a{i}" for i in range(5)]
    found = many.after(30, GONE, None, t=TOMBSTONE)
    assert deleted(found) == ["s", "t"]
    assert sorted(found.held) == [f"a{i}" for i in range(5)]


def test_only_owned_nodes_make_up_the_fleet() -> None:
    mixed = fleet(3, 60)
    mixed.owns = lambda n: Ownership.NO if n.metadata.name > "up1" else Ownership.YES
    assert mixed.after(0).alarms != ()
    whole = fleet(3, 60)
    assert whole.after(0).alarms == ()


@pytest.mark.parametrize("how", ["seen", "ready", "witness"])
def test_a_cloud_that_contradicts_itself_starts_the_hold_anew(how: str) -> None:
    many = fleet(5, 9)
    for _ in range(100):
        many.after(5)
    if how == "seen":
        many.after(5, GONE, None, gone0=machine())
    elif how == "ready":
        many.replace(up("gone0"))
        many.after(5, gone0=machine())
    else:
        many.after(5, GONE, GONE)
        many.after(5)
    disturbed = many.at
    while many.at < disturbed + 595:
        assert many.after(5).delete == ()
    assert many.since == disturbed
    assert many.after(5).delete != () or many.after(5).delete != ()


def test_errors_do_not_start_the_hold_anew() -> None:
    many = fleet(5, 9)
    for i in range(120):
        assert many.after(5, BROKEN if i % 3 == 1 else GONE).delete == ()
    assert deleted(many.after(5)) == ["gone0", "gone1"]


def test_a_hold_stays_although_some_return_and_ends_when_all_is_quiet() -> None:
    many = fleet(5, 9)
    many.after(0)
    many.after(30, machine(), None, gone0=GONE)
    disturbed = many.at
    for _ in range(5):
        found = many.after(30, machine(), None, gone0=GONE)
        assert found.delete == ()
        assert list(found.held) == ["gone0"]
    found = many.after(30, machine())
    assert evidence_of(found) == {}
    assert many.since == many.at > disturbed
    many.after(599, machine())
    assert many.since is not None
    assert many.after(1, machine()).memory == Memory()


def test_gos_behaviour_is_a_policy() -> None:
    young = node("young", "False", UNINITIALIZED, age=1)
    nameless = node("nameless", provider_id="", age=1)
    go = Fleet(young, nameless, *(node(f"a{i}") for i in range(9)), policy=GO)
    found = go.after(0)
    assert len(found.delete) == 11
    assert found.alarms == ()
    assert found.held == {}
    for answer in (machine(), BROKEN, None):
        kept = Fleet(node("a"), policy=GO)
        assert kept.after(0, answer).delete == ()


def test_the_shutdown_taint_follows_the_answers(apply_patch: ApplyPatch) -> None:
    mixed = Fleet(up("d"), node("e"), node("a"), node("b", "False", SHUTDOWN), up("c", SHUTDOWN))
    found = mixed.after(
        0, machine(), None, a=machine(InstanceState.STOPPED), e=machine(InstanceState.UNKNOWN)
    )
    after = {n.metadata.name: apply_patch(n, patch).spec.taints for n, patch in found.taints}
    assert after == {"a": (SHUTDOWN,), "b": (), "c": ()}


@pytest.mark.parametrize(
    ("tainted", "ownership", "patched"),
    [
        (up("a", SHUTDOWN), Ownership.YES, True),
        (up("a", SHUTDOWN), Ownership.UNKNOWN, True),
        (up("a", SHUTDOWN), Ownership.NO, False),
        (up("a", OTHER), Ownership.YES, False),
        (node("a", "True", SHUTDOWN, deleting=True), Ownership.YES, False),
        (node("a", "False", SHUTDOWN), Ownership.UNKNOWN, False),
    ],
)
def test_the_shutdown_taint_of_a_ready_node(
    tainted: Node, ownership: Ownership, *, patched: bool
) -> None:
    one = Fleet(tainted)
    one.owns = lambda _: ownership
    found = one.decide([])
    assert [n for n, _ in found.taints] == ([tainted] if patched else [])


def test_answers_about_nodes_that_are_gone_count_for_nothing() -> None:
    one = fleet(1, 2)
    asked = Question((node("other"), node("gone0")), (up("up0"),))
    seen = {name: [Observation(TOMBSTONE, 1.0)] for name in ("other", "gone0")}
    seen["up0"] = [Observation(machine(), 1.0)]
    assert deleted(one.decide([Reply(asked, seen)])) == ["gone0"]


def test_an_answer_that_came_late_puts_the_deletion_off() -> None:
    one = fleet(1, 4)
    late = Observation(GONE, 0.0, 20.0)
    question = Question(tuple(one.nodes[:1]), tuple(one.nodes[1:4]))
    seen = {"gone0": [late]} | {
        node.metadata.name: [Observation(machine(), 0.0, 20.0)] for node in question.witnesses
    }
    found = plan(one.nodes, [Reply(question, seen)], Memory(), POLICY, KNOWN, now=NOW, at=20.0)
    assert found.countdown(20.0) == {"gone0": 30.0}


@pytest.mark.parametrize("busy", [False, True])
def test_a_young_node_that_was_ready_and_unknown_stays_if_no_pass_saw_it_so(*, busy: bool) -> None:
    """It is not in question before it is old enough; a pass that did not judge it says nothing."""
    one = Fleet(up("odd", UNINITIALIZED), *(up(f"up{i}") for i in range(5)))
    if busy:  # another node was deleted shortly before: the breaker counts it for five minutes
        one.nodes.append(node("gone"))
        assert ["gone"] in [deleted(each) for each in one.until(35)]
        one.nodes.pop()
    one.sightings["odd"] = Sighting(None, missing=one.at)
    one.at += 70
    one.replace(node("odd", "Unknown", UNINITIALIZED, age=75))
    assert not any(each.delete for each in one.until(200))
    one.replace(node("odd", "Unknown", UNINITIALIZED, age=300))
    found = one.until(600)
    assert not any(each.delete for each in found)
    assert found[-1].held["odd"].hold is Alert.STRANGE
