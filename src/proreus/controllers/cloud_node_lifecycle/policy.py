"""Define when a Node may be deleted: the numbers of the deletion rules."""

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the deletion rules, with safe defaults; durations in seconds.

    With one confirmation, no witnesses, no grace, a breaker fraction of 1 and `delete_by_name`,
    a single answer deletes a node, as in the Go framework.

    Attributes:
        confirmations: How many answers "no such machine" a deletion takes.
        confirmation_interval: The least time between the beginnings of two calls that count.
        startup_grace: The age before which a node that is not initialised is left alone, and
            one that can only be looked up by name.
        witnesses: How many Ready nodes are asked about in the same call; 0 asks for none and needs
            none.
        jury: How many witnesses, or all if there are fewer, must be in the call that decides.
        dying: How long a Ready node may be unknown to the cloud: the time in which a machine that
            has just gone makes its Node not Ready.
        outlasting: How long, in all, a node may be Ready after the cloud began to call its machine
            powered off: twice `dying`, since who is slow to notice that it is silent must not keep
            it.
        aside_after: The time after which a Ready node that the cloud does not know is no longer a
            witness.
        aside_fraction: The share of a scope's Ready nodes that may be set aside as witnesses; at
            least one.
        breaker_fraction: The share of a scope's nodes that may look gone within the window.
        breaker_minimum: The number that may look gone in any case.
        breaker_window: How long a deletion counts for the breaker.
        hold: How long answers must stay unchanged for a node to go in spite of the breaker.
        release_fraction: The share of a scope's nodes that may go in spite of the breaker within
            `release_interval`; at least `breaker_minimum`.
        release_interval: The time within which `release_fraction` counts.
        resume: Whether the breaker is overruled, so that it holds nothing back.
        delete_by_name: Whether nodes without a provider id may be deleted.
        out_of_service_grace: How long a node must have been silent, and its machine powered off,
            before it gets the taint out-of-service; None if it is never set.
    """

    confirmations: int = 2
    confirmation_interval: float = 30.0
    startup_grace: float = 300.0
    witnesses: int = 3
    jury: int = 100
    dying: float = 60.0
    outlasting: float = 120.0
    aside_after: float = 600.0
    aside_fraction: float = 0.05
    breaker_fraction: float = 0.2
    breaker_minimum: int = 2
    breaker_window: float = 300.0
    hold: float = 600.0
    release_fraction: float = 0.1
    release_interval: float = 10.0
    resume: bool = False
    delete_by_name: bool = False
    out_of_service_grace: float | None = None
