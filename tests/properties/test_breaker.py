"""Wrong deletions, hunted with random clouds: errors, empty and half lists, flapping, witnesses.

Every pass of a random history goes through the real questions and the real plan. An oracle, which
knows the promise but not the code, judges each deletion from the raw answers alone.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.containment.inventory import Observation
from proreus.controllers.cloud_node_lifecycle.alarms import Alarm
from proreus.controllers.cloud_node_lifecycle.breaker import limit, pace
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Memory
from proreus.controllers.cloud_node_lifecycle.outstanding import is_quiet, stands_out
from proreus.controllers.cloud_node_lifecycle.plan import Pass, plan
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, Reply, questions
from proreus.kube.objects import Condition, Node
from proreus.testing import objects

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
GONE, TOMBSTONE = NotFound(), NotFound(tombstone=True)
BROKEN = CloudError("broken")
THERE = Instance(provider_id="sim://x")
ANSWERS: Mapping[str, InstanceAnswer | None] = {
    "g": GONE,
    "t": TOMBSTONE,
    "e": BROKEN,
    "-": None,
    "i": THERE,
}


class Step(NamedTuple):
    """One pass: the seconds since the last, who is Ready, and each node's answer."""

    seconds: float
    ready: Sequence[bool]
    answers: str


class Record(NamedTuple):
    """What was asked and said of one node in one pass."""

    at: float
    was_ready: bool
    answer: InstanceAnswer | None
    witnesses: Sequence[InstanceAnswer | None]


def a_node(index: int, *, ready: bool) -> Node:
    return objects.node(
        f"n{index}",
        f"sim://n{index}",
        creation_timestamp=NOW,
        conditions=(Condition("Ready", "True" if ready else "False"),),
    )


KNOWN = Known(lambda _: Ownership.YES)


def tripped(found: Pass) -> list[Alarm]:
    """The alarms of the breaker."""
    return [alarm for alarm in found.alarms if alarm.alert is Alert.BREAKER]


def held_by(found: Pass) -> list[str]:
    """The nodes of which these alarms tell."""
    return [node.metadata.name for alarm in tripped(found) for node in alarm.nodes]


class History:
    """Plays steps and keeps what was said in a form that the code under test has not touched."""

    def __init__(self, size: int, policy: Policy = POLICY) -> None:
        self.nodes = {f"n{i}": a_node(i, ready=True) for i in range(size)}
        self.policy = policy
        self.memory = Memory()
        self.records: dict[str, list[Record]] = {name: [] for name in self.nodes}
        self.deletions: list[tuple[float, str]] = []
        self.at = 0.0
        self.turn = 0

    def play(self, step: Step) -> Pass:
        self.at += step.seconds
        self.turn += 1
        said = {}
        for i, (ready, letter) in enumerate(zip(step.ready, step.answers, strict=True)):
            said[f"n{i}"] = ANSWERS[letter]
            if f"n{i}" in self.nodes:
                self.nodes[f"n{i}"] = a_node(i, ready=ready)
        fleet = list(self.nodes.values())
        replies = []
        asked: dict[str, Sequence[InstanceAnswer | None]] = {}
        for question in questions(
            fleet, NOW, KNOWN, self.policy, self.memory, batch_size=6, turn=self.turn, at=self.at
        ):
            names = [n.metadata.name for n in (*question.candidates, *question.witnesses)]
            replies.append(
                Reply(
                    question,
                    {n: [Observation(a, self.at)] for n in names if (a := said[n]) is not None},
                )
            )
            heard = [said[n.metadata.name] for n in question.witnesses]
            asked |= {n.metadata.name: heard for n in question.candidates}
        for i, ready in enumerate(step.ready):
            name = f"n{i}"
            answer = said[name] if name in asked else None
            self.records[name].append(Record(self.at, ready, answer, asked.get(name, ())))
        found = plan(fleet, replies, self.memory, self.policy, KNOWN, now=NOW, at=self.at)
        some = [node for node in fleet if stands_out(node)]
        if is_quiet(some, NOW, KNOWN, self.policy, self.memory):
            event("quiet")
            less = plan(some, replies, self.memory, self.policy, KNOWN, now=NOW, at=self.at)
            assert less == found
        self.memory = found.memory
        for deletion in found.delete:
            name = deletion.node.metadata.name
            self.deletions.append((self.at, name))
            del self.nodes[name]
        return found


