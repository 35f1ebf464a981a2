"""One manager of `photon` and `local`: machines get the traffic of load balancers of `local`."""

from pathlib import Path

import pytest

from ..with_local import MACHINES, Cloud, nodes_of_a_cloud_behind_load_balancers_of_local, play  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, served
from .emulator.world import INSIDE
from .site import config

pytestmark = pytest.mark.long


def test_machines_get_traffic_of_local_by_one_manager_while_photon_controller_is_away(
    tmp_path: Path,
) -> None:
    async def live() -> None:
        async with served() as emulator:
            ids = {
                name: emulator.world.add_vm(name, [(INSIDE, ip)]) for name, ip in MACHINES.items()
            }

            def leave(name: str) -> None:
                emulator.world.remove_vm(ids[name])

            def fail() -> None:
                for _, operation in emulator.age.paths:
                    emulator.fail(operation, LOST, times=10_000)

            cloud = Cloud("photon", config(emulator), leave, fail)
            await nodes_of_a_cloud_behind_load_balancers_of_local(cloud, tmp_path)

    play(live)
