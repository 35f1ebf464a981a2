"""A contestant does the work of a scenario, on a real API server.

Each has a control plane of its own to be measured, so that the shortest scenario is enough for the
quick tests.
"""

from pathlib import Path

import msgspec
import pytest

from benchmarks.amounts import QUICK
from benchmarks.contestants import BARE, PROREUS, Contestant
from benchmarks.measure import Figures
from benchmarks.scenarios import scenarios
from benchmarks.stage import staged

FEW = msgspec.structs.replace(
    QUICK,
    nodes=(3,),
    kubelets=3,
    steady_seconds=6.0,
    limit_nodes=3,
    joining=(2,),
    join_services=2,
    hosts=2,
)


async def played(name: str, contestant: Contestant) -> dict[str, Figures]:
    """What each piece of a scenario's work took."""
    (scenario,) = [one for one in scenarios(FEW) if one.name == name]
    async with staged(contestant, Path("unused"), scenario.settings) as stage:
        return {work: figures async for work, figures in scenario.play(stage)}


@pytest.mark.long
async def test_nodes_are_initialised_and_found_again_after_a_restart() -> None:
    figures = await played("nodes-3", PROREUS)

    assert list(figures) == ["initialise 3 nodes", "restart, 3 nodes in place"]
    first, restart = figures.values()
    assert first.cloud_calls["instances.batch_get"] >= 1
    assert first.api_requests["patch nodes"] == first.api_requests["patch nodes/status"] == 3
    assert first.seconds > 0
    assert first.cpu > 0
    assert first.rss > 10
    assert not [what for what in restart.api_requests if what.startswith("patch")]


@pytest.mark.long
async def test_nodes_registered_as_initialised_need_no_write_while_they_are_refreshed() -> None:
    (steady,) = (await played("steady", PROREUS)).values()

    assert steady.cloud_calls["instances.batch_get"] >= 1
    assert not [what for what in steady.api_requests if what.startswith("patch")]


@pytest.mark.long
async def test_nodes_are_initialised_while_their_kubelets_register() -> None:
    (figures,) = (await played("kubelets", PROREUS)).values()

    assert figures.api_requests["patch nodes"] >= 3
    assert figures.units == 3


@pytest.mark.long
async def test_nodes_that_join_become_hosts_and_leave_again() -> None:
    join, leave = (await played("join-2", PROREUS)).values()

    assert join.cloud_calls["load_balancers.add_targets"] >= 2
    assert leave.cloud_calls["load_balancers.remove_targets"] >= 2
    assert join.throttled == 0


async def test_the_bare_loop_sends_two_patches_for_each_node_and_nothing_else() -> None:
    (figures,) = (await played("limit", BARE)).values()

    assert figures.api_requests == {"list nodes": 1, "patch nodes": 3, "patch nodes/status": 3}
    assert figures.calls == 0
