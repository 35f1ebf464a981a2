"""One manager of `mesos` and `local`: agents get the traffic of load balancers of `local`."""

from pathlib import Path

from ..with_local import MACHINES, Cloud, nodes_of_a_cloud_behind_load_balancers_of_local, play  # noqa: TID252 - pytest imports tests by path
from .emulator import LOST, served
from .world import Status


def test_agents_get_traffic_of_local_by_one_manager_while_masters_come_and_go(
    tmp_path: Path,
) -> None:
    async def live() -> None:
        async with served() as mesos:
            for name, ip in MACHINES.items():
                mesos.world.add(name, ip)

            def leave(name: str) -> None:
                mesos.world.on(name).status = Status.GONE

            def fail() -> None:
                for operation in ("registry", "GET_MASTER", "GET_AGENTS"):
                    mesos.fail(operation, LOST, times=10_000)

            cloud = Cloud("mesos", mesos.config(), leave, fail)
            await nodes_of_a_cloud_behind_load_balancers_of_local(cloud, tmp_path)

    play(live)
