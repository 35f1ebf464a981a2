"""Which nodes are deleted, held back or tainted, for each answer of the cloud."""

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
from proreus.controllers.cloud_node_lifecycle.ages import Ages
from proreus.controllers.cloud_node_lifecycle.breaker import Breaker, judge, limit, proven, release
from proreus.controllers.cloud_node_lifecycle.evidence import (
    Evidence,
    Span,
    Witnesses,
    observe,
    witnessed,
)
from proreus.controllers.cloud_node_lifecycle.plan import (
    Delete,
    Keep,
    Memory,
    Pass,
    Wait,
    plan,
    shutdown,
    verdict,
)
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import (
    Look,
    Question,
    able,
    candidates,
    questions,
    witnesses,
)
from proreus.controllers.events import PlannedEvent
from proreus.controllers.inventory import Observation
from proreus.kube.objects import (
    TAINT_AUTOSCALER,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Taint,
)
from proreus.kube.patch import Patch

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
PRESENT, ABSENT, SILENT = Witnesses.PRESENT, Witnesses.ABSENT, Witnesses.SILENT


def node(
    name: str,
    ready: str = "False",
    *taints: Taint,
    age: float = 1e6,
    provider_id: str | None = None,
    deleting: bool = False,
    uid: str = "",
) -> Node:
    return Node(
        ObjectMeta(
            name=name,
            uid=uid or f"uid-{name}",
            creation_timestamp=NOW - timedelta(seconds=age),
            deletion_timestamp=NOW if deleting else None,
        ),
        NodeSpec(
            provider_id=f"sim://{name}" if provider_id is None else provider_id, taints=taints
        ),
        NodeStatus(conditions=(Condition("Ready", ready),) if ready else ()),
    )


def up(name: str, *taints: Taint) -> Node:
    return node(name, "True", *taints)


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
def test_a_node_that_waits_is_as_old_as_both_clocks_say(
    age: float, known_for: float, *, may_go: bool
) -> None:
    waiting, done = node("a", "False", UNINITIALIZED, age=age), node("b", age=age)
    found = names(candidates([waiting, done], NOW, owns, POLICY, lambda _: known_for))
    assert found == (["a", "b"] if may_go else ["b"])


def test_nodes_grow_old_here_from_when_they_are_first_seen_to_wait() -> None:
    now = 0.0
    ages = Ages(lambda: now)
    waiting, done = node("a", "False", UNINITIALIZED), node("a")
    ages.on_node(None, waiting)
    now = 7.0
    ages.on_node(waiting, waiting)
    assert ages.known_for(waiting) == 7.0
    assert ages.known_for(node("b")) == 0.0
    ages.on_node(waiting, done)
    ages.on_node(done, waiting)
    assert ages.known_for(waiting) == 0.0
    now = 9.0
    ages.on_node(waiting, None)
    assert ages.known_for(waiting) == 0.0


def test_go_looks_at_nodes_of_any_age() -> None:
    young = node("a", "False", UNINITIALIZED, age=0)
    assert candidates([young], NOW, owns, GO) == (young,)


def test_a_node_of_unknown_age_is_young() -> None:
    ageless = node("a", "False", UNINITIALIZED)
    ageless = msgspec.structs.replace(
        ageless, metadata=msgspec.structs.replace(ageless.metadata, creation_timestamp=None)
    )
    assert candidates([ageless], NOW, owns, GO) == ()


@pytest.mark.parametrize("ownership", [Ownership.NO, Ownership.UNKNOWN])
def test_only_surely_owned_nodes_are_asked_about(ownership: Ownership) -> None:
    assert candidates([node("a")], NOW, lambda _: ownership, POLICY) == ()
    assert witnesses(able([up("a")], lambda _: ownership), 3, 0) == ()


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
    assert names(witnesses(able(fleet, owns), 3, 0)) == ["d", "e"]


def test_witnesses_take_turns() -> None:
    fleet = [up(name) for name in "abcde"]
    turns = [names(witnesses(able(fleet, owns), 3, turn)) for turn in range(3)]
    assert turns == [["a", "b", "c"], ["d", "e", "a"], ["b", "c", "d"]]
    assert witnesses([], 3, 1) == ()
    assert names(witnesses(able(fleet, owns), 0, 1)) == []


def test_without_candidates_there_is_no_question() -> None:
    assert questions([up("a")], NOW, owns, POLICY, batch_size=10, turn=0) == ()


