"""Runs commands of CloudStack that are jobs, for a Service or a route at a time.

A job that takes longer than a moment is remembered: the verb answers `Pending`, and the next one
asks for it first. A process that begins anew remembers none, and goes by what it observes.
"""

import functools
from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.operations import finished
from proreus.providers.cloudstack.api import Api, Described, Job

PATIENCE: Final = 1.0
"""Seconds that a verb waits for a job itself."""
PACE: Final = tuple(min(1.5**times, 15.0) for times in range(8))
"""Seconds until CloudStack is asked again whether it is done."""


class Working(Exception):
    """The signal that CloudStack works on a job, so that the verb ends with `Pending`."""

    def __init__(self, reason: str) -> None:
        """Keep what CloudStack works on."""
        super().__init__(reason)
        self.reason = reason


class Works:
    """The jobs that were begun and are not finished, by the UID of a Service or a route's CIDR."""

    def __init__(self, api: Api) -> None:
        """Begin without any."""
        self._api = api
        self._open: dict[str, list[Job]] = {}
        self._waited: dict[str, int] = {}

    async def settle(self, uid: str) -> None:
        """Ask for the jobs that an earlier verb has left.

        Raises:
            Working: CloudStack still works on one.
            CloudError: One failed, or CloudStack does not tell.
        """
        left: list[Job] = []
        failed: CloudError | None = None
        for job in self._open.pop(uid, []):
            try:
                if isinstance(await self._api.result(job), Pending):
                    left.append(job)
            except CloudError as error:
                failed = error
        if left:
            self._open[uid] = left
            raise Working(f"CloudStack works on {left[0].command}")
        if failed is not None:
            raise failed

    async def run(
        self, uid: str, command: str, parameters: Mapping[str, str]
    ) -> tuple[str, Described]:
        """Run a command to its end; return the id of what it made, and its result.

        Raises:
            Working: That takes longer than a moment; the job is remembered.
            CloudError: CloudStack refuses, the job failed, or there is no answer.
        """
        job = await self._api.start(command, parameters)
        answer = await finished(functools.partial(self._api.result, job), patience=PATIENCE)
        if isinstance(answer, Pending):
            self._open.setdefault(uid, []).append(job)
            raise Working(f"CloudStack works on {command}")
        return job.object, answer

    def pending(self, uid: str, reason: str) -> Pending:
        """Return `Pending` with the delay of the next try: short first, longer without progress."""
        waited = self._waited.get(uid, 0)
        self._waited[uid] = waited + 1
        return Pending(PACE[min(waited, len(PACE) - 1)], reason)

    def has_waited(self, uid: str) -> bool:
        """Tell whether a Service has waited so long that CloudStack works on nothing any more."""
        return self._waited.get(uid, 0) >= len(PACE)

    def done(self, uid: str) -> None:
        """Forget how long a Service has waited."""
        self._waited.pop(uid, None)
