"""Call a provider's functions so that no fault of one harms another key.

A verb runs in a task of its own. Whatever it raises, SystemExit included, comes back as a
CloudError, a wrong answer becomes the error of the objects that it is about, and a task that
outlives its cancellation is left behind: only its own group waits for it. A hook without I/O
(`owns`, `scope`, `group`, `host_policy`, `fingerprint`, `batch_size`) that fails has the answer
that does least harm. What runs without ever giving the event loop back cannot be stopped by
anybody: `runtime.watchdog` names it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from proreus.cloudprovider import CloudError
from proreus.containment import contract
from proreus.containment.faults import Fault, Faults, Kind, Unanswered
from proreus.kube.objects import KubeObject
from proreus.runtime.threads import foreign

T = TypeVar("T")

VERB_SECONDS: Final = 600.0
"""Seconds for one verb with all its calls to the cloud, each of which has its own deadline."""

GRACE_SECONDS: Final = 1.0
"""Seconds that a cancelled call gets to tidy up; then it is left behind."""

THREADS: Final = 64
"""The number of threads that is reported, and then each doubling."""


class Guard:
    """A caller of a provider's functions that reports their faults."""

    def __init__(
        self, faults: Faults, outlasts: Callable[["asyncio.Task[Any]"], None] = lambda _: None
    ) -> None:
        """Report to `faults`; `outlasts` gets the calls that may go on (`Context.outlasts`)."""
        self.faults = faults
        self._outlasts = outlasts
        self._threads_reported = THREADS

    async def call(
        self,
        verb: str,
        function: Callable[[], Awaitable[T]],
        *,
        seconds: float | None = VERB_SECONDS,
        text: str = "",
    ) -> T:
        """Await `function()` for up to `seconds`; messages name the verb by `text`, if given.

        Raises:
            Unanswered: The call took longer, or raised a TimeoutError.
            Fault: The call cancelled itself, or raised an error that is no sound CloudError.
            CloudError: The call raised this error.
        """
        text = text or verb
        task = asyncio.create_task(_outcome(function))
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await self._end(verb, task)
            raise
        self._check_threads(verb)
        if not task.done():
            problem = f"{text} had no answer in {seconds:g} s, the outcome is unknown"
            self.faults.report(verb, Kind.HUNG, problem)
            await self._end(verb, task)
            raise Unanswered(problem)
        if task.cancelled():
            problem = f"{text} cancelled its own call"
            self.faults.report(verb, Kind.CANCELLED, problem)
            raise Fault(problem)
        value, raised = task.result()
        if raised is None:
            return value  # type: ignore[return-value]  # None only if something was raised
        if isinstance(raised, CloudError):
            try:
                raise contract.error(raised)
            except contract.Broken as broken:
                problem = f"{text} raised an invalid error: {broken}"
                self.faults.report(verb, Kind.WRONG_ANSWER, problem, cause=raised)
                raise Fault(problem) from raised
        problem = raising(text, raised)
        self.faults.report(verb, Kind.RAISED, problem, cause=raised)
        raise (Unanswered if isinstance(raised, TimeoutError) else Fault)(problem) from raised

    def hook(
        self, verb: str, function: Callable[[], T], about: KubeObject | None
    ) -> T | CloudError:
        """Call a function without I/O; return its fault as an error, with an event on `about`."""
        try:
            return function()
        except contract.Broken as exc:
            kind, cause, problem = Kind.WRONG_ANSWER, None, f"{verb}: {exc}"
        except BaseException as exc:  # noqa: BLE001 - nothing is awaited: none of it is for us
            kind, cause, problem = Kind.RAISED, exc, raising(verb, exc)
        self.faults.report(verb, kind, problem, about=about, cause=cause)
        return Fault(problem)

    async def _end(self, verb: str, task: "asyncio.Task[Any]") -> None:
        """Cancel the task; if that does not end it, only its group waits for it."""
        task.cancel()
        self._outlasts(task)
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if not task.done():
            problem = f"{verb} goes on although its call was cancelled"
            self.faults.report(verb, Kind.UNCANCELLABLE, problem)

    def _check_threads(self, verb: str) -> None:
        if threading.active_count() <= self._threads_reported:
            return
        others = foreign()
        if len(others) > self._threads_reported:
            self._threads_reported = 2 * len(others)
            problem = f"{len(others)} threads run that are not ours; one is {others[-1].name!r}"
            self.faults.report(verb, Kind.THREADS, problem)


def raising(function: str, raised: BaseException) -> str:
    """Describe an exception for events: its own text may hold a secret."""
    return f"{function} raised {type(raised).__name__}; the log of the manager has more"


async def _outcome(
    function: Callable[[], Awaitable[T]],
) -> tuple[T | None, BaseException | None]:
    """Return the answer or the exception: SystemExit in a task would end the loop."""
    try:
        return await function(), None
    except asyncio.CancelledError:
        raise
    except BaseException as exc:  # noqa: BLE001 - SDKs call sys.exit()
        return None, exc
