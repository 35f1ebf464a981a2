"""Hold deletions when many nodes look gone at once: the cloud's answers are more likely wrong.

It counts all nodes that look gone, not only those ripe for deletion: else those that ripen first
would go one after another before the count is high enough. Once tripped it holds until the
answers have stayed unchanged, with witnesses present, for `Policy.hold`; what it then lets go
goes at a bounded pace. Each scope has its own.
"""

from collections.abc import Mapping

import msgspec

from proreus.controllers.cloud_node_lifecycle.evidence import Evidence
from proreus.controllers.cloud_node_lifecycle.policy import Policy


class Breaker(msgspec.Struct, frozen=True):
    """The state of the breaker between passes.

    `deletions` are those that count, by uid, with their times, `released` those of nodes that it
    had held; `since` is when it tripped or was last disturbed, None while it holds nothing;
    `disturbed` is when the cloud contradicted itself last.
    """

    deletions: Mapping[str, float] = {}
    since: float | None = None
    released: Mapping[str, float] = {}
    disturbed: float | None = None


class Gate:
    """The gate that the breaker holds before all deletions and taints of a scope in one pass."""

    def __init__(self, breaker: Breaker, most: float, policy: Policy, at: float) -> None:
        """Begin with the breaker of the pass, which lets at most `most` held nodes go at once."""
        self._breaker = breaker
        self._counted = dict(breaker.deletions)
        self._released = dict(breaker.released)
        self._most = most
        self._policy = policy
        self._at = at

    def opens(self, uid: str, evidence: Evidence) -> float | None:
        """Count a node that is to go now; return None, or else the time when it may.

        Only a node that was held before has to wait: held nodes go a few at a time.
        """
        if not proven(self._breaker, evidence, self._policy):
            self._counted.setdefault(uid, self._at)
            return None
        is_free = self._policy.resume or len(self._released) < self._most
        if uid in self._released or is_free:
            self._released.setdefault(uid, self._at)
            return None
        return min(self._released.values()) + self._policy.release_interval

    @property
    def breaker(self) -> Breaker:
        """The breaker for the next pass."""
        return msgspec.structs.replace(
            self._breaker, deletions=self._counted, released=self._released
        )


def limit(total: int, policy: Policy) -> float:
    """Return how many of `total` nodes may look gone within the window."""
    return max(policy.breaker_minimum, policy.breaker_fraction * total)


def judge(
    breaker: Breaker,
    suspects: Mapping[str, Evidence],
    others: int,
    at: float,
    policy: Policy,
    *,
    disturbed: bool,
) -> Breaker:
    """Count the nodes that look gone, then trip the breaker, hold on or resume.

    Args:
        breaker: The state before.
        suspects: The nodes that look gone, by uid, without those that never count: tombstones
            and nodes the autoscaler is removing.
        others: The number of the scope's other nodes.
        at: The time.
        policy: The settings: shares, counts and durations.
        disturbed: Whether the cloud contradicted itself in this pass, or its answers are known to
            be wrong: then the time for which answers are unchanged begins anew.
    """
    recent = {uid: t for uid, t in breaker.deletions.items() if at - t < policy.breaker_window}
    paced = {uid: t for uid, t in breaker.released.items() if at - t < policy.release_interval}
    unproven = {uid for uid, evidence in suspects.items() if not proven(breaker, evidence, policy)}
    total = others + len(suspects.keys() | recent.keys())
    is_over = len(unproven | recent.keys()) > limit(total, policy)
    since = breaker.since
    if policy.resume:
        since = None
    elif since is None:
        since = at if is_over else None
    elif disturbed:
        since = at
    elif not is_over and at - since >= policy.hold:
        since = None
    last = at if disturbed else breaker.disturbed
    return Breaker(recent, since, paced, None if last is None or at - last >= policy.hold else last)


def pace(total: int, policy: Policy) -> float:
    """Return how many of `total` held nodes may be deleted within `Policy.release_interval`."""
    return max(policy.breaker_minimum, policy.release_fraction * total)


def proven(breaker: Breaker, evidence: Evidence, policy: Policy) -> bool:
    """Tell whether the answers about a node have stayed unchanged long enough to delete it."""
    end = release(breaker, evidence, policy)
    return end is not None and evidence.proved is not None and evidence.proved.last >= end


def release(breaker: Breaker, evidence: Evidence, policy: Policy) -> float | None:
    """Return when a held node can be proven gone at the earliest; None without a witness."""
    if evidence.proved is None:
        return None
    first, last = evidence.proved.first, breaker.disturbed
    return (first if last is None else max(first, last)) + policy.hold
