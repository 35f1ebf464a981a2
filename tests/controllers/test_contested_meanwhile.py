"""A Service asks for another one's port at their address while the cloud does not answer."""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest

from proreus.cloudprovider import LoadBalancer, LoadBalancerRef
from proreus.testing.clock import virtual_time

from .test_contested_ports import ADDRESS, OneAddress, Stage


class Hanging(OneAddress):
    """A cloud that takes its time."""

    seconds = 0.0

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        await asyncio.sleep(self.seconds)
        return await super().ensure(desired)

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        await asyncio.sleep(self.seconds)
        return await super().delete(gone)


class OneGroup(Hanging):
    """A cloud that works on one load balancer at a time."""

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return "all"


@pytest.mark.parametrize("is_deleted", [False, True], ids=["edited", "deleted"])
@pytest.mark.parametrize("is_working", [False, True], ids=["at rest", "at work"])
@virtual_time
async def test_who_asks_for_a_port_of_another_one_shows_no_address_while_the_cloud_hangs(
    *, is_working: bool, is_deleted: bool
) -> None:
    """A call may take ten minutes, and what is edited meanwhile is looked at only after it."""
    stage = Stage()
    stage.balancers = cloud = Hanging()
    async with stage.managed():
        cloud.seconds = 500.0
        if is_working:
            stage.edit("bank", 8443, {})
            await asyncio.sleep(10)
        if is_deleted:
            stage.delete("bank")
            await asyncio.sleep(10)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]
        stage.edit("bank", 80, {})
        await asyncio.sleep(5)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
        cloud.seconds = 0.0
        await asyncio.sleep(600)
    assert stage.shown("shop") == [ADDRESS]


@virtual_time
async def test_who_leaves_a_cloud_that_hangs_shows_no_address_beside_a_port_of_another_one() -> (
    None
):
    """What it had is deleted there before the next cloud begins."""
    stage = Stage()
    stage.balancers = cloud = Hanging()
    async with stage.managed_with_another_cloud():
        cloud.seconds = 500.0
        stage.edit("bank", 80, {"proreus.io/cloud": "west"})
        await asyncio.sleep(5)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
        cloud.seconds = 0.0
        await asyncio.sleep(600)


@virtual_time
async def test_an_address_of_another_cloud_is_shown_no_more_while_the_next_one_hangs() -> None:
    """Clouds work on one load balancer of a group at a time; the first has deleted its own."""
    stage = Stage()
    stage.west = west = OneGroup()
    stage.edit("shop", 80, {"proreus.io/cloud": "west"})
    async with stage.managed_with_another_cloud():
        west.seconds = 500.0
        stage.edit("shop", 8080, {"proreus.io/cloud": "west"})
        await asyncio.sleep(5)
        stage.edit_alone("bank", 443, {"proreus.io/cloud": "west"})
        await asyncio.sleep(5)
        assert len(stage.balancers.deleted) == 1
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
        west.seconds = 0.0
        await asyncio.sleep(1000)
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]


@virtual_time
async def test_who_asks_for_a_port_that_another_one_gives_up_goes_on_showing_the_address() -> None:
    stage = Stage()
    stage.balancers = cloud = Hanging()
    async with stage.managed():
        cloud.seconds = 20.0
        stage.edit("shop", 8080, {})
        stage.edit("bank", 80, {})
        await asyncio.sleep(10)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]
