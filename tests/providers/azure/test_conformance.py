"""The conformance suite on the provider `azure`."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider
from proreus.providers.azure import AzureCloud
from proreus.testing.conformance import Answer, CloudFixture, Conformance

from .emulator import seed
from .emulator.server import Emulator
from .site import config, emulated

_QUOTA = b'{"error": {"code": "SubscriptionRequestsThrottled", "message": "Too many requests."}}'


class AzureFixture(CloudFixture):
    """The emulator with one scale set and machines of their own by turns."""

    page_size = 5
    timeout = 60.0
    patience = 60.0
    marks_routes = False
    throttled = Answer(429, _QUOTA, {"Retry-After": "120"})
    lacks = frozenset({"groups"})

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.azure: Emulator = await self._stack.enter_async_context(emulated())
        self.azure.page = self.page_size
        self.endpoint = self.azure.url
        self._ids: dict[str, str] = {}
        self._number = 0
        seed.scale_set(self.azure.store, "pool")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        provider = AzureCloud(config(endpoint))
        provider.timeout = self.timeout  # type: ignore[misc]
        return provider

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            self._ids[name] = seed.machine(self.azure.store, name)

    async def remove_machine(self, name: str) -> None:
        seed.remove_machine(self.azure.store, self._ids.pop(name))

    async def stop_machine(self, name: str) -> None:
        machine = self.azure.store.of[self._ids[name].lower()]
        machine["properties"]["instanceView"] = seed.view("deallocated")

    async def objects(self) -> Mapping[str, object]:
        return {}


class MachinesFixture(AzureFixture):
    lacks = frozenset({"load_balancers", "routes"})


class TestAzure(Conformance):
    fixture = MachinesFixture
