"""Probe machines by TCP to learn whether they live."""

import asyncio
import contextlib
import errno
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.errors import CloudError
from proreus.providers.local.addresses import Hop
from proreus.providers.local.config import Probing
from proreus.providers.local.netlink import ways

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

_MOST_AT_ONCE: Final = 100
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What is wrong with this machine where a connection cannot even be tried."""


class Prober:
    """A prober of machines, some at a time; each probe is a call of the provider."""

    def __init__(self, context: "Context", settings: Probing) -> None:
        """Keep the context and the settings; ask nothing yet."""
        self._context = context
        self._ports = settings.ports
        self._timeout = settings.timeout.total_seconds()
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def lives(self, addresses: Sequence[str]) -> bool:
        """Tell whether any port of any address takes or refuses a connection in time.

        Raises:
            CloudError: This machine is short of what a connection needs, so nobody was asked.
        """
        async with self._slots:
            return await self._context.call(
                "local",
                "probe",
                lambda: self._any(addresses),
                read=True,
                deadline=2 * self._timeout + 1,
            )

    async def _any(self, addresses: Sequence[str]) -> bool:
        tries = [
            asyncio.create_task(self._answers(address, port))
            for address in addresses
            for port in self._ports
        ]
        try:
            for one in asyncio.as_completed(tries):
                if await one:
                    return True
        finally:
            for task in tries:
                task.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
        return False

    async def _answers(self, address: str, port: int) -> bool:
        try:
            async with asyncio.timeout(self._timeout):
                _, writer = await asyncio.open_connection(address, port)
        except ConnectionRefusedError:
            return True
        except OSError as error:  # TimeoutError, too
            if error.errno in _SHORTAGES:
                raise CloudError(f"cannot probe {address}: {error.strerror}") from error
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True


async def ways_of_machine(context: "Context", addresses: Collection[str]) -> Mapping[str, Hop]:
    """Return the ways of the manager's machine by which addresses are reached.

    Raises:
        CloudError: The kernel refuses.
    """
    ask = partial(ways, addresses)
    return await context.call("netlink", "find_ways", ask, read=True, blocking=True)
