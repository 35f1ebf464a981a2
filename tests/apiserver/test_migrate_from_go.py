"""A cluster moves from a manager of the Go framework to this one and back, and keeps its parts.

The Go manager is the one of the benchmarks, whose provider tags parts as official ones do. Both
share the lease, as in the guide, so that the second one waits for the first to end.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.contestants import Contestant, Process, build_go, command
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_SERVICE_UID
from proreus.kube.errors import NotFound
from proreus.kube.requests import NAMESPACES, SERVICES
from proreus.testing.waiting import until

from .read_only import Reader, reader
from .site import Site

NODES: Final = ("one", "two", "three")
SERVICE_NAMES: Final = ("web", "api", "mail")
GO: Final = Contestant("go", "a manager of the Go framework", go=True)


@pytest.fixture
async def go_manager(site: Site, tmp_path: Path) -> Process:
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the manager to move from")
    whole = command(
        GO,
        goccm=await build_go(tmp_path),
        kubeconfig=site.plane.kubeconfig_for("go-manager", ["system:masters"]),
        cloud=site.cloud,
        directory=tmp_path,
        elect=True,
    )
    return Process(whole, tmp_path / "go-manager.log")


@pytest.fixture
async def planner(site: Site, tmp_path: Path) -> AsyncIterator[Reader]:
    async with reader(site, "mover", tmp_path) as one:
        yield one


@pytest.mark.long
async def test_a_cluster_moves_from_go_and_back_with_the_same_parts_and_addresses(
    site: Site, planner: Reader, go_manager: Process, tmp_path: Path
) -> None:
    manager = site.manager("--configure-cloud-routes=false")
    try:
        await go_manager.start()
        await site.join(*NODES)
        await with_addresses(site)
        for name in SERVICE_NAMES:
            await site.create_service(name)
        addresses = await has_addresses(site)
        await with_all_targets(site)
        before, machines = await parts(site), await uids(site)

        # While the other manager still works.
        await check_plan(planner)
        await site.cloud.admin.clear_calls()
        await manager.start()
        await go_manager.stop()
        await until("all parts carry our marks", lambda: is_marked(site))
        await nothing_to_do(planner)

        assert await parts(site) == before
        assert await uids(site) == machines
        assert await has_addresses(site) == addresses
        assert not await makes_or_deletes(site)

        await site.cloud.admin.clear_calls()
        await go_manager.start()
        await manager.stop()
        # The framework ensures every Service when it starts.
        await until("Go has looked at all", lambda: has_listed(site, len(SERVICE_NAMES)))
        await site.client.delete(SERVICES, "mail", "default")
        await until("the Service is gone", lambda: is_gone(site, "mail"))

        assert await parts(site) == {
            id_: part for id_, part in before.items() if addresses["mail"] not in part["of"]
        }
        assert not [one for one in await makes_or_deletes(site) if one.endswith("create")]
        assert await uids(site) == machines
        del addresses["mail"]
        assert await has_addresses(site, *addresses) == addresses
    finally:
        await manager.stop()
        await go_manager.stop()
        print(manager.output()[-4000:], (tmp_path / "go-manager.log").read_text()[-4000:])


async def check_plan(planner: Reader) -> None:
    """Nothing but tags is planned for load balancers, and no Node is to go."""
    planned = await planner.run("plan", "--json", "--configure-cloud-routes=false")
    assert planned.code == 2, planned.err
    changes = {one["about"]: one for one in planned.json["changes"]}
    assert {about for about in changes if about.startswith("load-balancer/")} == {
        f"load-balancer/default/{name}" for name in SERVICE_NAMES
    }
    assert {one["action"] for one in changes.values()} == {"change"}
    lines = [
        line
        for about, one in changes.items()
        if about.startswith("load-balancer/")
        for line in one["lines"]
    ]
    assert len(lines) == 4 * len(SERVICE_NAMES)
    assert [line for line in lines if not line.endswith(": tags")] == []


async def nothing_to_do(planner: Reader) -> None:
    """Wait until a plan is empty."""

    async def none() -> bool:
        return (await planner.run("plan", "--configure-cloud-routes=false")).code == 0

    await until("there is nothing to do", none)


async def has_addresses(site: Site, *names: str) -> dict[str, str]:
    """Wait until these Services have addresses, or all three."""

    async def found() -> dict[str, str] | None:
        services = {name: await site.service(name) for name in names or SERVICE_NAMES}
        stated = {name: one.status.load_balancer.ingress for name, one in services.items()}
        return {name: one[0].ip for name, one in stated.items()} if all(stated.values()) else None

    return await until("the Services have addresses", found)


async def with_addresses(site: Site) -> None:
    """Wait until the nodes are done.

    The Go manager takes the taint off first. A Service that is made before that may lack hosts.
    """
    await site.initialised(*NODES)

    async def all_there() -> bool:
        return all(one.status.addresses for one in (await site.nodes()).values())

    await until("the nodes have addresses", all_there)


async def with_all_targets(site: Site) -> None:
    """Wait until the load balancers lead to all nodes."""

    async def all_there() -> bool:
        balancers = await site.cloud.admin.parts("load_balancer")
        counts = [len(one["targets"]) for one in balancers]
        return counts == [len(NODES)] * len(SERVICE_NAMES)

    await until("the load balancers lead to all nodes", all_there)


async def parts(site: Site) -> dict[str, dict[str, Any]]:
    """What is in the cloud by id, without tags, each with the address that it belongs to."""
    found = {one["id"]: dict(one) for one in await site.cloud.admin.parts()}
    for one in found.values():
        balancer = found.get(one.get("load_balancer_id", ""), one)
        address = found.get(balancer.get("address_id", ""), one)
        one["of"] = address["address"]
    return {
        id_: {key: value for key, value in one.items() if key not in {"tags", "version"}}
        for id_, one in found.items()
    }


async def uids(site: Site) -> dict[str, tuple[str, str]]:
    """The nodes' uids and provider ids."""
    nodes = await site.nodes()
    return {name: (one.metadata.uid, one.spec.provider_id) for name, one in nodes.items()}


async def makes_or_deletes(site: Site) -> list[str]:
    """The calls that made or deleted something."""
    calls = await site.cloud.admin.calls()
    return [one.operation for one in calls if one.operation.endswith((".create", ".delete"))]


async def is_marked(site: Site) -> bool:
    """Whether all parts carry the marks of both managers."""
    uid = (await site.client.get(NAMESPACES, "kube-system")).metadata.uid
    services = {(await site.service(name)).metadata.uid for name in SERVICE_NAMES}
    tags = [one["tags"] for one in await site.cloud.admin.parts()]
    return (
        all(one.get(MARK_CLUSTER_UID) == uid for one in tags)
        and all(one.get("kubernetes.io/cluster/kubernetes") == "owned" for one in tags)
        and {one.get(MARK_SERVICE_UID) for one in tags} == services
    )


async def has_listed(site: Site, count: int) -> bool:
    """Whether so many listings of parts by name were asked for."""
    return len(await site.calls("resources.list")) >= count


async def is_gone(site: Site, name: str) -> bool:
    """Whether the Service is gone."""
    try:
        await site.service(name)
    except NotFound:
        return True
    return False
