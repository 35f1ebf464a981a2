"""What the simulated cloud's load balancers do with real connections on loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from proreus.testing.echo import EchoServer
from proreus.testing.simulated import Address, Instance, SimulatedCloudProcess
from proreus.testing.waiting import until

from .conftest import Speak

TIMEOUT = 20.0


class Site:
    """Three machines with echo servers on one node port, and a load balancer before them."""

    def __init__(self, cloud: SimulatedCloudProcess, speak: Speak) -> None:
        self.cloud = cloud
        self.speak = speak
        self.servers: list[EchoServer] = []
        self.machines: tuple[Instance, ...] = ()
        self.balancer: dict[str, Any] = {}
        self.address = ""

    async def part(self, collection: str, **fields: object) -> dict[str, Any]:
        status, part = await self.speak("POST", collection, {"name": "web", **fields})
        assert status == 201, part
        return part

    async def listen(self, port: int = 80, **fields: object) -> dict[str, Any]:
        return await self.part(
            "listeners",
            load_balancer_id=self.balancer["id"],
            **{"protocol": "TCP", "port": port, "target_port": self.servers[0].port} | fields,
        )

    async def open_to(self, *ranges: str) -> dict[str, Any]:
        return await self.part(
            "firewalls", load_balancer_id=self.balancer["id"], source_ranges=list(ranges)
        )

    async def get(self, port: int = 80, source: str = "127.0.0.1") -> dict[str, Any]:
        connector = aiohttp.TCPConnector(local_addr=(source, 0), force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            response = await session.get(f"http://{self.address}:{port}/")
            body: dict[str, Any] = await response.json()
            return body

    async def nodes_answering(self, count: int = 12) -> set[str]:
        return {(await self.get())["node"] for _ in range(count)}


@pytest.fixture
async def site(cloud: SimulatedCloudProcess, speak: Speak) -> AsyncIterator[Site]:
    site = Site(cloud, speak)
    await cloud.admin.configure(health_interval=0.05)
    async with AsyncExitStack() as stack:
        for number in range(3):
            port = site.servers[0].port if site.servers else 0
            server = EchoServer(f"127.77.0.{number + 1}", port, node=f"node-{number}")
            site.servers.append(await stack.enter_async_context(server))
        site.machines = await cloud.admin.create(
            Instance(name=f"node-{n}", addresses=(Address("InternalIP", server.address),))
            for n, server in enumerate(site.servers)
        )
        address = await site.part("addresses")
        site.address = address["address"]
        site.balancer = await site.part("load_balancers", address_id=address["id"])
        targets = [
            {"instance_id": one.id, "address": one.addresses[0].address} for one in site.machines
        ]
        await speak(
            "POST", f"load_balancers/{site.balancer['id']}/targets:add", {"targets": targets}
        )
        yield site
        await cloud.kill()  # or it would ask the servers how they are while they end


async def healthy(site: Site, count: int) -> None:
    async def are_so() -> bool:
        _, answer = await site.speak("GET", f"load_balancers/{site.balancer['id']}/targets")
        return [t["health"] for t in answer["targets"]].count("healthy") == count

    await until(f"{count} targets are healthy", are_so)


async def test_connections_go_to_all_healthy_targets_in_turn(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    listener = await site.listen()
    assert (listener["state"], listener["error"]) == ("active", "")
    await healthy(site, 3)
    answers = [(await site.get())["node"] for _ in range(6)]
    assert sorted(answers) == ["node-0", "node-0", "node-1", "node-1", "node-2", "node-2"]


async def test_a_dead_target_is_skipped_and_comes_back(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    check = {"health_check": {"port": site.servers[0].port, "path": "/healthz"}, "version": 1}
    assert (await site.speak("PATCH", f"load_balancers/{site.balancer['id']}", check))[0] == 200
    await site.listen()
    await healthy(site, 3)
    site.servers[1].healthy = False
    await healthy(site, 2)
    assert await site.nodes_answering() == {"node-0", "node-2"}
    site.servers[1].healthy = True
    await healthy(site, 3)
    assert await site.nodes_answering() == {"node-0", "node-1", "node-2"}


async def test_only_the_source_ranges_of_a_firewall_are_let_in(site: Site) -> None:
    await site.listen()
    await healthy(site, 3)
    with pytest.raises(aiohttp.ClientError):
        await site.get()
    firewall = await site.open_to("127.0.0.9/32")
    assert (await site.get(source="127.0.0.9"))["node"]
    with pytest.raises(aiohttp.ClientError):
        await site.get(source="127.0.0.8")
    change = {"version": 1, "source_ranges": ["127.0.0.8/32"]}
    await site.speak("PATCH", f"firewalls/{firewall['id']}", change)
    assert (await site.get(source="127.0.0.8"))["node"]


async def test_affinity_keeps_a_client_on_one_target(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    change = {"version": 1, "affinity_seconds": 10800}
    await site.speak("PATCH", f"load_balancers/{site.balancer['id']}", change)
    await site.listen()
    await healthy(site, 3)
    assert len(await site.nodes_answering()) == 1
    others = {(await site.get(source=f"127.0.1.{n}"))["node"] for n in range(1, 30)}
    assert len(others) > 1


async def test_nothing_listens_while_the_load_balancer_is_provisioning(site: Site) -> None:
    await site.cloud.admin.configure(provision_delay=3600, unique_names=False)
    address = await site.part("addresses")
    site.balancer = await site.part("load_balancers", address_id=address["id"])
    with socket.socket() as held:
        # Who tried to listen here would fail, and say so.
        held.bind((address["address"], 0))
        held.listen()
        listener = await site.listen(held.getsockname()[1])
    assert site.balancer["state"] == "provisioning"
    assert (listener["state"], listener["error"]) == ("pending", "")


async def test_a_load_balancer_becomes_active_by_itself(site: Site) -> None:
    await site.cloud.admin.configure(provision_delay=0.05, unique_names=False)
    address = await site.part("addresses")
    site.balancer = await site.part("load_balancers", address_id=address["id"])
    listener = await site.listen()

    async def listens() -> bool:
        _, shown = await site.speak("GET", f"listeners/{listener['id']}")
        return bool(shown["state"] == "active")

    await until("the server listens", listens)


async def test_a_port_that_cannot_be_bound_is_an_error_of_its_listener(site: Site) -> None:
    with socket.socket() as taken:
        taken.bind((site.address, 0))
        taken.listen()
        listener = await site.listen(taken.getsockname()[1])
    assert listener["state"] == "error"
    assert "EADDRINUSE" in listener["error"]


async def test_deleting_a_listener_closes_its_port_only(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    first = await site.listen(80)
    await site.cloud.admin.configure(unique_names=False)
    await site.listen(81)
    await healthy(site, 3)
    assert (await site.speak("DELETE", f"listeners/{first['id']}"))[0] == 200
    with pytest.raises(aiohttp.ClientConnectorError):
        await site.get(80)
    assert (await site.get(81))["node"]


async def test_traffic_flows_again_after_kill_9_of_the_cloud(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    await site.listen()
    await site.cloud.restart()

    async def flows() -> bool:
        try:
            return bool((await site.get())["node"])
        except aiohttp.ClientError:
            return False

    await until("traffic flows", flows)


async def test_the_proxy_protocol_names_the_client(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received.put(await reader.readline())
        writer.close()

    server = await asyncio.start_server(serve, site.servers[0].address, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await site.cloud.admin.configure(health_interval=0)
        listener = await site.listen(target_port=port, proxy_protocol=True)
        assert listener["state"] == "active"
        _, writer = await asyncio.open_connection(site.address, 80, local_addr=("127.0.0.9", 0))
        line = await asyncio.wait_for(received.get(), TIMEOUT)
        writer.close()
    assert line.startswith(f"PROXY TCP4 127.0.0.9 {site.address} ".encode())
    assert line.endswith(b" 80\r\n")


class Datagrams(asyncio.DatagramProtocol):
    """Answers what it gets, or keeps it."""

    def __init__(self, *, echo: bool) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self._echo = echo

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.DatagramTransport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._echo:
            self.transport.sendto(b"echo " + data, addr)
        self.received.put_nowait(data)


async def test_datagrams_are_forwarded_and_answered(site: Site) -> None:
    await site.open_to("0.0.0.0/0")
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(
        lambda: Datagrams(echo=True), local_addr=(site.servers[0].address, 0)
    )
    gone = [one.id for one in site.machines[1:]]
    path = f"load_balancers/{site.balancer['id']}/targets:remove"
    await site.speak("POST", path, {"instance_ids": gone})
    port = server.get_extra_info("sockname")[1]
    listener = await site.listen(5353, protocol="UDP", target_port=port)
    assert listener["state"] == "active"
    client = Datagrams(echo=False)
    await loop.create_datagram_endpoint(lambda: client, remote_addr=(site.address, 5353))
    try:
        for word in (b"one", b"two"):
            client.transport.sendto(word)
            assert await asyncio.wait_for(client.received.get(), TIMEOUT) == b"echo " + word
    finally:
        client.transport.close()
        server.close()
        await asyncio.sleep(0)  # the loop closes the sockets


async def another_balancer(site: Site) -> None:
    """From now on the site's load balancer is a second one, with an address of its own."""
    address = await site.part("addresses")
    site.address = address["address"]
    site.balancer = await site.part("load_balancers", address_id=address["id"])


async def test_an_address_that_was_taken_away_is_left_to_who_gets_it_next(site: Site) -> None:
    await site.cloud.admin.configure(unique_names=False)
    listener = await site.listen()
    taken, before = site.balancer["address_id"], site.address

    await site.cloud.admin.remove(taken)

    _, shown = await site.speak("GET", f"listeners/{listener['id']}")
    assert (shown["state"], shown["error"]) == ("error", "the load balancer's address was deleted")
    await another_balancer(site)
    assert site.address == before
    assert (await site.listen())["error"] == ""


async def test_a_listener_without_an_address_is_made_and_shows_an_error(site: Site) -> None:
    await site.cloud.admin.remove(site.balancer["address_id"])
    listener = await site.listen()
    assert (listener["state"], listener["error"]) == (
        "error",
        "the load balancer's address was deleted",
    )

    await site.cloud.restart()
    _, shown = await site.speak("GET", f"listeners/{listener['id']}")
    assert (shown["state"], shown["error"]) == ("error", "the load balancer's address was deleted")
