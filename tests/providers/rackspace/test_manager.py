"""A whole manager on Rackspace: many nodes and Services, while it throttles, fails, loses answers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from .emulator.faults import LOST
from .emulator.server import REGION, Emulator
from .site import SCHEME

T = TypeVar("T")

FLAGS: Final = (
    "--cloud-provider=rackspace",
    "--cluster-name=test",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
)
HTTP = {"name": "http", "port": 80}
HTTPS = {"name": "https", "port": 443}
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


class Life:
    """A cluster whose servers and load balancers are at Rackspace."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path, patience: float) -> None:
        self.site = site
        self.emulator = emulator
        self._patience = patience
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the key of now."""
        self._file.write_text(self.emulator.config("[Client]\ntimeout = 60s\n"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        for operation, (status, after_effect) in failures.items():
            self.emulator.fail(operation, status, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start servers; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        self.ids = dict(zip(names, self.emulator.add_servers(names), strict=True))
        await all_of(
            self.site.register_node(Instance(name=name, id=self.ids[name]), ready=True)
            for name in names
        )
        return names

    async def leave(self, names: Sequence[str]) -> None:
        """Let servers end, and their kubelets with them."""
        for name in names:
            del self.emulator.servers[self.ids[name]]
        await self.site.silence(*names)

    async def serve(self, count: int) -> None:
        await all_of(
            self.site.client.create(SERVICES, _service(number), "default")
            for number in range(count)
        )

    async def edit(self, count: int) -> None:
        """Give each Service a port more, and let only some clients in."""
        spec = {"ports": [HTTP, HTTPS], "loadBalancerSourceRanges": ["192.0.2.0/24"]}
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
                one.spec.provider_id == f"{SCHEME}{self.ids[name]}"
                and one.metadata.labels.get("topology.kubernetes.io/region") == REGION
                and is_initialised(one)
                for name, one in nodes.items()
            )

        await self.until("the nodes are initialised", are_initialised)

    async def served(self, count: int, ports: set[int], names: Sequence[str]) -> None:
        """Wait until every Service has its load balancers, with as many nodes as one takes."""
        alive = {
            self.emulator.servers[self.ids[name]]["addresses"]["private"][0]["addr"]
            for name in names
        }

        async def are_served() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            shown = {point.ip for one in services for point in one.status.load_balancer.ingress}
            there: dict[str, set[int]] = {}
            for one in self.emulator.clb.alive():
                nodes = {node["address"] for node in one["nodes"]}
                is_whole = len(nodes) == min(len(names), MOST) and nodes <= alive
                if is_whole and one["status"] == "ACTIVE":
                    there.setdefault(one["virtualIps"][0]["address"], set()).add(one["port"])
            return len(shown) == count and there == dict.fromkeys(shown, ports)

        await self.until(f"{count} Services are served at {ports}", are_served)

    async def empty(self) -> None:
        """Wait until nothing is left of any load balancer."""

        async def is_empty() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            return len(services) == 1 and not self.emulator.clb.alive()

        await self.until("nothing is left", is_empty)


def _service(number: int) -> dict[str, Any]:
    more = {"sessionAffinity": "ClientIP"} if number % 3 == 0 else {}
    return {
        "metadata": {"name": f"web-{number}"},
        "spec": {"type": "LoadBalancer", "ports": [HTTP], **more},
    }


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    emulator = life.emulator
    emulator.clb.works = 0.2
    emulator.clb.limit = 2 * services
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services)
        await life.initialised(names)
        await life.served(services, {80}, names)
        assert not emulator.failures

        # The key is changed: at first to that of a user who is shown no server.
        emulator.blind = {"planted-api-key-0002"}
        emulator.key = "planted-api-key-0002"
        emulator.tokens.clear()
        life.configure()
        before = emulator.calls["GET server"]
        await life.site.silence(names[0])

        async def looked() -> bool:
            return emulator.calls["GET server"] > before + 5

        await life.until("the user who is shown less has looked", looked)
        assert (await life.site.nodes()).keys() == set(names)
        emulator.key = "planted-api-key-0003"
        emulator.tokens.clear()
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services)
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.served(services, {80, 443}, rest)

        emulator.rates = {"GET": 10, "POST": 5, "PUT": 10, "DELETE": 5}
        life.fail(WHILE_DELETED)
        await all_of(
            life.site.client.delete(SERVICES, f"web-{number}", "default")
            for number in range(services)
        )
        await all_of(life.site.client.delete(NODES, name) for name in rest[1:])
        await life.empty()
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
