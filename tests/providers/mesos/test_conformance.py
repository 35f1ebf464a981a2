"""The conformance suite on the provider `mesos`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider
from proreus.testing.conformance import CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .emulator import served
from .site import cloud
from .world import Status


class MesosFixture(CloudFixture):
    """The emulator, whose only master leads. Proxies before it speak TLS."""

    lacks = frozenset({"load_balancers", "routes"})
    timeout = 60.0
    patience = 30.0

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._cluster = await self._stack.enter_async_context(served())
        self.endpoint = f"http://{self._cluster.masters[0].address}"
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
        scheme, _, address = endpoint.partition("://")
        tls = f"[Client]\ntls = true\nca-file = {self._ca}\n" if scheme == "https" else ""
        timeout = f"http-client-timeout = {self.timeout}s"
        return cloud(self._cluster.config(timeout, master=address.rstrip("/"), sections=tls))

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            self._cluster.world.add(name)

    async def remove_machine(self, name: str) -> None:
        self._cluster.world.on(name).status = Status.REMOVED

    async def stop_machine(self, name: str) -> None:
        agent = self._cluster.world.on(name)
        agent.status, agent.deactivated = Status.DISCONNECTED, True


class TestMesos(Conformance):
    fixture = MesosFixture