@pytest.mark.parametrize(
    ("batch_size", "sizes"),
    [
        (1, [(7, 3)]),
        (2, [(1, 1)] * 7),
        (4, [(2, 2)] * 3 + [(1, 2)]),
        (6, [(3, 3), (3, 3), (1, 3)]),
        (10, [(7, 3)]),
        (9, [(6, 3), (1, 3)]),
        (500, [(7, 3)]),
    ],
)
def test_every_batch_has_witnesses(batch_size: int, sizes: list[tuple[int, int]]) -> None:
    fleet = [node(f"gone{i}") for i in range(7)] + [up(f"up{i}") for i in range(9)]
    asked = questions(fleet, NOW, owns, POLICY, batch_size=batch_size, turn=0)
    assert [(len(q.candidates), len(q.witnesses)) for q in asked] == sizes
    assert [n for q in asked for n in q.candidates] == fleet[:7]


def test_batches_and_turns_have_different_witnesses() -> None:
    crowd = [*(node(f"g{i}") for i in range(3)), *(up(f"up{i}") for i in range(8))]
    seen = [
        names(question.witnesses)
        for turn in range(2)
        for question in questions(crowd, NOW, owns, POLICY, batch_size=3, turn=turn)
    ]
    assert seen == [["up0"], ["up1"], ["up2"], ["up3"]]


# What the witnesses are worth


@pytest.mark.parametrize(
    ("answers", "needed", "worth"),
    [
        ((machine(), machine()), True, PRESENT),
        ((machine(InstanceState.TERMINATING),), True, PRESENT),
        ((machine(), GONE), True, ABSENT),
        ((GONE, BROKEN), True, ABSENT),
        ((None, TOMBSTONE), True, ABSENT),
        ((machine(), BROKEN), True, SILENT),
        ((machine(), None), True, SILENT),
        ((), True, SILENT),
        ((), False, PRESENT),
        ((BROKEN,), False, SILENT),
        ((machine(),), False, PRESENT),
        ((GONE,), False, ABSENT),
    ],
)
def test_testimony(
    answers: tuple[InstanceAnswer | None, ...], worth: Witnesses, *, needed: bool
) -> None:
    assert witnessed(answers, needed=needed) is worth


# Evidence


def row(*steps: tuple[float, InstanceAnswer, Witnesses], interval: float = 30.0) -> Evidence | None:
    evidence: Evidence | None = None
    for began, answer, worth in steps:
        evidence = observe(evidence, answer, began, worth, interval)
    return evidence


def test_the_first_absence_counts_once() -> None:
    assert row((7, GONE, PRESENT)) == Evidence(Span(7, 7), Span(7, 7), 1, 7)


@pytest.mark.parametrize(
    ("second", "confirmations", "counted"),
    [(7, 1, 7), (36, 1, 7), (36.99, 1, 7), (37, 2, 37), (90, 2, 90)],
)
def test_only_calls_that_began_far_enough_apart_count(
    second: float, confirmations: int, counted: float
) -> None:
    found = row((7, GONE, PRESENT), (second, GONE, PRESENT))
    assert found == Evidence(Span(7, second), Span(7, second), confirmations, counted)


def test_the_distance_is_to_the_last_answer_that_counted() -> None:
    found = row(*((float(t), GONE, PRESENT) for t in range(0, 65, 5)))
    assert found is not None
    assert (found.confirmations, found.counted) == (3, 60)


@pytest.mark.parametrize(("second", "confirmations"), [(54.9, 1), (55.0, 2)])
def test_the_interval_begins_when_a_call_that_waited_for_the_quota_has_ended(
    second: float, confirmations: int
) -> None:
    found = observe(None, GONE, 0.0, PRESENT, 30.0, ended=25.0)
    found = observe(found, GONE, second, PRESENT, 30.0, ended=second + 1)
    assert found is not None
    assert found.confirmations == confirmations
    assert found.said == Span(0.0, second)


def test_one_and_the_same_answer_counts_once_even_without_an_interval() -> None:
    found = row((5, GONE, PRESENT), (5, GONE, PRESENT), (4, GONE, PRESENT), interval=0.0)
    assert found == Evidence(Span(5, 5), Span(5, 5), 1, 5)
    found = row((5, GONE, PRESENT), (6, GONE, PRESENT), interval=0.0)
    assert found is not None
    assert found.confirmations == 2


