"""`proreus plan` on a real API server and cloud: it touches nothing, and `run` does what it says."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from proreus.cloudprovider.identity import MARK_CLUSTER, MARK_CLUSTER_UID, MARK_SERVICE_UID
from proreus.kube.objects import FINALIZER_LOAD_BALANCER, condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NAMESPACES, NODES, SERVICES
from proreus.testing.simulated import Fault, FaultMode
from proreus.testing.waiting import until

from .read_only import Ran, Reader, reader
from .site import Site

FLAGS: Final = ("--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs", "--cluster-name=test")
WRITES: Final = ("*.create", "*.update", "*.delete", "*.add_*", "*.remove_*", "*.assign_*")
PORTS: Final = [{"name": "http", "port": 80}]


@pytest.fixture
async def planner(site: Site, tmp_path: Path) -> AsyncIterator[Reader]:
    async with reader(site, "planner", tmp_path) as one:
        yield one


async def test_run_makes_exactly_the_changes_that_plan_shows_and_then_there_are_none(
    site: Site, planner: Reader
) -> None:
    await a_cluster_with_work(site)
    await refuse_writes(site)

    before = await state(site)
    planned = await planner.run("plan", "--json", *FLAGS)
    text = await planner.run("plan", *FLAGS)

    assert (planned.code, text.code) == (2, 2), planned.err + text.err
    assert await state(site) == before
    assert all(call.read for call in await site.cloud.admin.calls())
    planner.check_only_read()
    changes = {one["about"]: one for one in planned.json["changes"]}
    node = changes["node/one"]["lines"]
    assert "+ label topology.kubernetes.io/zone=sim-1a" in node
    assert "- taint node.cloudprovider.kubernetes.io/uninitialized:NoSchedule" in node
    assert "+ spec.podCIDRs: 10.244.0.0/24" in node
    assert changes["node/gone"]["action"] == "delete"
    assert "2 more answers must say" in changes["node/gone"]["waits_for"]
    assert changes["route/10.244.9.0/24"]["action"] == "delete"
    assert changes["load-balancer/default/web"]["action"] == "create"
    assert changes["load-balancer/default/former"]["action"] == "delete"
    assert "+ load-balancer/default/web" in text.out
    assert "note:" not in text.out

    await site.cloud.admin.clear_faults()
    async with site.lone_manager(*FLAGS, "--node-deletion-interval=1s"):
        await no_changes(planner)
    await check_done(site, changes, before)


async def test_a_change_is_shown_as_what_differs_and_failures_of_the_cloud_are_no_plan(
    site: Site, planner: Reader
) -> None:
    await site.join("one")
    await site.create_service("web")
    async with site.lone_manager("--cluster-name=test"):
        await site.initialised("one")
        await no_changes(planner, "--cluster-name=test")
    (machine,) = await site.cloud.admin.instances()
    more = Patch(PatchType.STRATEGIC, {"spec": {"ports": [{"name": "tls", "port": 443}]}})
    await site.client.patch(SERVICES, "web", more, "default")
    bare = Patch(
        PatchType.MERGE, {"metadata": {"labels": {"node.kubernetes.io/instance-type": "x"}}}
    )
    await site.client.patch(NODES, "one", bare)

    ran = await planner.run("plan", "--json", "--cluster-name=test")
    await site.cloud.admin.inject(Fault(mode=FaultMode.ERROR, operation="*", count=0))
    failed = await planner.run("plan", "--cluster-name=test")

    assert ran.code == 2
    changes = {one["about"]: one for one in ran.json["changes"]}
    assert changes.keys() == {"node/one", "load-balancer/default/web"}
    assert changes["node/one"]["lines"] == [
        f"~ label node.kubernetes.io/instance-type=x -> {machine.type}"
    ]
    (line,) = changes["load-balancer/default/web"]["lines"]
    assert line.startswith("+ listener TCP/443")
    assert failed.code == 1
    assert "the call to the cloud failed" in failed.err
    assert failed.out == ""


async def test_nodes_of_another_cloud_are_no_hosts_neither_planned_nor_offered(
    site: Site, planner: Reader
) -> None:
    body = {"metadata": {"name": "theirs"}, "spec": {"providerID": "aws:///eu-1a/i-0123456789"}}
    await site.client.create(NODES, body)
    await site.create_service("web")

    planned = await planner.run("plan", "--json", "--cluster-name=test")

    changes = {one["about"]: one for one in planned.json["changes"]}
    lines = changes["service/default/web"]["lines"]
    assert [line for line in lines if "LoadBalancerReady=False (NoHosts)" in line]
    parts = [line.split()[1] for line in changes["load-balancer/default/web"]["lines"]]
    assert "target:" not in parts
    async with site.lone_manager("--cluster-name=test"):
        await when_said(site, "web", "NoHosts")
        await site.join("ours")
        await when_said(site, "web", "Ensured")
        assert not await site.events("HostsRejected")


async def when_said(site: Site, name: str, reason: str) -> None:
    """Wait until a Service's condition has this reason."""

    async def is_said() -> bool:
        state = condition((await site.service(name)).status.conditions, "LoadBalancerReady")
        return state is not None and state.reason == reason

    await until(f"{name} says {reason}", is_said)


