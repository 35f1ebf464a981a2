"""What is known of a machine's absence, and how each answer of the cloud changes it.

Only `NotFound` speaks for absence, and only if the witnesses (Ready nodes asked about in the
same call) are there: a cloud that cannot find those either looks in the wrong place. All times
are seconds of one clock that only grows, and those at which a call *began*: an answer proves
nothing about later.
"""

from collections.abc import Iterable
from enum import Enum, auto

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound


class Witnesses(Enum):
    """What the cloud said of the witnesses."""

    PRESENT = auto()
    ABSENT = auto()
    SILENT = auto()


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
    """What speaks for a machine's absence.

    Attributes:
        said: The answers `NotFound` since the machine, or the absence of a witness, was seen.
        proved: Those among the answers that were given with all witnesses present.
        confirmations: How many of these count: they began far enough from one another.
        counted: When the last of those ended.
        tombstone: The cloud showed this very machine as terminated.
    """

    said: Span | None = None
    proved: Span | None = None
    confirmations: int = 0
    counted: float = 0.0
    tombstone: bool = False


def witnessed(answers: Iterable[InstanceAnswer | None], *, needed: bool) -> Witnesses:
    """What the answers about the witnesses are worth; None is no answer.

    No witness at all is silence, unless none is `needed`.
    """
    given = tuple(answers)
    if any(isinstance(answer, NotFound) for answer in given):
        return Witnesses.ABSENT
    if given or needed:
        is_sure = given and all(isinstance(answer, Instance) for answer in given)
        return Witnesses.PRESENT if is_sure else Witnesses.SILENT
    return Witnesses.PRESENT


def observe(
    evidence: Evidence | None,
    answer: InstanceAnswer,
    began: float,
    witnesses: Witnesses,
    interval: float,
    *,
    ended: float | None = None,
) -> Evidence | None:
    """Add an answer about a machine.

    Args:
        evidence: What was known.
        answer: A machine clears everything, an error changes nothing.
        began: When the call began.
        witnesses: If one is absent, the answer proves nothing, and the row ends.
        interval: How far from one another calls must begin to count, in seconds.
        ended: When it ended; `began` if None. The next call that counts begins `interval` after
            this: a call may wait for the cloud's quota, and so be sent long after it began.
    """
    if isinstance(answer, Instance):
        return None
    if not isinstance(answer, NotFound):
        return evidence
    before = evidence or Evidence()
    if witnesses is Witnesses.ABSENT:
        is_kept = before.proved is not None or before.tombstone
        return msgspec.structs.replace(before, said=None) if is_kept else None
    after = msgspec.structs.replace(
        before,
        said=_extended(before.said, began),
        tombstone=before.tombstone or answer.tombstone,
    )
    if witnesses is Witnesses.SILENT:
        return after
    after = msgspec.structs.replace(after, proved=_extended(before.proved, began))
    is_new = began > before.counted and began - before.counted >= interval
    if before.confirmations and not is_new:
        return after
    return msgspec.structs.replace(
        after, confirmations=before.confirmations + 1, counted=max(began, ended or began)
    )


def _extended(span: Span | None, began: float) -> Span:
    return Span(began, began) if span is None else span.extended(began)
