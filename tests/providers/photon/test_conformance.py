"""The conformance suite on the provider `photon`."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import pytest

from proreus.cloudprovider import CloudProvider
from proreus.testing.conformance import Answer, CloudFixture, Conformance

from .emulator.server import Age, Emulator, served, write_login
from .site import cloud, config

_LIMIT = b'{"code": "TooManyRequests", "message": "too many requests", "data": {}}'


class PhotonFixture(CloudFixture):
    """The emulator with tokens. Proxies before it speak TLS."""

    lacks = frozenset({"load_balancers", "routes"})
    page_size = 5
    timeout = 60.0
    patience = 30.0
    throttled = Answer(429, _LIMIT, {"Retry-After": "120"})
    age = Age.SYSTEM

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        emulator = Emulator(self.age, authentication=True)
        self.emulator = await self._stack.enter_async_context(served(emulator))
        self.emulator.page = self.page_size
        self.endpoint, self.authority = self.emulator.url, self.emulator.authority
        directory = Path(self._stack.enter_context(TemporaryDirectory()))
        self._login = write_login(self.emulator, directory / "login")
        self._ca = directory / "ca.pem"
        self._ca.write_bytes(self.authority.certificate)
        self._ids: dict[str, str] = {}
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        client = f"login-file = {self._login}\nca-file = {self._ca}\ntimeout = {self.timeout}s"
        return cloud(config(self.emulator, client, target=endpoint, authentication="true"))

    async def create_machines(self, names: Sequence[str]) -> None:
        self._ids |= {name: self.emulator.world.add_vm(name) for name in names}

    async def remove_machine(self, name: str) -> None:
        self.emulator.world.remove_vm(self._ids.pop(name))

    async def stop_machine(self, name: str) -> None:
        self.emulator.world.vms[self._ids[name]]["state"] = "STOPPED"


class EarlierFixture(PhotonFixture):
    """The same before /v1."""

    age = Age.NETWORKS


class TestPhoton(Conformance):
    fixture = PhotonFixture


@pytest.mark.long
class TestEarlier(Conformance):
    fixture = EarlierFixture
