"""Answer `Pending` while a cloud works: soon at first, later while nothing happens.

waits = Waits(PACE)
try:
answer = await self._ensure(lb)
except Working as working:
return waits.pending(lb.ref.uid, working.reason)
waits.done(lb.ref.uid)
"""

from collections.abc import Sequence

from proreus.cloudprovider.load_balancers import Pending


class Working(Exception):
    """The signal that the cloud works on something, so that the verb ends with `Pending`.

    Attributes:
        reason: The work that the cloud still does.
    """

    def __init__(self, reason: str) -> None:
        """Keep the description of what the cloud works on."""
        super().__init__(reason)
        self.reason = reason


class Waits:
    """A count, by the Service's UID, of the answers `Pending` since the last progress."""

    def __init__(self, pace: Sequence[float]) -> None:
        """Begin with no count; `pace` has the delays of the first next try, the second and so on.

        The last delay is used for all further tries.
        """
        self._pace = pace
        self._waited: dict[str, int] = {}

    def pending(self, uid: str, reason: str, *, is_moving: bool = False) -> Pending:
        """Return `Pending` with the delay of the next try.

        Args:
            uid: The UID of the Service that waits.
            reason: The work that the cloud still does.
            is_moving: Whether anything was done since the last try: then the delays begin anew.
        """
        waited = 0 if is_moving else self._waited.get(uid, 0)
        self._waited[uid] = waited + 1
        return Pending(self._pace[min(waited, len(self._pace) - 1)], reason)

    def has_waited(self, uid: str) -> bool:
        """Tell whether a Service has waited as often as its pace has delays."""
        return self._waited.get(uid, 0) >= len(self._pace)

    def done(self, uid: str) -> None:
        """Forget how long a Service has waited."""
        self._waited.pop(uid, None)
