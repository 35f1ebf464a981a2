"""A whole manager on CloudStack: many nodes and Services, while CloudStack throttles and fails."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.kube.objects import Node
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..lives import ClusterLife  # noqa: TID252
from .emulator.server import LOST, Emulator
from .official.picture import picture

FLAGS: Final = (
    "--cloud-provider=external-cloudstack",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)

# What goes wrong while things are made, changed and deleted. A lost answer had its effect.
WHILE_MADE: Final[Mapping[str, tuple[int, bool]]] = {
    "associateIpAddress": (LOST, True),
    "createLoadBalancerRule": (LOST, True),
    "createTags": (530, True),
    "createNetworkACL": (LOST, True),
    "assignToLoadBalancerRule": (500, False),
    "createStaticRoute": (LOST, True),
    "listLoadBalancerRuleInstances": (503, False),
    "queryAsyncJobResult": (LOST, False),
}
WHILE_CHANGED: Final[Mapping[str, tuple[int, bool]]] = {
    "createLoadBalancerRule": (530, False),
    "deleteNetworkACL": (LOST, True),
    "listVirtualMachines": (500, False),
    "removeFromLoadBalancerRule": (LOST, True),
}
WHILE_DELETED: Final[Mapping[str, tuple[int, bool]]] = {
    "deleteLoadBalancerRule": (LOST, True),
    "disassociateIpAddress": (LOST, True),
    "deleteStaticRoute": (LOST, True),
    "listNetworkACLs": (530, False),
}


class Life(ClusterLife):
    """A cluster whose machines and load balancers are in a VPC of a project of CloudStack."""

    def __init__(
        self, site: Site, emulator: Emulator, directory: Path, patience: float, services: int
    ) -> None:
        super().__init__(site, patience)
        self.emulator = emulator
        self.world = emulator.world
        self.project = self.world.add_project("shop")
        self.network = self.world.add_network(vpc=True, cidr="10.1.0.0/16", owner=self.project)
        self.world.add_addresses("203.0.113.1", services + 2)
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the keys of now."""
        vpc = self.world.networks[self.network]["vpcid"]
        client = f"[Route]\nvpc-id = {vpc}\n[Client]\ntimeout = 60s\n"
        self._file.write_text(self.emulator.config(f"project-id = {self.project}", client))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        for command, (code, after_effect) in failures.items():
            self.emulator.fail(command, code, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start machines; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        ids = self.world.add_machines(names, self.network)
        return await self.register(dict(zip(names, ids, strict=True)), with_cidrs=True)

    async def leave(self, names: Sequence[str]) -> None:
        """Let machines end, and their kubelets with them."""
        for name in names:
            self.world.remove_machine(self.ids[name])
        await self.site.silence(*names)

    # What there is to be seen

    def is_right(self, name: str, node: Node) -> bool:
        return node.spec.provider_id == f"external-cloudstack://{self.ids[name]}"

    async def served(self, count: int, ports: set[str], machines: Iterable[str]) -> None:
        """Wait until every Service has rules at these ports with these machines."""
        hosts = sorted(self.ids[name] for name in machines)

        async def are_served() -> bool:
            shown = await self.shown()
            there: dict[str, set[str]] = {}
            for id_, one in self.world.rules.items():
                if sorted(self.world.members[id_]) == hosts and one["state"] == "Active":
                    there.setdefault(one["publicip"], set()).add(one["publicport"])
            return len(shown) == count and there == dict.fromkeys(shown, ports)

        await self.until(f"{count} Services are served at {ports}", are_served)

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route."""
        hops = {self.world.machines[self.ids[name]]["nic"][0]["ipaddress"] for name in names}

        async def are_routed() -> bool:
            routes = self.world.routes.values()
            return {one["nexthop"] for one in routes} == hops and len(routes) == len(hops)

        await self.until(f"there are {len(hops)} routes", are_routed)

    def left(self) -> object:
        """What is left of load balancers."""
        return picture(self.world) or any(self.world.tags.values())


def _service(number: int) -> dict[str, Any]:
    return {"sessionAffinity": "ClientIP"} if number % 3 == 0 else {}


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    emulator = life.emulator
    emulator.world.works = 0.2
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services, _service)
        await life.initialised(names)
        await life.routed(names)
        await life.served(services, {"80"}, names)
        assert not emulator.failures

        # The keys are changed: at first to those of a user who is shown no machine.
        emulator.blind = {"planted-api-key-0002"}
        emulator.key, emulator.secret = "planted-api-key-0002", "planted-secret-key-0002"
        life.configure()
        await life.outlive_less(names, lambda: emulator.calls["listVirtualMachines"])
        emulator.key, emulator.secret = "planted-api-key-0003", "planted-secret-key-0003"
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services, loadBalancerSourceRanges=["192.0.2.0/24"])
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, {"80", "443"}, rest)

        emulator.limit = 40
        life.fail(WHILE_DELETED)
        await life.end(services, rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty(life.left)
    text = manager.output()
    assert not [secret for secret in ("planted-secret-key", "signature=") if secret in text]


@pytest.mark.long
async def test_nothing_is_left_of_a_life_in_which_cloudstack_throttles_fails_and_loses_answers(
    control_plane: ControlPlane, emulator: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, emulator, tmp_path, 180.0, 4), nodes=6, services=4, leaving=2)


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_200_nodes_and_20_services(
    control_plane: ControlPlane, emulator: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, emulator, tmp_path, 1200.0, 20), nodes=200, services=20, leaving=10)