def test_a_machine_that_is_seen_clears_everything() -> None:
    for state in InstanceState:
        assert row((0, TOMBSTONE, PRESENT), (40, machine(state), ABSENT)) is None


def test_an_error_neither_counts_nor_clears() -> None:
    assert row((0, BROKEN, PRESENT)) is None
    before = row((0, GONE, PRESENT))
    assert row((0, GONE, PRESENT), (40, BROKEN, PRESENT), (41, BROKEN, ABSENT)) == before


def test_with_an_absent_witness_the_answer_proves_nothing() -> None:
    assert row((0, GONE, ABSENT)) is None
    assert row((0, TOMBSTONE, ABSENT)) is None
    assert row((0, GONE, SILENT), (40, GONE, ABSENT)) is None
    kept = row((0, GONE, PRESENT), (40, TOMBSTONE, ABSENT))
    assert kept == Evidence(None, Span(0, 0), 1, 0)
    kept = row((0, TOMBSTONE, SILENT), (40, GONE, ABSENT))
    assert kept == Evidence(None, None, 0, 0, tombstone=True)


def test_without_a_word_of_the_witnesses_only_the_time_counts() -> None:
    found = row((0, GONE, SILENT), (40, GONE, SILENT))
    assert found == Evidence(Span(0, 40), None, 0, 0)
    found = row((0, GONE, SILENT), (40, GONE, PRESENT), (50, GONE, SILENT))
    assert found == Evidence(Span(0, 50), Span(40, 40), 1, 40)


def test_a_tombstone_stays_one() -> None:
    for worth in (SILENT, PRESENT):
        found = row((0, TOMBSTONE, worth), (40, GONE, worth))
        assert found is not None
        assert found.tombstone


# Verdicts on one node


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (None, Keep()),
        (
            Evidence(Span(10, 10), Span(10, 10), 1, 10),
            Wait(40, "1 more answers must say that its instance is gone, with witnesses present"),
        ),
        (
            Evidence(Span(10, 20)),
            Wait(610, "2 more answers must say that its instance is gone, with witnesses present"),
        ),
        (
            Evidence(Span(10, 605), Span(600, 605), 1, 600),
            Wait(610, "1 more answers must say that its instance is gone, with witnesses present"),
        ),
        (
            Evidence(None, Span(10, 10), 1, 10),
            Wait(40, "1 more answers must say that its instance is gone, with witnesses present"),
        ),
        (
            Evidence(Span(10, 40), Span(10, 40), 2, 40),
            Delete("it does not exist in the cloud provider"),
        ),
        (Evidence(tombstone=True), Delete("the cloud shows its instance as terminated")),
        (
            Evidence(Span(10, 609.9)),
            Wait(610, "2 more answers must say that its instance is gone, with witnesses present"),
        ),
        (Evidence(Span(10, 610)), Delete("the cloud has not known its instance for 600 s")),
    ],
)
def test_verdicts(evidence: Evidence | None, expected: Keep | Wait | Delete) -> None:
    assert verdict(evidence, POLICY) == expected


def test_the_verdict_waits_for_all_confirmations_that_are_missing() -> None:
    found = verdict(Evidence(Span(0, 30), Span(0, 30), 2, 30), Policy(confirmations=5))
    assert found == Wait(
        120, "3 more answers must say that its instance is gone, with witnesses present"
    )


def test_nothing_can_be_said_when_nothing_is_left_to_wait_for() -> None:
    found = verdict(Evidence(None, None, 0, 0), POLICY)
    assert isinstance(found, Wait)
    assert found.until is None


# The breaker


@pytest.mark.parametrize(("total", "most"), [(0, 2), (3, 2), (10, 2), (11, 2.2), (100, 20)])
def test_the_limit(total: int, most: float) -> None:
    assert limit(total, POLICY) == pytest.approx(most)
    assert limit(total, Policy(breaker_fraction=1.0, breaker_minimum=0)) == total
    assert limit(total, Policy(breaker_fraction=0.0)) == 2


def suspects(n: int, evidence: Evidence | None = None) -> Mapping[str, Evidence]:
    return {f"u{i}": evidence or Evidence(Span(0, 0), Span(0, 0), 1, 0) for i in range(n)}


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
    assert resumed == before


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
    ("since", "proved", "at"),
    [
        (None, Span(50, 60), 650.0),
        (100.0, Span(50, 60), 700.0),
        (100.0, Span(150, 160), 750.0),
        (100.0, None, None),
    ],
)
def test_release(since: float | None, proved: Span | None, at: float | None) -> None:
    assert release(Breaker({}, since), Evidence(Span(0, 999), proved), POLICY) == at


