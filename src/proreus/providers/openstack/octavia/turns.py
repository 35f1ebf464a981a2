"""Order changes of one load balancer, so that each is based on what the one before left.

Services that share a load balancer are worked on side by side, and Octavia cannot make a change
depend on what it was planned from, as Neutron can. So each verb has a turn, which ends early if
another one has changed the load balancer since: the verb is then asked again. Nobody waits for
anybody else's verb.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proreus.cloudprovider.errors import RetryAfter

_SOON: Final = 1.0


class Turns:
    """A registry of the verbs at work, and of the load balancers that changed meanwhile."""

    def __init__(self) -> None:
        """Begin with no verb at work."""
        self.count = 0
        self.changes: dict[str, tuple[int, Turn]] = {}
        self.busy: set[str] = set()
        self._active = 0

    @contextmanager
    def begin(self) -> Iterator["Turn"]:
        """Begin a turn: changes may be based on what is read from now on."""
        self._active += 1
        try:
            yield Turn(self)
        finally:
            self._active -= 1
            if not self._active:
                self.changes.clear()


class Turn:
    """The permission of one verb to change load balancers that nobody has changed since."""

    def __init__(self, turns: Turns) -> None:
        """Note how many changes there were until now."""
        self._turns = turns
        self._since = turns.count

    @contextmanager
    def change(self, balancer: str) -> Iterator[None]:
        """Change a load balancer, unless somebody has changed it since the turn began.

        Args:
            balancer: The id of the load balancer; if it is to be made, that of the port which it
                gets, or "".

        Raises:
            RetryAfter: Another verb has changed it within this turn, or does so now.
        """
        number, by = self._turns.changes.get(balancer, (0, self))
        if balancer in self._turns.busy or (by is not self and number > self._since):
            text = (
                f"load balancer or port {balancer} was changed for another Service meanwhile: "
                "it is tried again"
            )
            raise RetryAfter(text, after=_SOON)
        if not balancer:
            yield
            return
        self._turns.busy.add(balancer)
        try:
            yield
        finally:
            self._turns.busy.discard(balancer)
            self._turns.count += 1
            self._turns.changes[balancer] = (self._turns.count, self)
