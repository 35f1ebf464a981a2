"""Answers `Pending` while Rancher works: soon at first, later while nothing happens."""

from typing import Final

from proreus.cloudprovider.load_balancers import Pending

PACE: Final = tuple(min(0.3 * 1.6**times, 15.0) for times in range(10))
"""Seconds until Rancher is asked again whether it is done."""


class Working(Exception):
    """The signal that Rancher works on something, so that the verb ends with `Pending`."""

    def __init__(self, reason: str) -> None:
        """Keep what Rancher works on."""
        super().__init__(reason)
        self.reason = reason


class Waits:
    """How often each Service, by its UID, was answered with `Pending`."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waited: dict[str, int] = {}

    def pending(self, uid: str, reason: str) -> Pending:
        """Return `Pending` with the delay of the next try, which grows while Rancher works."""
        waited = self._waited.get(uid, 0)
        self._waited[uid] = waited + 1
        return Pending(PACE[min(waited, len(PACE) - 1)], reason)

    def done(self, uid: str) -> None:
        """Forget how long a Service has waited."""
        self._waited.pop(uid, None)