async def no_changes(planner: Reader, *flags: str) -> None:
    """Wait until a plan is empty."""
    said: list[Ran] = []

    async def none() -> bool:
        said.append(await planner.run("plan", *(flags or FLAGS)))
        return said[-1].code == 0

    try:
        await until("there is nothing to do", none)
    finally:
        print(said[-1].out, said[-1].err)


async def a_cluster_with_work(site: Site) -> None:
    """A new node, one whose machine is gone, a new Service, a former one, a stray route."""
    uid = (await site.client.get(NAMESPACES, "kube-system")).metadata.uid
    await site.join("one")
    (gone,) = await site.machines("gone")
    await site.cloud.admin.delete(gone.id)
    await site.client.create(
        NODES,
        {
            "metadata": {"name": "gone"},
            "spec": {"providerID": f"simulated://sim-1/{gone.id}", "podCIDRs": ["10.244.7.0/24"]},
        },
    )
    await site.create_service("web")
    former = {"name": "former", "finalizers": [FINALIZER_LOAD_BALANCER]}
    body = {"metadata": former, "spec": {"type": "ClusterIP", "ports": PORTS}}
    await site.client.create(SERVICES, body, "default")
    service = await site.service("former")
    marks = {MARK_CLUSTER: "test", MARK_CLUSTER_UID: uid}
    of_service = {**marks, MARK_SERVICE_UID: service.metadata.uid}
    await make(site, "addresses", name="stray", tags=of_service, address="")
    machine = (await site.cloud.admin.instances())[0].id
    await make(
        site, "routes", name="stray", tags=marks, destination="10.244.9.0/24", instance_id=machine
    )


async def make(site: Site, collection: str, **body: Any) -> None:
    """Make a part of the cloud as a manager would have."""
    headers = {"Authorization": f"Bearer {site.cloud.token}"}
    body = {"idempotency_token": f"{collection}/{body['name']}", **body}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{site.cloud.endpoint}/v1/{collection}", json=body) as response,
    ):
        assert response.status == 201, await response.text()


async def refuse_writes(site: Site) -> None:
    """From now on the cloud refuses to change anything."""
    await site.cloud.admin.clear_calls()
    for operation in WRITES:
        await site.cloud.admin.inject(Fault(mode=FaultMode.ERROR, operation=operation, count=0))


async def state(site: Site) -> dict[str, Any]:
    """The version of everything that a manager could change."""
    found: dict[str, Any] = {
        f"node/{name}": one.metadata.resource_version for name, one in (await site.nodes()).items()
    }
    for one in (await site.client.list(SERVICES, "default")).items:
        found[f"service/default/{one.metadata.name}"] = one.metadata.resource_version
    found.update({part["id"]: part["version"] for part in await site.cloud.admin.parts()})
    return found


async def check_done(site: Site, planned: dict[str, Any], before: dict[str, Any]) -> None:
    """What is there now is what was there, with the plan's changes and no others."""
    now = await state(site)
    objects = {about for about in before.keys() | now.keys() if "/" in about}
    changed = {about for about in objects if before.get(about) != now.get(about)}
    assert changed == {about for about in planned if about.startswith(("node/", "service/"))}
    node = await site.existing("one")
    labels = {f"+ label {key}={value}" for key, value in node.metadata.labels.items()}
    lines = planned["node/one"]["lines"]
    assert {line for line in lines if line.startswith("+ label")} <= labels
    assert f"+ spec.providerID: {node.spec.provider_id}" in lines
    assert f"+ spec.podCIDRs: {', '.join(node.spec.pod_cidrs)}" in lines
    for one in ("CloudInitialized", "NetworkUnavailable"):
        state_of = condition(node.status.conditions, one)
        assert state_of is not None
        told = f"{one}={state_of.status} ({state_of.reason}): {state_of.message}"
        assert f"~ condition {told}" in lines
    parts = await site.cloud.admin.parts()
    assert {f"route/{one['destination']}" for one in parts if one["kind"] == "route"} == {
        about
        for about, one in planned.items()
        if about.startswith("route/") and one["action"] == "create"
    }
    made = [one["kind"] for one in parts if one["kind"] != "route"]
    (balancer,) = (one for one in parts if one["kind"] == "load_balancer")
    made += ["target"] * len(balancer["targets"])
    lines = planned["load-balancer/default/web"]["lines"]
    assert sorted(made) == sorted(line.split()[1].rstrip(":") for line in lines)
