"""Restart tasks that crash, and keep tasks from ending the process."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)


async def supervise(
    name: str,
    factory: Callable[[], Awaitable[None]],
    *,
    backoff: Backoff,
    on_crash: Callable[[Exception | None], None],
    expected: tuple[type[Exception], ...] = (),
) -> None:
    """Run `factory()` until it returns; when it raises, start it again after the backoff.

    Args:
        name: The name of the task in logs, and in `proreus_crashes_total`.
        factory: Makes what is run.
        backoff: How long to wait after failures. They are counted anew once the task has run for
            `backoff.cap` seconds.
        on_crash: Called with what was raised, and with None once the failures are counted anew.
            `Health.flag` makes such a function.
        expected: Errors that are no crash, but such as the cloud's: a warning in the log.
    """
    loop = asyncio.get_running_loop()
    failures = 0

    def recovered() -> None:
        nonlocal failures
        failures = 0
        on_crash(None)

    while True:
        timer = loop.call_later(backoff.cap, recovered) if failures else None
        try:
            await factory()
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raised: Exception = RuntimeError(f"the work cancelled itself: {exc!r}")
        except Exception as exc:  # noqa: BLE001 - whatever it is, the task is started again
            raised = exc
        else:
            if failures:
                on_crash(None)
            return
        finally:
            if timer is not None:
                timer.cancel()
        delay = backoff.delay(failures, random.random())  # noqa: S311 - jitter
        failures += 1
        told: dict[str, Any] = {"err": raised, "task": name, "restart_seconds": round(delay, 2)}
        if isinstance(raised, expected):
            klog.warning(log, "A task failed and begins again", **told)
        else:
            metrics.CRASHES.labels(name).inc()
            klog.exception(log, "A task crashed", **told)
            on_crash(raised)
        await asyncio.sleep(delay)


class Exited(Exception):
    """The error that code in a task called `sys.exit`, or raised KeyboardInterrupt."""


def contain_exits(loop: asyncio.AbstractEventLoop, on_exit: Callable[[str, Exited], None]) -> None:
    """Turn SystemExit in a task into that task's failure, so that the loop goes on.

    asyncio lets it through, so a task that a cloud's SDK made could end the process. `on_exit` is
    called with the task's function and the failure, whose cause is what was raised.
    """

    def make(loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> asyncio.Task[Any]:
        return asyncio.Task(_Contained(work, on_exit), loop=loop, **kwargs)

    loop.set_task_factory(make)


class _Contained(Coroutine[Any, Any, Any]):
    """A wrapper of a coroutine that raises `Exited` for SystemExit or KeyboardInterrupt.

    It is not an `async def` around the other coroutine: one that is cancelled before its first step
    would leave the other "never awaited".
    """

    def __init__(self, work: Any, on_exit: Callable[[str, Exited], None]) -> None:
        self._work = work
        self._on_exit = on_exit
        self.__qualname__: str = getattr(work, "__qualname__", type(work).__qualname__)
        self.__name__ = self.__qualname__

    def send(self, value: Any, /) -> Any:
        try:
            return self._work.send(value)
        except (SystemExit, KeyboardInterrupt) as exc:
            raise self._exited(exc) from exc

    def throw(self, raised: Any, /, *rest: Any) -> Any:
        try:
            return self._work.throw(raised, *rest)
        except (SystemExit, KeyboardInterrupt) as exc:
            raise self._exited(exc) from exc

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._work.__await__())

    def _exited(self, exc: BaseException) -> Exited:
        error = Exited(f"{self.__qualname__}: {type(exc).__name__}: {exc}")
        error.__cause__ = exc
        self._on_exit(self.__qualname__, error)
        return error


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Await `work` and return True, or cancel it at the stop and return False."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
