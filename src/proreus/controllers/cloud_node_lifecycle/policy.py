"""When a Node may be deleted: the numbers of the deletion rules."""

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers, with the safe defaults; durations in seconds.

    With one confirmation, no witnesses, no grace, a breaker fraction of 1 and `delete_by_name`,
    a single answer deletes a node, as in the Go framework.

    Attributes:
        confirmations: Answers "no such machine" that it takes.
        confirmation_interval: The least time between the beginnings of two calls that count.
        startup_grace: The age before which a node that is not initialised is left alone, and
            one that can only be looked up by name.
        witnesses: Ready nodes asked about in the same call; 0 asks for none and needs none.
        breaker_fraction: The share of the nodes that may look gone within the window.
        breaker_minimum: The number that may look gone in any case.
        breaker_window: How long a deletion counts.
        hold: How long answers must stay unchanged for a node to go in spite of the breaker, or
            without any witness.
        resume: Whether the breaker is overruled.
        delete_by_name: Whether nodes without a provider id may go.
    """

    confirmations: int = 2
    confirmation_interval: float = 30.0
    startup_grace: float = 300.0
    witnesses: int = 3
    breaker_fraction: float = 0.2
    breaker_minimum: int = 2
    breaker_window: float = 300.0
    hold: float = 600.0
    resume: bool = False
    delete_by_name: bool = False
