"""Decide which nodes are silent, which taints nodes get, and how quickly.

    heard of? ─► conditions ─► zones: how disrupted? ─► taints at once, or at a rate

The rules and flags are those of kube-controller-manager's controllers of node lifecycle and taint
eviction (`policy`), with more care: after a standstill of this process, or while the API server is
away, all begins anew, and some seconds pass in which another controller of this kind would show
itself (`rivals`). Everything is a value.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from math import inf

import msgspec

from proreus.controllers.node_lifecycle import health, taints
from proreus.controllers.node_lifecycle.memory import Memory
from proreus.controllers.node_lifecycle.policy import Policy
from proreus.controllers.node_lifecycle.zones import Bucket, State, Zone, rate, zone_of
from proreus.controllers.node_lifecycle.zones import zones as counted
from proreus.kube import patch
from proreus.kube.objects import Condition, Node, is_ready
from proreus.kube.patch import Patch


class Silence(msgspec.Struct, frozen=True):
    """The decision to write that a node is silent; `fell` if it was Ready until now."""

    node: Node
    conditions: tuple[Condition, ...]
    fell: bool

    @property
    def patch(self) -> Patch:
        """The patch of the status; it applies to this version of the node only."""
        meta = self.node.metadata
        status = patch.status(meta.uid, conditions=self.conditions)
        return patch.at_version(status, meta.resource_version)


class Pass(msgspec.Struct, frozen=True):
    """The result of one pass.

    Attributes:
        silent: The silent nodes whose conditions are to be written, after one more look at each.
        lost: The silent nodes that have these conditions already: none of their pods counts as
            Ready.
        now: The nodes whose taints are changed at once, with their patches.
        zones: The numbers of nodes in each zone.
        stopped: Whether all zones are disrupted: then nothing is tainted, and pods stay.
        memory: The memory for the next pass.
    """

    silent: tuple[Silence, ...]
    lost: tuple[Node, ...]
    now: tuple[tuple[Node, Patch], ...]
    zones: Mapping[str, Zone]
    stopped: bool
    memory: Memory


def plan(
    nodes: Sequence[Node],
    heard: Mapping[str, float],
    memory: Memory,
    policy: Policy,
    *,
    now: datetime,
    at: float,
    deaf: float = -inf,
) -> Pass:
    """Decide for all nodes of the cluster.

    Args:
        nodes: All nodes of the cluster.
        heard: When each node was heard of last, by uid; nodes without an entry count from now on.
        memory: The memory that the pass before handed over.
        policy: The settings: shares, counts and durations.
        now: Wall-clock time, for what is written.
        at: The time.
        deaf: The time until which the API server was away, so that no kubelet could report.
    """
    zones = counted(nodes)
    states = {name: zone.state(policy.threshold) for name, zone in zones.items()}
    was_stopped = _is_stopped(memory.states)
    stopped = _is_stopped(states)
    before = memory.heard
    known = {
        uid: max(heard.get(uid, before.get(uid, at)), before.get(uid, 0.0), deaf)
        for uid in (node.metadata.uid for node in nodes)
    }
    if is_late(memory, policy, at):
        known = dict.fromkeys(known, at)
    if was_stopped and not stopped:
        known = dict.fromkeys(known, at)  # nobody knows for how long each was away
    unheard = [
        node for node in nodes if health.is_silent(node, known[node.metadata.uid], at, policy)
    ]
    unwritten = [(node, health.unknown(node, now)) for node in unheard]
    queued = {} if stopped else _queued(nodes, memory)
    return Pass(
        tuple(
            Silence(node, conditions, is_ready(node))
            for node, conditions in unwritten
            if conditions
        ),
        tuple(node for node, conditions in unwritten if not conditions),
        tuple(_at_once(nodes, stopped=stopped, now=now)),
        zones,
        stopped,
        Memory(
            known,
            states,
            queued,
            {
                name: _bucket(memory, name, at).filled(_rate(memory, name, zones, policy), at)
                for name in zones
            },
            at,
        ),
    )


def take(
    memory: Memory, zones: Mapping[str, Zone], policy: Policy, at: float
) -> tuple[Memory, tuple[str, ...]]:
    """Take the nodes that may be tainted now, by uid: at most one of each zone."""
    taken: list[str] = []
    queued, buckets = dict(memory.queued), dict(memory.buckets)
    for name, waiting in memory.queued.items():
        bucket = _bucket(memory, name, at).filled(_rate(memory, name, zones, policy), at)
        buckets[name] = bucket
        after = bucket.taken()
        is_open = _rate(memory, name, zones, policy) > 0
        if waiting and after is not None and is_open:
            buckets[name], queued[name] = after, waiting[1:]
            taken.append(waiting[0])
    return msgspec.structs.replace(memory, queued=queued, buckets=buckets), tuple(taken)


def chosen(nodes: Iterable[Node], uids: Collection[str]) -> tuple[Node, ...]:
    """Return the nodes with these uids."""
    return tuple(node for node in nodes if node.metadata.uid in uids)


def no_execute(node: Node, now: datetime) -> Patch | None:
    """Make the patch of the NoExecute taint that fits the node's condition; None if it is there."""
    return taints.edit(node, taints.no_execute(node, taints.wanted_key(node), now))


def is_late(memory: Memory, policy: Policy, at: float) -> bool:
    """Tell whether this process stood still since the last pass: it has heard nothing then."""
    return memory.at is not None and at - memory.at > policy.grace / 2


def _bucket(memory: Memory, name: str, at: float) -> Bucket:
    return memory.buckets.get(name, Bucket(at=at))


def _is_stopped(states: Mapping[str, State]) -> bool:
    return bool(states) and all(state is State.FULL for state in states.values())


def _rate(memory: Memory, name: str, zones: Mapping[str, Zone], policy: Policy) -> float:
    state = memory.states.get(name, State.NORMAL)
    return rate(state, zones[name].size if name in zones else 0, policy)


def _queued(nodes: Sequence[Node], memory: Memory) -> Mapping[str, tuple[str, ...]]:
    """Return the nodes that wait for their first NoExecute taint, in the order of arrival."""
    waiting = {
        node.metadata.uid: zone_of(node)
        for node in nodes
        if taints.wanted_key(node) and not taints.executing(node)
    }
    queued: dict[str, list[str]] = {}
    for zone, uids in memory.queued.items():
        queued[zone] = [uid for uid in uids if waiting.get(uid) == zone]
    for uid, zone in waiting.items():
        line = queued.setdefault(zone, [])
        if uid not in line:
            line.append(uid)
    return {zone: tuple(line) for zone, line in queued.items() if line}


def _at_once(
    nodes: Iterable[Node], *, stopped: bool, now: datetime
) -> Iterable[tuple[Node, Patch]]:
    """Make the patches that do not wait: NoSchedule; NoExecute that goes or is exchanged."""
    for node in nodes:
        wanted = msgspec.structs.replace(
            node, spec=msgspec.structs.replace(node.spec, taints=taints.no_schedule(node))
        )
        present, key = taints.executing(node), taints.wanted_key(node)
        if present and (stopped or present != {key}):
            final = taints.no_execute(wanted, "" if stopped else key, now)
        else:
            final = wanted.spec.taints
        change = taints.edit(node, final)
        if change is not None:
            yield node, change
