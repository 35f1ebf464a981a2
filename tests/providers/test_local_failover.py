"""Gateways and clients in one network: nodes answer past the gateway, and gateways take turns."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from .local_manager import CLUSTER, delete, desired, ensure, eventually, manager
from .traffic import VIP6_HERE, VIP_HERE, Line, Segment, run


@pytest.fixture
def segment() -> Iterator[Segment]:
    with ExitStack() as stack:
        yield Segment(stack)


async def test_connections_stay_although_the_gateway_sees_half_of_them(segment: Segment) -> None:
    four: dict[str, Any] = {"ip_families": ("IPv4",)}
    with segment.gateways["a"].inside(), ExitStack() as stack:
        async with manager(VIP_HERE) as (balancers, _):
            await ensure(balancers, desired(balancers, "one", "two", **four))
            lines = [stack.enter_context(segment.client.connect(VIP_HERE)) for _ in range(16)]
            before = [line.ask()[0] for line in lines]
            assert set(before) == {"one", "two"}
            web = desired(balancers, "one", **four)
            await ensure(balancers, web)
            assert [line.ask()[0] for line in lines] == before, "they drain"
            with segment.client.connect(VIP_HERE) as line:
                assert line.ask()[0] == "one"
            assert "via" not in segment.client.run("ip", "route", "get", VIP_HERE), "redirected"
            await delete(balancers, web)


async def test_another_gateway_takes_over_address_and_connections(segment: Segment) -> None:
    four: dict[str, Any] = {"ip_families": ("IPv4",)}
    a, b = segment.gateways.values()
    with ExitStack() as stack:
        with a.inside():
            async with manager(VIP_HERE) as (balancers, _):
                await ensure(balancers, desired(balancers, "one", "two", **four))
                lines = [stack.enter_context(segment.client.connect(VIP_HERE)) for _ in range(16)]
                before = [line.ask()[0] for line in lines]
                assert set(before) == {"one", "two"}
            assert segment.neighbour() == segment.mac_of("a")
            run("ip", "link", "set", "eth0", "down")
        with b.inside():
            async with manager(VIP_HERE) as (balancers, _):
                web = desired(balancers, "one", "two", has=VIP_HERE, **four)
                assert await ensure(balancers, web) == [(VIP_HERE,)]
                await eventually(lambda: segment.neighbour() == segment.mac_of("b"))
                assert [line.ask()[0] for line in lines] == before
                with segment.client.connect(VIP_HERE) as line:
                    assert line.ask()[0] in before
                await delete(balancers, web)


def seconds_left() -> int:
    """How long this machine may go on answering, in whole seconds; -1: no more."""
    said = subprocess.run(
        ["nft", "-j", "list", "set", "inet", "proreus", "alive"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(said.stdout)["nftables"][-1]["set"].get("elem", []) if said.stdout else []
    return int(found[0]["elem"]["expires"]) if found else -1


async def test_a_gateway_that_is_to_hold_from_now_on_goes_on(segment: Segment) -> None:
    """As when the cloud-config changes: the new provider starts beside the old one."""
    four: dict[str, Any] = {"ip_families": ("IPv4",)}
    with segment.gateways["a"].inside():
        async with manager(VIP_HERE) as (balancers, _):
            await ensure(balancers, desired(balancers, "one", **four))
            with segment.client.connect(VIP_HERE) as line:
                assert line.ask()[0] == "one"
                async with manager(VIP_HERE, hold=6.0) as (after, _):
                    assert await after.list_owned(CLUSTER)
                    assert line.ask()[0] == "one"
                    with segment.client.connect(VIP_HERE) as new:
                        assert new.ask()[0] == "one"
                    web = desired(after, "one", has=VIP_HERE, **four)
                    assert await ensure(after, web) == [(VIP_HERE,)]
                    assert seconds_left() > 0
                    await delete(after, web)


async def test_a_gateway_without_its_manager_falls_silent_and_begins_anew(
    segment: Segment,
) -> None:
    both: dict[str, Any] = {"ip_families": ("IPv4", "IPv6")}
    a, b = segment.gateways.values()
    with a.inside():
        async with manager(VIP_HERE, VIP6_HERE, hold=6.0) as (balancers, _):
            await ensure(balancers, desired(balancers, "one", "two", **both))
            lowest = seconds_left()

            def is_held_again() -> bool:
                nonlocal lowest
                now = seconds_left()
                lowest = min(lowest, now)
                return now > lowest

            await eventually(is_held_again)
        await eventually(lambda: seconds_left() < 0)
        for address in (VIP_HERE, VIP6_HERE):
            segment.client.run("ip", "neigh", "flush", "dev", "eth0")
            with pytest.raises(OSError, match=r"route|timed out"):
                segment.client.connect(address, seconds=2.0)
    with b.inside():
        async with manager(VIP_HERE, VIP6_HERE, hold=600.0) as (balancers, _):
            web = desired(balancers, "one", "two", has=VIP_HERE, **both)
            assert await ensure(balancers, web) == [(VIP_HERE, VIP6_HERE)]

            def is_served(address: str) -> bool:
                try:
                    return segment.answers(address) in {"one", "two"}
                except OSError:  # the client has just learnt that nobody has the address
                    return False

            for address in (VIP_HERE, VIP6_HERE):
                await eventually(partial(is_served, address))
            assert segment.neighbour() == segment.mac_of("b")
            await delete(balancers, web)
    with a.inside():
        async with manager(VIP_HERE, VIP6_HERE, hold=600.0) as (balancers, _):
            assert await balancers.list_owned(CLUSTER) == []
            assert "proreus" not in run("nft", "list", "tables")


@pytest.mark.parametrize("address", [VIP_HERE, VIP6_HERE])
async def test_what_a_silent_gateway_still_gets_waits_for_the_next_one(
    segment: Segment, address: str
) -> None:
    """A client knows the gateway's hardware address, and sends on: a refusal would end it."""
    both: dict[str, Any] = {"ip_families": ("IPv4", "IPv6")}
    a, b = segment.gateways.values()
    with ExitStack() as stack:
        with a.inside():
            async with manager(VIP_HERE, VIP6_HERE, hold=6.0) as (balancers, _):
                await ensure(balancers, desired(balancers, "one", "two", **both))
                line = stack.enter_context(segment.client.connect(address))
                before = line.ask()
            await eventually(lambda: seconds_left() < 0)
        line.socket.send(b"who\n")
        with pytest.raises(TimeoutError):
            segment.client.connect(address, seconds=2.0)
        with b.inside():
            async with manager(VIP_HERE, VIP6_HERE, hold=600.0) as (balancers, _):
                web = desired(balancers, "one", "two", has=VIP_HERE, **both)
                assert await ensure(balancers, web) == [(VIP_HERE, VIP6_HERE)]
                said = await asyncio.to_thread(line.socket.recv, 200)
                assert tuple(said.decode().split()) == before
                await delete(balancers, web)


async def test_a_port_that_a_client_uses_again_goes_to_a_node_of_now(segment: Segment) -> None:
    four: dict[str, Any] = {"ip_families": ("IPv4",)}
    segment.client.run("sysctl", "-qw", "net.ipv4.tcp_tw_reuse=1")

    def asked_from(port: int) -> str:
        with segment.client.inside():
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            line.settimeout(3.0)
            line.bind(("", port))
            line.connect((VIP_HERE, 80))
        with Line(line):
            return Line(line).ask()[0]

    with segment.gateways["a"].inside():
        async with manager(VIP_HERE) as (balancers, _):
            await ensure(balancers, desired(balancers, "one", "two", **four))
            before = {port: asked_from(port) for port in range(40000, 40016)}
            assert set(before.values()) == {"one", "two"}
            await asyncio.sleep(2)
            web = desired(balancers, "one", **four)
            await ensure(balancers, web)
            assert {asked_from(port) for port in before} == {"one"}
            await delete(balancers, web)
