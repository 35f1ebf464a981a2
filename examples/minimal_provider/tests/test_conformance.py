"""The conformance suite of Proreus, on a tiny cloud that is made anew for each rule."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from aiohttp import web
from minimal_provider import MinimalCloud
from minimal_provider.api import Config

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.testing.conformance import CloudFixture, Conformance
from tests.tiny_cloud import PAGE, TOKEN, TinyCloud


class Cloud(CloudFixture):
    """A tiny cloud, and how to break it."""

    page_size = PAGE

    async def __aenter__(self) -> Self:
        """Start the cloud."""
        self.cloud = TinyCloud()
        self.runner = web.AppRunner(self.cloud.app())
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the cloud."""
        await self.runner.cleanup()

    def provider(self, endpoint: str) -> CloudProvider:
        """Return a provider for the cloud at `endpoint`."""
        return MinimalCloud(Config(endpoint=endpoint, token=TOKEN, timeout=self.timeout))

    async def create_machines(self, names: Sequence[str]) -> None:
        """Start machines of these names."""
        for name in names:
            self.cloud.add_server(name)

    async def remove_machine(self, name: str) -> None:
        """Destroy a machine."""
        del self.cloud.servers[self.cloud.server(name)["id"]]

    async def stop_machine(self, name: str) -> None:
        """Shut a machine down."""
        self.cloud.server(name)["status"] = "off"

    async def objects(self) -> Mapping[str, object]:
        """Return the objects of which load balancers are made."""
        return dict(self.cloud.balancers)

    async def remove_object(self, id_: str) -> None:
        """Delete such an object, as somebody else would."""
        del self.cloud.balancers[id_]

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """Make a balancer as somebody else would: with our name, and without our marks."""
        parts = {"labels": {}, "forwards": {}, "targets": [], "sources": [], "health": ""}
        self.cloud.add(self.cloud.balancers, {"name": ref.name, **parts})


class TestMinimalCloud(Conformance):
    """Each rule is a test."""

    fixture = Cloud