def steps(size: int, letters: str = "ggggte-iii") -> st.SearchStrategy[list[Step]]:
    """Histories in which states last for a while, as else no node would ever be deleted."""
    step = st.builds(
        Step,
        st.sampled_from([1.0, 5.0, 29.0, 30.0, 100.0, 300.0, 590.0]),
        st.lists(st.sampled_from([True, False, False]), min_size=size, max_size=size),
        st.text(letters, min_size=size, max_size=size),
    )
    runs = st.tuples(step, st.integers(1, 6)).map(lambda run: [run[0]] * run[1])
    return st.lists(runs, max_size=8).map(lambda parts: [s for part in parts for s in part])


def surely_present(witnesses: Sequence[InstanceAnswer | None]) -> bool:
    """One with a tombstone is none, and errors about few do not matter."""
    counted = [answer for answer in witnesses if answer != TOMBSTONE]
    return 2 * sum(isinstance(answer, Instance) for answer in counted) > len(counted)


def the_row(records: Sequence[Record]) -> list[Record]:
    """The answers NotFound since the node was Ready or its machine was seen."""
    row: list[Record] = []
    for record in records:
        if record.was_ready or isinstance(record.answer, Instance):
            row = []
        elif isinstance(record.answer, NotFound):
            row.append(record)
    return row


def is_justified(records: Sequence[Record]) -> bool:
    """Whether the promise allows the node to be deleted now."""
    now = records[-1]
    row = the_row(records)
    if now.was_ready or not row or row[-1] is not now:
        return False
    if any(record.answer == TOMBSTONE for record in row):
        return True
    proofs = [record.at for record in row if surely_present(record.witnesses)]
    return bool(proofs) and proofs[-1] - proofs[0] >= POLICY.confirmation_interval


SIZE = 8


@given(steps(SIZE))
@settings(max_examples=300, deadline=None)
def test_no_node_is_deleted_without_what_the_promise_asks_for(history: list[Step]) -> None:
    world = History(SIZE)
    for step in history:
        found = world.play(step)
        for deletion in found.delete:
            event("a deletion")
            assert is_justified(world.records[deletion.node.metadata.name])


def test_what_was_proved_while_a_ready_node_was_unknown_does_not_outlive_that_node() -> None:
    """n4 was hidden while it lived, and n5 with it; then n4 ends, and the cloud says so."""
    world = History(SIZE)
    up = [True, True, True, False, True, False, False, False]
    for _ in range(4):
        assert world.play(Step(300.0, up, "iiteggee")).delete == ()
    late = [True, True, True, True, False, False, True, True]
    ended = world.play(Step(1.0, late, "eeeeteee")).delete
    assert [one.node.metadata.name for one in ended] == ["n4"]
    assert world.play(Step(1.0, late, "eeeeegee")).delete == ()
    assert world.play(Step(1.0, late, "iiiiegii")).delete == ()
    found = world.play(Step(30.0, late, "iiiiegii")).delete
    assert [one.node.metadata.name for one in found] == ["n5"]


@given(steps(SIZE))
@settings(max_examples=200, deadline=None)
def test_deletions_stay_within_the_breakers_limit(history: list[Step]) -> None:
    world = History(SIZE)
    sure = set()
    for step in history:
        for deletion in world.play(step).delete:
            name = deletion.node.metadata.name
            row = the_row(world.records[name])
            proofs = [record.at for record in row if surely_present(record.witnesses)]
            is_long = bool(proofs) and proofs[-1] - proofs[0] >= POLICY.hold
            if is_long or any(record.answer == TOMBSTONE for record in row):
                sure.add(name)
    counted = [at for at, name in world.deletions if name not in sure]
    for start in counted:
        within = [at for at in counted if start <= at < start + POLICY.breaker_window]
        assert len(within) <= max(POLICY.breaker_minimum, POLICY.breaker_fraction * SIZE)


@given(steps(SIZE, letters="e-i"))
@settings(deadline=None)
def test_errors_and_missing_answers_alone_never_delete(history: list[Step]) -> None:
    for policy in (POLICY, GO):
        world = History(SIZE, policy)
        for step in history:
            found = world.play(step)
            assert found.delete == ()
            assert found.memory == Memory()


@given(steps(SIZE), st.integers(0, SIZE - 1))
@settings(deadline=None)
def test_a_machine_that_is_there_whenever_the_cloud_answers_keeps_its_node(
    history: list[Step], index: int
) -> None:
    world = History(SIZE)
    for step in history:
        letter = step.answers[index] if step.answers[index] in "e-" else "i"
        answers = step.answers[:index] + letter + step.answers[index + 1 :]
        world.play(step._replace(answers=answers))
    assert f"n{index}" in world.nodes


