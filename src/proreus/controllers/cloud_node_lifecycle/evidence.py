"""Collect evidence of a machine's absence, and update it with each answer of the cloud.

Only `NotFound` speaks for absence, and only an answer that is known to be whole proves anything
(`witnesses`). All times are seconds of one clock that only grows, and those at which a call
*began*: an answer proves nothing about later.
"""

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound
from proreus.controllers.cloud_node_lifecycle.policy import Policy


class Span(msgspec.Struct, frozen=True):
    """The time from the first to the last of several answers."""

    first: float
    last: float

    @property
    def length(self) -> float:
        """The seconds between the first and the last answer."""
        return self.last - self.first

    def extended(self, began: float) -> "Span":
        """Add one more answer; one that began before the last changes nothing."""
        return Span(self.first, max(self.last, began))


class Evidence(msgspec.Struct, frozen=True):
    """The evidence of a machine's absence: at least one answer that it is gone.

    Attributes:
        proved: The complete answers `NotFound` since the machine was last seen.
        confirmations: How many of the answers in `proved` count as confirmations: they began far
            enough from one another.
        counted: The end of the last call that counts.
        tombstone: Whether the cloud showed this very machine as terminated.
    """

    proved: Span | None = None
    confirmations: int = 0
    counted: float = 0.0
    tombstone: bool = False


def updated(evidence: Evidence | None, answer: InstanceAnswer) -> Evidence | None:
    """Update evidence with an answer: a machine clears it, an error changes nothing."""
    if isinstance(answer, Instance):
        return None
    if not isinstance(answer, NotFound):
        return evidence
    before = evidence or Evidence()
    return msgspec.structs.replace(before, tombstone=before.tombstone or answer.tombstone)


def proved(
    evidence: Evidence, began: float, ended: float, policy: Policy, *, decides: bool
) -> Evidence:
    """Add an answer `NotFound` that is known to be complete.

    Args:
        evidence: The evidence before.
        began: When the call began.
        ended: When the call ended. The next call that counts must begin an interval after this: a
            call may wait for the cloud's quota, and so be sent long after it began.
        policy: The settings: shares, counts and durations.
        decides: Whether it had enough witnesses to be the last confirmation.
    """
    span = Span(began, began) if evidence.proved is None else evidence.proved.extended(began)
    after = msgspec.structs.replace(evidence, proved=span)
    if not (may_count(evidence, began, policy) and (decides or not is_last(evidence, policy))):
        return after
    return msgspec.structs.replace(
        after, confirmations=evidence.confirmations + 1, counted=max(began, ended)
    )


def may_count(evidence: Evidence | None, began: float, policy: Policy) -> bool:
    """Tell whether a call is late enough after the last confirmation to count as another."""
    if evidence is None or not evidence.confirmations:
        return True
    since = began - evidence.counted
    return since > 0 and since >= policy.confirmation_interval


def is_last(evidence: Evidence | None, policy: Policy) -> bool:
    """Tell whether only one more confirmation is missing."""
    return (evidence.confirmations if evidence else 0) == policy.confirmations - 1


def doubted(evidence: Evidence) -> Evidence:
    """Drop the confirmations, since the cloud's answers turned out to prove nothing."""
    return Evidence(tombstone=evidence.tombstone)
