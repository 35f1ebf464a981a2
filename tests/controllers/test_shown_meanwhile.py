"""What the cloud shows while Nodes are written counts, too: one write may take half a minute."""

import asyncio

import pytest

from proreus.cloudprovider.instances import InstanceState, NotFound
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, has_taint
from proreus.testing.clock import virtual_time
from proreus.testing.memory import Fault, FaultMode, MemoryApiServer

from .test_hints import LIFECYCLE, NODE
from .test_lifecycle_alone import one_scope

TRIES = 25
"""How often the API server puts the first write off, by a second each time."""


@pytest.mark.parametrize("wrong", ["gone", "off"])
@pytest.mark.parametrize("returns", ["", "c", "d"])
def test_a_node_whose_machine_is_shown_while_it_or_another_one_is_written_stays(
    wrong: str, returns: str
) -> None:
    @virtual_time
    async def play() -> str:
        server = MemoryApiServer()
        flags = {"node_out_of_service_taint": True, "node_out_of_service_grace": 0.0}
        async with (
            one_scope(*"abcde", server=server) as (made, lead),
            lead(NODE, LIFECYCLE, node_status_update_frequency=3.0, **flags),
        ):
            machines = made.machines
            await asyncio.sleep(60)
            for name in "cd":
                await made.silence(name)
            await asyncio.sleep(10)  # what `silence` took from the status is there again
            for name in "cd":
                machines.change(name, state=InstanceState.STOPPED, powered_off=True)
                if wrong == "gone":
                    machines.machines[name] = NotFound()
            await asyncio.sleep(20)
            verb = "delete" if wrong == "gone" else "patch"
            server.inject(Fault(FaultMode.THROTTLE, verb, "nodes", count=TRIES))
            await asyncio.sleep(27)
            if returns:
                machines.change(returns)
            await asyncio.sleep(60)
            left = await made.nodes()
            return "".join(
                name
                for name in "cd"
                if name not in left or has_taint(left[name], TAINT_OUT_OF_SERVICE)
            )

    assert play() == "cd".replace(returns, "")
