"""Silent nodes are given up and pods evicted, where no other controller does it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.errors import NotFound
from proreus.kube.objects import Condition, condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.pods import Pod
from proreus.kube.requests import NODES, PODS, Request
from proreus.testing.controlplane import OLDEST_VERSION, ControlPlane, kubernetes_version
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from .api_proxy import api_proxy
from .rights import MANAGERS
from .site import Site, names, set_up

UNREACHABLE = "node.kubernetes.io/unreachable"
GRACE = 4.0
FLAGS = (
    "--controllers=nodelifecycle",
    "--node-monitor-period=300ms",
    f"--node-monitor-grace-period={GRACE:g}s",
    "--node-eviction-rate=10",
)


@asynccontextmanager
async def kubelets(site: Site) -> AsyncIterator[None]:
    """All running machines have kubelets that renew their leases."""
    player = site.kubelets(lease_period=0.5)
    task = asyncio.create_task(player.run())
    try:
        yield
    finally:
        task.cancel()


async def fleet(site: Site, count: int) -> tuple[Instance, ...]:
    return await site.join(*names("node", count))


def toleration(seconds: int | None, key: str = UNREACHABLE) -> dict[str, Any]:
    told: dict[str, Any] = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return told if seconds is None else {**told, "tolerationSeconds": seconds}


async def run_pod(site: Site, name: str, node: str, *tolerations: dict[str, Any]) -> None:
    """A pod that runs and is Ready, as its kubelet says."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            "tolerations": [*tolerations, toleration(None, "node.kubernetes.io/not-ready")],
        },
    }
    await site.client.create(PODS, body, "default")
    await claim_ready(site, name)


async def claim_ready(site: Site, name: str) -> None:
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await site.client.patch(
        PODS, name, Patch(PatchType.STRATEGIC, status), "default", subresource="status"
    )


async def is_unready(site: Site, name: str) -> bool:
    found = await pod(site, name)
    was = None if found is None else condition(found.status.conditions, "Ready")
    return was is not None and was.status == "False"


async def pod(site: Site, name: str) -> Pod | None:
    try:
        return await site.client.get(PODS, name, "default")
    except NotFound:
        return None


@pytest.fixture(autouse=True)
async def no_pods(site: Site) -> AsyncIterator[None]:
    yield
    query = (("gracePeriodSeconds", "0"),)
    await site.client.send(
        Request("DELETE", PODS.path("default"), query, timeout=30.0), dict[str, Any]
    )


async def keys(site: Site, name: str) -> set[tuple[str, str]]:
    node = await site.existing(name)
    return {(one.key, one.effect) for one in node.spec.taints if one.key == UNREACHABLE}


async def is_tainted(site: Site, name: str) -> bool:
    return (UNREACHABLE, "NoExecute") in await keys(site, name)


async def ready(site: Site, name: str) -> Condition | None:
    return condition((await site.existing(name)).status.conditions, "Ready")


async def test_a_silent_node_is_given_up_and_its_pods_leave_by_their_tolerations(
    site: Site,
) -> None:
    machines = await fleet(site, 4)
    async with kubelets(site):
        await run_pod(site, "soon", "node-0", toleration(1))
        await run_pod(site, "never", "node-0", toleration(None))
        await run_pod(site, "elsewhere", "node-1", toleration(1))
        async with site.lone_manager(*FLAGS):
            await site.cloud.admin.stop(machines[0].id)
            event = await site.event("NodeNotReady", "node-0")
            assert event.message == "Node node-0 status is now: NodeNotReady"

            async def evicted() -> bool:
                return await pod(site, "soon") is None

            await until("the pod is evicted", evicted)
            state = await ready(site, "node-0")
            assert state is not None
            assert (state.status, state.reason) == ("Unknown", "NodeStatusUnknown")
            assert await keys(site, "node-0") == {
                (UNREACHABLE, "NoExecute"),
                (UNREACHABLE, "NoSchedule"),
            }
            assert await is_unready(site, "never")
            assert await pod(site, "elsewhere") is not None

            # As after a write that failed, or a kill before it.
            await claim_ready(site, "never")
            await until("the pod does not count as Ready again", lambda: is_unready(site, "never"))

            await site.cloud.admin.start(machines[0].id)

            async def untainted() -> bool:
                return not await keys(site, "node-0")

            await until("the node is back", untainted)
            assert await pod(site, "never") is not None
        assert not [name for name in ("node-1", "node-2") if await is_tainted(site, name)]


