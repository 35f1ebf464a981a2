"""The API server refuses, forgets, cuts off and goes away: what was to be done is done once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane

from .boundaries import (
    check_exercised,
    for_each,
    live_each,
    owners,
    rehearse,
    without_races,
    writes_of_one,
)
from .relay import VERSIONED, Act, Call
from .table import Tally
from .world import World, world

REFUSALS: Final = (
    Act.CONFLICT,
    Act.ERROR,
    Act.THROTTLE,
    Act.FORBIDDEN,
    Act.CUT_BEFORE,
    Act.CUT_AFTER,
    Act.CUT_AMID,
    Act.SLOW,
)
STORM_SECONDS: Final = 3.0


@pytest.mark.long
async def test_every_write_to_the_api_server_may_fail_in_every_way(
    control_plane: ControlPlane, tmp_path: Path, rehearsed: Sequence[Call], tally: Tally
) -> None:
    """Each Service and node of this life has one write fail in one way."""
    calls = without_races(writes_of_one(rehearsed, "node-0", "web-0"))
    writes = [call for call in calls if call.side == "api"]
    plan = for_each(writes, REFUSALS)
    async with world(control_plane, tmp_path) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"api: {call.what}", act)
            await live_each(made, plan)
            check_exercised(writes, REFUSALS, made.script.hits)


def comes_too_late(call: Call) -> Act | None:
    """Conflicts for all that is written to one version of a node only."""
    return Act.CONFLICT if VERSIONED in call.what else None


@pytest.mark.long
async def test_every_write_to_a_node_that_somebody_else_wrote_first_may_fail_in_every_way(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """What is sent in the place of a merge that came too late fails in one way for each node."""
    late = await rehearse(control_plane, tmp_path, choose=comes_too_late)
    writes = [
        call
        for call in writes_of_one(late, "node-0")
        if call.what.startswith("PATCH nodes") and VERSIONED not in call.what
    ]
    assert {"PATCH nodes metadata.labels spec.providerID spec.taints"} < {
        one.what for one in writes
    }
    plan = for_each(writes, REFUSALS)
    async with world(control_plane, tmp_path) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"api, too late: {call.what}", act)
            made.script.plan, made.script.choose = dict(plan), comes_too_late
            await made.live(owners(plan, "node"), ["web-0"])
            assert not made.script.plan, "never reached"
            hits = {call: act for call, act in made.script.hits.items() if call in plan}
            check_exercised(writes, REFUSALS, hits)


def every_watch(act: Act) -> Callable[[Call], Act | None]:
    return lambda call: act if call.what.startswith("WATCH") else None


def every_list(act: Act) -> Callable[[Call], Act | None]:
    lists = {"GET nodes", "GET services", "GET certificatesigningrequests", "GET persistentvolumes"}
    return lambda call: act if call.what in lists else None


def every_write(act: Act) -> Callable[[Call], Act | None]:
    return lambda call: act if call.writes and not call.what.endswith("events") else None


def every_call(act: Act) -> Callable[[Call], Act | None]:
    return lambda call: act if call.side == "api" else None


STORMS: Final = {
    "watches expire": every_watch(Act.EXPIRED),
    "watches are cut in mid-object": every_watch(Act.CUT_AMID),
    "watches are cut before they begin": every_watch(Act.CUT_BEFORE),
    "lists fail": every_list(Act.ERROR),
    "lists are cut in mid-object": every_list(Act.CUT_AMID),
    "conflicts on every write": every_write(Act.CONFLICT),
    "permission to write withdrawn": every_write(Act.FORBIDDEN),
    "permission withdrawn": every_call(Act.FORBIDDEN),
    "all throttled": every_call(Act.THROTTLE),
    "all slow": every_call(Act.SLOW),
    "all fails": every_call(Act.ERROR),
    "answers are lost": every_write(Act.CUT_AFTER),
}
"""Weather of the API server."""


@asynccontextmanager
async def storm(made: World, choose: Callable[[Call], Act | None]) -> AsyncIterator[None]:
    """Watches begin anew in a storm, which lasts on for a while when the body has ended."""
    made.script.choose = choose
    made.script.cut_watches()
    try:
        yield
        await asyncio.sleep(STORM_SECONDS)
    finally:
        made.script.choose = lambda _: None


@pytest.mark.long
async def test_what_changes_in_a_storm_is_done_when_it_is_over(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """In each storm a node and a Service come, and those of the one before go."""
    async with world(control_plane, tmp_path) as made:
        before: tuple[str, str] | None = None
        for number, (name, choose) in enumerate(STORMS.items()):
            print(name)
            node, service = f"node-{number}", f"web-{number}"
            with tally.trying() as take_down:
                take_down("api server", name)
                async with storm(made, choose):
                    await made.register(node)
                    await made.create(service)
                    if before is not None:
                        await made.ask_for_deletion(before[1])
                await made.joined(node)
                await made.ready(service, ports={80, 81}, ranges={"127.0.0.0/8"})
                if before is not None:
                    await made.nothing_left(before[1])
            before = (node, service)
        made.check_history(())


@pytest.mark.long
async def test_what_changes_while_the_api_server_restarts_is_done_once(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    async with world(control_plane, tmp_path) as made:
        # Its authorizer knows no role until it has read them all again.
        made.site.may_be_refused = True
        with tally.trying() as take_down:
            take_down("api server", "restart")
            await made.serve("web-0")
            await made.register("node-0")
            await made.change("web-0", port=82)
            await control_plane.restart_apiserver()
            await made.joined("node-0")
            await made.ready("web-0", ports={80, 82}, ranges={"127.1.0.0/16"})
            await made.delete("web-0")
            made.check_history(())


async def test_objects_made_anew_between_a_decision_and_its_write_are_taken_for_new(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """The first write of each kind finds another object under the name."""
    async with world(control_plane, tmp_path) as made:
        one_at_a_time = asyncio.Lock()

        async def new_node() -> None:
            async with one_at_a_time:
                await made.client.delete(NODES, "node-0")
                await made.site.register([made.machines["node-0"]])

        async def new_service() -> None:
            freed = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
            await made.client.delete(SERVICES, "web-0", "default")
            with contextlib.suppress(NotFound):
                await made.client.patch(SERVICES, "web-0", freed, "default")
            await made.create("web-0")

        with tally.trying() as take_down:
            take_down("api: PATCH nodes", "another object under the name")
            take_down("api: PATCH services/status", "another object under the name")
            made.script.before = {
                Call("api", "node-0", "PATCH nodes spec.podCIDR spec.podCIDRs", 1): new_node,
                Call(
                    "api",
                    "node-0",
                    "PATCH nodes @version metadata.labels spec.providerID spec.taints",
                    1,
                ): new_node,
                Call(
                    "api", "web-0", "PATCH services/status LoadBalancerReady loadBalancer", 1
                ): new_service,
            }
            await made.register("node-0")
            await made.create("web-0")
            await made.joined("node-0")
            await made.ready("web-0", ports={80, 81}, ranges={"127.0.0.0/8"})
            assert not made.script.before
            await made.delete("web-0")
