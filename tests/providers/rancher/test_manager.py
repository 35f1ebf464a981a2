"""A whole manager on Rancher: many nodes and Services, while Rancher fails and loses answers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from proreus.kube.objects import Node
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..lives import ClusterLife  # noqa: TID252
from .emulator.schemas import Json
from .emulator.server import LOST, Emulator, served

FLAGS: Final = (
    "--cloud-provider=rancher",
    "--cluster-name=test",
    "--configure-cloud-routes=false",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
)

# What goes wrong while things are made, changed and deleted. A lost answer had its effect.
WHILE_MADE: Final[Mapping[str, tuple[int, bool]]] = {
    "GET hosts": (LOST, False),
    "GET loadbalancerservices": (500, False),
    "POST stacks": (LOST, True),
    "POST environments": (LOST, True),
    "POST externalservices": (LOST, True),
    "POST loadbalancerservices": (LOST, True),
    "POST loadbalancerservices?setservicelinks": (500, True),
    "POST loadbalancerservices?activate": (LOST, True),
}
WHILE_CHANGED: Final[Mapping[str, tuple[int, bool]]] = {
    "GET externalservices": (503, False),
    "PUT loadbalancerservices": (LOST, True),
    "POST loadbalancerservices?upgrade": (LOST, True),
    "POST loadbalancerservices?finishupgrade": (500, False),
    "DELETE externalservices": (LOST, True),
}
WHILE_DELETED: Final[Mapping[str, tuple[int, bool]]] = {
    "DELETE loadbalancerservices": (LOST, True),
    "DELETE externalservices": (409, False),
    "GET serviceconsumemaps": (500, False),
}


class Life(ClusterLife):
    """A cluster whose machines are hosts of Rancher."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path, patience: float) -> None:
        super().__init__(site, patience)
        self.emulator, self.world = emulator, emulator.world
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the keys of now."""
        self._file.write_text(self.emulator.config("[Client]\ntimeout = 60s\n"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        """Let those requests fail that the version of the API in use has."""
        is_new = "v2-beta" in self.emulator.versions
        old = {"POST environments", *(name for name in failures if "?" in name)}
        new = {"POST stacks", "PUT loadbalancerservices"}
        for name, (status, after_effect) in failures.items():
            if name not in (old if is_new else new):
                self.emulator.fail(name, status, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start hosts; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        return await self.register(dict(zip(names, self.world.add_hosts(names), strict=True)))

    async def leave(self, names: Sequence[str]) -> None:
        """Let hosts be purged, and their kubelets end with them."""
        for name in names:
            self.world.remove_host(self.ids[name])
        await self.site.silence(*names)

    # What there is to be seen

    def is_right(self, name: str, node: Node) -> bool:
        return node.spec.provider_id == f"rancher://{self.ids[name]}"

    async def served(self, count: int, ports: set[str], hosts: Iterable[str]) -> None:
        """Wait until every Service is balanced at these ports to these hosts."""
        expected = {self.world.host(self.ids[name])["agentIpAddress"] for name in hosts}

        async def are_served() -> bool:
            self.world.advance()
            shown = [one for one in await self.services() if one.status.load_balancer.ingress]
            balancers = self.world.of("loadBalancerService")
            return len(shown) == len(balancers) == count and all(
                one["state"] == "active"
                and self._ports(one) == ports
                and self._led_to(one) == expected
                for one in balancers
            )

        await self.until(f"{count} Services are served at {ports}", are_served)

    async def tidy(self, count: int) -> None:
        """Wait until there are as many external services as nodes."""

        async def is_tidy() -> bool:
            self.world.advance()
            return len(self.world.of("externalService")) == count

        await self.until("external services of nodes that left are gone", is_tidy)

    def left(self) -> object:
        """What is left of load balancers."""
        self.world.advance()
        return self.world.services()

    def _ports(self, one: Json) -> set[str]:
        return {str(port).partition(":")[0] for port in one["launchConfig"]["ports"]}

    def _led_to(self, one: Json) -> set[str]:
        ids = [link["consumedServiceId"] for link in self.world.links_of(one["id"])]
        return {self.world.objects[id_]["externalIpAddresses"][0] for id_ in ids}


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    emulator, world = life.emulator, life.world
    world.works = 0.2
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services)
        await life.initialised(names)
        await life.served(services, {"80"}, names)
        assert not emulator.failures

        # The keys are changed: at first to those of an environment without hosts.
        emulator.blind = {"planted-access-key-0002"}
        emulator.key, emulator.secret = "planted-access-key-0002", "planted-secret-key-0002"
        life.configure()
        await life.outlive_less(names, lambda: emulator.calls["GET hosts"])
        emulator.key, emulator.secret = "planted-access-key-0003", "planted-secret-key-0003"
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services)
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.served(services, {"80", "443"}, rest)
        await life.tidy(len(rest))

        emulator.limit = 40
        life.fail(WHILE_DELETED)
        await life.end(services)
        await life.empty(life.left)
        assert len(world.of("stack")) == 1
    text = manager.output()
    assert not [secret for secret in ("planted-secret-key", "Basic ") if secret in text]
    assert not emulator.dropped
    assert not emulator.ignored


@pytest.mark.long
async def test_nothing_is_left_of_a_life_in_which_rancher_fails_and_loses_answers(
    control_plane: ControlPlane, newest: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, newest, tmp_path, 180.0), nodes=6, services=4, leaving=2)


@pytest.mark.long
async def test_nothing_is_left_of_such_a_life_on_a_server_of_v1(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with served(Emulator(("v1",))) as emulator, set_up(control_plane, tmp_path) as site:
        await live(Life(site, emulator, tmp_path, 300.0), nodes=6, services=4, leaving=2)


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_200_nodes_and_20_services(
    control_plane: ControlPlane, newest: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, newest, tmp_path, 1200.0), nodes=200, services=20, leaving=10)
