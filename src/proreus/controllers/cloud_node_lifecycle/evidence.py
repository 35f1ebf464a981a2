"""What is known of a machine's absence, and how each answer of the cloud changes it.

Only `NotFound` speaks for absence, and only an answer that is known to be whole proves anything
(`witnesses`). All times are seconds of one clock that only grows, and those at which a call
*began*: an answer proves nothing about later.
"""

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound
from proreus.controllers.cloud_node_lifecycle.policy import Policy


class Span(msgspec.Struct, frozen=True):
    """From the first to the last answer of a row."""

    first: float
    last: float

    @property
    def length(self) -> float:
        """Seconds between the two."""
        return self.last - self.first

    def extended(self, began: float) -> "Span":
        """The span with one more answer; one that began earlier than the last changes nothing."""
        return Span(self.first, max(self.last, began))


class Evidence(msgspec.Struct, frozen=True):
    """What speaks for a machine's absence: at least that the cloud has said so last.

    Attributes:
        proved: The answers `NotFound` since the machine was seen that were known to be whole.
        confirmations: How many of these count: they began far enough from one another.
        counted: When the last of those ended.
        tombstone: The cloud showed this very machine as terminated.
    """

    proved: Span | None = None
    confirmations: int = 0
    counted: float = 0.0
    tombstone: bool = False


def heard(evidence: Evidence | None, answer: InstanceAnswer) -> Evidence | None:
    """Take note of an answer: a machine clears everything, an error changes nothing."""
    if isinstance(answer, Instance):
        return None
    if not isinstance(answer, NotFound):
        return evidence
    before = evidence or Evidence()
    return msgspec.structs.replace(before, tombstone=before.tombstone or answer.tombstone)


def proved(
    evidence: Evidence, began: float, ended: float, policy: Policy, *, decides: bool
) -> Evidence:
    """Add an answer `NotFound` that is known to be whole.

    Args:
        evidence: What was known.
        began: When the call began.
        ended: When it ended. The next call that counts begins an interval after this: a call may
            wait for the cloud's quota, and so be sent long after it began.
        policy: The numbers.
        decides: Whether it had witnesses enough to be the last confirmation.
    """
    span = Span(began, began) if evidence.proved is None else evidence.proved.extended(began)
    after = msgspec.structs.replace(evidence, proved=span)
    if not (may_count(evidence, began, policy) and (decides or not is_last(evidence, policy))):
        return after
    return msgspec.structs.replace(
        after, confirmations=evidence.confirmations + 1, counted=max(began, ended)
    )


def may_count(evidence: Evidence | None, began: float, policy: Policy) -> bool:
    """Whether a call that begins then is far enough from the last one that counted."""
    if evidence is None or not evidence.confirmations:
        return True
    since = began - evidence.counted
    return since > 0 and since >= policy.confirmation_interval


def is_last(evidence: Evidence | None, policy: Policy) -> bool:
    """Whether one more confirmation is all that is missing."""
    return (evidence.confirmations if evidence else 0) == policy.confirmations - 1


def doubted(evidence: Evidence) -> Evidence:
    """What is left when the cloud's answers turn out to be no proofs: that it said so."""
    return Evidence(tombstone=evidence.tombstone)
