"""A whole manager on Rackspace: many nodes and Services, while it throttles, fails, loses answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.kube.objects import Node
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..lives import ClusterLife  # noqa: TID252
from .emulator.faults import LOST
from .emulator.server import REGION, Emulator
from .site import SCHEME

FLAGS: Final = (
    "--cloud-provider=rackspace",
    "--cluster-name=test",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
)
MOST: Final = 25

# What goes wrong while things are made, changed and deleted. A lost answer had its effect.
WHILE_MADE: Final[Mapping[str, tuple[int, bool]]] = {
    "POST loadbalancers": (LOST, True),
    "GET loadbalancer": (503, False),
    "GET servers/detail": (500, False),
}
WHILE_CHANGED: Final[Mapping[str, tuple[int, bool]]] = {
    "POST loadbalancers": (500, False),
    "POST accesslist": (LOST, True),
    "DELETE nodes": (LOST, True),
    "GET servers/detail": (LOST, False),
}
WHILE_DELETED: Final[Mapping[str, tuple[int, bool]]] = {
    "DELETE loadbalancer": (LOST, True),
    "GET loadbalancers": (503, False),
}


class Life(ClusterLife):
    """A cluster whose servers and load balancers are at Rackspace."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path, patience: float) -> None:
        super().__init__(site, patience)
        self.emulator = emulator
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the key of now."""
        self._file.write_text(self.emulator.config("[Client]\ntimeout = 60s\n"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        for operation, (status, after_effect) in failures.items():
            self.emulator.fail(operation, status, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start servers; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        return await self.register(dict(zip(names, self.emulator.add_servers(names), strict=True)))

    async def leave(self, names: Sequence[str]) -> None:
        """Let servers end, and their kubelets with them."""
        for name in names:
            del self.emulator.servers[self.ids[name]]
        await self.site.silence(*names)

    # What there is to be seen

    def is_right(self, name: str, node: Node) -> bool:
        return (
            node.spec.provider_id == f"{SCHEME}{self.ids[name]}"
            and node.metadata.labels.get("topology.kubernetes.io/region") == REGION
        )

    async def served(self, count: int, ports: set[int], names: Sequence[str]) -> None:
        """Wait until every Service has its load balancers, with as many nodes as one takes."""
        alive = {
            self.emulator.servers[self.ids[name]]["addresses"]["private"][0]["addr"]
            for name in names
        }

        async def are_served() -> bool:
            shown = await self.shown()
            there: dict[str, set[int]] = {}
            for one in self.emulator.clb.alive():
                nodes = {node["address"] for node in one["nodes"]}
                is_whole = len(nodes) == min(len(names), MOST) and nodes <= alive
                if is_whole and one["status"] == "ACTIVE":
                    there.setdefault(one["virtualIps"][0]["address"], set()).add(one["port"])
            return len(shown) == count and there == dict.fromkeys(shown, ports)

        await self.until(f"{count} Services are served at {ports}", are_served)

    def left(self) -> object:
        """What is left of load balancers."""
        return self.emulator.clb.alive()


def _service(number: int) -> dict[str, Any]:
    return {"sessionAffinity": "ClientIP"} if number % 3 == 0 else {}


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    emulator = life.emulator
    emulator.clb.works = 0.2
    emulator.clb.limit = 2 * services
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services, _service)
        await life.initialised(names)
        await life.served(services, {80}, names)
        assert not emulator.failures

        # The key is changed: at first to that of a user who is shown no server.
        emulator.blind = {"planted-api-key-0002"}
        emulator.key = "planted-api-key-0002"
        emulator.tokens.clear()
        life.configure()
        await life.outlive_less(names, lambda: emulator.calls["GET server"])
        emulator.key = "planted-api-key-0003"
        emulator.tokens.clear()
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services, loadBalancerSourceRanges=["192.0.2.0/24"])
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.served(services, {80, 443}, rest)

        emulator.rates = {"GET": 10, "POST": 5, "PUT": 10, "DELETE": 5}
        life.fail(WHILE_DELETED)
        await life.end(services, rest[1:])
        await life.empty(life.left)
    text = manager.output()
    assert "planted-api-key" not in text
    assert "planted-token" not in text


async def test_nothing_is_left_of_a_life_in_which_rackspace_throttles_fails_and_loses_answers(
    control_plane: ControlPlane, emulator: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, emulator, tmp_path, 180.0), nodes=6, services=4, leaving=2)


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_200_nodes_and_20_services(
    control_plane: ControlPlane, emulator: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, emulator, tmp_path, 1200.0), nodes=200, services=20, leaving=10)
