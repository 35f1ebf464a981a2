"""A leader with one controller, on an API server in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider
from proreus.controllers.table import CONTROLLERS
from proreus.kube.config import ClientConfig
from proreus.serving.health import Health

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def leading(
    url: str,
    cloud: CloudProvider,
    controller: str,
    *,
    now: Callable[[], datetime] | None = None,
    **flags: Any,
) -> AsyncIterator[None]:
    """Run the leader; by default its time is the event loop's."""
    loop = asyncio.get_running_loop()
    leader = Leader(
        Options(cloud_provider="cloud", leader_elect=False, **flags),
        cloud,
        ClientConfig(server=url),
        Health(),
        chosen=[one for one in CONTROLLERS if one.name == controller],
        election=Election(),
        now=now or (lambda: EPOCH + timedelta(seconds=loop.time())),
    )
    stop = asyncio.Event()
    work = asyncio.create_task(leader.run(stop))
    try:
        yield
    finally:
        stop.set()
        await work
