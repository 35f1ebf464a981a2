"""The conformance suite on the provider `rackspace`."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.testing.conformance import Answer, CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .emulator.server import Emulator, served
from .site import cloud

_OVER = {"overLimit": {"code": 413, "message": "OverLimit Retry...", "details": "Error Details..."}}


class RackspaceFixture(CloudFixture):
    """The emulator. Proxies speak TLS, as Rackspace does; its catalog leads back to them."""

    lacks = ("routes",)
    page_size = 5
    timeout = 60.0
    patience = 30.0
    throttled = Answer(413, json.dumps(_OVER).encode(), {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.emulator = await self._stack.enter_async_context(served(Emulator()))
        self.emulator.page = self.page_size
        self.emulator.clb.limit = 1000
        self._ids: dict[str, str] = {}
        self.endpoint = self.emulator.url
        self.authority = Authority()
        self._directory = self._stack.enter_context(TemporaryDirectory())
        self._ca = Path(self._directory) / "ca.pem"
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
        """Each proxy has a user of its own, whom the catalog leads back to it."""
        user = f"user-{len(self.emulator.roots)}"
        self.emulator.roots[user] = endpoint
        client = f"[Client]\ntimeout = {self.timeout}s\nca-file = {self._ca}\n"
        text = self.emulator.config(client).replace(self.emulator.url, endpoint)
        return cloud(text.replace(f"username = {self.emulator.username}", f"username = {user}"))

    async def create_machines(self, names: Sequence[str]) -> None:
        made = self.emulator.add_servers(names)
        self._ids |= dict(zip(names, made, strict=True))

    async def remove_machine(self, name: str) -> None:
        del self.emulator.servers[self._ids.pop(name)]

    async def stop_machine(self, name: str) -> None:
        self.emulator.servers[self._ids[name]]["status"] = "SHUTOFF"

    async def objects(self) -> Mapping[str, object]:
        """Load balancers with all that is theirs; what is being deleted is gone."""
        clb = self.emulator.clb
        clb.advance()
        return {
            str(one["id"]): {key: value for key, value in one.items() if key != "status"}
            for one in clb.alive()
            if one["status"] != "PENDING_DELETE"
        }

    async def remove_object(self, id_: str) -> None:
        del self.emulator.clb.by_id[int(id_)]

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """The name holds the uid: so one of another uid, at an address of its own."""
        other = ref.name[:-4] + "0000"
        body = {
            "name": f"{other}-tcp-8080", "protocol": "TCP", "port": 8080,
            "virtualIps": [{"type": "PUBLIC", "ipVersion": "IPV4"}],
        }  # fmt: skip
        self.emulator.clb.create({"loadBalancer": body})


class TestRackspace(Conformance):
    fixture = RackspaceFixture
