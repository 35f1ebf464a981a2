"""The conformance suite on the provider `ovirt`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider
from proreus.providers.ovirt import searches
from proreus.testing.conformance import Answer, CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .emulator.server import served
from .site import cloud


class OVirtFixture(CloudFixture):
    """The emulated engine. Proxies speak TLS, as an engine should."""

    lacks = frozenset({"load_balancers", "routes"})
    page_size = searches.PAGE
    timeout = 60.0
    patience = 30.0
    throttled = Answer(429, b"", {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._engine = await self._stack.enter_async_context(served())
        self._ids: dict[str, str] = {}
        self.endpoint = self._engine.url.removesuffix("/ovirt-engine/api")
        self.authority = Authority()
        self._ca = Path(self._stack.enter_context(TemporaryDirectory())) / "ca.pem"
        self._ca.write_bytes(self.authority.certificate)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        client = f"[client]\ntimeout = {self.timeout}s"
        url = f"{endpoint.rstrip('/')}/ovirt-engine/api"
        return cloud(self._engine.config(f"cafile = {self._ca}", client, url))

    async def create_machines(self, names: Sequence[str]) -> None:
        self._ids |= dict(zip(names, self._engine.world.add_vms(names), strict=True))

    async def remove_machine(self, name: str) -> None:
        self._engine.world.remove(self._ids.pop(name))

    async def stop_machine(self, name: str) -> None:
        self._engine.world.stop(self._ids[name])


class TestOVirt(Conformance):
    fixture = OVirtFixture
