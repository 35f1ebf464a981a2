"""Run commands of CloudStack that are jobs, for a Service or a route at a time.

A job that takes longer than a moment, or whose end could not be asked for, is remembered: the next
verb asks for it first. A process that begins anew remembers none, and goes by what it observes.
"""

import functools
from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.waits import Waits, Working
from proreus.providers.cloudstack.api import Api, Described, Job

PATIENCE: Final = 1.0
"""Seconds that a verb waits for a job itself."""
PACE: Final = tuple(min(1.5**times, 15.0) for times in range(8))
"""Seconds until CloudStack is asked again whether it is done."""


class Works:
    """The unfinished jobs, by the UID of the Service or the CIDR of the route that they are for.

    Attributes:
        waits: How long each Service or route has waited; at the end of all delays CloudStack is
            taken to have no more work for it.
    """

    def __init__(self, api: Api) -> None:
        """Keep the client of CloudStack; begin without a job."""
        self._api = api
        self._open: dict[str, list[Job]] = {}
        self.waits = Waits(PACE)

    def is_open(self, uid: str) -> bool:
        """Tell whether a job may go on."""
        return uid in self._open

    async def settle(self, uid: str) -> None:
        """Wait for the jobs that an earlier verb has left unfinished.

        Raises:
            Working: CloudStack still works on one.
            CloudError: A job failed, or CloudStack gives no usable answer.
        """
        left: list[Job] = []
        failed: CloudError | None = None
        for job in self._open.get(uid, []):
            try:
                if isinstance(await self._api.result(job), Pending):
                    left.append(job)
            except Refused as error:  # with which the job has ended
                failed = failed or error
            except CloudError as error:
                left.append(job)
                failed = error
        self._keep(uid, left)
        if failed is not None:
            raise failed
        if left:
            raise Working(f"CloudStack works on {left[0].command}")

    async def run(
        self, uid: str, command: str, parameters: Mapping[str, str]
    ) -> tuple[str, Described]:
        """Run a command to its end; return the id of what it made, and its result.

        Raises:
            Working: The command takes longer than a moment; its job is remembered.
            CloudError: CloudStack refuses, the job failed, or there is no answer.
        """
        job = await self._api.start(command, parameters)
        # Remembered from the beginning, since a verb whose time is over is cancelled.
        self._open.setdefault(uid, []).append(job)
        try:
            answer = await finished(functools.partial(self._api.result, job), patience=PATIENCE)
        except Refused:  # with which the job has ended
            self._close(uid, job)
            raise
        if isinstance(answer, Pending):
            raise Working(f"CloudStack works on {command}")
        self._close(uid, job)
        return job.object, answer

    def _close(self, uid: str, job: Job) -> None:
        """Forget a job that has ended."""
        self._keep(uid, [one for one in self._open.get(uid, []) if one is not job])

    def _keep(self, uid: str, left: list[Job]) -> None:
        self._open.pop(uid, None)
        if left:
            self._open[uid] = left
