"""What an operator is to know: Ready nodes that the cloud does not know, and what is held. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from proreus.controllers.cloud_node_lifecycle.memory import Alert, Wait
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_GONE, Findings, Fleet
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.controllers.events import PlannedEvent
from proreus.kube.objects import Node

HELD: Final = "NodeDeletionHeld"
"""The reason of events about nodes that look gone and stay."""
UNKNOWN: Final = "InstanceUnknown"
"""The reason of events about Ready nodes whose machine the cloud does not know."""
REPEAT: Final = 1800.0
"""Seconds after which what is still so is told again: events are kept for an hour."""

_NAMED: Final = 5
"""So many nodes are named in one sentence."""


class Alarm(msgspec.Struct, frozen=True):
    """An event about nodes; those of equal `alert` are not told again for a while."""

    alert: Alert
    event: PlannedEvent
    nodes: tuple[Node, ...]


def alarms_of(
    fleet: Fleet, found: Findings, waits: Mapping[str, Wait], policy: Policy
) -> Iterator[Alarm]:
    """What is so in one scope."""
    held: dict[tuple[Alert, str], list[Node]] = {}
    for node in fleet.open.values():
        wait = waits.get(node.metadata.name)
        if wait is not None and wait.hold is not None:
            reason = "" if wait.hold is Alert.BREAKER else wait.reason
            held.setdefault((wait.hold, reason), []).append(node)
    if found.memory.breaker.since is not None:
        # Also those that wait for answers still, so that they are not told again when they do not.
        suspects = [node for of, node in fleet.open.items() if of[0] in found.suspects]
        held[Alert.BREAKER, ""] = suspects
    for (alert, reason), nodes in held.items():
        text = _too_many(len(nodes), policy) if alert is Alert.BREAKER else _held(reason)
        yield Alarm(alert, PlannedEvent("Warning", HELD, text), tuple(nodes))
    for of in found.standing.missing:
        is_aside = of in found.standing.aside
        text = _unknown(fleet.able[of], policy, is_aside=is_aside)
        alert = Alert.ASIDE if is_aside else Alert.UNKNOWN
        yield Alarm(alert, PlannedEvent("Warning", UNKNOWN, text), (fleet.able[of],))


def due(
    alarms: Iterable[Alarm], before: Mapping[tuple[str, Alert], float], at: float
) -> tuple[tuple[Alarm, ...], Mapping[tuple[str, Alert], float]]:
    """Those to be told now, what is new or was told long ago, and when what was told of whom."""
    fresh: list[Alarm] = []
    told: dict[tuple[str, Alert], float] = {}
    for alarm in alarms:
        nodes = []
        for node in alarm.nodes:
            of = (node.metadata.uid, alarm.alert)
            last = before.get(of)
            if last is None or at - last >= REPEAT:
                nodes.append(node)
                last = at
            told[of] = last
        if nodes:
            fresh.append(msgspec.structs.replace(alarm, nodes=tuple(nodes)))
    return tuple(fresh), told


def named(fleet: Fleet, keys: Iterable[Key]) -> str:
    """Some of the Ready nodes of a scope in words."""
    names = sorted(fleet.able[of].metadata.name for of in keys)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _too_many(count: int, policy: Policy) -> str:
    return (
        f"{count} nodes look gone at once, so none is deleted until the cloud has said "
        f"so for {policy.hold:g} s; --node-deletion-resume deletes them now"
    )


def _held(reason: str) -> str:
    return (
        f"the instance looks gone, but the node is not deleted: {reason}; if the machine is surely "
        f"gone, annotate the node with {ANNOTATION_GONE}=true"
    )


def _unknown(node: Node, policy: Policy, *, is_aside: bool) -> str:
    text = f"the cloud does not know {node.spec.provider_id}, although the node is Ready"
    if not policy.witnesses:
        return text
    if is_aside:
        return f"{text}; after {policy.aside_after:g} s it is no witness for other nodes any more"
    return (
        f"{text}; while that is so, no node of its scope is deleted because the cloud does not "
        "know it: look at the account, region and inventory in the cloud-config"
    )
