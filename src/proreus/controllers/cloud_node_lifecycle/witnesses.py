"""Judge what an answer "no such machine" is worth: by the Ready nodes it shows and lacks.

A Ready node's machine runs. An answer that lacks it comes from wrong credentials, another account
or half a page; or the machine has just gone, and its Node will not be Ready in less than a minute.
So such an answer waits as a `View`, until each of those nodes has shown which it is:

* not Ready any more, or deleted: the machine was dying, and the answer was right;
* shown after all, or still Ready after `Policy.dying`: the answers are wrong, all of them count
  for nothing, and nothing is proved until the cloud shows the node.

A node that is Ready and stays unknown, in answers that are sound otherwise, is set aside in the
end: it is a witness no more. All this is of one scope; times are of the clock of `evidence`.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from proreus.controllers.cloud_node_lifecycle.evidence import Span
from proreus.controllers.cloud_node_lifecycle.policy import Policy

Key = tuple[str, str]
"""A Node's uid and provider id: knowledge of one machine says nothing of another."""

_FEWEST: int = 2
"""How many witnesses an answer must show before a node that it lacks may be set aside."""


class Panel(msgspec.Struct, frozen=True):
    """A summary of what one answer says of its witnesses.

    Attributes:
        shown: The witnesses whose machines the answer shows.
        absent: The witnesses that the answer lacks; nodes that it shows as terminated are no
            witnesses.
        asked: The number of witnesses, with those about which the cloud gave no answer.
    """

    shown: frozenset[Key] = frozenset()
    absent: frozenset[Key] = frozenset()
    asked: int = 0

    def without(self, aside: Collection[Key]) -> "Panel":
        """Return the panel without witnesses that have been set aside."""
        absent = self.absent.difference(aside)
        return Panel(self.shown, absent, self.asked - len(self.absent) + len(absent))

    @property
    def is_majority(self) -> bool:
        """Whether the answer shows more than half of its witnesses."""
        return 2 * len(self.shown) > self.asked


class WitnessAnswer(msgspec.Struct, frozen=True):
    """One call's answer about one Ready node.

    Attributes:
        key: The node.
        began: When the call began.
        shown: Whether the answer shows the machine.
        is_sound: Whether the machine is absent from an answer that was sound otherwise.
    """

    key: Key
    began: float
    shown: bool
    is_sound: bool = False


class Missing(msgspec.Struct, frozen=True):
    """A Ready node whose machine the cloud does not know.

    Attributes:
        first: The start of the first call in a row that did not find the machine.
        last: The start of the last call in a row that did not find it.
        sound: The number of answers in this row that were sound otherwise.
        shown: The start of the last call before that showed the machine; None if none did.
    """

    first: float
    last: float
    sound: Span | None = None
    shown: float | None = None


class Ending(msgspec.Struct, frozen=True):
    """The notice that missing nodes have returned: what hid them has ended.

    The cause may have hidden all nodes that went missing from `since` on; `at` is when they
    returned.
    """

    since: float
    at: float


class View(msgspec.Struct, frozen=True):
    """An answer that lacks machines, kept until it is known why its witnesses are missing, too.

    Attributes:
        began: When the call began.
        ended: When it ended.
        absent: The nodes in question that the answer lacks.
        open: The Ready nodes that the answer lacks.
        decides: Whether it had enough witnesses to decide.
    """

    began: float
    ended: float
    absent: frozenset[Key]
    open: frozenset[Key] = frozenset()
    decides: bool = False


class Standing(msgspec.Struct, frozen=True):
    """A summary of the Ready nodes that the cloud does not know, and what that means.

    Attributes:
        missing: The Ready nodes that the cloud does not know.
        aside: The nodes among these that are no longer witnesses.
        against: The nodes among these that show that the answers are wrong.
        is_over: Whether more nodes would have to be set aside than may be, so that none is.
    """

    missing: Mapping[Key, Missing] = {}
    aside: frozenset[Key] = frozenset()
    against: frozenset[Key] = frozenset()
    is_over: bool = False


def is_sound(panel: Panel) -> bool:
    """Tell whether an answer may set aside nodes it lacks: it shows two or more, and most."""
    return len(panel.shown) >= _FEWEST and panel.is_majority


