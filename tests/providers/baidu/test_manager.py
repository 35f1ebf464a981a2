"""A whole manager on Baidu AI Cloud: many nodes and Services, while it throttles and fails."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, all_of, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, Emulator

T = TypeVar("T")

FLAGS: Final = (
    "--cloud-provider=cce",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)
HTTP = {"name": "http", "port": 80}
HTTPS = {"name": "https", "port": 443}

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


class Life:
    """A cluster whose machines and load balancers are in a VPC."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path, patience: float) -> None:
        self.site = site
        self.emulator = emulator
        self.world = emulator.world
        self._patience = patience
        self._vpc = self.world.add_vpc("192.168.0.0/16")
        self.subnet = self.world.add_subnet(self._vpc)
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the keys of now."""
        self._file.write_text(self.emulator.config(VpcId=self._vpc, Timeout="60s"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        for operation, (status, after_effect) in failures.items():
            self.emulator.fail(operation, status, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start machines; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        self.ids = dict(zip(names, self.world.add_machines(names, self.subnet), strict=True))
        await all_of(
            self.site.register_node(
                Instance(name=name, id=self.ids[name]), ready=True, podCIDR=cidr, podCIDRs=[cidr]
            )
            for number, name in enumerate(names)
            for cidr in [f"10.{64 + number // 256}.{number % 256}.0/24"]
        )
        return names

    async def leave(self, names: Sequence[str]) -> None:
        """Release machines, and let their kubelets end with them."""
        for name in names:
            self.world.remove_machine(self.ids[name])
        await self.site.silence(*names)

    async def serve(self, count: int) -> None:
        await all_of(
            self.site.client.create(SERVICES, _service(number), "default")
            for number in range(count)
        )

    async def edit(self, count: int) -> None:
        """Give each Service a port more, and connections of a client to one back end."""
        spec = {"ports": [HTTP, HTTPS], "sessionAffinity": "ClientIP"}
        change = Patch(PatchType.MERGE, {"spec": spec})
        await all_of(
            self.site.client.patch(SERVICES, f"web-{number}", change, "default")
            for number in range(count)
        )

    # What there is to be seen

    async def initialised(self, names: Sequence[str]) -> None:
        async def are_initialised() -> bool:
            nodes = await self.site.nodes()
            return nodes.keys() == set(names) and all(
                one.spec.provider_id == f"cce://{self.ids[name]}" and is_initialised(one)
                for name, one in nodes.items()
            )

        await self.until("the nodes are initialised", are_initialised)

    async def served(self, count: int, ports: set[int], machines: Iterable[str]) -> None:
        """Wait until every Service has listeners at these ports, with some of these machines."""
        hosts = {self.ids[name] for name in machines}
        most = min(len(hosts), 50)

        async def are_served() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            shown = {point.ip for one in services for point in one.status.load_balancer.ingress}
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

    async def empty(self) -> None:
        """Wait until nothing is left of any load balancer."""

        async def is_empty() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            return len(services) == 1 and not (self.world.balancers or self.world.eips)

        await self.until("nothing is left", is_empty)


def _service(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"web-{number}"},
        "spec": {"type": "LoadBalancer", "ports": [HTTP]},
    }


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
        before = emulator.calls["listInstances"]
        await life.site.silence(names[0])

        async def looked() -> bool:
            return emulator.calls["listInstances"] > before + 5

        await life.until("the user who is shown less has looked", looked)
        assert (await life.site.nodes()).keys() == set(names)
        emulator.key, emulator.secret = "planted-access-key-0003", "planted-secret-key-0003"
        emulator.token = ""
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services)
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, {80, 443}, rest)

        emulator.limit = 40
        life.fail(WHILE_DELETED)
        await all_of(
            life.site.client.delete(SERVICES, f"web-{number}", "default")
            for number in range(services)
        )
        await all_of(life.site.client.delete(NODES, name) for name in rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty()
    text = manager.output()
    assert not [
        one for one in ("planted-secret-key", "planted-token", "bce-auth-v1/") if one in text
    ]


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
