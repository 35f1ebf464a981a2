"""Decide whether a powered-off machine's node goes out of service now, or why it waits. Pure."""

from collections.abc import Iterator, Mapping

from proreus.controllers.cloud_node_lifecycle.alarms import Alarm, named
from proreus.controllers.cloud_node_lifecycle.breaker import proven, release
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Wait
from proreus.controllers.cloud_node_lifecycle.questions import Rules, off_policy
from proreus.controllers.cloud_node_lifecycle.scopes import Findings, Fleet
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.controllers.events import PlannedEvent
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node

MARKED = "NodeOutOfService"
"""The reason of events about nodes that were taken out of service."""
RETURNED = "NodeInService"
"""The reason of events about nodes that were put back in service."""
HELD = "OutOfServiceHeld"
"""The reason of events about nodes whose machines are powered off, but which are not marked."""

_OUTLASTING = "the node was Ready long after the cloud had begun to say so"
_OUTLIVED = "the node has another machine by now than that of its provider id"


def ruling_on_power(fleet: Fleet, key: Key, findings: Findings, rules: Rules) -> Wait | None:
    """Return why a node whose machine is powered off must wait; None if it need not.

    A decision needs an answer of this pass, whatever was known before.
    """
    evidence = findings.off.evidence[key]
    if doubt := _mistaken(fleet, key, findings) or _doubt(fleet, findings):
        return Wait(None, doubt, Alert.IN_SERVICE)
    if wait := _unripe(evidence, rules):
        return wait
    if key not in findings.off.confirmed:
        return Wait(None, "the cloud has to say once more that its machine is powered off")
    breaker = findings.memory.breaker
    if breaker.since is not None and not proven(breaker, evidence, rules.policy):
        until = release(breaker, evidence, rules.policy)
        return Wait(until, "too many nodes look gone or powered off at once", Alert.IN_SERVICE)
    return None


def _unripe(evidence: Evidence, rules: Rules) -> Wait | None:
    """Return the wait for more answers, or for the grace."""
    policy = off_policy(rules.policy)
    missing = policy.confirmations - evidence.confirmations
    if evidence.proved is None or missing > 0:
        until = None
        if evidence.confirmations:
            until = evidence.counted + missing * policy.confirmation_interval
        return Wait(until, f"{missing} more answers must say that its machine is powered off")
    grace, length = policy.out_of_service_grace or 0.0, evidence.proved.length
    if length < grace:
        return Wait(rules.at + grace - length, f"it has been silent for {length:g} of {grace:g} s")
    return None


def held_in_service(fleet: Fleet, waits: Mapping[str, Wait]) -> Iterator[Alarm]:
    """Return the alarms about nodes of a scope that more answers alone will not mark."""
    held: dict[str, list[Node]] = {}
    for node in fleet.open.values():
        wait = waits.get(node.metadata.name)
        if wait is not None and wait.hold is Alert.IN_SERVICE:
            held.setdefault(wait.reason, []).append(node)
    for reason, nodes in held.items():
        text = (
            "the cloud says that the machine is powered off, but the node is not taken out of "
            f"service: {reason}; if the machine surely has no power, taint the node yourself: "
            f"{TAINT_OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        )
        yield Alarm(Alert.IN_SERVICE, PlannedEvent("Warning", HELD, text), tuple(nodes))


def marked(node: Node) -> PlannedEvent:
    """Return the event of a node that was taken out of service."""
    text = (
        f"Took node {node.metadata.name} out of service because the cloud shows its machine as "
        "powered off: its pods are deleted, and their volumes go to other nodes"
    )
    return PlannedEvent("Normal", MARKED, text)


def returned(node: Node) -> PlannedEvent:
    """Return the event of a node that was put back in service."""
    text = f"Put node {node.metadata.name} back in service because it is Ready and its machine runs"
    return PlannedEvent("Normal", RETURNED, text)


def _mistaken(fleet: Fleet, key: Key, findings: Findings) -> str | None:
    """Return why nothing is believed about the power of this node's machine; None if it may be."""
    if key in findings.off.outlasting:
        return _OUTLASTING
    return _OUTLIVED if key in fleet.outlived else None


def _doubt(fleet: Fleet, findings: Findings) -> str | None:
    """Return why answers about power prove nothing in this scope; None if they may."""
    standing, awake = findings.standing, findings.off.awake
    if fleet.scope is None:
        return "the provider does not say which scope it is of"
    if awake:
        return f"the cloud says the same of Ready nodes: {named(fleet, awake)}"
    if standing.against:
        return f"the cloud does not know these Ready nodes: {named(fleet, standing.against)}"
    if not fleet.eligible.keys() - standing.aside:
        return "no Ready node vouches for what the cloud says"
    return None
