"""End the process when its work is done, whatever a provider has left running.

Tasks that swallow their cancellation, calls in the loop's own executor and threads that are no
daemons would keep the process waiting for ever.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterable
from types import FrameType
from typing import Any, Final

from proreus.app.printed import line
from proreus.cloudprovider import CloudError
from proreus.kube.errors import KubeError
from proreus.runtime import klog, threads

log = klog.logger(__name__)

SECONDS: Final = 2.0
"""Seconds for leftovers of the work, before the process ends without them."""


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run `work` and return its exit code; the process is gone `SECONDS` after that."""

    async def main() -> int:
        code = 1
        try:
            code = await work
            return code
        finally:
            _end_soon(asyncio.get_running_loop(), code)

    return asyncio.run(main())


def stop_at_signals(stop: asyncio.Event) -> None:
    """Set `stop` at the first signal to end; end the process at once at the second, as Go does."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def second(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's
        os._exit(1)

    def first() -> None:
        if stop.is_set():  # both have come before the loop could look
            os._exit(1)
        stop.set()
        for number in numbers:  # not through the loop from now on: it may be what hangs
            loop.remove_signal_handler(number)
            signal.signal(number, second)

    for number in numbers:
        loop.add_signal_handler(number, first)


def refused(program: str, problems: Iterable[str], code: int) -> int:
    """Print every problem, each in a line; return the exit code `code`."""
    for problem in problems:
        sys.stderr.write(f"{program}: {line(problem)}\n")
    return code


def could_not_ask(program: str, error: CloudError | KubeError, code: int) -> int:
    """Print which of cloud and API server could not be asked; return the exit code `code`."""
    asked = "call to the cloud" if isinstance(error, CloudError) else "request to the API server"
    return refused(program, (f"the {asked} failed: {error}",), code)


def _end_soon(loop: asyncio.AbstractEventLoop, code: int) -> None:
    def end() -> None:
        time.sleep(SECONDS)
        running = (one for one in threads.foreign() if not one.daemon and one.ident is not None)
        klog.warning(
            log,
            "Ending at once, although something still runs",
            tasks=", ".join(_function(task) for task in asyncio.all_tasks(loop)),
            threads=", ".join(f"{one.name}: {threads.stack(one.ident or 0)}" for one in running),
        )
        os._exit(code)

    threading.Thread(target=end, name="proreus-end", daemon=True).start()


def _function(task: "asyncio.Task[Any]") -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))
