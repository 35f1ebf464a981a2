"""The conformance suite on the provider `rancher`, by both versions of the API."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import ClassVar, Self

import pytest

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.testing.conformance import CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .emulator.server import VERSIONS, Emulator, served
from .site import cloud


class RancherFixture(CloudFixture):
    """The emulator. Proxies speak TLS, as a Rancher server should.

    A host that was shut down is one whose agent is not connected, which Rancher shows of a host
    that cannot be reached as well: so there is no `stop_machine`.
    """

    lacks = frozenset({"routes"})
    page_size = 5
    timeout = 60.0
    patience = 30.0
    versions: ClassVar[tuple[str, ...]] = VERSIONS

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.emulator = await self._stack.enter_async_context(served(Emulator(self.versions)))
        self.emulator.most = self.page_size
        self.world = self.emulator.world
        self.world.add_hosts(["balancing"])
        self._uuids: dict[str, str] = {}
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
        client = f"[Client]\ntimeout = {self.timeout}s\nca-file = {self._ca}\n"
        return cloud(self.emulator.config(client).replace(self.emulator.url, endpoint))

    async def create_machines(self, names: Sequence[str]) -> None:
        self._uuids |= dict(zip(names, self.world.add_hosts(names), strict=True))

    async def remove_machine(self, name: str) -> None:
        self.world.remove_host(self._uuids.pop(name))

    async def objects(self) -> Mapping[str, object]:
        """Services and what they lead to; not the stack, which stays."""
        self.world.advance()
        links = {
            one["id"]: sorted(link["consumedServiceId"] for link in self.world.links_of(one["id"]))
            for one in self.world.services()
        }
        return {one["id"]: (dict(one), links[one["id"]]) for one in self.world.services()}

    async def remove_object(self, id_: str) -> None:
        self.world.purge(self.world.objects[id_])

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """The name holds the uid: so a load balancer of another one. And a node's own service."""
        stack = {"stackId": (await self._stack_of())["id"]}
        name = f"lb-{ref.name[:-4]}0000"
        launch = {"ports": ["8080:8080/tcp"]}
        self.world.new(
            "loadBalancerService", "s", name=name, state="active", launchConfig=launch, **stack
        )
        for host in list(self.world.of("host")):
            fields = {"name": host["hostname"], "externalIpAddresses": ["192.0.2.99"]}
            self.world.new("externalService", "s", state="active", **fields, **stack)

    async def _stack_of(self) -> dict[str, object]:
        named = {"name": "kubernetes-loadbalancers", "externalId": "kubernetes-loadbalancers://"}
        stacks = self.world.of("stack")
        return stacks[0] if stacks else self.world.new("stack", "st", state="active", **named)


class OldFixture(RancherFixture):
    """The same of a server that has v1 only."""

    versions: ClassVar[tuple[str, ...]] = ("v1",)


class TestV2(Conformance):
    fixture = RancherFixture


@pytest.mark.long
class TestV1(Conformance):
    fixture = OldFixture
