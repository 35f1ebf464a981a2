"""A whole manager on Rancher: many nodes and Services, while Rancher fails and loses answers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pytest

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, all_of, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from .emulator.schemas import Json
from .emulator.server import LOST, Emulator, served

T = TypeVar("T")

FLAGS: Final = (
    "--cloud-provider=rancher",
    "--cluster-name=test",
    "--configure-cloud-routes=false",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
)
HTTP = {"name": "http", "port": 80}
HTTPS = {"name": "https", "port": 443}

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


class Life:
    """A cluster whose machines are hosts of Rancher."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path, patience: float) -> None:
        self.site, self.emulator, self.world = site, emulator, emulator.world
        self._patience = patience
        self._file = directory / "cloud-config"
        self.ids: dict[str, str] = {}
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the keys of now."""
        self._file.write_text(self.emulator.config("[Client]\ntimeout = 60s\n"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

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
        self.ids |= dict(zip(names, self.world.add_hosts(names), strict=True))
        await all_of(
            self.site.register_node(Instance(name=name, id=self.ids[name]), ready=True)
            for name in names
        )
        return names

    async def leave(self, names: Sequence[str]) -> None:
        """Let hosts be purged, and their kubelets end with them."""
        for name in names:
            self.world.remove_host(self.ids[name])
        await self.site.silence(*names)

    async def serve(self, count: int) -> None:
        spec = {"type": "LoadBalancer", "ports": [HTTP]}
        await all_of(
            self.site.client.create(
                SERVICES, {"metadata": {"name": f"web-{number}"}, "spec": spec}, "default"
            )
            for number in range(count)
        )

    async def edit(self, count: int) -> None:
        """Give each Service a port more."""
        change = Patch(PatchType.MERGE, {"spec": {"ports": [HTTP, HTTPS]}})
        await all_of(
            self.site.client.patch(SERVICES, f"web-{number}", change, "default")
            for number in range(count)
        )

    # What there is to be seen

    async def initialised(self, names: Sequence[str]) -> None:
        async def are_initialised() -> bool:
            nodes = await self.site.nodes()
            return nodes.keys() == set(names) and all(
                one.spec.provider_id == f"rancher://{self.ids[name]}" and is_initialised(one)
                for name, one in nodes.items()
            )

        await self.until("the nodes are initialised", are_initialised)

    async def served(self, count: int, ports: set[str], hosts: Iterable[str]) -> None:
        """Wait until every Service is balanced at these ports to these hosts."""
        expected = {self.world.host(self.ids[name])["agentIpAddress"] for name in hosts}

        async def are_served() -> bool:
            self.world.advance()
            services = (await self.site.client.list(SERVICES, "default")).items
            shown = [one for one in services if one.status.load_balancer.ingress]
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

    async def empty(self) -> None:
        """Wait until nothing is left but the stack."""

        async def is_empty() -> bool:
            self.world.advance()
            services = (await self.site.client.list(SERVICES, "default")).items
            return len(services) == 1 and not self.world.services()

        await self.until("nothing is left", is_empty)

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
        before = emulator.calls["GET hosts"]
        await life.site.silence(names[0])

        async def looked() -> bool:
            return emulator.calls["GET hosts"] > before + 5

        await life.until("the manager has looked with the keys that show less", looked)
        assert (await life.site.nodes()).keys() == set(names)
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
        await all_of(
            life.site.client.delete(SERVICES, f"web-{number}", "default")
            for number in range(services)
        )
        await life.empty()
        assert len(world.of("stack")) == 1
    text = manager.output()
    assert not [secret for secret in ("planted-secret-key", "Basic ") if secret in text]
    assert not emulator.dropped
    assert not emulator.ignored


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
