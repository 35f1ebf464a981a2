"""A whole manager on Baidu AI Cloud: many nodes and Services, while it throttles and fails."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from proreus.kube.objects import Node
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..lives import ClusterLife  # noqa: TID252
from .emulator.server import LOST, Emulator

FLAGS: Final = (
    "--cloud-provider=cce",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)

# What goes wrong while things are made, changed and deleted. A lost answer had its effect.
WHILE_MADE: Final[Mapping[str, tuple[int, bool]]] = {
    "createLoadBalancer": (LOST, True),
    "createEip": (LOST, True),
    "createTCPListener": (LOST, True),
    "addBackendServers": (500, False),
    "bindEip": (LOST, True),
    "updateLoadBalancer": (500, True),
    "createRouteRule": (LOST, True),
    "listListeners": (503, False),
    "listEips": (LOST, False),
}
WHILE_CHANGED: Final[Mapping[str, tuple[int, bool]]] = {
    "createTCPListener": (500, False),
    "updateTCPListener": (LOST, True),
    "listInstances": (500, False),
    "removeBackendServers": (LOST, True),
}
WHILE_DELETED: Final[Mapping[str, tuple[int, bool]]] = {
    "deleteLoadBalancer": (LOST, True),
    "unbindEip": (LOST, True),
    "releaseEip": (LOST, True),
    "deleteRouteRule": (LOST, True),
    "listLoadBalancers": (500, False),
}


class Life(ClusterLife):
    """A cluster whose machines and load balancers are in a VPC."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path, patience: float) -> None:
        super().__init__(site, patience)
        self.emulator = emulator
        self.world = emulator.world
        self._vpc = self.world.add_vpc("192.168.0.0/16")
        self.subnet = self.world.add_subnet(self._vpc)
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the keys of now."""
        self._file.write_text(self.emulator.config(VpcId=self._vpc, Timeout="60s"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        for operation, (status, after_effect) in failures.items():
            self.emulator.fail(operation, status, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start machines; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        ids = self.world.add_machines(names, self.subnet)
        return await self.register(dict(zip(names, ids, strict=True)), with_cidrs=True)

    async def leave(self, names: Sequence[str]) -> None:
        """Release machines, and let their kubelets end with them."""
        for name in names:
            self.world.remove_machine(self.ids[name])
        await self.site.silence(*names)

    # What there is to be seen

    def is_right(self, name: str, node: Node) -> bool:
        return node.spec.provider_id == f"cce://{self.ids[name]}"

    async def served(self, count: int, ports: set[int], machines: Iterable[str]) -> None:
        """Wait until every Service has listeners at these ports, with some of these machines."""
        hosts = {self.ids[name] for name in machines}
        most = min(len(hosts), 50)

        async def are_served() -> bool:
            shown = await self.shown()
            there = {
                one["publicIp"]: {port for _, port in self.world.listeners[id_]}
                for id_, one in self.world.balancers.items()
            }
            members = [set(one) for one in self.world.servers.values()]
            return (
                len(shown) == count
                and there == dict.fromkeys(shown, ports)
                and all(len(one) == most and one <= hosts for one in members)
            )

        await self.until(f"{count} Services are served at {ports}", are_served)

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route."""
        hops = {self.ids[name] for name in names}

        async def are_routed() -> bool:
            rules = self.world.rules.values()
            return {one["nexthopId"] for one in rules} == hops and len(rules) == len(hops)

        await self.until(f"there are {len(hops)} routes", are_routed)

    def left(self) -> object:
        """What is left of load balancers."""
        return self.world.balancers or self.world.eips


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    emulator = life.emulator
    emulator.world.settle = 0.2
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services)
        await life.initialised(names)
        await life.routed(names)
        await life.served(services, {80}, names)
        assert not emulator.failures

        # The keys are changed: at first to those of a user who is shown no machine.
        emulator.blind = {"planted-access-key-0002"}
        emulator.key, emulator.secret = "planted-access-key-0002", "planted-secret-key-0002"
        emulator.token = "planted-token-0002"
        life.configure()
        await life.outlive_less(names, lambda: emulator.calls["listInstances"])
        emulator.key, emulator.secret = "planted-access-key-0003", "planted-secret-key-0003"
        emulator.token = ""
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services, sessionAffinity="ClientIP")
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, {80, 443}, rest)

        emulator.limit = 40
        life.fail(WHILE_DELETED)
        await life.end(services, rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty(life.left)
    text = manager.output()
    assert not [
        one for one in ("planted-secret-key", "planted-token", "bce-auth-v1/") if one in text
    ]


@pytest.mark.long
async def test_nothing_is_left_of_a_life_in_which_the_cloud_throttles_fails_and_loses_answers(
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