def test_proven_takes_answers_with_witnesses_for_the_whole_hold() -> None:
    held = Breaker({}, 100.0)
    assert not proven(held, Evidence(Span(0, 900), None), POLICY)
    assert not proven(held, Evidence(Span(0, 900), Span(0, 699.9)), POLICY)
    assert proven(held, Evidence(Span(0, 900), Span(0, 700)), POLICY)
    known = suspects(9, Evidence(Span(0, 700), Span(0, 700), 2, 30))
    assert judge(held, known, 9, 700.0, POLICY, disturbed=False).since is None


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

    def look(
        self,
        default: InstanceAnswer | None = GONE,
        witness: InstanceAnswer | None = None,
        **answers: InstanceAnswer | None,
    ) -> list[Look]:
        """Candidates get `default`, witnesses are there, `answers` go before both."""
        looks = []
        for question in questions(
            self.nodes, NOW, self.owns, self.policy, batch_size=100, turn=next(self.turns)
        ):
            told: dict[str, InstanceAnswer | None] = {}
            told |= dict.fromkeys(names(question.candidates), default)
            told |= {n: witness or machine() for n in names(question.witnesses)}
            told |= {n: a for n, a in answers.items() if n in told}
            observed = {n: Observation(a, self.at) for n, a in told.items() if a is not None}
            looks.append(Look(question, observed))
        return looks

    def decide(self, looks: Sequence[Look]) -> Pass:
        found = plan(self.nodes, looks, self.memory, self.policy, self.owns, now=NOW, at=self.at)
        self.memory = found.memory
        return found

    def after(
        self,
        seconds: float,
        default: InstanceAnswer | None = GONE,
        witness: InstanceAnswer | None = None,
        **answers: InstanceAnswer | None,
    ) -> Pass:
        """A pass that many seconds later."""
        self.at += seconds
        return self.decide(self.look(default, witness, **answers))

    def replace(self, *nodes: Node) -> None:
        new = {n.metadata.name: n for n in nodes}
        self.nodes = [new.get(n.metadata.name, n) for n in self.nodes]


def deleted(found: Pass) -> list[str]:
    return names([deletion.node for deletion in found.delete])


def fleet(gone: int, ready: int, *, policy: Policy = POLICY) -> Fleet:
    nodes = [node(f"gone{i}") for i in range(gone)] + [up(f"up{i}") for i in range(ready)]
    return Fleet(*nodes, policy=policy)


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
    assert last.alarm is None
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
    assert found == Pass((), (), {}, {}, None, Memory(), None)
    present = fleet(2, 5)
    assert present.after(0, machine()) == found


def test_a_ready_node_is_never_deleted_and_what_was_known_is_forgotten() -> None:
    one = fleet(1, 4)
    one.after(0)
    looks = one.look()
    one.replace(up("gone0"))
    one.at += 40
    found = one.decide(looks)
    assert found.delete == ()
    assert found.waiting == {}
    assert found.memory.evidence == {}
    one.replace(node("gone0"))
    assert deleted(one.after(1)) == []


def test_an_answer_about_the_old_object_says_nothing_of_a_new_one_of_the_same_name() -> None:
    for new in (node("gone0", uid="new"), node("gone0", provider_id="sim://new")):
        one = fleet(1, 4)
        one.after(0)
        one.at += 40
        looks = one.look()
        one.replace(new)
        found = one.decide(looks)
        assert found.delete == ()
        assert found.memory.evidence == {}
        assert deleted(one.after(1)) == []
        assert deleted(one.after(31)) == ["gone0"]


def test_what_was_known_does_not_delete_without_a_fresh_answer() -> None:
    for answer, witness in ((None, None), (BROKEN, None), (GONE, GONE)):
        one = fleet(1, 4)
        one.after(0)
        assert deleted(one.after(30)) == ["gone0"]
        found = one.after(5, answer, witness)
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


def test_an_absent_witness_spoils_the_answer() -> None:
    for worth in (GONE, TOMBSTONE):
        one = fleet(1, 4)
        for _ in range(300):
            assert one.after(5, TOMBSTONE, worth).delete == ()


