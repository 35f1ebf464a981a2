"""Load balancers of the provider `local` for nodes of Photon Controller: two managers, one cluster.

The one with the provider `photon` has the nodes, and runs anywhere. The other one runs on the
gateway, a machine in the nodes' network, and has nothing but Services to do: it has no instances.
"""

import asyncio
import contextlib
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..managers import alone  # noqa: TID252
from ..traffic import NODES, VIP_HERE, Segment  # noqa: TID252
from .emulator.server import Emulator
from .emulator.world import INSIDE
from .stage import PACE, Stage

pytestmark = pytest.mark.long

LOCAL = f"""
instances: {{enabled: false}}
routes: {{enabled: false}}
pools: {{default: {{addresses: [{VIP_HERE}/32]}}}}
draining: 0s
"""


@pytest.fixture
def segment() -> Iterator[Segment]:
    with ExitStack() as stack:
        yield Segment(stack)


@asynccontextmanager
async def forwarded(door: socket.socket, url: str) -> AsyncIterator[str]:
    """A way to the API server from another network, in which `door` is; its URL there."""
    target = urlsplit(url)

    async def pipe(reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    server = await asyncio.start_server(serve, sock=door)
    try:
        yield f"https://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def balancing(site: Site, segment: Segment, directory: Path) -> AsyncIterator[Path]:
    """The manager on the gateway, which has Services only."""
    gateway, log = segment.gateways["a"], directory / "gateway.log"
    config = directory / "local.yaml"
    config.write_text(LOCAL)
    with gateway.inside():
        door = socket.create_server(("127.0.0.1", 0))
    async with forwarded(door, site.plane.url) as url:
        manager = alone(
            site.lone_manager(user="gateway-manager"),
            f"--master={url}",
            "--cloud-provider=local",
            f"--cloud-config={config}",
            *PACE,
        )
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *gateway.into(sys.executable, "-m", "proreus", "run", *manager.flags),
                stdout=output,
                stderr=output,
            )
            try:
                yield log
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()


async def test_local_balances_to_nodes_of_photon_controller_while_they_come_and_leave(
    control_plane: ControlPlane, emulator: Emulator, segment: Segment, tmp_path: Path
) -> None:
    async def answer() -> set[str]:
        """The nodes that answer at the Service's address."""

        def ask() -> set[str]:
            try:
                return {segment.answers(VIP_HERE) for _ in range(12)}
            except OSError:
                return set()

        return await asyncio.to_thread(ask)

    async def answers(*names: str) -> None:
        async def as_wanted() -> bool:
            return await answer() == set(names)

        await until(f"{', '.join(names)} answer", as_wanted, 120.0)

    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, emulator, tmp_path)
        async with stage.manager() as nodes, balancing(site, segment, tmp_path) as log:
            try:
                await stage.join("one", nics=[(INSIDE, NODES["one"][0])])
                await stage.initialised(["one"])
                await site.create_service("web")

                async def is_shown() -> bool:
                    found = await site.service("web")
                    return [it.ip for it in found.status.load_balancer.ingress] == [VIP_HERE]

                await until("the Service has its address", is_shown, 120.0)
                await answers("one")

                await stage.join("two", nics=[(INSIDE, NODES["two"][0])])
                await stage.initialised(["one", "two"])
                await answers("one", "two")

                await stage.leave("one")
                await stage.initialised(["two"])
                await answers("two")
                await site.client.delete(SERVICES, "web", "default")

                async def is_gone() -> bool:
                    return not segment.gateways["a"].run("nft", "list", "tables").strip() or (
                        VIP_HERE not in segment.gateways["a"].run("nft", "list", "ruleset")
                    )

                await until("nothing is left of it", is_gone, 120.0)
            finally:
                print(nodes.output()[-3000:], log.read_text()[-6000:])
