"""Warn operators of Ready nodes that the cloud does not know, and of held deletions. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Wait
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.scopes import Findings, Fleet
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.controllers.events import PlannedEvent
from proreus.kube.messages import some_of
from proreus.kube.objects import Node

HELD: Final = "NodeDeletionHeld"
"""The reason of events about nodes that look gone but are not deleted."""
UNKNOWN: Final = "InstanceUnknown"
"""The reason of events about Ready nodes whose machine the cloud does not know."""
REPEAT: Final = 1800.0
"""Seconds after which a lasting alarm is repeated: events are kept for an hour."""


class Alarm(msgspec.Struct, frozen=True):
    """An event about nodes; an equal `alert` about a node is not repeated for a while."""

    alert: Alert
    event: PlannedEvent
    nodes: tuple[Node, ...]


def alarms_of(
    fleet: Fleet, findings: Findings, waits: Mapping[str, Wait], policy: Policy
) -> Iterator[Alarm]:
    """Return the alarms of one scope."""
    held: dict[tuple[Alert, str], list[Node]] = {}
    for node in fleet.open.values():
        wait = waits.get(node.metadata.name)
        if wait is not None and wait.hold is not None:
            reason = "" if wait.hold is Alert.BREAKER else wait.reason
            held.setdefault((wait.hold, reason), []).append(node)
    if findings.memory.breaker.since is not None:
        # Also those that still wait for answers, so that the alarm is not repeated for them later.
        gone = findings.memory.evidence.keys()
        suspects = [
            n for key, n in fleet.open.items() if key[0] in findings.suspects and key in gone
        ]
        held[Alert.BREAKER, ""] = suspects
    for (alert, reason), nodes in held.items():
        text = _too_many(len(nodes), policy) if alert is Alert.BREAKER else _held(reason)
        yield Alarm(alert, PlannedEvent("Warning", HELD, text), tuple(nodes))
    for key in findings.standing.missing:
        is_aside = key in findings.standing.aside
        node = fleet.node(key)
        text = _unknown(node, policy, is_aside=is_aside)
        alert = Alert.ASIDE if is_aside else Alert.UNKNOWN
        yield Alarm(alert, PlannedEvent("Warning", UNKNOWN, text), (node,))


def due(
    alarms: Iterable[Alarm], before: Mapping[tuple[str, Alert], float], at: float
) -> tuple[tuple[Alarm, ...], Mapping[tuple[str, Alert], float]]:
    """Select the alarms that are new or due again, and note when each was last reported."""
    fresh: list[Alarm] = []
    reported: dict[tuple[str, Alert], float] = {}
    for alarm in alarms:
        nodes = []
        for node in alarm.nodes:
            key = (node.metadata.uid, alarm.alert)
            last = before.get(key)
            if last is None or at - last >= REPEAT:
                nodes.append(node)
                last = at
            reported[key] = last
        if nodes:
            fresh.append(msgspec.structs.replace(alarm, nodes=tuple(nodes)))
    return tuple(fresh), reported


def named(fleet: Fleet, keys: Iterable[Key]) -> str:
    """Name some of a scope's nodes in words."""
    return some_of(fleet.node(key).metadata.name for key in keys)


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
        return f"{text}; after {policy.aside_after:g} s it is no longer a witness for other nodes"
    return (
        f"{text}; while that is so, no node of its scope is deleted because the cloud does not "
        "know it: look at the account, region and inventory in the cloud-config"
    )
