"""Nodes go out of service when the cloud says that their machines are powered off, and return."""

import pytest

from proreus.controllers.cloud_node_lifecycle.taints import ANNOTATION_OUT_OF_SERVICE
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node, has_taint
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from .site import Site, names

PASSES = 6
QUICK = (
    "--node-monitor-period=200ms",
    "--node-deletion-interval=600ms",
    "--node-out-of-service-grace=1s",
)
TAINTING = (*QUICK, "--node-out-of-service-taint")
OURS = {"key": TAINT_OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


async def fleet(site: Site, count: int) -> tuple[Instance, ...]:
    machines = await site.join(*names("node", count))
    async with site.lone_manager("--controllers=cloud-node"):
        await site.initialised()
    return machines


async def lose_power(site: Site, *machines: Instance, state: str = "stopped") -> None:
    for machine in machines:
        await site.cloud.admin.change(machine.id, state=state)
    await site.silence(*(machine.name for machine in machines))


async def is_out(site: Site, name: str) -> bool:
    return has_taint(await site.existing(name), TAINT_OUT_OF_SERVICE)


async def becomes(site: Site, name: str, *, out: bool) -> Node:
    async def changed() -> bool:
        return await is_out(site, name) is out

    await until(f"{name} is {'out of' if out else 'in'} service", changed)
    return await site.existing(name)


async def test_a_node_without_power_goes_out_of_service_and_returns(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose_power(site, machines[0])
    async with site.lone_manager(*TAINTING):
        node = await becomes(site, "node-0", out=True)
        event = await site.event("NodeOutOfService", "node-0")
        assert (event.type, event.count) == ("Normal", 1)
        assert node.metadata.annotations[ANNOTATION_OUT_OF_SERVICE] == "true"
        (taint,) = [one for one in node.spec.taints if one.key == TAINT_OUT_OF_SERVICE]
        assert (taint.value, taint.effect) == ("nodeshutdown", "NoExecute")

        # A machine that starts is not in service before its kubelet reports.
        await site.cloud.admin.start(machines[0].id)
        await site.further_calls(PASSES)
        assert await is_out(site, "node-0")
        await site.register(machines[:1])
        node = await becomes(site, "node-0", out=False)
        assert ANNOTATION_OUT_OF_SERVICE not in node.metadata.annotations
        await site.event("NodeInService", "node-0")
        assert not [one for one in await site.nodes() if await is_out(site, one)]


async def test_a_node_stays_out_of_service_while_the_cloud_says_off_and_returns_without_the_flag(
    site: Site,
) -> None:
    machines = await fleet(site, 5)
    await lose_power(site, machines[0])
    async with site.lone_manager(*TAINTING):
        await becomes(site, "node-0", out=True)
        await site.register(machines[:1])  # its kubelet lives, whatever the cloud says
        await site.further_calls(PASSES)
        assert await is_out(site, "node-0")
    await site.cloud.admin.start(machines[0].id)
    async with site.lone_manager(*QUICK):
        await becomes(site, "node-0", out=False)


@pytest.mark.parametrize(
    ("flags", "state"), [(QUICK, "stopped"), (TAINTING, "suspended"), (TAINTING, "running")]
)
async def test_nothing_else_takes_a_node_out_of_service(
    site: Site, flags: tuple[str, ...], state: str
) -> None:
    machines = await fleet(site, 5)
    await lose_power(site, machines[0], state=state)
    async with site.lone_manager(*flags):
        await site.further_calls(4 * PASSES)
        assert not await is_out(site, "node-0")


async def test_a_cloud_that_calls_ready_nodes_off_takes_no_node_out_of_service(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose_power(site, machines[0])
    await site.cloud.admin.stop(machines[1].id)  # or it shows another account's machines
    async with site.lone_manager(*TAINTING):
        event = await site.event("OutOfServiceHeld", "node-0")
        assert "node-1" in event.message
        await site.further_calls(4 * PASSES)
        assert not await is_out(site, "node-0")
        await site.cloud.admin.start(machines[1].id)
        await becomes(site, "node-0", out=True)
        assert not await is_out(site, "node-1")


async def test_many_nodes_at_once_are_held(site: Site) -> None:
    machines = await fleet(site, 8)
    await lose_power(site, *machines[:3])
    async with site.lone_manager(*TAINTING):
        event = await site.event("OutOfServiceHeld", "node-0")
        assert "too many nodes look gone or powered off at once" in event.message
        await site.further_calls(2 * PASSES)
        assert not [name for name in ("node-0", "node-1", "node-2") if await is_out(site, name)]


async def test_the_taint_of_an_operator_is_never_removed(site: Site) -> None:
    machines = await fleet(site, 4)
    body = {"spec": {"taints": [OURS]}}
    await site.client.patch(NODES, "node-0", Patch(PatchType.STRATEGIC, body))
    await lose_power(site, machines[0])
    async with site.lone_manager(*TAINTING):
        await site.further_calls(4 * PASSES)
        await site.cloud.admin.start(machines[0].id)
        await site.register(machines[:1])
        await site.silence("node-1")  # so that there are questions
        await site.further_calls(PASSES)
        node = await site.existing("node-0")
        assert has_taint(node, TAINT_OUT_OF_SERVICE)
        assert ANNOTATION_OUT_OF_SERVICE not in node.metadata.annotations
