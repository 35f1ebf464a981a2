"""Call the kernel of this machine as providers call their cloud: counted, gated, in a thread."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from proreus.cloudprovider.context import Context
from proreus.cloudprovider.errors import CloudError

_T = TypeVar("_T")


class Calls:
    """The calls of the kernel that one provider makes."""

    def __init__(self, context: Context) -> None:
        """Make the calls through `context`."""
        self._context = context

    async def read(self, operation: str, fn: Callable[[], _T]) -> _T:
        """Run a function that changes nothing.

        Raises:
            CloudError: The kernel refuses, or this replica may not act.
        """
        return await self._context.call("kernel", operation, fn, read=True, blocking=True)

    async def write(self, operation: str, fn: Callable[[], _T]) -> _T:
        """Run a function that changes the kernel; return once nothing of it goes on.

        Whoever is cancelled waits for its end all the same: what he holds keeps others from the
        kernel meanwhile.

        Raises:
            CloudError: The kernel refuses, or this replica may not act.
        """
        work = _Work(fn)
        try:
            return await self._context.call("kernel", operation, work, read=False, blocking=True)
        finally:
            await work.over()


class _Work(Generic[_T]):
    """A function that a thread runs, once at most, and never after it is `over`."""

    def __init__(self, fn: Callable[[], _T]) -> None:
        self._fn = fn
        self._loop = asyncio.get_running_loop()
        self._begun = threading.Lock()
        self._ended = asyncio.Event()

    def __call__(self) -> _T:
        if not self._begun.acquire(blocking=False):
            raise CloudError("nobody waits for this change any more")
        try:
            return self._fn()
        finally:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._ended.set)

    async def over(self) -> None:
        """Wait for the end of the function; one that has not begun never will."""
        if self._begun.acquire(blocking=False):
            return
        cancelled = None
        while not self._ended.is_set():
            try:
                await self._ended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
