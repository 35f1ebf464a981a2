"""Gateways and clients in one network: nodes answer past the gateway, and gateways take turns."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from .local_manager import delete, ensure, eventually, manager, wish
from .traffic import VIP_HERE, Segment, run


@pytest.fixture
def segment() -> Iterator[Segment]:
    with ExitStack() as stack:
        yield Segment(stack)


async def test_connections_stay_although_the_gateway_sees_half_of_them(segment: Segment) -> None:
    four = {"ip_families": ("IPv4",)}
    with segment.gateways["a"].inside(), ExitStack() as stack:
        async with manager(VIP_HERE) as (balancers, _):
            await ensure(balancers, wish(balancers, "one", "two", **four))
            lines = [stack.enter_context(segment.client.connect(VIP_HERE)) for _ in range(16)]
            before = [line.ask()[0] for line in lines]
            assert set(before) == {"one", "two"}
            web = wish(balancers, "one", **four)
            await ensure(balancers, web)
            assert [line.ask()[0] for line in lines] == before, "they drain"
            with segment.client.connect(VIP_HERE) as line:
                assert line.ask()[0] == "one"
            assert "via" not in segment.client.run("ip", "route", "get", VIP_HERE), "redirected"
            await delete(balancers, web)


async def test_another_gateway_takes_over_address_and_connections(segment: Segment) -> None:
    four = {"ip_families": ("IPv4",)}
    a, b = segment.gateways.values()
    with ExitStack() as stack:
        with a.inside():
            async with manager(VIP_HERE) as (balancers, _):
                await ensure(balancers, wish(balancers, "one", "two", **four))
                lines = [stack.enter_context(segment.client.connect(VIP_HERE)) for _ in range(16)]
                before = [line.ask()[0] for line in lines]
                assert set(before) == {"one", "two"}
            assert segment.neighbour() == segment.mac_of("a")
            run("ip", "link", "set", "eth0", "down")
        with b.inside():
            async with manager(VIP_HERE) as (balancers, _):
                web = wish(balancers, "one", "two", has=VIP_HERE, **four)
                assert await ensure(balancers, web) == [(VIP_HERE,)]
                await eventually(lambda: segment.neighbour() == segment.mac_of("b"))
                assert [line.ask()[0] for line in lines] == before
                with segment.client.connect(VIP_HERE) as line:
                    assert line.ask()[0] in before
                await delete(balancers, web)
