"""kill -9 of the manager before and after every write: the end is the same, and nothing is twice."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ..apiserver.site import names  # noqa: TID252 - pytest imports tests by path
from .boundaries import for_each, owners
from .relay import Act, Call
from .table import Tally
from .world import World, world

KILLS = (Act.KILL_BEFORE, Act.KILL_AFTER)
LEASE = "cloud-controller-manager"
ELECTION = (
    "--leader-elect=true",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)


@pytest.mark.long
async def test_a_manager_killed_at_every_write_of_nodes_and_services_loses_nothing(
    control_plane: ControlPlane, tmp_path: Path, rehearsed: Sequence[Call], tally: Tally
) -> None:
    writes = [call for call in rehearsed if call.writes and call.owner in {"node-0", "web-0"}]
    plan = for_each(writes, KILLS)
    async with world(control_plane, tmp_path) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"{call.side}: {call.what}", act)
            made.script.plan = dict(plan)
            await made.live(owners(plan, "node"), owners(plan, "web"))
            assert not made.script.plan, "never reached"


@pytest.mark.long
async def test_a_manager_killed_at_every_write_of_its_lease_leads_again(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """Made once; then taken over from the dead one each time, and renewed."""
    plan: Mapping[Call, Act] = {
        Call("api", "", "POST leases", 1): Act.KILL_BEFORE,
        Call("api", "", "POST leases", 2): Act.KILL_AFTER,
        Call("api", LEASE, "PUT leases", 1): Act.KILL_BEFORE,
        Call("api", LEASE, "PUT leases", 2): Act.KILL_AFTER,
        Call("api", LEASE, "PUT leases", 4): Act.KILL_BEFORE,
        Call("api", LEASE, "PUT leases", 6): Act.KILL_AFTER,
    }
    async with world(control_plane, tmp_path, *ELECTION, plan=plan) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"api: {call.what}", act)
            await reached(made)
            await made.join(*names("node", 2))
            await made.serve("web-0")
            await made.delete("web-0")
            made.check_history(())


async def reached(made: World) -> None:
    """Wait until everything that was planned has happened."""

    async def is_done() -> bool:
        return not made.script.plan

    await made.when("the plan is carried out", is_done)
