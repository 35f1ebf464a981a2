"""Keep the addresses of machines, which Photon Controller reads in a task for each.

A task asks the machine's host, and takes a second. So what it found is kept until the machine
changes, few tasks run at once, and a question does not wait for all of them: those that are left go
on, and serve the next question.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError, RetryAfter
from proreus.cloudprovider.lookups import each
from proreus.providers.photon.documents import Vm
from proreus.providers.photon.machines import in_order
from proreus.providers.photon.plan import Addresses, Known, due

log = logging.getLogger(__name__)

CONCURRENCY: Final = 16
"""Tasks at once."""
PATIENCE: Final = 15.0
"""Seconds that a question about machines waits for tasks."""
AGAIN: Final = 2.0
"""Seconds after which those are to be asked about that were not waited for."""


class AddressBook:
    """The addresses of the machines of a project."""

    def __init__(
        self, read: Callable[[Vm], Awaitable[Addresses]], now: Callable[[], float]
    ) -> None:
        """Keep the function that reads a machine's addresses, and the clock."""
        self._read = read
        self._now = now
        self._known: dict[str, Known] = {}
        self._flights: dict[Hashable, asyncio.Task[Addresses | CloudError]] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def close(self) -> None:
        """End all tasks that still read."""
        flights = list(self._flights.values())
        for one in flights:
            one.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    async def of(
        self, machines: Collection[Vm], *, age: float | None = None
    ) -> Mapping[str, Addresses | CloudError]:
        """Return the addresses of machines by their ids, or why they are not known.

        Machines that are off have no addresses.

        Args:
            machines: The machines as Photon Controller shows them.
            age: The age in seconds of addresses that do not serve; None if all do.
        """
        asked = due(machines, self._known, self._now(), age=age)
        for vm in asked.old:
            self._start(vm)
        flights = {vm.id: self._start(vm) for vm in asked.needed}
        if flights:
            await asyncio.wait(flights.values(), timeout=PATIENCE)
        return {vm.id: self._answer(vm, flights.get(vm.id)) for vm in machines}

    def keep_only(self, ids: Collection[str]) -> None:
        """Forget machines that are not among these."""
        for id_ in self._known.keys() - set(ids):
            del self._known[id_]

    def _answer(
        self, vm: Vm, flight: "asyncio.Task[Addresses | CloudError] | None"
    ) -> Addresses | CloudError:
        if flight is not None:
            if not flight.done():
                return RetryAfter(
                    f"Photon Controller reads the addresses of {vm.name} ({vm.id})", after=AGAIN
                )
            if not flight.cancelled():
                return flight.result()
        known = self._known.get(vm.id)
        return known.addresses if known is not None and known.vm.shape == vm.shape else ()

    def _start(self, vm: Vm) -> "asyncio.Task[Addresses | CloudError]":
        """Read the addresses of a machine in a task, unless one does so already."""
        # What was asked of a machine before it changed says nothing about it now.
        key = vm.id, vm.shape
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._fly(vm), name=f"addresses of {vm.id}")
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        return flight

    async def _fly(self, vm: Vm) -> Addresses | CloudError:
        async with self._slots:
            began = self._now()
            answers = await each((vm,), lambda one: one.id, self._read, 1)
        found = answers.get(vm.id, CloudError(f"the addresses of {vm.id} were not read"))
        before = self._known.get(vm.id)
        if not isinstance(found, CloudError):
            found = in_order(found, before.addresses if before else ())
            self._known[vm.id] = Known(vm, found, began)
        elif before is not None and before.vm.shape == vm.shape:
            # What is known serves on, and is asked about again when the others are.
            log.warning("The addresses of the machine %s could not be read: %s", vm.id, found)
            self._known[vm.id] = Known(vm, before.addresses, before.at, failed=self._now())
        return found
