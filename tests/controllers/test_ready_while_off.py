"""A Node that was Ready while the cloud called its machine off: it is not taken out of service."""

import asyncio

import pytest

from proreus.cloudprovider.instances import InstanceState
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, has_taint
from proreus.testing.clock import virtual_time

from .test_hints import HOUR, LIFECYCLE, NODE
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