def test_a_tombstone_needs_one_answer_and_no_witness() -> None:
    for one in (fleet(1, 4), fleet(1, 0)):
        found = one.after(0, TOMBSTONE)
        assert [d.reason for d in found.delete] == ["the cloud shows its instance as terminated"]


def test_without_witnesses_it_takes_ten_minutes() -> None:
    for one, witness in ((fleet(2, 0), None), (fleet(2, 3), BROKEN)):
        first = one.after(0, GONE, witness)
        assert first.countdown(one.at) == {"gone0": 600.0, "gone1": 600.0}
        for _ in range(59):
            assert deleted(one.after(10, GONE, witness)) == []
        assert deleted(one.after(10, GONE, witness)) == ["gone0", "gone1"]


def test_a_single_witness_is_waited_for() -> None:
    alone = Fleet(node("a"), policy=Policy(witnesses=1))
    alone.after(0)
    assert alone.after(30).delete == ()


def test_one_batch_with_an_absent_witness_disturbs_the_hold() -> None:
    many = fleet(5, 9)
    many.after(0)
    asked = questions(many.nodes, NOW, owns, POLICY, batch_size=6, turn=0)
    assert len(asked) == 2
    for spoilt in range(2):
        many.at += 30
        looks = []
        for i, question in enumerate(asked):
            word = GONE if i == spoilt else machine()
            seen = {n: Observation(GONE, many.at) for n in names(question.candidates)}
            seen |= {n: Observation(word, many.at) for n in names(question.witnesses)}
            looks.append(Look(question, seen))
        assert many.decide(looks).memory.breaker.since == many.at


def test_the_next_look_is_when_the_first_node_may_go() -> None:
    two = Fleet(node("a"), *(up(f"u{i}") for i in range(9)))
    two.after(0)
    two.replace(node("u0"))
    found = two.after(10)
    assert found.countdown(two.at) == {"a": 20.0, "u0": 30.0}
    assert found.next_look == two.at + 20
    found = two.after(20, BROKEN)
    assert found.countdown(two.at) == {"a": 0.0, "u0": 10.0}
    assert found.next_look == two.at + 10


def test_more_than_the_limit_without_witnesses_stay() -> None:
    lost = fleet(3, 0)
    for _ in range(1000):
        assert lost.after(5).delete == ()
    found = lost.after(5)
    assert sorted(found.held) == ["gone0", "gone1", "gone2"]
    assert found.countdown(lost.at) == dict.fromkeys(("gone0", "gone1", "gone2"))


def test_a_mass_disappearance_trips_the_breaker_before_anything_is_deleted() -> None:
    many = fleet(4, 6)
    first = many.after(0)
    assert first.alarm == PlannedEvent(
        "Warning",
        "NodeDeletionHeld",
        "4 nodes look gone at once, so none is deleted until the cloud has said "
        "so for 600 s; --node-deletion-resume deletes them now",
    )
    assert sorted(first.waiting) == [f"gone{i}" for i in range(4)]
    assert names(first.suspects) == [f"gone{i}" for i in range(4)]
    second = many.after(30)
    assert second.delete == ()
    assert second.alarm is None
    assert second.waiting == {}
    held = Wait(many.at + 570, "too many nodes look gone at once", is_held=True)
    assert second.held == {f"gone{i}": held for i in range(4)}
    assert second.countdown(many.at) == {f"gone{i}": 570.0 for i in range(4)}
    assert second.next_look == many.at + 570
    for _ in range(113):
        assert many.after(5).delete == ()
    last = many.after(5)
    assert len(last.delete) == 4
    assert last.held == {}
    assert last.memory.breaker.deletions == {}


def test_the_flag_overrules_the_breaker() -> None:
    many = fleet(9, 6, policy=Policy(resume=True))
    assert many.after(0).alarm is None
    assert len(many.after(30).delete) == 9


def test_nodes_that_ripen_one_after_another_trip_the_breaker_too() -> None:
    many = Fleet(node("a"), *(up(f"u{i}") for i in range(9)))
    many.after(0)
    many.replace(node("u0"), node("u1"))
    found = many.after(30)
    assert found.alarm is not None
    assert found.delete == ()
    assert sorted(found.held) == ["a"]
    assert sorted(found.waiting) == ["u0", "u1"]


