"""kill -9 of the manager before and after every write: the end is the same, and nothing is twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ..apiserver.site import names  # noqa: TID252 - pytest imports tests by path
from .boundaries import (
    BY_RANGE,
    ELECTION,
    LEASE,
    check_exercised,
    done_to_lease,
    for_each,
    live_each,
    rehearse,
    rehearse_election,
    without_races,
    writes_of_one,
)
from .relay import Act, Call
from .table import Tally
from .world import world

KILLS = (Act.KILL_BEFORE, Act.KILL_AFTER)


@pytest.mark.long
async def test_a_manager_killed_at_every_write_of_nodes_and_services_loses_nothing(
    control_plane: ControlPlane, tmp_path: Path, rehearsed: Sequence[Call], tally: Tally
) -> None:
    writes = writes_of_one(rehearsed, "node-0", "web-0")
    await kill_at_each(writes, control_plane, tmp_path, tally)


@pytest.mark.long
async def test_a_manager_killed_at_every_write_while_it_gives_blocks_to_nodes_gives_none_twice(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """The CIDRs are chosen here: nobody but the nodes themselves remembers them."""
    calls = await rehearse(control_plane, tmp_path, *BY_RANGE, services=())
    writes = writes_of_one(calls, "node-0")
    assert [call for call in writes if "podCIDR" in call.what]
    await kill_at_each(writes, control_plane, tmp_path, tally, *BY_RANGE)


async def kill_at_each(
    writes: Sequence[Call], plane: ControlPlane, directory: Path, tally: Tally, *flags: str
) -> None:
    """Live a life in which the manager is killed before and after each of these writes."""
    writes = without_races(writes)
    plan = for_each(writes, KILLS)
    async with world(plane, directory, *flags) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"{call.side}: {call.what}", act)
            await live_each(made, plan)
            check_exercised(writes, KILLS, made.script.hits)


@pytest.mark.long
async def test_a_manager_killed_at_every_write_of_its_lease_leads_again(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """The lease is made, taken over from the dead one each time, renewed and released."""
    deeds = await rehearse_election(control_plane, tmp_path)
    plan = {
        Call("api", LEASE if what.startswith("PUT") else "", what, nth): act
        for what in deeds
        for nth, act in enumerate(KILLS, 1)
    }
    async with world(control_plane, tmp_path, *ELECTION, plan=plan) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"api: {call.what}", act)
            while made.script.plan:
                await done_to_lease(made, "renew")
                if all(call.what.endswith("release") for call in made.script.plan):
                    await made.manager.stop()
            assert made.script.hits == plan
            await made.join(*names("node", 2))
            await made.serve("web-0")
            await made.delete("web-0")
            made.check_history(())
