"""What routes cost: calls to the cloud and writes to the API server, as counts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.controllers.route.policy import Policy
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Instance, Settings
from proreus.testing.waiting import until

from ..apiserver.route_site import (  # noqa: TID252 - pytest imports tests by path
    RouteSite,
    v4,
    v6,
)
from ..apiserver.site import all_of, set_up  # noqa: TID252 - the same

QUICK = Policy(confirm=1.0)


async def counts(routing: RouteSite) -> dict[str, int]:
    """The calls of the controller, by operation."""
    return dict(await routing.cloud.admin.counts())


def names(count: int) -> list[str]:
    return [f"node-{number:03}" for number in range(count)]


def blocks(machines: tuple[Instance, ...]) -> dict[str, Instance]:
    """The wanted table of dual-stack nodes."""
    return {
        block: one for number, one in enumerate(machines) for block in (wide(number), v6(number))
    }


def wide(number: int) -> str:
    """The IPv4 block of a number that may be above 255."""
    return f"10.{number // 256}.{number % 256}.0/24"


async def add(routing: RouteSite, machines: tuple[Instance, ...], first: int = 0) -> None:
    """Create dual-stack nodes, some at a time."""
    await all_of(
        (
            routing.add_node(machine, wide(number), v6(number))
            for number, machine in enumerate(machines, first)
        ),
        at_once=20,
    )


async def at_rest(routing: RouteSite) -> None:
    """Wait until neither the cloud nor the API server hears of the controller any more."""
    await routing.site.quiet(routing.writes)


@pytest.mark.parametrize(
    ("count", "page"), [(50, 40), pytest.param(500, 400, marks=pytest.mark.long)]
)
async def test_dual_stack_nodes_cost_one_call_a_route_and_one_listing(
    control_plane: ControlPlane, tmp_path: Path, count: int, page: int
) -> None:
    settings = Settings(route_limit=2 * count, page_size=page)
    async with set_up(control_plane, tmp_path, settings) as site:
        routing = RouteSite(site)
        await routing.start()
        machines = await routing.machines(*names(count))
        wanted = blocks(machines)
        clusters = ("10.0.0.0/8", "fd00::/48")

        # Half of the nodes are there, the others join one by one.
        half = count // 2
        await add(routing, machines[:half])
        async with routing.controller(QUICK, clusters=clusters):
            await add(routing, machines[half:], half)
            await routing.has_routes(wanted)
            await routing.says("RouteCreated", *names(count))
            await at_rest(routing)
            assert await counts(routing) == {"resources.list": 1, "routes.create": 2 * count}
            assert routing.writes() == count

            # Ten nodes go: one listing, and a call for each route.
            await routing.cloud.admin.clear_calls()
            await routing.remove(*names(10))
            rest = dict(list(wanted.items())[20:])
            await routing.has_routes(rest)
            await at_rest(routing)
            pages = -(-2 * count // page)
            assert await counts(routing) == {"resources.list": pages, "routes.delete": 20}
            assert routing.writes() == count

        # After a restart: the pages of one listing, and nothing else.
        await routing.cloud.admin.clear_calls()
        async with routing.controller(QUICK, clusters=clusters):
            pages = -(-2 * (count - 10) // page)
            await until("it was listed", lambda: _listed(routing, pages))
            await at_rest(routing)
        assert await counts(routing) == {"resources.list": pages}
        assert routing.writes() == count


async def _listed(routing: RouteSite, count: int) -> bool:
    return (await counts(routing)).get("resources.list", 0) >= count


@pytest.fixture
async def routing(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[RouteSite]:
    async with set_up(control_plane, tmp_path) as site:
        made = RouteSite(site)
        await made.start()
        yield made


async def test_heartbeats_and_labels_cost_nothing(routing: RouteSite) -> None:
    async with routing.controller():
        (a,) = await routing.join("a")
        await routing.says("RouteCreated", "a")
        await at_rest(routing)
        calls, writes = await counts(routing), routing.writes()

        for number in range(20):
            await routing.patch("a", {"metadata": {"labels": {"beat": str(number)}}})
            ready = {"type": "Ready", "status": "True", "reason": f"Beat{number}"}
            await routing.patch("a", {"status": {"conditions": [ready]}}, "status")
        await routing.join("fence", first=2)
        await routing.says("RouteCreated", "fence")

        assert await counts(routing) == {**calls, "routes.create": calls["routes.create"] + 1}
        assert routing.writes() == writes + 1
        assert (await routing.routes())[v4(1)] == a.id


async def test_a_comparison_that_finds_all_well_costs_a_listing_and_no_write(
    routing: RouteSite,
) -> None:
    async with routing.controller(period=1.0):
        await routing.join("a", "b", dual=True)
        await routing.says("RouteCreated", "a", "b")
        await routing.further("resources.list", 4)
        assert await routing.calls("routes.create") == 4
        assert set(await counts(routing)) == {"resources.list", "routes.create"}
        assert routing.writes() == 2


async def test_a_machine_that_takes_a_node_over_costs_one_listing_and_one_call(
    routing: RouteSite,
) -> None:
    async with routing.controller():
        await routing.join("a")
        await routing.says("RouteCreated", "a")
        (new,) = await routing.machines("a")
        await routing.cloud.admin.clear_calls()
        await routing.remove("a")
        await routing.add_node(new, v4(1))
        await routing.has_routes({v4(1): new})
        await routing.says("RouteCreated", "a")
        assert await counts(routing) == {"resources.list": 1, "routes.update": 1}
        assert routing.writes() == 2


async def test_many_failures_come_back_with_one_listing_for_all(routing: RouteSite) -> None:
    """Thirty nodes find no place in the table; each listing serves all that are tried again."""
    await routing.cloud.admin.configure(route_limit=1)
    await routing.join(*names(31))
    async with routing.controller(Policy()):
        await until("each was tried four times", lambda: _tried(routing, 1 + 30 * 4))
        made = await counts(routing)
    assert made["resources.list"] == 4
    assert made["routes.create"] == 1 + 30 * 4


async def _tried(routing: RouteSite, count: int) -> bool:
    return (await counts(routing)).get("routes.create", 0) >= count
