"""The provider `local` in a manager: machines of an inventory, routes in a kernel."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml
from pyroute2 import IPRoute

from proreus.kube import config
from proreus.kube.objects import (
    LABEL_INSTANCE_TYPE,
    LABEL_REGION,
    LABEL_ZONE,
    TAINT_SHUTDOWN,
    Node,
    NodeAddress,
    condition,
    has_taint,
)
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Address, Instance

from ..providers.local_namespace import entered, own_namespace  # noqa: TID252
from .site import CONDITION, Site, until

QUICK = ("--node-monitor-period=200ms", "--node-deletion-interval=600ms")


def machine(name: str, address: str = "10.1.1.1") -> Instance:
    """What the kubelet knows of its machine."""
    return Instance(id=name, name=name, addresses=(Address("InternalIP", address),))


def manager(site: Site, directory: Path, text: str, *flags: str, **more: Any) -> ManagerProcess:
    """A manager with the provider."""
    file = directory / "local.yaml"
    file.write_text(dedent(text))
    return site.lone_manager("--cloud-provider=local", f"--cloud-config={file}", *flags, **more)


class Inventory:
    """A file that is edited."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        self.machines: dict[str, dict[str, Any]] = {}
        for name in names:
            self.say(name, addresses=[f"10.1.1.{len(self.machines) + 1}"])

    def say(self, name: str, **fields: Any) -> None:
        self.machines[name] = {"name": name, **self.machines.get(name, {}), **fields}
        content = {"machines": list(self.machines.values())}
        self.path.write_text(yaml.safe_dump({"defaults": {"zone": "rack-1"}, **content}))


async def taint(site: Site, name: str) -> None:
    async def there() -> bool:
        return has_taint(await site.existing(name), TAINT_SHUTDOWN)

    await until(f"{name} is shut down", there)


async def said(site: Site, name: str, words: str) -> None:
    async def is_said() -> bool:
        state = condition((await site.existing(name)).status.conditions, CONDITION)
        return state is not None and words in state.message

    await until(f"{name} says {words}", is_said)


async def test_nodes_follow_the_inventory_while_it_can_be_read(site: Site, tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "machines.yaml", "a", "b", "c", "d", "e")
    inventory.say("a", id="SN-1", type="metal", labels={"rack": "r1"})
    await site.register([machine(name) for name in inventory.machines])
    text = f"{{region: home, instances: {{inventory: {inventory.path}}}}}"
    async with manager(site, tmp_path, text, *QUICK):
        nodes = await site.initialised(*inventory.machines)
        assert nodes["a"].spec.provider_id == "local://SN-1"
        assert nodes["a"].status.addresses == (
            NodeAddress("InternalIP", "10.1.1.1"),
            NodeAddress("Hostname", "a"),
        )
        labels = nodes["a"].metadata.labels
        shown = [labels[name] for name in (LABEL_REGION, LABEL_ZONE, LABEL_INSTANCE_TYPE, "rack")]
        assert shown == ["home", "rack-1", "metal", "r1"]

        await site.silence("a", "b")
        inventory.say("a", state="stopped")
        await taint(site, "a")
        inventory.say("b", state="gone")
        await site.gone("b")

        whole = inventory.path.read_text()
        inventory.path.write_text(whole[: len(whole) // 2] + "\n  - {")
        await site.register([machine("f")])
        await said(site, "f", "machines.yaml")
        assert "The inventory is wrong" in (tmp_path / "manager.log").read_text()
        assert (await site.nodes()).keys() == {"a", "c", "d", "e", "f"}
        inventory.say("f", addresses=["10.1.1.6"])
        await site.initialised("f")


class Gateway:
    """A machine of its own, as far as the network goes, from which the API server can be reached."""

    def __init__(self, namespace: int, inside: ThreadPoolExecutor, api_server: str) -> None:
        self.namespace = namespace
        self.api_server = api_server
        self._inside = inside

    async def routes(self) -> dict[str, str]:
        """The next hop of each pod CIDR."""
        return await asyncio.get_running_loop().run_in_executor(self._inside, _routes)


def _routes() -> dict[str, str]:
    with IPRoute() as netlink:
        return {
            f"{one.get('RTA_DST')}/{one['dst_len']}": str(one.get("RTA_GATEWAY"))
            for family in (socket.AF_INET, socket.AF_INET6)
            for one in netlink.get_routes(family=family, proto=201)
        }


@asynccontextmanager
async def gateway(site: Site) -> AsyncIterator[Gateway]:
    server_url = config.load(str(site.plane.kubeconfig), env={}).server
    host, port = server_url.rpartition("//")[2].split(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            back_reader, back_writer = await asyncio.open_connection(host, int(port))
            with contextlib.closing(back_writer):
                async with asyncio.TaskGroup() as group:
                    group.create_task(copy(reader, back_writer))
                    group.create_task(copy(back_reader, writer))

    with ThreadPoolExecutor(1) as inside:
        with own_namespace():
            inside.submit(_routes).result()  # the thread is there, and stays
            listener = socket.create_server(("127.0.0.1", 0))
            namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        server = await asyncio.start_server(forward, sock=listener)
        try:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            yield Gateway(namespace, inside, url)
        finally:
            server.close()
            os.close(namespace)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction of a connection, to its end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def wanted(nodes: dict[str, Node]) -> dict[str, str]:
    """The routes that nodes should have."""
    return {
        cidr: next(one.address for one in node.status.addresses if one.type == "InternalIP")
        for node in nodes.values()
        for cidr in node.spec.pod_cidrs
    }


async def test_routes_to_pods_are_in_the_kernel_and_stay_when_the_manager_is_killed(
    site: Site, tmp_path: Path
) -> None:
    machines = [machine("a", "10.9.0.11"), machine("b", "10.9.0.12")]
    await site.register(machines, node_ip=True)
    async with gateway(site) as there:

        async def routed() -> dict[str, str] | None:
            routes, nodes = await there.routes(), await site.nodes()
            return routes if routes == wanted(nodes) and len(routes) == len(nodes) else None

        run = manager(
            site, tmp_path, "{}", "--allocate-node-cidrs", "--cluster-cidr=10.200.0.0/16",
            api_server=there.api_server,
        )  # fmt: skip
        try:
            with entered(there.namespace):
                await run.start()
            before = await until("there are routes", routed)
            assert set(before.values()) == {"10.9.0.11", "10.9.0.12"}
            await run.kill()
            assert await there.routes() == before
            await site.register([machine("c", "10.9.0.13")], node_ip=True)
            with entered(there.namespace):
                await run.start()
            after = await until("there is a route to c", routed)
            assert after.items() > before.items()
        finally:
            await run.stop()
