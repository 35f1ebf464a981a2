"""Tasks that are started again when they crash."""

import asyncio
from collections.abc import Awaitable, Callable

from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)


async def supervise(
    name: str,
    factory: Callable[[], Awaitable[None]],
    *,
    backoff: Backoff,
    on_crash: Callable[[Exception | None], None],
) -> None:
    """Run `factory()` until it returns; when it raises, start it again after the backoff.

    `on_crash` is told what was raised, and None once the task has run for `backoff.cap` seconds
    since; from then on its failures are counted anew. `Health.flag` makes such a function.
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
            crash: Exception = RuntimeError(f"cancelled from within: {exc!r}")
        except Exception as exc:  # noqa: BLE001 - whatever it is, the task is started again
            crash = exc
        else:
            if failures:
                on_crash(None)
            return
        finally:
            if timer is not None:
                timer.cancel()
        delay = backoff.delay(failures)
        failures += 1
        metrics.CRASHES.labels(name).inc()
        klog.exception(log, "A task crashed", err=crash, task=name, restart_seconds=round(delay, 2))
        on_crash(crash)
        await asyncio.sleep(delay)
