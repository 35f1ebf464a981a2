"""Run blocking SDKs in daemon threads of our own.

`ThreadPoolExecutor` will not do: its exit hook joins every worker, so one hung call would keep
the process from ending. Threads are reused, since many SDKs keep their connections by thread.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from proreus.cloudprovider.errors import CloudError

T = TypeVar("T")

MOST_THREADS = 256
IDLE_SECONDS = 60.0

_Deed = Callable[[], None]
_Job = Callable[[], _Deed]


class Threads:
    """A pool of daemon threads in which one event loop runs functions."""

    def __init__(self, *, most: int = MOST_THREADS, idle: float = IDLE_SECONDS) -> None:
        """Allow up to `most` threads at once; one without work for `idle` seconds ends."""
        self._free = asyncio.Semaphore(most)
        self._most = most
        self._idle = idle
        self._lock = threading.Lock()
        self._resting: list[_Worker] = []

    async def reserve(self, patience: float) -> "Place":
        """Wait for a free thread, and reserve it.

        Raises:
            CloudError: No thread became free within `patience` seconds; nothing was done.
        """
        try:
            async with asyncio.timeout(patience):
                await self._free.acquire()
        except TimeoutError as error:
            raise CloudError(
                f"no thread is free: {self._most} blocking calls still run; does the cloud hang?"
            ) from error
        return Place(self._free.release, self._hand_out)

    def _hand_out(self, job: _Job, name: str) -> None:
        with self._lock:
            worker = self._resting.pop() if self._resting else None
        if worker is None:
            worker = _Worker(self._rest, self._leave, self._idle)
        worker.run(job, name)

    def _rest(self, worker: "_Worker") -> None:
        with self._lock:
            self._resting.append(worker)

    def _leave(self, worker: "_Worker") -> bool:
        """Remove an idle worker, unless a job is on its way to it."""
        with self._lock:
            if worker in self._resting:
                self._resting.remove(worker)
                return True
            return False


class Place:
    """A reserved thread: `start` something in it, or `release` it."""

    def __init__(
        self, give_back: Callable[[], None], hand_out: Callable[[_Job, str], None]
    ) -> None:
        """Keep the functions of `Threads` that give the thread back and hand a job out."""
        self._give_back = give_back
        self._hand_out = hand_out
        self._used = False

    def release(self) -> None:
        """Give the thread back, unless something was started in it."""
        if not self._used:
            self._used = True
            self._give_back()

    def start(
        self, fn: Callable[[], T], name: str
    ) -> tuple["asyncio.Future[T]", "asyncio.Future[None]"]:
        """Run `fn` in a thread called `name`, with the caller's context variables.

        Returns:
            The answer of `fn`, and the end of its thread. Nobody can stop a thread: cancelling the
                answer does not, and
            the end comes when `fn` has really ended. What it raises that is no Exception, such as
            SystemExit, comes as a CloudError.
        """
        self._used = True
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        ended: asyncio.Future[None] = loop.create_future()
        context = contextvars.copy_context()

        def deliver(outcome: _Deed) -> None:
            self._give_back()
            ended.set_result(None)
            if not answer.done():
                outcome()

        def job() -> _Deed:
            outcome = _outcome(answer, context, fn)
            return lambda: _post(loop, deliver, outcome)

        self._hand_out(job, name)
        return answer, ended


def _post(
    loop: asyncio.AbstractEventLoop, deliver: Callable[[_Deed], None], outcome: _Deed
) -> None:
    try:
        loop.call_soon_threadsafe(deliver, outcome)
    except RuntimeError:
        if not loop.is_closed():
            raise
        # The process is ending and nobody waits for the answer any more.


def _outcome(
    answer: "asyncio.Future[Any]", context: contextvars.Context, fn: Callable[[], object]
) -> Callable[[], None]:
    """Run `fn` here; return what to do with its answer in the loop's thread."""
    try:
        value = context.run(fn)
    except BaseException as error:  # noqa: BLE001 - it is handed to the caller, in the other thread
        raised = error if _may_travel(error) else _translated(error)
        return lambda: answer.set_exception(raised)
    return lambda: answer.set_result(value)


def _may_travel(error: BaseException) -> bool:
    """Tell whether a future can carry an error: not StopIteration and CancelledError."""
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


def _translated(error: BaseException) -> CloudError:
    raised = CloudError(f"the SDK raised {type(error).__name__}")
    raised.__cause__ = error
    return raised


class _Worker:
    """A daemon thread with the queue of its next job."""

    def __init__(
        self, rest: Callable[["_Worker"], None], leave: Callable[["_Worker"], bool], idle: float
    ) -> None:
        self._jobs: queue.SimpleQueue[tuple[_Job, str]] = queue.SimpleQueue()
        self._rest = rest
        self._leave = leave
        self._idle = idle
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def run(self, job: _Job, name: str) -> None:
        self._jobs.put((job, name))

    def _work(self) -> None:
        while True:
            try:
                job, self._thread.name = self._jobs.get(timeout=self._idle)
            except queue.Empty:
                if self._leave(self):
                    return
                continue
            deed = job()
            del job  # It holds the caller's objects: let go of them while resting.
            self._thread.name = "proreus-resting"
            self._rest(self)
            deed()
            del deed
