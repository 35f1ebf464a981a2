"""One manager of `ovirt` and `local`: machines get the traffic of load balancers of `local`."""

from pathlib import Path

import pytest

from proreus.providers.ovirt.operations import OPERATIONS

from ..with_local import MACHINES, Cloud, nodes_of_a_cloud_behind_load_balancers_of_local, play  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, served
from .emulator.world import MAC, Device, Nic

pytestmark = pytest.mark.long


def test_machines_get_traffic_of_local_by_one_manager_while_the_engine_is_away(
    tmp_path: Path,
) -> None:
    async def live() -> None:
        async with served() as engine:
            ids = {}
            for at, (name, ip) in enumerate(MACHINES.items()):
                mac = f"{MAC}:99:{at:02x}"
                nics, devices = [Nic(f"nic-{at}", "nic1", mac)], [Device("eth0", mac, [ip])]
                (ids[name],) = engine.world.add_vms([name], nics=nics, devices=devices)

            def leave(name: str) -> None:
                engine.world.remove(ids[name])

            def fail() -> None:
                for operation in OPERATIONS:
                    engine.fail(operation, LOST, times=10_000)

            cloud = Cloud("ovirt", engine.config(), leave, fail)
            await nodes_of_a_cloud_behind_load_balancers_of_local(cloud, tmp_path)

    play(live)
