"""A replica that begins to lead works by the cloud-config of now, not by that of its own start."""

import asyncio
import base64
from typing import Any, ClassVar

import pytest
from aiohttp import web

from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudProvider,
    ConfigSection,
    Context,
    RegisterCloudProvider,
    with_config,
)
from proreus.kube.config import ClientConfig
from proreus.kube.requests import SECRETS
from proreus.serving.health import Health
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store


class Rules(ConfigSection, frozen=True):
    """Whom the cloud lets share what."""

    tenants: str = ""


class Ruled(CloudProvider):
    """A cloud that can be used at once, and notes by which rules it began."""

    name = "ruled"
    config_type = Rules
    started: ClassVar[list[str]] = []

    async def start(self, context: Context) -> None:
        self.started.append(self.config_as(Rules).tenants)


RegisterCloudProvider(Ruled.name, Ruled)


class Busy(MemoryApiServer):
    """An API server that has much to do as it is asked for Secrets."""

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store)
        self._seconds = seconds

    async def _answered(self, request: web.Request, verb: str, target: Any) -> tuple[bytes, int]:
        if target.resource is SECRETS:
            await asyncio.sleep(self._seconds)
        return await super()._answered(request, verb, target)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, ["strict"]), (3.0, ["strict"]), (25.0, ["strict"]), (50.0, ["lax"])],
)
@virtual_time
async def test_what_was_allowed_as_a_standby_began_is_not_so_as_it_leads(
    seconds: float, expected: list[str]
) -> None:
    """If the Secret cannot be read for long, somebody must lead by what is known."""
    Ruled.started.clear()
    store, data = Store(), {"config": base64.b64encode(b"tenants: strict").decode()}
    store.create(SECRETS, "kube-system", {"metadata": {"name": "cloud"}, "data": data})
    async with Busy(store, seconds) as server:
        leader = Leader(
            Options(
                cloud_provider=Ruled.name,
                leader_elect=False,
                cloud_config_secret="kube-system/cloud/config",
            ),
            with_config(Ruled.name, "tenants: lax", source="cloud.yaml"),
            ClientConfig(server=server.url),
            Health(),
            chosen=[],
            election=Election(),
        )
        stop = asyncio.Event()
        work = asyncio.create_task(leader.run(stop))
        await asyncio.sleep(40)
        stop.set()
        assert await work == 0
    assert Ruled.started == expected
