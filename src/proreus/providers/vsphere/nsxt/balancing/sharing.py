"""Read something once for all who ask at the same time, and never from before they asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from proreus.cloudprovider.errors import CloudError

T = TypeVar("T")


class Shared(Generic[T]):
    """A reading that is shared.

    Whoever asks while a reading is under way waits for the next one, with all others who do: what
    was written until they asked is in it.
    """

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        """Keep the function that reads; read nothing yet."""
        self._read = read
        self._turn = asyncio.Lock()
        self._begun = 0
        self._known: tuple[int, T | CloudError] | None = None

    async def get(self) -> T:
        """Return what a reading that has begun after this call has found.

        Raises:
            CloudError: The reading has failed.
        """
        first_of_use = self._begun + 1
        async with self._turn:
            if self._known is None or self._known[0] < first_of_use:
                await asyncio.sleep(0)  # for others who are about to ask
                # Nobody else begins one meanwhile; one that is cancelled leaves nothing.
                self._begun += 1
                self._known = self._begun, await self._attempt()
            found = self._known[1]
        if isinstance(found, CloudError):
            raise found
        return found

    async def _attempt(self) -> T | CloudError:
        try:
            return await self._read()
        except CloudError as error:
            return error
