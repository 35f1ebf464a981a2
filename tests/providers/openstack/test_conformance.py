"""The conformance suite on the provider `openstack`: what it offers, without load balancers."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider
from proreus.testing.conformance import CloudFixture, Conformance

from .wire import ROUTER, cloud, port, served

_CLOUDS = """
clouds:
  one:
    compute_endpoint_override: {url}/compute/v2.1
    network_endpoint_override: {url}/network
    auth:
      auth_url: {url}/identity
      username: ccm
      password: planted-secret
      project_name: demo
      user_domain_name: Default
      project_domain_name: Default
"""


class OpenStackFixture(CloudFixture):
    """The wire with one router; the endpoints are in a clouds.yaml, so that a proxy can be one."""

    page_size = 5
    marks_routes = False

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._wire = await self._stack.enter_async_context(served())
        self._directory = self._stack.enter_context(TemporaryDirectory())
        self._wire.page = self.page_size
        self._wire.good_tokens = {f"token-{number}" for number in range(1000)}
        self._wire.ports.append(port("router", ROUTER, "10.0.0.1"))
        self._ids: dict[str, str] = {}
        self.endpoint = self._wire.url
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        file = Path(self._directory) / f"clouds-{endpoint.rpartition(':')[2]}.yaml"
        file.write_text(_CLOUDS.format(url=endpoint))
        seconds = 300 if endpoint == self.endpoint else 3
        return cloud(
            f"[Global]\nuse-clouds\nclouds-file = {file}\ncloud = one\n"
            f"[Route]\nrouter-id = {ROUTER}\n[Client]\ntimeout = {seconds}s\n"
        )

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            self._ids[name] = self._wire.add(len(self._wire.ports), name)

    async def remove_machine(self, name: str) -> None:
        id_ = self._ids.pop(name)
        del self._wire.servers[id_]
        self._wire.ports = [one for one in self._wire.ports if one["device_id"] != id_]

    async def stop_machine(self, name: str) -> None:
        self._wire.servers[self._ids[name]]["status"] = "SHUTOFF"


class TestOpenStack(Conformance):
    fixture = OpenStackFixture
