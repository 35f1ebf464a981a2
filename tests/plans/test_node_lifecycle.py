"""When nodes are silent, which taints they get and how quickly, and when pods leave them.

The situations are those of the tests of kube-controller-manager's controllers of node lifecycle and
taint eviction.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from proreus.controllers.node_lifecycle import evictions, health, rivals, taints
from proreus.controllers.node_lifecycle.evictions import Eviction, patience, schedule
from proreus.controllers.node_lifecycle.memory import Memory
from proreus.controllers.node_lifecycle.plan import Pass, chosen, no_execute, plan, take
from proreus.controllers.node_lifecycle.policy import Policy
from proreus.controllers.node_lifecycle.rivals import Rivals, noticed
from proreus.controllers.node_lifecycle.zones import (
    Bucket,
    State,
    Zone,
    rate,
    zone_of,
    zones,
)
from proreus.kube.objects import Condition, Node, ObjectMeta, Taint, is_ready
from proreus.kube.patch import Patch
from proreus.kube.pods import (
    Fields,
    FieldsOwner,
    LeaseSpec,
    NodeLease,
    Pod,
    PodSpec,
    PodStatus,
    Pulse,
    PulseCondition,
    PulseMeta,
    PulseSpec,
    PulseStatus,
    SpecFields,
    StatusFields,
    Toleration,
)
from proreus.testing import objects
from proreus.testing.objects import changed

ApplyPatch = Callable[[Node, Patch], Node]

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
POLICY = Policy(courtesy=0.0)
NOT_READY = Taint(taints.NOT_READY, "NoExecute")
UNREACHABLE = Taint(taints.UNREACHABLE, "NoExecute")
OTHER = Taint("dedicated", "NoExecute", "db")
ZONES = {"a": {"topology.kubernetes.io/zone": "a"}, "b": {"topology.kubernetes.io/zone": "b"}}


def node(name: str, ready: str = "True", *with_taints: Taint, zone: str = "a") -> Node:
    return objects.node(
        name,
        uid=f"uid-{name}",
        resource_version="7",
        labels=ZONES.get(zone, {}),
        taints=with_taints,
        conditions=(Condition("Ready", ready),) if ready else (),
    )


def fleet(ready: int, silent: int, zone: str = "a") -> list[Node]:
    return [
        *(node(f"{zone}-up-{i}", zone=zone) for i in range(ready)),
        *(node(f"{zone}-gone-{i}", "Unknown", zone=zone) for i in range(silent)),
    ]


class Play:
    """Makes passes and writes what they decide, as the API server does."""

    def __init__(
        self, apply_patch: ApplyPatch, nodes: Sequence[Node], policy: Policy = POLICY
    ) -> None:
        self.nodes = {one.metadata.uid: one for one in nodes}
        self.apply = apply_patch
        self.policy = policy
        self.memory = Memory()
        self.heard: dict[str, float] = {}
        self.mute: set[str] = set()
        """The names of Ready nodes that are not heard of any more."""
        self.at = 1000.0
        self.tainted: list[tuple[float, str]] = []
        """When nodes got their first NoExecute taint, in seconds since the start, and which."""

    def passes(self, seconds: float, *, write: bool = True) -> Pass:
        found = self.one(write=write)
        for _ in range(int(seconds / self.policy.period)):
            self.at += self.policy.period
            found = self.one(write=write)
        return found

    def one(self, *, write: bool = True) -> Pass:
        for uid, one in self.nodes.items():
            if is_ready(one) and one.metadata.name not in self.mute:
                self.heard[uid] = self.at
        found = plan(
            tuple(self.nodes.values()), self.heard, self.memory, self.policy, now=NOW, at=self.at
        )
        self.memory = found.memory
        if write:
            for silence in found.silent:
                self.write(silence.node, silence.patch)
            for judged, patch in found.now:
                self.write(self.nodes[judged.metadata.uid], patch)
            self.memory, uids = take(self.memory, found.zones, self.policy, self.at)
            for taken in chosen(self.nodes.values(), uids):
                patch_ = no_execute(taken, NOW)
                if patch_ is not None:
                    self.tainted.append((self.at - 1000.0, taken.metadata.name))
                    self.write(taken, patch_)
        return found

    def write(self, one: Node, patch: Patch) -> None:
        self.nodes[one.metadata.uid] = self.apply(one, patch)

    def change(self, *nodes: Node) -> None:
        self.nodes |= {one.metadata.uid: one for one in nodes}

    def taints(self, name: str) -> set[tuple[str, str]]:
        return {(one.key, one.effect) for one in self.nodes[f"uid-{name}"].spec.taints}

    def executing(self) -> set[str]:
        return {one.metadata.name for one in self.nodes.values() if taints.executing(one)}


# Silence


def test_a_node_that_is_not_heard_of_becomes_unknown_after_the_grace(
    apply_patch: ApplyPatch,
) -> None:
    one = node("n")
    conditions = (*one.status.conditions, Condition("DiskPressure", "False"))
    play = Play(apply_patch, [changed(one, conditions=conditions), node("up")])
    play.heard, play.mute = {"uid-n": 1000.0}, {"n"}
    assert play.passes(50).silent == ()
    (silence,) = play.passes(5, write=False).silent
    assert silence.fell
    assert {(one.type, one.status, one.reason) for one in silence.conditions} == {
        ("Ready", "Unknown", health.SILENT),
        ("DiskPressure", "Unknown", health.SILENT),
        ("MemoryPressure", "Unknown", health.NEVER),
        ("PIDPressure", "Unknown", health.NEVER),
    }
    assert silence.patch.body["metadata"]["resourceVersion"] == "7"


def test_a_node_that_never_reported_has_a_grace_of_its_own() -> None:
    bare = node("n", "")
    assert not health.is_silent(bare, 0.0, 60.0, POLICY)
    assert health.is_silent(bare, 0.0, 60.1, POLICY)
    assert health.unknown(bare, NOW)[0].reason == health.NEVER
    assert not health.is_silent(node("n"), 0.0, 60.0, Policy(courtesy=10.0))


def test_conditions_are_written_once_and_a_node_that_is_known_as_silent_falls_no_more() -> None:
    types = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    silent = changed(node("n"), conditions=tuple(Condition(one, "Unknown") for one in types))
    assert health.unknown(silent, NOW) == ()
    told = plan([silent], {}, Memory({"uid-n": 0.0}, at=95.0), POLICY, now=NOW, at=100.0)
    assert (told.silent, told.lost) == ((), (silent,))
    half = changed(node("n"), conditions=(Condition("Ready", "False"),))
    memory = Memory({"uid-n": 0.0}, at=95.0)
    (found,) = plan([half], {}, memory, POLICY, now=NOW, at=100.0).silent
    assert not found.fell


def test_after_a_standstill_of_this_process_all_have_the_grace_anew(
    apply_patch: ApplyPatch,
) -> None:
    play = Play(apply_patch, [node("n"), node("up")])
    play.one()
    play.mute = {"n", "up"}
    play.at += 600.0
    assert play.passes(50).silent == ()
    assert len(play.passes(5).silent) == 2


def test_nobody_is_silent_for_what_could_not_be_said_while_the_api_server_was_away() -> None:
    memory = Memory({"uid-n": 0.0}, at=195.0)
    for deaf, silent in ((100.0, 1), (151.0, 0)):
        told = plan([node("n")], {}, memory, POLICY, now=NOW, at=200.0, deaf=deaf)
        assert len(told.silent) == silent


# Zones


@pytest.mark.parametrize(
    ("ready", "not_ready", "state"),
    [
        (0, 0, State.NORMAL),
        (3, 0, State.NORMAL),
        (0, 1, State.FULL),
        (0, 9, State.FULL),
        (1, 2, State.NORMAL),  # two are few, whatever their share
        (3, 3, State.NORMAL),
        (2, 3, State.PARTIAL),
        (45, 55, State.PARTIAL),
        (46, 54, State.NORMAL),
    ],
)
def test_states_of_zones(ready: int, not_ready: int, state: State) -> None:
    assert Zone(ready, not_ready).state(0.55) is state


@pytest.mark.parametrize(
    ("state", "size", "expected"),
    [
        (State.NORMAL, 9, 0.1),
        (State.FULL, 9, 0.1),
        (State.FULL, 90, 0.1),
        (State.PARTIAL, 50, 0.0),
        (State.PARTIAL, 51, 0.01),
    ],
)
def test_rates(state: State, size: int, expected: float) -> None:
    assert rate(state, size, POLICY) == expected


def test_zones_are_by_region_and_zone_and_some_nodes_do_not_count() -> None:
    beta = {"failure-domain.beta.kubernetes.io/zone": "x", "topology.kubernetes.io/zone": "y"}
    region = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
    excluded = {**ZONES["a"], "node.kubernetes.io/exclude-disruption": ""}
    assert zone_of(objects.node("n", labels=beta)) == ":x"
    assert zone_of(objects.node("n", labels=region)) == "r:z"
    assert zone_of(objects.node("n")) == ""
    nodes = [*fleet(2, 1), objects.node("out", labels=excluded)]
    assert zones(nodes) == {":a": Zone(2, 1)}


def test_a_bucket_holds_one_token() -> None:
    full = Bucket(at=0.0)
    empty = full.taken()
    assert empty is not None
    assert empty.taken() is None
    assert empty.filled(0.1, 9.9).taken() is None
    assert empty.filled(0.1, 10.0).taken() is not None
    assert full.filled(0.1, 1e6) == Bucket(1.0, 1e6)


# Taints at a rate


def test_one_node_of_a_zone_is_tainted_every_ten_seconds(apply_patch: ApplyPatch) -> None:
    play = Play(apply_patch, [*fleet(6, 3), *fleet(3, 1, zone="b")])
    play.passes(30)
    assert [(at, name) for at, name in play.tainted if name.startswith("a")] == [
        (0.0, "a-gone-0"),
        (10.0, "a-gone-1"),
        (20.0, "a-gone-2"),
    ]
    assert (0.0, "b-gone-0") in play.tainted, "each zone has its own rate"


def test_a_small_zone_that_is_mostly_silent_is_not_tainted(apply_patch: ApplyPatch) -> None:
    play = Play(apply_patch, fleet(2, 3))
    play.passes(600)
    assert play.tainted == []
    assert play.taints("a-gone-0") == {(taints.UNREACHABLE, "NoSchedule")}


def test_a_large_zone_that_is_mostly_silent_is_tainted_slowly(apply_patch: ApplyPatch) -> None:
    play = Play(apply_patch, fleet(20, 31))
    play.passes(200)
    assert [at for at, _ in play.tainted] == [0.0, 100.0, 200.0]


def test_a_zone_that_is_silent_altogether_is_tainted_while_another_lives(
    apply_patch: ApplyPatch,
) -> None:
    play = Play(apply_patch, [*fleet(0, 3), *fleet(3, 0, zone="b")])
    play.passes(20)
    assert len(play.executing()) == 3


def test_if_all_zones_are_silent_nothing_is_tainted_and_what_was_is_undone(
    apply_patch: ApplyPatch,
) -> None:
    play = Play(apply_patch, [*fleet(1, 2), *fleet(0, 2, zone="b")])
    play.passes(20)
    assert len(play.executing()) == 4
    play.change(node("a-up-0", "Unknown"))
    found = play.passes(600)
    assert found.stopped
    assert play.executing() == set()
    assert play.memory.queued == {}
    assert play.taints("a-gone-0") == {(taints.UNREACHABLE, "NoSchedule")}


def test_when_the_first_zone_returns_every_node_has_the_grace_anew(
    apply_patch: ApplyPatch,
) -> None:
    play = Play(apply_patch, fleet(0, 4))
    play.passes(300)
    assert play.one().stopped
    play.change(*(node(f"a-gone-{i}") for i in range(3)))
    play.passes(50)
    assert [one.metadata.name for one in play.nodes.values() if not is_ready(one)] == ["a-gone-3"]
    assert play.executing() == {"a-gone-3"}


def test_a_cluster_without_nodes_is_not_disrupted() -> None:
    found = plan([], {}, Memory(), POLICY, now=NOW, at=0.0)
    assert (found.stopped, found.now, found.silent) == (False, (), ())


def test_a_node_that_returns_waits_no_more_and_keeps_no_taint(apply_patch: ApplyPatch) -> None:
    play = Play(apply_patch, fleet(6, 3))
    play.passes(5)
    assert play.executing() == {"a-gone-0"}
    play.change(
        changed(play.nodes["uid-a-gone-0"], conditions=(Condition("Ready", "True"),)),
        node("a-gone-1"),
    )
    play.passes(5)
    assert play.executing() == {"a-gone-2"}
    assert play.taints("a-gone-0") == set()
    assert no_execute(node("n"), NOW) is None


def test_the_taint_is_exchanged_at_once_when_the_condition_changes(
    apply_patch: ApplyPatch,
) -> None:
    play = Play(apply_patch, [*fleet(2, 0), node("n", "Unknown")])
    play.passes(0)
    assert (taints.UNREACHABLE, "NoExecute") in play.taints("n")
    play.change(changed(play.nodes["uid-n"], conditions=(Condition("Ready", "False"),)))
    play.passes(0)
    assert play.taints("n") == {(taints.NOT_READY, "NoExecute"), (taints.NOT_READY, "NoSchedule")}


def test_a_node_that_moves_to_another_zone_waits_there(apply_patch: ApplyPatch) -> None:
    play = Play(apply_patch, [*fleet(6, 2), *fleet(6, 1, zone="b")])
    play.one()
    play.change(node("a-gone-1", "Unknown", zone="b"))
    assert play.one().memory.queued == {":b": ("uid-a-gone-1",)}


def test_a_full_bucket_is_of_no_use_while_the_rate_is_zero() -> None:
    memory = Memory(states={"z": State.PARTIAL}, queued={"z": ("u",)})
    after, taken = take(memory, {"z": Zone(1, 9)}, POLICY, 50.0)
    assert taken == ()
    assert after.queued == memory.queued
    assert take(memory, {}, replace(POLICY, large=-1), 50.0)[1] == ("u",)


# Taints


@pytest.mark.parametrize(
    ("conditions", "cordoned", "expected"),
    [
        ((Condition("Ready", "True"),), False, set()),
        ((Condition("Ready", "False"),), False, {"node.kubernetes.io/not-ready"}),
        ((Condition("Ready", "Unknown"),), False, {"node.kubernetes.io/unreachable"}),
        ((Condition("MemoryPressure", "True"),), False, {"node.kubernetes.io/memory-pressure"}),
        ((Condition("DiskPressure", "True"),), False, {"node.kubernetes.io/disk-pressure"}),
        ((Condition("PIDPressure", "True"),), False, {"node.kubernetes.io/pid-pressure"}),
        ((Condition("NetworkUnavailable", "True"),), True,
            {"node.kubernetes.io/network-unavailable", "node.kubernetes.io/unschedulable"}),
        ((Condition("NetworkUnavailable", "Unknown"),), False, set()),
    ],
)  # fmt: skip
def test_no_schedule_taints_follow_conditions(
    conditions: tuple[Condition, ...], *, cordoned: bool, expected: set[str]
) -> None:
    stale = Taint("node.kubernetes.io/disk-pressure", "NoSchedule", time_added="then")
    one = objects.node("n", conditions=conditions, unschedulable=cordoned, taints=(OTHER, stale))
    found = taints.no_schedule(one)
    assert {each.key for each in found if each.effect == "NoSchedule"} == expected
    assert OTHER in found
    if "node.kubernetes.io/disk-pressure" in expected:
        assert stale in found, "kept as it is"


def test_what_is_written_applies_to_the_version_that_was_judged(apply_patch: ApplyPatch) -> None:
    one = node("n", "Unknown", OTHER)
    patch = no_execute(one, NOW)
    assert patch is not None
    added = Taint(taints.UNREACHABLE, "NoExecute", time_added="2026-05-04T12:00:00Z")
    assert apply_patch(one, patch).spec.taints == (OTHER, added)
    with pytest.raises(AssertionError):
        apply_patch(changed(one, resource_version="8"), patch)


# Pods


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        (Toleration(taints.NOT_READY, "Exists"), True),
        (Toleration(taints.NOT_READY, "Exists", effect="NoExecute"), True),
        (Toleration(taints.NOT_READY, "Exists", effect="NoSchedule"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(taints.UNREACHABLE, "Exists"), False),
        (Toleration(taints.NOT_READY), True),
        (Toleration(taints.NOT_READY, ""), True),
        (Toleration(taints.NOT_READY, "Equal", "x"), False),
        (Toleration(taints.NOT_READY, "Lt", "5"), False),
    ],
)
def test_tolerations_match_as_the_api_says(toleration: Toleration, *, matches: bool) -> None:
    assert evictions.tolerates(toleration, NOT_READY) is matches


@pytest.mark.parametrize(
    ("operator", "bound", "value", "matches"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "950", "950", False),
        ("Gt", "-5", "0", True),
        ("Gt", "10", "9", False),
        ("Lt", "900", "899", True),
        ("Lt", "900", "900", False),
        ("Lt", "9223372036854775807", "-9223372036854775808", True),
        ("Lt", "9223372036854775808", "1", False),
        ("Gt", "-9223372036854775809", "1", False),
        ("Gt", "900", "0950", False),
        ("Gt", "", "950", False),
        ("Gt", "-0", "950", False),
        ("Lt", "٩", "1", False),
        ("Between", "1", "2", False),
    ],
)
def test_tolerations_compare_numbers(
    operator: str, bound: str, value: str, *, matches: bool
) -> None:
    taint = Taint("sla", "NoExecute", value)
    assert evictions.tolerates(Toleration("sla", operator, bound), taint) is matches


def for_(seconds: int | None, key: str = taints.NOT_READY) -> Toleration:
    return Toleration(key, "Exists", toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ((), 0.0),
        ((for_(300),), 0.0),  # the other taint is not tolerated
        ((for_(300), for_(100, "dedicated")), 100.0),
        ((for_(300), for_(None, "dedicated")), 300.0),
        ((for_(None), for_(None, "dedicated")), None),
        ((for_(-5), for_(100, "dedicated")), 0.0),
        ((Toleration(operator="Exists"),), None),
    ],
)
def test_the_shortest_toleration_of_all_taints_counts(
    tolerations: tuple[Toleration, ...], expected: float | None
) -> None:
    assert patience((NOT_READY, OTHER), tolerations) == expected


def pod(name: str, *tolerations: Toleration, conditions: tuple[Condition, ...] = ()) -> Pod:
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return Pod(meta, PodSpec("n", tolerations), PodStatus(conditions))


def test_pods_leave_when_their_tolerations_end_counted_from_the_first_taint() -> None:
    both = [(pod("p", for_(300)), (NOT_READY,)), (pod("q"), (NOT_READY,))]
    first = schedule(both, {}, 10.0)
    assert first == {"uid-p": Eviction(10.0, 310.0), "uid-q": Eviction(10.0, 10.0)}
    swapped = [(pod("p", for_(200, taints.UNREACHABLE)), (UNREACHABLE,))]
    assert schedule(swapped, first, 100.0) == {"uid-p": Eviction(10.0, 210.0)}
    assert schedule([(pod("p", for_(None)), (NOT_READY,))], first, 100.0) == {}
    assert schedule([], first, 100.0) == {}, "the taint has gone: nothing is left of it"


def test_pods_that_are_being_deleted_are_left_alone() -> None:
    going = pod("p")
    going = replace(going, metadata=replace(going.metadata, deletion_timestamp=NOW))
    assert schedule([(going, (NOT_READY,))], {}, 0.0) == {}


def test_pods_are_evicted_when_their_time_has_come() -> None:
    pods = [(pod("p", for_(300)), (NOT_READY,)), (pod("q"), (NOT_READY,)), (pod("r"), ())]
    scheduled = {"uid-p": Eviction(0.0, 300.0), "uid-q": Eviction(0.0, 0.0)}

    def leave(**tried: float) -> list[str]:
        seen = {f"uid-{name}": at for name, at in tried.items()}
        return [one.metadata.name for one in evictions.overdue(pods, scheduled, seen, 10.0)]

    assert leave() == ["q"]
    assert leave(q=5.1) == [], "it was tried a moment ago"
    assert leave(q=5.0) == ["q"]


@pytest.mark.parametrize(
    ("ready", "stopped", "expected"),
    [
        ("Unknown", False, (UNREACHABLE, OTHER)),
        ("False", False, (UNREACHABLE, OTHER)),
        ("True", False, (OTHER,)),
        ("Unknown", True, (OTHER,)),
    ],
)
def test_a_taint_that_is_about_to_go_evicts_nobody(
    ready: str, *, stopped: bool, expected: tuple[Taint, ...]
) -> None:
    one = node("n", ready, UNREACHABLE, OTHER, Taint("x", "NoSchedule"))
    assert evictions.counting(one, stopped=stopped) == expected


def test_somebody_else_evicts_a_pod_that_becomes_a_target_without_us() -> None:
    before, after = pod("p"), pod("p", conditions=(evictions.target(NOW),))
    assert evictions.is_by_others(before, after, set())
    assert not evictions.is_by_others(before, after, {"uid-p"})
    assert not evictions.is_by_others(after, after, set())
    assert not evictions.is_by_others(None, after, set())


@pytest.mark.parametrize(
    ("old", "new", "heard"),
    [(None, None, False), (None, "1", True), ("1", "1", False), ("1", "2", True)],
)
def test_kubelets_are_heard_by_heartbeats(old: str | None, new: str | None, *, heard: bool) -> None:
    def beat(time: str | None) -> Pulse:
        conditions = () if time is None else (PulseCondition("Ready", "True", time),)
        return Pulse(status=PulseStatus(conditions))

    assert health.has_reported(beat(old), beat(new)) is heard
    assert health.has_reported(None, beat(new)) is (new is not None)


def test_times_that_nobody_has_set_are_read() -> None:
    """NetworkUnavailable has no heartbeat where the controller of routes has written it."""
    seen = b'{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":null}]}}'
    pulse_ = msgspec.json.decode(seen, type=Pulse)
    assert health.has_reported(None, pulse_)
    assert not health.has_reported(pulse_, pulse_)
    lease = msgspec.json.decode(b'{"spec":{"renewTime":null}}', type=NodeLease)
    assert not health.has_renewed(lease, lease)


def test_kubelets_are_heard_by_leases() -> None:
    def lease(time: str) -> NodeLease:
        return NodeLease(spec=LeaseSpec(time))

    assert health.has_renewed(None, lease("1"))
    assert health.has_renewed(lease("1"), lease("2"))
    assert not health.has_renewed(lease("2"), lease("2"))


def test_conditions_of_pods() -> None:
    assert evictions.is_target(pod("p", conditions=(evictions.target(NOW),)))
    assert not evictions.is_target(pod("p", conditions=(Condition("DisruptionTarget", "True"),)))
    assert evictions.is_counted_ready(pod("p", conditions=(Condition("Ready", "True"),)))
    assert not evictions.is_counted_ready(pod("p", conditions=(evictions.not_ready(NOW),)))
    assert evictions.executing((OTHER, Taint("x", "NoSchedule"))) == (OTHER,)


# Others


def pulse(
    *owners: FieldsOwner, ready: str = "True", with_taints: tuple[Taint, ...] = (), uid: str = "u"
) -> Pulse:
    return Pulse(
        PulseMeta(name="n", uid=uid, managed_fields=owners),
        PulseSpec(with_taints),
        PulseStatus((PulseCondition("Ready", ready),)),
    )


def wrote_ready(manager: str, ago: float = 0.0) -> FieldsOwner:
    fields = Fields(status=StatusFields({'k:{"type":"Ready"}': {"f:status": {}}}))
    return FieldsOwner(manager, NOW - timedelta(seconds=ago), fields)


def wrote_taints(manager: str, ago: float = 0.0) -> FieldsOwner:
    return FieldsOwner(manager, NOW - timedelta(seconds=ago), Fields(spec=SpecFields({})))


KUBELET = wrote_ready("kubelet", 60.0)


@pytest.mark.parametrize(
    ("new", "names"),
    [
        (pulse(KUBELET, wrote_ready("kube-controller-manager"), ready="Unknown"),
            ("kube-controller-manager",)),
        (pulse(KUBELET, wrote_ready("k3s"), ready="Unknown"), ("k3s",)),
        (pulse(KUBELET, wrote_ready("proreus"), ready="Unknown"), ()),
        (pulse(KUBELET, ready="False"), ()),
        (pulse(wrote_taints("kube-controller-manager"), with_taints=(UNREACHABLE,)),
            ("kube-controller-manager",)),
        (pulse(wrote_taints("kube-controller-manager", 9.0), wrote_taints("proreus"),
            with_taints=(UNREACHABLE,)), ()),
        (pulse(wrote_taints("kubectl-taint"), with_taints=(UNREACHABLE,)), ()),
        (pulse(wrote_taints("autoscaler"), with_taints=(OTHER,)), ()),
        (pulse(with_taints=(UNREACHABLE,)), ()),
    ],
)  # fmt: skip
def test_a_rival_is_known_by_what_only_it_writes(new: Pulse, names: tuple[str, ...]) -> None:
    for old in (pulse(KUBELET), None):
        found = noticed(Rivals(), old, new, NOW, 5.0)
        assert found.active(5.0) == names


def test_old_writes_of_a_controller_that_is_gone_do_not_count() -> None:
    stale = pulse(wrote_ready("kube-controller-manager", 3600.0), ready="Unknown")
    assert noticed(Rivals(), None, stale, NOW, 5.0).active(5.0) == ()
    later = pulse(*stale.metadata.managed_fields, wrote_taints("autoscaler"), ready="Unknown")
    assert noticed(Rivals(), stale, later, NOW, 5.0).active(5.0) == ()


def test_a_rival_counts_while_a_node_is_as_it_left_it_and_ten_minutes_longer() -> None:
    mine = pulse(KUBELET)
    theirs = pulse(KUBELET, wrote_ready("kcm"), ready="Unknown")
    found = noticed(Rivals(), mine, theirs, NOW, 0.0)
    found = noticed(found, theirs, theirs, NOW, 10.0)
    assert found.active(5000.0) == ("kcm",)
    found = noticed(found, theirs, mine, NOW, 5000.0)
    assert found.active(599.0) == ("kcm",)
    assert found.active(600.0) == ()
    assert noticed(noticed(Rivals(), mine, theirs, NOW, 0.0), theirs, None, NOW, 1.0).nodes == {}


def test_somebody_elses_evictions_are_noticed() -> None:
    assert rivals.evicted(Rivals(), 0.0).active(599.0) == ("another taint manager",)


@pytest.mark.parametrize(
    ("ready", "found", "stopped", "leaves"),
    [
        ("Unknown", (UNREACHABLE,), False, True),
        ("Unknown", (UNREACHABLE,), True, False),
        ("Unknown", (UNREACHABLE, OTHER), True, True),  # somebody else's taint counts always
        ("True", (UNREACHABLE,), False, False),  # it reports again, and the taint is about to go
        ("Unknown", (), False, False),
        (None, (), False, False),  # the node is gone, or could not be read
    ],
)
def test_a_pod_leaves_only_by_what_is_read_anew_of_its_node(
    ready: str | None, found: tuple[Taint, ...], *, stopped: bool, leaves: bool
) -> None:
    one = pod("a", for_(5, taints.UNREACHABLE))
    nodes = {} if ready is None else {"n": node("n", ready, *found)}
    due = {one.metadata.uid: Eviction(0.0, 5.0)}
    found_out = evictions.confirmed((one,), nodes, due, 6.0, stopped=stopped)
    assert found_out == (((one,), ()) if leaves else ((), (one.metadata.uid,)))


def test_a_pod_stays_for_the_time_that_the_taints_read_anew_allow() -> None:
    one = pod("a", for_(60, taints.UNREACHABLE))
    nodes = {"n": node("n", "Unknown", UNREACHABLE)}
    due = {one.metadata.uid: Eviction(0.0, 0.0)}
    assert evictions.confirmed((one,), nodes, due, 59.0, stopped=False)[0] == ()
    assert evictions.confirmed((one,), nodes, due, 60.0, stopped=False)[0] == (one,)
