"""The controller of evictions is killed, and its writes fail: silent nodes still lose their pods.

A life of its own, since here kubelets renew leases: silent machines lose their pods, and come back.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.kube import config
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import PODS, Request
from proreus.testing.controlplane import ControlPlane
from proreus.testing.demo.narrator import running
from proreus.testing.simulated import Settings

from ..apiserver.rights import MANAGERS  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import names, set_up  # noqa: TID252 - pytest imports tests by path
from .boundaries import for_each, owners, writes_of_one
from .relay import Act, Call, Script, relay
from .table import Tally
from .world import ANCHORS, LOG_TAIL, World

ACTS: Final = (Act.KILL_BEFORE, Act.KILL_AFTER, Act.CONFLICT, Act.FORBIDDEN, Act.CUT_AFTER)
FLAGS: Final = (
    "--controllers=nodelifecycle",
    "--node-monitor-period=300ms",
    "--node-monitor-grace-period=3s",
    "--node-eviction-rate=10",
    "--unhealthy-zone-threshold=0.99",
)
NEEDED: Final = {"PATCH nodes spec.taints", "PATCH pods/status DisruptionTarget", "DELETE pods"}
"""The writes by which pods leave; which others there are in a life depends on the kills."""


@asynccontextmanager
async def guarded(
    plane: ControlPlane, directory: Path, plan: Mapping[Call, Act]
) -> AsyncIterator[World]:
    """Machines with kubelets, and a manager that gives up those that are silent."""
    script = Script()
    script.plan = dict(plan)
    user = config.load(str(plane.kubeconfig_for("manager", [MANAGERS])), env={})
    async with (
        set_up(plane, directory, Settings()) as site,
        relay("api", user.server, script, user) as api,
    ):
        manager = site.lone_manager(*FLAGS, api_server=api.url)
        made = World(site, manager, script)
        await made.start(*names("anchor", ANCHORS))
        kubelets = asyncio.create_task(site.kubelets(lease_period=0.5).run())
        try:
            async with running(kubelets, asyncio.create_task(made.keep())):
                yield made
        finally:
            print(manager.output()[-LOG_TAIL:])
            await manager.kill()
            now = (("gracePeriodSeconds", "0"),)
            await site.client.send(
                Request("DELETE", PODS.path("default"), now, timeout=30.0), dict[str, Any]
            )


async def live(made: World, nodes: list[str]) -> None:
    """Machines become nodes with a pod each, are silent until the pods are gone, and come back."""
    machines = await made.start(*nodes)
    await made.when("the nodes are well", lambda: are_well(made, nodes))
    for name in nodes:
        await run_pod(made, name)
    for machine in machines:
        await made.admin.stop(machine.id)

    async def are_evicted() -> bool:
        pods = {one.metadata.name for one in (await made.client.list(PODS, "default")).items}
        return not pods & set(nodes)

    await made.when("the pods are gone", are_evicted)
    for machine in machines:
        await made.admin.start(machine.id)
    everyone = [*nodes, *names("anchor", ANCHORS)]
    await made.when("the nodes are well again", lambda: are_well(made, everyone))


async def are_well(made: World, nodes: list[str]) -> bool:
    """Whether these nodes have no taint of the node lifecycle."""
    found = await made.site.nodes()
    return all(
        name in found
        and not [one for one in found[name].spec.taints if one.key.startswith("node.kubernetes.io")]
        for name in nodes
    )


async def run_pod(made: World, node: str) -> None:
    """Run a pod of a node's name there, which is Ready and leaves a silent node at once."""
    told = {"operator": "Exists", "effect": "NoExecute"}
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none"}],
        # Without these the API server gives it five minutes.
        "tolerations": [
            {"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 0, **told},
            {"key": "node.kubernetes.io/not-ready", **told},
        ],
    }
    await made.client.create(PODS, {"metadata": {"name": node}, "spec": spec}, "default")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    patch = Patch(PatchType.STRATEGIC, status)
    await made.client.patch(PODS, node, patch, "default", subresource="status")


@pytest.mark.long
async def test_pods_leave_silent_nodes_though_every_write_of_it_fails_or_the_manager_is_killed(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    async with guarded(control_plane, tmp_path, {}) as made:
        await live(made, ["node-0"])
        writes = writes_of_one(made.script.seen, "node-0")
    assert {one.what for one in writes} > NEEDED
    plan = for_each(writes, ACTS)
    async with guarded(control_plane, tmp_path, plan) as made:
        with tally.trying() as take_down:
            try:
                await live(made, owners(plan, "node"))
            finally:
                for call, act in made.script.hits.items():
                    take_down(f"{call.side}: {call.what}", act)
            print("never reached:", made.script.plan)
            assert set(made.script.hits.values()) == set(ACTS)
            assert {call.what for call in made.script.hits} >= NEEDED
