"""The simulated cloud as a fixture of the conformance suite; it runs in this process."""

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.config import Global, SimulatedConfig
from proreus.testing.conformance import CloudFixture
from proreus.testing.simulated import Admin, Instance, Settings
from proreus.testing.simulated.cloud import Cloud
from proreus.testing.simulated.server import Server


class SimulatedFixture(CloudFixture):
    """A simulated cloud of small pages."""

    page_size = 20
    patience = 3.0
    provider_class: type[SimulatedCloud] = SimulatedCloud

    async def __aenter__(self) -> Self:
        self._stack = contextlib.AsyncExitStack()
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        cloud = Cloud(Path(directory) / "state.db", Settings(), time.time)
        self._stack.callback(cloud.close)
        app = Server(cloud, {"token": "default"}, "admin").app()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        cloud.configure(
            {
                "pool": f"127.{port >> 8}.{port & 255}.0/24",
                "page_size": self.page_size,
                "health_interval": 0,
            }
        )
        await self._stack.enter_async_context(cloud.dataplane.running())
        self.endpoint = f"http://127.0.0.1:{port}"
        self._admin = await self._stack.enter_async_context(Admin(self.endpoint))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        settings = Global(endpoint=endpoint, region="sim-1", token="token", timeout=self.timeout)
        return self.provider_class(SimulatedConfig(settings))

    async def create_machines(self, names: Sequence[str]) -> None:
        await self._admin.create([Instance(name=name, zone="z", type="small") for name in names])

    async def remove_machine(self, name: str) -> None:
        await self._admin.delete(await self._id(name))

    async def stop_machine(self, name: str) -> None:
        await self._admin.stop(await self._id(name))

    async def _id(self, name: str) -> str:
        return next(
            one.id
            for one in await self._admin.instances()
            if one.name == name and one.state != "terminated"
        )

    async def objects(self) -> Mapping[str, object]:
        return {
            part["id"]: {k: v for k, v in part.items() if k != "state"}
            for part in await self._admin.parts()
        }

    async def remove_object(self, id_: str) -> None:
        await self._admin.remove(id_)

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        headers = {"Authorization": "Bearer token"}
        async with aiohttp.ClientSession(headers=headers) as session:
            body = {"name": ref.name, "tags": {"proreus/cluster": ref.cluster.name}}
            await session.post(f"{self.endpoint}/v1/addresses", json=body)
