"""The conformance suite on the provider `vsphere`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider
from proreus.testing.conformance import CloudFixture, Conformance
from proreus.testing.conformance.fixture import Answer

from .site import cloud, site


class VSphereFixture(CloudFixture):
    """The simulator behind its gateway."""

    lacks = frozenset({"load_balancers", "routes"})
    page_size = 4
    timeout = 60.0
    patience = 30.0
    throttled = Answer(429, b"", {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        directory = self._stack.enter_context(TemporaryDirectory())
        self._site = await self._stack.enter_async_context(site(Path(directory)))
        self._site.gateway.page = self.page_size
        self.endpoint = self._site.gateway.url
        self.authority = self._site.gateway.authority
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        port = int(endpoint.rpartition(":")[2])
        return cloud(self._site.config(f"[Client]\ntimeout = {self.timeout}s", port))

    async def create_machines(self, names: Sequence[str]) -> None:
        await self._site.simulator.create(*names)

    async def remove_machine(self, name: str) -> None:
        await self._site.simulator.destroy(name)

    async def stop_machine(self, name: str) -> None:
        await self._site.simulator.change(name, power="poweredOff")


class TestVSphere(Conformance):
    fixture = VSphereFixture