def test_deletions_of_the_last_five_minutes_count() -> None:
    few = Fleet(*(up(f"u{i}") for i in range(9)), node("a"), node("b"))
    few.after(0)
    assert deleted(few.after(30)) == ["a", "b"]
    assert few.memory.breaker.deletions == {"uid-a": few.at, "uid-b": few.at}
    assert deleted(few.after(5)) == ["a", "b"], "tried again, counted once"
    assert few.memory.breaker.deletions == {"uid-a": few.at - 5, "uid-b": few.at - 5}
    few.nodes = [n for n in few.nodes if n.metadata.name not in "ab"]
    few.replace(node("u0"))
    assert few.after(5).alarm is not None
    few = Fleet(*(up(f"u{i}") for i in range(9)), node("a"), node("b"))
    few.after(0)
    few.after(30)
    few.nodes = [n for n in few.nodes if n.metadata.name not in "ab"]
    few.replace(node("u0"))
    assert few.after(300).alarm is None
    assert few.memory.breaker == Breaker()
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
    assert first.alarm is None
    second = many.after(30, GONE, None, **tombs)
    assert deleted(second) == [*(f"s{i}" for i in range(5)), *(f"t{i}" for i in range(5)), "a"]
    assert second.memory.breaker.deletions == {"uid-a": many.at}


def test_exempt_nodes_go_while_the_breaker_holds_the_others() -> None:
    many = Fleet(
        node("s", "False", AUTOSCALER), node("t"), *(node(f"a{i}") for i in range(5)), up("u")
    )
    tripped = many.after(0, GONE, None, t=TOMBSTONE)
    assert deleted(tripped) == ["t"]
    assert tripped.alarm is not None
    assert names(tripped.suspects) == [f"a{i}" for i in range(5)]
    found = many.after(30, GONE, None, t=TOMBSTONE)
    assert deleted(found) == ["s", "t"]
    assert sorted(found.held) == [f"a{i}" for i in range(5)]


def test_only_owned_nodes_make_up_the_fleet() -> None:
    mixed = fleet(3, 60)
    mixed.owns = lambda n: Ownership.NO if n.metadata.name > "up1" else Ownership.YES
    assert mixed.after(0).alarm is not None
    whole = fleet(3, 60)
    assert whole.after(0).alarm is None


@pytest.mark.parametrize("how", ["seen", "ready", "witness"])
def test_a_cloud_that_contradicts_itself_starts_the_hold_anew(how: str) -> None:
    many = fleet(5, 9)
    for _ in range(100):
        many.after(5)
    if how == "seen":
        many.after(5, GONE, None, gone0=machine())
    elif how == "ready":
        many.replace(up("gone0"))
        many.after(5)
    else:
        many.after(5, GONE, GONE)
    disturbed = many.at
    while many.at < disturbed + 595:
        assert many.after(5).delete == ()
    assert many.memory.breaker.since == disturbed
    assert "gone4" in deleted(many.after(5))


def test_errors_do_not_start_the_hold_anew() -> None:
    many = fleet(5, 9)
    for i in range(120):
        assert many.after(5, BROKEN if i % 3 == 1 else GONE).delete == ()
    assert len(many.after(5).delete) == 5


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
    assert found.memory.evidence == {}
    assert found.memory.breaker.since == many.at > disturbed
    assert many.after(599, machine()).memory.breaker.since is not None
    assert many.after(1, machine()).memory == Memory()


def test_gos_behaviour_is_a_policy() -> None:
    young = node("young", "False", UNINITIALIZED, age=1)
    nameless = node("nameless", provider_id="", age=1)
    go = Fleet(young, nameless, *(node(f"a{i}") for i in range(9)), policy=GO)
    found = go.after(0)
    assert len(found.delete) == 11
    assert found.alarm is None
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
    seen = {name: Observation(TOMBSTONE, 1.0) for name in ("other", "gone0")}
    seen["up0"] = Observation(machine(), 1.0)
    assert deleted(one.decide([Look(asked, seen)])) == ["gone0"]


def test_an_answer_that_came_late_puts_the_deletion_off() -> None:
    one = fleet(1, 4)
    late = Observation(GONE, 0.0, 20.0)
    question = Question(tuple(one.nodes[:1]), tuple(one.nodes[1:4]))
    seen = {"gone0": late} | {
        node.metadata.name: Observation(machine(), 0.0, 20.0) for node in question.witnesses
    }
    found = plan(
        one.nodes, [Look(question, seen)], Memory(), Policy(), lambda _: Ownership.YES,
        now=NOW, at=20.0,
    )  # fmt: skip
    assert found.countdown(20.0) == {"gone0": 30.0}