@given(steps(SIZE), st.sets(st.integers(1, SIZE - 1), min_size=2))
@settings(deadline=None)
def test_an_empty_list_deletes_nothing_while_a_node_is_ready(
    history: list[Step], up: set[int]
) -> None:
    """The cloud loses everything, or errs: the Ready nodes' absence gives it away."""
    world = History(SIZE)
    for step in history:
        lost = step.answers.replace("i", "g").replace("t", "g")
        lost = "".join("g" if i in up else letter for i, letter in enumerate(lost))
        ready = [i in up for i in range(SIZE)]
        assert world.play(step._replace(answers=lost, ready=ready)).delete == ()


@given(
    st.integers(10, 60),
    st.data(),
    st.lists(st.sampled_from([5.0, 30.0]), min_size=1, max_size=12),
)
@settings(max_examples=20, deadline=None)
def test_a_mass_disappearance_trips_the_breaker(
    size: int, data: st.DataObject, pauses: list[float]
) -> None:
    """The cloud loses many machines at once: nobody goes before it has said so for ten minutes."""
    fewest = max(POLICY.breaker_minimum, int(POLICY.breaker_fraction * size)) + 1
    lost = data.draw(st.integers(fewest, size - 1))
    first = data.draw(st.integers(fewest, lost))

    def passing(seconds: float, down: int) -> Step:
        ready = [n >= down for n in range(size)]
        return Step(seconds, ready, "".join("i" if is_up else "g" for is_up in ready))

    world = History(size)
    found = world.play(passing(pauses[0], first))
    assert tripped(found)
    told = set(held_by(found))
    since = world.at
    for pause in pauses[1:]:
        found = world.play(passing(pause, lost))
        assert told.isdisjoint(held_by(found)), "nobody is told twice"
        told.update(held_by(found))
        assert found.delete == ()
    while len(world.nodes) > size - lost:
        found = world.play(passing(5.0, lost))
        assert not found.delete or world.at >= since + POLICY.hold
        assert len(found.delete) <= math.ceil(pace(size, POLICY)) + limit(size, POLICY)
        assert world.at < since + POLICY.hold + 240.0, "those that went last wait little longer"


@given(steps(SIZE, letters="gti"))
@settings(deadline=None)
def test_gos_policy_deletes_on_the_first_answer(history: list[Step]) -> None:
    world = History(SIZE, GO)
    for step in history:
        before = set(world.nodes)
        found = world.play(step)
        expected = {
            f"n{i}"
            for i, (ready, letter) in enumerate(zip(step.ready, step.answers, strict=True))
            if f"n{i}" in before and not ready and letter in "gt"
        }
        assert {d.node.metadata.name for d in found.delete} == expected
        assert found.alarms == ()
        assert not found.held


@given(steps(SIZE))
@settings(deadline=None)
def test_a_pending_node_shows_when_it_may_go_and_no_node_is_in_two_places(
    history: list[Step],
) -> None:
    world = History(SIZE)
    for step in history:
        found = world.play(step)
        gone = {d.node.metadata.name for d in found.delete}
        assert not gone & (found.waiting.keys() | found.held.keys())
        assert not found.waiting.keys() & found.held.keys()
        seconds = found.countdown(world.at)
        assert seconds.keys() == found.waiting.keys() | found.held.keys()
        assert all(s is None or 0 <= s <= POLICY.hold for s in seconds.values())
        assert all(not step.ready[int(name[1:])] for name in seconds)


def test_the_oracle_itself_refuses_what_the_promise_forbids() -> None:
    there, gone = [THERE], [GONE]

    def record(
        at: float, answer: InstanceAnswer | None, witnesses: Sequence[InstanceAnswer]
    ) -> Record:
        return Record(at, was_ready=False, answer=answer, witnesses=witnesses)

    good = [record(0, GONE, there), record(30, GONE, there)]
    assert is_justified(good)
    assert not is_justified(good[:1])
    assert not is_justified([good[0], record(29, GONE, there)])
    assert not is_justified([good[0], record(30, GONE, gone)])
    assert not is_justified([good[0], record(30, GONE, [THERE, GONE])])
    assert is_justified([good[0], record(30, GONE, [THERE, TOMBSTONE])])
    assert not is_justified([good[0], record(10, THERE, there), record(30, GONE, there)])
    assert not is_justified([*good, record(35, BROKEN, there)])
    assert not is_justified([*good[:1], good[1]._replace(was_ready=True)])
    assert is_justified([record(0, TOMBSTONE, [])])
    assert not is_justified([record(0, GONE, []), record(6000, GONE, [])])
