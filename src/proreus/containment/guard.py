"""Stands between the controllers and a provider, so that no fault of it harms another key.

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

from proreus.cloudprovider import CallTimeout, CloudError
from proreus.containment import contract
from proreus.containment.faults import Faults, Kind
from proreus.kube.objects import KubeObject
from proreus.runtime.threads import foreign

T = TypeVar("T")

VERB_SECONDS: Final = 600.0
"""For one verb with all its calls to the cloud, each of which has a deadline of its own."""

GRACE_SECONDS: Final = 1.0
"""For what a cancelled call has to tidy up; then it is left behind."""

THREADS: Final = 64
"""More threads than this, and then each doubling, are told."""


class Raised(Exception):
    """A provider raised something that is no Exception, such as SystemExit."""


class Guard:
    """Calls a provider's functions."""

    def __init__(
        self, faults: Faults, outlasts: Callable[["asyncio.Task[Any]"], None] = lambda _: None
    ) -> None:
        """Note faults; `outlasts` is given the calls that may go on (`Context.outlasts`)."""
        self.faults = faults
        self._outlasts = outlasts
        self._threads_told = THREADS

    async def run(
        self, verb: str, function: Callable[[], Awaitable[T]], *, seconds: float | None
    ) -> T:
        """Await `function()` for up to `seconds`.

        Raises:
            CallTimeout: It took longer.
            CloudError: It cancelled itself.
            Exception: What it raised; `Raised` if that was no Exception.
        """
        task = asyncio.create_task(_outcome(function))
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await self._end(verb, task)
            raise
        self._look_for_threads(verb)
        if not task.done():
            problem = f"{verb} had no answer in {seconds:g} s, the outcome is unknown"
            self.faults.tell(verb, Kind.HUNG, problem)
            await self._end(verb, task)
            raise CallTimeout(problem)
        if task.cancelled():
            problem = f"{verb} cancelled its own call"
            self.faults.tell(verb, Kind.CANCELLED, problem)
            raise CloudError(problem)
        value, raised = task.result()
        if raised is None:
            return value  # type: ignore[return-value]  # None only if something was raised
        if isinstance(raised, Exception):
            raise raised
        raise Raised(type(raised).__name__) from raised

    async def call(
        self, verb: str, function: Callable[[], Awaitable[T]], *, seconds: float = VERB_SECONDS
    ) -> T:
        """The same, but all that is raised is a CloudError."""
        try:
            return await self.run(verb, function, seconds=seconds)
        except CloudError as exc:
            try:
                raise contract.error(exc)
            except contract.Broken as broken:
                self.faults.tell(verb, Kind.WRONG_ANSWER, str(broken), cause=exc)
                raise CloudError(f"{verb}: {exc}") from exc
        except Exception as exc:
            raised = exc.__cause__ if isinstance(exc, Raised) else exc
            problem = raising(verb, raised or exc)
            self.faults.tell(verb, Kind.RAISED, problem, cause=raised)
            raise CloudError(problem) from exc

    def hook(
        self, verb: str, function: Callable[[], T], about: KubeObject | None
    ) -> T | CloudError:
        """Call a function without I/O; an error says what went wrong, and `about` has an event."""
        try:
            return function()
        except contract.Broken as exc:
            kind, cause, problem = Kind.WRONG_ANSWER, None, f"{verb}: {exc}"
        except BaseException as exc:  # noqa: BLE001 - nothing is awaited: none of it is for us
            kind, cause, problem = Kind.RAISED, exc, raising(verb, exc)
        self.faults.tell(verb, kind, problem, about=about, cause=cause)
        return CloudError(problem)

    async def _end(self, verb: str, task: "asyncio.Task[Any]") -> None:
        """Cancel the task; if that does not end it, only its group waits for it."""
        task.cancel()
        self._outlasts(task)
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if not task.done():
            problem = f"{verb} goes on although its call was cancelled"
            self.faults.tell(verb, Kind.UNCANCELLABLE, problem)

    def _look_for_threads(self, verb: str) -> None:
        if threading.active_count() <= self._threads_told:
            return
        others = foreign()
        if len(others) > self._threads_told:
            self._threads_told = 2 * len(others)
            problem = f"{len(others)} threads run that are not ours; one is {others[-1].name!r}"
            self.faults.tell(verb, Kind.THREADS, problem)


def raising(function: str, raised: BaseException) -> str:
    """What objects say of it: the text of a foreign exception may hold a secret."""
    return f"{function} raised {type(raised).__name__}; the log of the manager has more"


async def _outcome(
    function: Callable[[], Awaitable[T]],
) -> tuple[T | None, BaseException | None]:
    """The answer, or what was raised: SystemExit must not leave a task, it would end the loop."""
    try:
        return await function(), None
    except asyncio.CancelledError:
        raise
    except BaseException as exc:  # noqa: BLE001 - SDKs call sys.exit()
        return None, exc
