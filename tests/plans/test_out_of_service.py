"""Which nodes are taken out of service, and put back, for each answer of the cloud about power."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count

import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.containment.inventory import Observation, Sighting
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Memory, ScopeMemory
from proreus.controllers.cloud_node_lifecycle.out_of_service import marked, returned
from proreus.controllers.cloud_node_lifecycle.outlasting import ANNOTATION_OUTLASTING
from proreus.controllers.cloud_node_lifecycle.outstanding import is_quiet, stands_out
from proreus.controllers.cloud_node_lifecycle.plan import Pass, plan
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, Reply, questions
from proreus.controllers.cloud_node_lifecycle.taints import ANNOTATION_OUT_OF_SERVICE, may_return
from proreus.controllers.last_ready import LastReady
from proreus.kube.objects import (
    TAINT_OUT_OF_SERVICE,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Taint,
)
from proreus.kube.patch import Patch
from proreus.testing import objects
from proreus.testing.objects import changed

ApplyPatch = Callable[[Node, Patch], Node]

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
POLICY = Policy(out_of_service_grace=60.0)
OURS = Taint(TAINT_OUT_OF_SERVICE, "NoExecute", "nodeshutdown")
OTHER = Taint("dedicated", "NoSchedule", "db")
MARK = {ANNOTATION_OUT_OF_SERVICE: "true"}
OFF = Instance("sim://x", state=InstanceState.STOPPED, powered_off=True)
STOPPED = Instance("sim://x", state=InstanceState.STOPPED)
RUNNING = Instance("sim://x")
UNKNOWN = Instance("sim://x", state=InstanceState.UNKNOWN)
BROKEN = CloudError("broken")


def node(name: str, ready: str = "Unknown", *taints: Taint, provider_id: str = "sim://x") -> Node:
    return objects.node(
        name,
        provider_id,
        uid=f"uid-{name}",
        resource_version="7",
        creation_timestamp=NOW.replace(year=2025),
        taints=taints,
        conditions=(Condition("Ready", ready),) if ready else (),
    )


def up(name: str, *taints: Taint) -> Node:
    return node(name, "True", *taints)


def of_our_own(one: Node) -> Node:
    return changed(one, annotations=MARK)


class Fleet:
    """Makes passes: asks for every candidate, answers from a table, hands the memory on."""

    def __init__(self, *nodes: Node, policy: Policy = POLICY, batch_size: int = 100) -> None:
        self.nodes = list(nodes)
        self.policy = policy
        self.batch_size = batch_size
        self.memory = Memory()
        self.at = 1000.0
        self.turns = count()
        self.owns = Ownership.YES
        self.scope: str | None = ""
        self.sightings: dict[str, Sighting] = {}
        self.last_ready = LastReady(lambda: self.at)

    @property
    def known(self) -> Known:
        return Known(
            lambda _: self.owns,
            lambda _: self.scope,
            lambda one: self.sightings.get(one.metadata.name, Sighting()),
            ready_until=self.last_ready.ready_until,
            ready_for=self.last_ready.ready_for,
            taken_over=self.last_ready.taken_over,
        )

    def after(
        self,
        seconds: float,
        default: InstanceAnswer | None = OFF,
        witness: InstanceAnswer | None = RUNNING,
        **answers: InstanceAnswer | None,
    ) -> Pass:
        """A pass that many seconds later; None leaves a node out of the answer."""
        self.at += seconds
        replies = []
        for question in questions(
            self.nodes,
            NOW,
            self.known,
            self.policy,
            self.memory,
            batch_size=self.batch_size,
            turn=next(self.turns),
            at=self.at,
        ):
            told: dict[str, InstanceAnswer | None] = {}
            told |= {n.metadata.name: default for n in question.candidates}
            told |= {n.metadata.name: witness for n in question.witnesses}
            told |= {name: answer for name, answer in answers.items() if name in told}
            seen = {n: [Observation(a, self.at)] for n, a in told.items() if a is not None}
            replies.append(Reply(question, seen))
        found = self._plan(self.nodes, replies)
        sighting = self.known.sighting
        some = [one for one in self.nodes if stands_out(one) or sighting(one).off is not None]
        if is_quiet(some, NOW, self.known, self.policy, self.memory):
            assert self._plan(some, replies) == found
        self.memory = found.memory
        return found

    def until(self, seconds: float, **kwargs: InstanceAnswer | None) -> Pass:
        """A pass every five seconds for so long; the last one."""
        found = self.after(0.0, **kwargs)
        for _ in range(int(seconds / 5.0)):
            found = self.after(5.0, **kwargs)
        return found

    def replace(self, *nodes: Node) -> None:
        new = {one.metadata.name: one for one in nodes}
        self.nodes = [new.get(one.metadata.name, one) for one in self.nodes]

    def _plan(self, nodes: Sequence[Node], replies: Sequence[Reply]) -> Pass:
        return plan(nodes, replies, self.memory, self.policy, self.known, now=NOW, at=self.at)


def fleet(off: int = 1, ready: int = 9, policy: Policy = POLICY) -> Fleet:
    silent = [node(f"off{i}") for i in range(off)]
    return Fleet(*silent, *(up(f"up{i}") for i in range(ready)), policy=policy)


def taken(found: Pass) -> list[str]:
    return [one.metadata.name for one, _ in found.out_of_service]


def why(found: Pass, name: str = "off0") -> str:
    return found.powered_off[name].reason


def test_two_answers_and_the_grace_take_a_node_out_of_service() -> None:
    one = fleet()
    assert why(one.after(0)) == "1 more answers must say that its machine is powered off"
    assert why(one.after(25)) == "1 more answers must say that its machine is powered off"
    assert why(one.after(5)) == "it has been silent for 30 of 60 s"
    assert why(one.after(25)) == "it has been silent for 55 of 60 s"
    assert taken(one.after(5)) == ["off0"]
    assert taken(one.after(5)) == ["off0"], "as long as it is not written"


def test_it_is_off_unless_it_is_asked_for() -> None:
    one = fleet(policy=Policy())
    found = one.until(3600)
    assert (found.out_of_service, found.powered_off, found.suspects) == ((), {}, ())
    assert one.memory.scopes == {}


def test_one_answer_is_never_enough() -> None:
    lax = Policy(confirmations=1, confirmation_interval=30.0, out_of_service_grace=0.0)
    one = fleet(policy=lax)
    assert taken(one.after(0)) == []
    assert taken(one.after(29)) == []
    assert taken(one.after(1)) == ["off0"]


@pytest.mark.parametrize("answer", [STOPPED, RUNNING, BROKEN, NotFound(tombstone=True), None])
def test_nothing_but_the_clouds_own_word_counts(answer: InstanceAnswer | None) -> None:
    assert taken(fleet().until(600, default=answer)) == []


def test_a_machine_that_is_said_to_be_off_in_another_state_is_not() -> None:
    odd = Instance("sim://x", state=InstanceState.RUNNING, powered_off=True)
    assert taken(fleet().until(600, default=odd)) == []


@pytest.mark.parametrize("ready", ["False", "", "True"])
def test_only_a_silent_kubelet_has_no_power(ready: str) -> None:
    one = Fleet(node("off0", ready), *(up(f"up{i}") for i in range(5)))
    assert taken(one.until(600)) == []


@pytest.mark.parametrize("answer", [RUNNING, STOPPED, NotFound()])
def test_another_answer_begins_the_row_anew(answer: InstanceAnswer) -> None:
    one = fleet()
    one.until(55)
    assert taken(one.after(5, off0=answer)) == []
    assert why(one.after(5)) == "1 more answers must say that its machine is powered off"
    assert taken(one.until(55)) == []
    assert taken(one.after(5)) == ["off0"]


def test_a_kubelet_that_reports_begins_the_row_anew() -> None:
    one = fleet()
    one.until(55)
    one.replace(up("off0"))
    one.after(5, off0=RUNNING)
    one.replace(node("off0"))
    assert taken(one.until(55)) == []


def test_a_kubelet_that_has_reported_between_two_passes_begins_the_row_anew() -> None:
    one = fleet()
    one.until(50)
    one.at += 5
    one.last_ready.on_node(up("off0"), one.nodes[0])
    one.after(0)
    assert taken(one.until(50)) == []
    one.after(5)
    assert taken(one.after(5)) == ["off0"]


def test_what_any_other_call_has_said_begins_the_row_anew() -> None:
    one = fleet()
    one.until(30)
    one.sightings["off0"] = Sighting(shown=one.at + 7)  # as running, while the pass asked
    found = one.after(5)
    assert (taken(found), found.powered_off) == ([], {})
    one.sightings["off0"] = Sighting(shown=one.at + 5, off=one.at + 5)
    one.after(5)
    one.sightings["off0"] = Sighting(shown=one.at + 40, off=one.at + 35)  # once more in between
    assert why(one.after(40)) == "1 more answers must say that its machine is powered off"
    assert taken(one.until(55)) == []
    assert taken(one.after(5)) == ["off0"]


@pytest.mark.parametrize("answer", [BROKEN, None])
def test_no_answer_neither_counts_nor_clears(answer: InstanceAnswer | None) -> None:
    one = fleet()
    one.until(55)
    found = one.after(60, off0=answer)
    assert taken(found) == []
    assert why(found) == "it has been silent for 55 of 60 s"
    assert taken(one.after(5)) == ["off0"]
    assert why(one.after(5, off0=answer)) == (
        "the cloud has to say once more that its machine is powered off"
    )


def test_a_node_without_witnesses_stays_and_says_what_to_do() -> None:
    alone = Fleet(node("off0"), node("gone"))
    found = alone.until(600, gone=BROKEN)
    assert taken(found) == []
    assert why(found) == "no Ready node vouches for what the cloud says"
    (alarm,) = Fleet(node("off0")).after(0).alarms
    assert (alarm.alert, alarm.event.reason) == (Alert.IN_SERVICE, "OutOfServiceHeld")
    assert "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in alarm.event.message


@pytest.mark.parametrize("witness", [BROKEN, None, STOPPED, NotFound()])
def test_witnesses_that_are_not_shown_as_running_vouch_for_nothing(
    witness: InstanceAnswer | None,
) -> None:
    assert taken(fleet().until(600, witness=witness)) == []


def test_most_witnesses_must_be_shown_as_running() -> None:
    half = Fleet(node("off0"), up("a"), up("b"))
    assert taken(half.until(600, a=STOPPED)) == []
    most = Fleet(node("off0"), up("a"), up("b"), up("c"))
    assert taken(most.until(600, a=STOPPED)) == ["off0"]


def test_a_ready_node_that_the_cloud_calls_off_holds_all_until_the_cloud_corrects_itself() -> None:
    one = fleet(ready=3)
    one.until(55)
    found = one.until(600, up1=OFF)
    assert taken(found) == []
    assert why(found) == "the cloud says the same of Ready nodes: up1"
    assert taken(one.after(5)) == [], "it was wrong about power: all begins anew"
    assert why(one.after(5)) == "1 more answers must say that its machine is powered off"
    assert taken(one.until(60)) == ["off0"]


def test_a_ready_node_that_falls_silent_was_off_indeed() -> None:
    one = fleet(ready=6)
    one.until(55)
    assert taken(one.after(5, up1=OFF, up3=OFF, up5=OFF)) == []
    one.replace(node("up1"), node("up3"), node("up5"))
    one.replace(node("up3"))
    assert taken(one.after(5, up1=RUNNING, up3=RUNNING, up5=RUNNING)) == ["off0"]


def fall_silent(one: Fleet, name: str, after: float) -> None:
    """A node that the cloud calls off reports for so long, then no more."""
    silent = node(name)
    one.last_ready.on_node(silent, up(name))
    one.replace(up(name))
    one.after(after)
    one.last_ready.on_node(up(name), silent)
    one.replace(silent)


def test_what_the_cloud_called_off_while_it_reported_stays_until_the_cloud_corrects_that() -> None:
    one = fleet(off=1, ready=4)
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    fall_silent(one, "up0", 120)
    found = one.until(65)
    assert taken(found) == ["off0"], "of others it may be right"
    assert why(found, "up0") == "the node was Ready long after the cloud had begun to say so"
    fall_silent(one, "up0", 5)
    found = one.until(1200)
    assert "up0" not in taken(found)
    assert found.powered_off["up0"].hold is Alert.IN_SERVICE
    one.sightings["up0"] = Sighting(shown=one.at)
    one.after(5, up0=UNKNOWN)
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at + 5)
    assert "up0" not in taken(one.until(70)), "that says nothing of its power"
    one.sightings["up0"] = Sighting(shown=one.at, ran=one.at)
    one.after(5, up0=RUNNING)
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at + 5)
    assert "up0" in taken(one.until(70))


def test_a_node_that_another_machine_has_taken_over_is_not_marked_with_the_former_one() -> None:
    """The former one is kept, and off. One that has run since has got another UUID itself."""
    first, second = "2e8c1f0a-1234-4abc-9234-0123456789ab", "3e8c1f0a-1234-4abc-9234-0123456789ab"
    for off, ran in ((0, None), (0, -5), (1, None), (1, -5), (1, 0)):
        one = fleet(off=0, ready=4)
        old, new = (
            objects.node("up0", uid="uid-up0", system_uuid=uuid) for uuid in (first, second)
        )
        one.last_ready.on_node(old, new)
        one.sightings["up0"] = Sighting(
            shown=one.at + 1, off=one.at + off, ran=None if ran is None else one.at + ran
        )
        fall_silent(one, "up0", 5)
        assert taken(one.until(120)) == ([] if ran != 0 else ["up0"])


def test_a_node_that_reports_for_less_than_two_minutes_after_it_lost_power_is_marked() -> None:
    one = fleet(off=0, ready=4)
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    fall_silent(one, "up0", 119)
    assert taken(one.until(65)) == ["up0"]


@pytest.mark.parametrize(("times", "lives"), [(3, False), (4, True)])
def test_a_node_that_reports_for_two_minutes_in_all_without_power_is_not_marked(
    times: int, *, lives: bool
) -> None:
    one = fleet(off=0, ready=4)
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    for _ in range(times):
        fall_silent(one, "up0", 30)
        one.until(20)
    assert taken(one.until(65)) == ([] if lives else ["up0"])


def test_a_node_is_not_believed_to_have_power_for_what_the_cloud_said_before_it_reported() -> None:
    one = fleet(off=0, ready=4)
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    one.at += 3600
    fall_silent(one, "up0", 30)
    assert taken(one.until(65)) == ["up0"]


def test_a_node_that_reported_long_without_power_is_marked_until_its_machine_is_shown_on(
    apply_patch: ApplyPatch,
) -> None:
    one = fleet(off=0, ready=4)
    one.last_ready.on_node(None, one.nodes[0])
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    assert one.until(115).marks == ()
    ((told, change),) = one.after(5).marks
    assert told.metadata.name == "up0"
    one.replace(apply_patch(told, change))
    assert ANNOTATION_OUTLASTING in one.nodes[0].metadata.annotations
    assert one.after(5).marks == ()

    later = Fleet(*one.nodes)  # which has asked nobody yet
    assert later.after(0).marks == ()
    later.replace(changed(node("up0"), annotations={ANNOTATION_OUTLASTING: "true"}))
    later.sightings["up0"] = Sighting(shown=later.at, off=later.at)
    found = later.until(300)
    assert (taken(found), found.marks) == ([], ())
    assert "was Ready long after" in why(found, "up0")
    absent = Sighting(later.at, missing=later.at), Sighting(tombstone=later.at)
    for unclear in (*absent, Sighting(shown=later.at)):
        later.sightings["up0"] = unclear
        assert later.after(5).marks == ()
    later.sightings["up0"] = Sighting(shown=later.at, ran=later.at)
    ((told, change),) = later.after(5, up0=RUNNING).marks
    later.replace(apply_patch(told, change))
    assert ANNOTATION_OUTLASTING not in later.nodes[0].metadata.annotations
    assert later.after(5, up0=RUNNING).marks == ()


@pytest.mark.parametrize("is_foreign", [True, False])
def test_only_nodes_of_this_cloud_that_stay_are_marked_for_their_reports(
    *, is_foreign: bool
) -> None:
    one = fleet(off=0, ready=4)
    one.last_ready.on_node(None, one.nodes[0])
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    if is_foreign:
        one.owns = Ownership.NO
    else:
        one.replace(changed(one.nodes[0], deletion_timestamp=NOW))
    assert one.until(300).marks == ()


def test_nothing_is_marked_for_reports_where_no_node_is_taken_out_of_service() -> None:
    one = fleet(off=0, ready=4, policy=Policy())
    one.last_ready.on_node(None, one.nodes[0])
    one.sightings["up0"] = Sighting(shown=one.at, off=one.at)
    assert one.until(300).marks == ()


def test_a_cloud_that_lacks_ready_nodes_is_not_believed_about_power() -> None:
    one = fleet(ready=4)
    one.until(55)
    found = one.until(300, up0=NotFound())
    assert taken(found) == []
    assert why(found) == "the cloud does not know these Ready nodes: up0"


@pytest.mark.parametrize(
    "one",
    [
        node("off0", "Unknown", Taint(TAINT_UNINITIALIZED, "NoSchedule", "true")),
        node("off0", provider_id=""),
        changed(node("off0"), deletion_timestamp=NOW),
    ],
)
def test_only_initialised_nodes_that_stay_are_taken(one: Node) -> None:
    policy = Policy(out_of_service_grace=60.0, delete_by_name=True, startup_grace=0.0)
    others = [up(f"up{i}") for i in range(4)]
    assert taken(Fleet(one, *others, policy=policy).until(600)) == []


@pytest.mark.parametrize("ownership", [Ownership.NO, Ownership.UNKNOWN])
def test_nodes_of_others_are_left_alone(ownership: Ownership) -> None:
    one = fleet()
    one.owns = ownership
    assert taken(one.until(600)) == []


def test_a_node_of_an_unknown_scope_is_left_alone() -> None:
    one = fleet()
    one.scope = None
    found = one.until(600)
    assert taken(found) == []
    assert why(found) == "the provider does not say which scope it is of"


@pytest.mark.parametrize(
    "one",
    [
        node("off0", "Unknown", OURS),
        node("off0", "Unknown", Taint(TAINT_OUT_OF_SERVICE, "NoExecute")),
        of_our_own(node("off0")),  # an operator has removed the taint
    ],
)
def test_a_node_that_is_marked_already_or_was_put_back_by_an_operator_stays_as_it_is(
    one: Node,
) -> None:
    found = Fleet(one, *(up(f"up{i}") for i in range(4))).until(600)
    assert (taken(found), found.powered_off) == ([], {})


def test_many_at_once_are_held_and_then_go_a_few_at_a_time() -> None:
    many = fleet(off=4, ready=6)
    found = many.until(300)
    assert taken(found) == []
    assert why(found) == "too many nodes look gone or powered off at once"
    assert found.held == {}
    first = taken(many.until(300))
    assert first == ["off0", "off1"], "at a bounded pace"
    many.replace(*(of_our_own(node(name, "Unknown", OURS)) for name in first))
    paced = many.after(5)
    assert taken(paced) == []
    assert why(paced, "off2") == "many nodes were held and are now marked a few at a time"
    assert taken(many.after(5)) == ["off2", "off3"]


def test_deletions_and_taints_are_counted_together() -> None:
    one = Fleet(node("off0"), node("off1"), node("gone"), *(up(f"up{i}") for i in range(7)))
    found = one.until(90, gone=NotFound())
    assert (taken(found), found.delete) == ([], ())
    assert found.held["gone"].hold is Alert.BREAKER
    assert one.memory.scopes[""].breaker.since is not None


def test_what_is_marked_counts_no_more_after_five_minutes() -> None:
    one = fleet(off=2, ready=8)
    assert taken(one.until(60)) == ["off0", "off1"]
    one.replace(*(of_our_own(node(name, "Unknown", OURS)) for name in ("off0", "off1")))
    one.nodes.append(node("off2"))
    held = one.until(60)
    assert why(held, "off2") == "too many nodes look gone or powered off at once"
    calm = fleet(off=2, ready=8)
    calm.until(60)
    calm.replace(*(of_our_own(node(name, "Unknown", OURS)) for name in ("off0", "off1")))
    calm.until(300)
    calm.nodes.append(node("off2"))
    assert taken(calm.until(60)) == ["off2"]


def test_questions_ask_for_a_jury_where_the_answer_may_decide() -> None:
    one = fleet(ready=50)
    one.after(0)

    def asked(at: float) -> tuple[int, bool, frozenset[str]]:
        (question,) = questions(
            one.nodes, NOW, one.known, POLICY, one.memory, batch_size=100, turn=0, at=at
        )
        return len(question.witnesses), question.decides, question.due_off

    assert asked(one.at + 5) == (3, False, frozenset())
    assert asked(one.at + 30) == (50, True, frozenset({"off0"}))
    (without,) = questions(
        one.nodes, NOW, one.known, Policy(), Memory(), batch_size=100, turn=0, at=one.at
    )
    assert without.due_off == frozenset()


def test_ready_nodes_that_the_cloud_calls_off_are_asked_about_again() -> None:
    one = fleet(ready=50)
    one.memory = Memory({"": ScopeMemory(awake=frozenset({("uid-up33", "sim://x")}))})
    for turn in range(3):
        (question,) = questions(
            one.nodes, NOW, one.known, POLICY, one.memory, batch_size=100, turn=turn, at=0.0
        )
        assert "up33" in {witness.metadata.name for witness in question.witnesses}


def test_answers_of_calls_before_and_after_are_witnesses_too() -> None:
    one = fleet(ready=3)
    (question,) = questions(
        one.nodes, NOW, one.known, POLICY, one.memory, batch_size=100, turn=0, at=0.0
    )
    asked = Observation(OFF, 10.0, 11.0, call=2)
    around = [Observation(RUNNING, 5.0, 6.0, call=1), Observation(RUNNING, 12.0, 13.0, call=3)]
    names = [witness.metadata.name for witness in question.witnesses]

    def proofs(seen: list[Observation]) -> int:
        reply = Reply(question, {"off0": [asked], **dict.fromkeys(names, seen)})
        found = plan(one.nodes, [reply], Memory(), POLICY, one.known, now=NOW, at=20.0)
        return sum(one.confirmations for one in found.memory.scopes[""].off.values())

    assert proofs(around) == 1
    assert proofs(around[:1]) == 0, "the cloud may have gone wrong between the two"


# The patches


def test_the_taint_goes_with_its_mark_onto_the_version_that_was_judged(
    apply_patch: ApplyPatch,
) -> None:
    one = fleet()
    one.replace(node("off0", "Unknown", OTHER))
    ((judged, patch),) = one.until(60).out_of_service
    after = apply_patch(judged, patch)
    assert after.spec.taints == (OTHER, OURS)
    assert after.metadata.annotations == MARK
    with pytest.raises(AssertionError):
        apply_patch(changed(judged, resource_version="8"), patch)


@pytest.mark.parametrize(
    ("one", "answer", "taints"),
    [
        (of_our_own(up("a", OTHER, OURS)), RUNNING, (OTHER,)),
        (of_our_own(up("a", OTHER)), RUNNING, (OTHER,)),
        (of_our_own(up("a", Taint(TAINT_OUT_OF_SERVICE, "NoExecute", "mine"))), RUNNING,
            (Taint(TAINT_OUT_OF_SERVICE, "NoExecute", "mine"),)),
        (of_our_own(up("a", OURS)), OFF, None),
        (of_our_own(up("a", OURS)), BROKEN, None),
        (of_our_own(up("a", OURS)), None, None),
        (of_our_own(node("a", "Unknown", OURS)), RUNNING, None),
        (of_our_own(node("a", "False", OURS)), RUNNING, None),
        (changed(of_our_own(up("a", OURS)), deletion_timestamp=NOW), RUNNING, None),
        (up("a", OURS), RUNNING, None),
    ],
)  # fmt: skip
def test_only_our_own_taint_goes_when_the_machine_runs_and_the_node_is_ready(
    apply_patch: ApplyPatch,
    one: Node,
    answer: InstanceAnswer | None,
    taints: tuple[Taint, ...] | None,
) -> None:
    known = Known(lambda _: Ownership.YES)
    told = {} if answer is None else {"a": answer}
    for policy in (POLICY, Policy()):  # what is marked returns though the flag was dropped
        found = plan([one], [], Memory(), policy, known, now=NOW, at=0.0, returning=told)
        after = [apply_patch(judged, patch) for judged, patch in found.in_service]
        assert [node.spec.taints for node in after] == ([] if taints is None else [taints])
        assert all(not node.metadata.annotations for node in after)


def test_only_nodes_that_may_return_are_asked_about() -> None:
    assert may_return(of_our_own(up("a", OURS)))
    assert not may_return(up("a", OURS))
    assert stands_out(of_our_own(up("a")))


def test_the_events_say_what_was_done_and_why() -> None:
    assert marked(up("a")).message.startswith(
        "Took node a out of service because the cloud shows its machine as powered off"
    )
    assert returned(up("a")).reason == "NodeInService"
