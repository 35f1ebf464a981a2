"""A Node that was Ready while the cloud called its machine off: it is not taken out of service."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from proreus.app.leader import Leader
from proreus.cloudprovider.instances import InstanceState
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, has_taint
from proreus.testing.clock import virtual_time

from .test_hints import HOUR, LIFECYCLE, NODE, Cloud, Cluster
from .test_lifecycle_alone import one_scope


@pytest.mark.parametrize(("ready_for", "lives"), [(HOUR, True), (60.0, False)])
def test_a_node_is_taken_out_of_service_only_if_it_did_not_report_long_without_power(
    ready_for: float, *, lives: bool
) -> None:
    """Without power it reports no more in two minutes; the refresh has seen it before."""

    @virtual_time
    async def play() -> bool:
        async with (
            one_scope("a", "b", "c", "d") as (made, lead),
            lead(NODE, LIFECYCLE, node_out_of_service_taint=True),
        ):
            await asyncio.sleep(HOUR)
            made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
            await asyncio.sleep(ready_for)
            await made.silence("c")
            await asyncio.sleep(HOUR)
            return has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)

    assert play() is not lives


@pytest.mark.parametrize("is_restarted", [True, False], ids=["manager", "cloud-config"])
@pytest.mark.parametrize("shown_on", [False, True])
def test_it_stays_in_service_with_another_manager_or_cloud_config_until_the_cloud_shows_it_on(
    *, shown_on: bool, is_restarted: bool
) -> None:
    """Who begins to ask sees it Ready for half a minute before it falls silent."""

    @virtual_time
    async def play() -> bool:
        async with (
            one_scope("a", "b", "c", "d") as (made, lead),
            AsyncExitStack() as managers,
        ):

            async def started() -> Leader:
                led = lead(NODE, LIFECYCLE, node_out_of_service_taint=True)
                leader: Leader = await managers.enter_async_context(led)
                return leader

            leader = await started()
            await asyncio.sleep(HOUR)
            made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
            await asyncio.sleep(HOUR)
            if is_restarted:
                await managers.aclose()
                await started()
            else:
                await leader.replace_cloud(Cloud(made.machines))
            if shown_on:
                made.machines.change("c")
                await asyncio.sleep(HOUR)
                made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
            await asyncio.sleep(30)
            await made.silence("c")
            await asyncio.sleep(HOUR)
            return has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)

    assert play() is shown_on


def test_a_node_that_reports_again_and_again_without_power_is_not_taken_out_of_service() -> None:
    """Each time for less than two minutes, as that of a kubelet that cannot keep up may."""

    @virtual_time
    async def play() -> bool:
        async with (
            one_scope("a", "b", "c", "d") as (made, lead),
            lead(NODE, LIFECYCLE, node_out_of_service_taint=True),
        ):
            await asyncio.sleep(HOUR)
            made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
            for _ in range(3):
                await made.silence("c")
                await asyncio.sleep(30)
                await made.report("c")
                await asyncio.sleep(60)
            await made.silence("c")
            await asyncio.sleep(HOUR)
            return has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)

    assert not play()


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("said", [InstanceState.UNKNOWN, InstanceState.STOPPED])
def test_it_stays_in_service_where_the_cloud_does_not_say_for_a_moment_whether_it_has_power(
    said: InstanceState, *, is_restarted: bool
) -> None:
    """As while the host of a machine is not connected, or a stopped machine is being changed."""

    @virtual_time
    async def play() -> bool:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            async with lead(NODE, LIFECYCLE, node_out_of_service_taint=True):
                await asyncio.sleep(HOUR)
                made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
                await asyncio.sleep(HOUR)
                if not is_restarted:
                    await made.silence("c")
                    await waver(made)
            if is_restarted:
                await made.silence("c")
                async with lead(NODE, LIFECYCLE, node_out_of_service_taint=True):
                    await waver(made)
            return has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)

    async def waver(made: Cluster) -> None:
        made.machines.change("c", state=said)
        await asyncio.sleep(60)
        made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
        await asyncio.sleep(HOUR)

    assert not play()