@pytest.mark.long
@pytest.mark.skipif(
    kubernetes_version() == OLDEST_VERSION, reason="tolerations compare numbers since 1.35"
)
async def test_a_pod_stays_that_tolerates_a_taint_by_its_number(tmp_path: Path) -> None:
    gate = "--feature-gates=TaintTolerationComparisonOperators=true"
    async with (
        ControlPlane(extra_apiserver_args=(gate,)) as plane,
        set_up(plane, tmp_path) as site,
    ):
        await fleet(site, 2)
        more = {"key": "sla", "operator": "Gt", "effect": "NoExecute"}
        async with kubelets(site), site.lone_manager(*FLAGS):
            await run_pod(site, "stays", "node-0", {**more, "value": "900"})
            await run_pod(site, "goes", "node-0", {**more, "value": "960"})
            taint = {"key": "sla", "value": "950", "effect": "NoExecute"}
            body = {"spec": {"taints": [taint]}}
            await site.client.patch(NODES, "node-0", Patch(PatchType.STRATEGIC, body))
            await until("the other pod goes", partial(is_gone, site, "goes"))
            await asyncio.sleep(1.0)
            assert await pod(site, "stays") is not None


@pytest.mark.long
async def test_no_pod_leaves_a_node_that_reports_again_while_the_watch_of_nodes_hangs(
    site: Site, control_plane: ControlPlane
) -> None:
    machines = await fleet(site, 5)
    user = config.load(str(control_plane.kubeconfig_for("manager", [MANAGERS])), env={})
    async with (
        kubelets(site),
        api_proxy(user) as proxy,
        site.lone_manager(*FLAGS, api_server=proxy.url),
    ):
        await run_pod(site, "stays", "node-0", toleration(10))
        await run_pod(site, "goes", "node-1", toleration(10))
        for machine in machines[:2]:
            await site.cloud.admin.stop(machine.id)
        for name in ("node-0", "node-1"):
            await until(f"{name} is tainted", partial(is_tainted, site, name))
        proxy.hanging.add("/api/v1/nodes")
        await site.cloud.admin.start(machines[0].id)
        await until("the other pod goes", partial(is_gone, site, "goes"))
        state = await ready(site, "node-0")
        assert state is not None
        assert state.status == "True"
        await asyncio.sleep(1.0)
        assert await pod(site, "stays") is not None


async def is_gone(site: Site, name: str) -> bool:
    return await pod(site, name) is None


async def test_nothing_is_evicted_while_no_node_of_any_zone_reports(site: Site) -> None:
    machines = await fleet(site, 3)
    async with kubelets(site):
        await run_pod(site, "stays", "node-0")
        async with site.lone_manager(*FLAGS) as manager:
            for machine in machines:
                await site.cloud.admin.stop(machine.id)

            async def stopped() -> bool:
                return "No node of any zone is Ready" in manager.output()

            await until("all are silent", stopped)
            await asyncio.sleep(GRACE)
            assert not [one for one in await site.nodes() if await is_tainted(site, one)]
            assert await pod(site, "stays") is not None


async def conditions_of_a_rival(site: Site, client: Client, name: str) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Silent"}]}}
    await client.patch(NODES, name, Patch(PatchType.STRATEGIC, body), subresource="status")


async def taint_of_a_rival(site: Site, client: Client, name: str) -> None:
    body = {"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]}}
    await client.patch(NODES, name, Patch(PatchType.STRATEGIC, body))


@pytest.mark.parametrize("write", [conditions_of_a_rival, taint_of_a_rival])
@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_another_controller_that_does_it_is_recognised_by_its_writes(
    site: Site, write: Any, *, before: bool
) -> None:
    machines = await fleet(site, 4)
    rival = Client(
        config.load(str(site.plane.kubeconfig), env={}), user_agent="kube-controller-manager/v1.36"
    )
    async with kubelets(site), rival:
        await run_pod(site, "stays", "node-0", toleration(0))
        await site.cloud.admin.stop(machines[0].id)
        await asyncio.sleep(2.0)  # no beat is under way any more
        if before:
            await write(site, rival, "node-0")
        async with site.lone_manager(*FLAGS) as manager:

            async def held() -> bool:
                return 'others="kube-controller-manager"' in manager.output()

            async def started() -> bool:
                return bool(site.writes())  # the taints of nodes that have just registered go

            if not before:
                await until("the manager has begun", started)
                await write(site, rival, "node-0")
            await until("the other one is named", held)
            count = await site.quiet(lambda: len(site.writes()))
            await asyncio.sleep(GRACE * 1.5)
            assert len(site.writes()) == count
            assert site.writes("pods") == []
            assert await pod(site, "stays") is not None
