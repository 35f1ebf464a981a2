"""Call the kernel of this machine as providers call their cloud: counted, gated, in a thread."""

from collections.abc import Callable
from typing import TypeVar

from proreus.cloudprovider.context import Context

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
        """Run a function that changes the kernel.

        Raises:
            CloudError: The kernel refuses, or this replica may not act.
        """
        return await self._context.call("kernel", operation, fn, read=False, blocking=True)