def follow(
    before: Mapping[Key, Missing],
    ready: Collection[Key],
    answers: Iterable[WitnessAnswer],
    shown: Mapping[Key, float],
) -> tuple[Mapping[Key, Missing], frozenset[Key]]:
    """Return the Ready nodes that the cloud does not know now, and those that returned.

    Args:
        before: The missing nodes of the pass before.
        ready: The Ready nodes; a missing node that is not among them was dying.
        answers: The answers about Ready nodes, in any order.
        shown: When a call last showed each node.
    """
    missing = {key: row for key, row in before.items() if key in ready}
    returned: set[Key] = set()
    for answer in sorted(answers, key=lambda answer: answer.began):
        row = missing.get(answer.key)
        if answer.shown:
            if row is not None and answer.began > row.last:
                returned.add(answer.key)
                del missing[answer.key]
        else:
            if row is None:
                past = shown.get(answer.key)
                is_past = past is not None and past < answer.began
                row = Missing(answer.began, answer.began, shown=past if is_past else None)
            sound = row.sound
            if answer.is_sound:
                sound = sound.extended(answer.began) if sound else Span(answer.began, answer.began)
            missing[answer.key] = msgspec.structs.replace(
                row, last=max(row.last, answer.began), sound=sound
            )
    return missing, frozenset(returned)


def endings_of(
    before: Iterable[Ending],
    missing: Mapping[Key, Missing],
    returned: Collection[Key],
    at: float,
    policy: Policy,
    *,
    strange: Collection[Key],
) -> tuple[Ending, ...]:
    """Return the endings of the last minute, with that of nodes that have returned now.

    An ending counts for a minute: so long a machine that died in the meantime may leave its Node
    Ready.

    Args:
        before: The endings of the pass before.
        missing: The missing nodes of the pass before.
        returned: The missing nodes that have returned, and others that have.
        at: The time.
        policy: The settings: shares, counts and durations.
        strange: The strange nodes of the pass before, silent ones too.
    """
    recent = tuple(ending for ending in before if at - ending.at < policy.dying)
    since = min((row.first for key, row in missing.items() if key in returned), default=None)
    if since is None or not {*missing, *strange}.difference(returned):
        return recent
    return (*recent, Ending(since - policy.aside_after, at))


def most_aside(eligible: int, policy: Policy) -> int:
    """Return how many of `eligible` Ready nodes may be set aside."""
    return max(1, int(policy.aside_fraction * eligible))


def strangers(
    missing: Mapping[Key, Missing], eligible: int, at: float, policy: Policy
) -> Mapping[Key, float]:
    """Return Ready nodes missing in the cloud for longer than dying takes, and since when.

    The cloud's answers about them will prove nothing once they are silent. That is known after
    `Policy.aside_after`; at once for nodes that it has never shown, if they are few: then it looks
    for them in the wrong place.
    """
    never = {
        key: row.first
        for key, row in missing.items()
        if row.shown is None and at - row.first >= policy.dying
    }
    found = {key: row.first for key, row in missing.items() if at - row.first >= policy.aside_after}
    return found | never if len(never) <= most_aside(eligible, policy) else found


def lasting(
    missing: Mapping[Key, Missing], strange: Mapping[Key, float], eligible: int, policy: Policy
) -> frozenset[Key]:
    """Select the strange nodes to mark, so that a restarted manager knows of them.

    While the cloud does not know most Ready nodes, not every Node is written to: after a restart,
    too, those that are left will show that the answers are wrong. Those without a provider id will
    not, and do not count.
    """
    named = frozenset(key for key in missing if not key[1])
    known, count = len(missing) - len(named), eligible - len(named)
    is_most = 2 * known > count and known > most_aside(count, policy)
    return frozenset(strange.keys() & (named if is_most else missing.keys()))


def stand(missing: Mapping[Key, Missing], eligible: int, at: float, policy: Policy) -> Standing:
    """Decide what the missing nodes mean, among `eligible` Ready nodes."""
    if not policy.witnesses:
        return Standing(missing)
    due = frozenset(key for key, row in missing.items() if _is_due(row, policy))
    is_over = len(due) > most_aside(eligible, policy)
    aside = frozenset() if is_over else due
    against = frozenset(
        key for key, row in missing.items() if key not in aside and at - row.first >= policy.dying
    )
    return Standing(missing, aside, against, is_over)


def _is_due(row: Missing, policy: Policy) -> bool:
    return row.sound is not None and row.sound.length >= policy.aside_after


def settle(views: Iterable[View], standing: Standing) -> tuple[tuple[View, ...], tuple[View, ...]]:
    """Split views into those that are proofs now, in order of time, and those that still wait."""
    waiting = standing.missing.keys() - standing.aside
    settled = [
        msgspec.structs.replace(view, open=view.open & waiting)
        for view in sorted(views, key=lambda view: view.began)
    ]
    return (
        tuple(view for view in settled if not view.open),
        tuple(view for view in settled if view.open),
    )


def was_shown(shown: float | None, lost: Collection[float | None]) -> bool:
    """Tell whether a node in question may be deleted although the cloud has lost other nodes.

    The node must have been shown under these credentials; and also since the time in `lost` of each
    that was shown before: else both may have left the answers together, with their machines there.
    """
    if not lost:
        return True
    return shown is not None and all(since is None or shown >= since for since in lost)
