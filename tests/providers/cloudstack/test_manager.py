"""A whole manager on CloudStack: many nodes and Services, while CloudStack throttles and fails."""

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
from .official.picture import picture

T = TypeVar("T")

FLAGS: Final = (
    "--cloud-provider=external-cloudstack",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)
HTTP = {"name": "http", "port": 80}
HTTPS = {"name": "https", "port": 443}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}

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


class Life:
    """A cluster whose machines and load balancers are in a VPC of CloudStack."""

    def __init__(
        self, site: Site, emulator: Emulator, directory: Path, patience: float, services: int
    ) -> None:
        self.site = site
        self.emulator = emulator
        self.world = emulator.world
        self._patience = patience
        self.network = self.world.add_network(vpc=True, cidr="10.1.0.0/16")
        self.world.add_addresses("203.0.113.1", services + 2)
        self._file = directory / "cloud-config"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the keys of now."""
        vpc = self.world.networks[self.network]["vpcid"]
        client = f"[Route]\nvpc-id = {vpc}\n[Client]\ntimeout = 60s\n"
        self._file.write_text(self.emulator.config(sections=client))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    def fail(self, failures: Mapping[str, tuple[int, bool]]) -> None:
        for command, (code, after_effect) in failures.items():
            self.emulator.fail(command, code, after_effect=after_effect)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start machines; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        self.ids = dict(zip(names, self.world.add_machines(names, self.network), strict=True))
        await all_of(
            self.site.register_node(
                Instance(name=name, id=self.ids[name]), ready=True, podCIDR=cidr, podCIDRs=[cidr]
            )
            for number, name in enumerate(names)
            for cidr in [f"10.{64 + number // 256}.{number % 256}.0/24"]
        )
        return names

    async def leave(self, names: Sequence[str]) -> None:
        """Let machines end, and their kubelets with them."""
        for name in names:
            self.world.remove_machine(self.ids[name])
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
                one.spec.provider_id == f"external-cloudstack://{self.ids[name]}"
                and is_initialised(one)
                for name, one in nodes.items()
            )

        await self.until("the nodes are initialised", are_initialised)

    async def served(self, count: int, ports: set[str], machines: Iterable[str]) -> None:
        """Wait until every Service has rules at these ports with these machines."""
        hosts = sorted(self.ids[name] for name in machines)

        async def are_served() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            shown = {point.ip for one in services for point in one.status.load_balancer.ingress}
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

    async def empty(self) -> None:
        """Wait until nothing is left of any load balancer."""

        async def is_empty() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            return (
                len(services) == 1 and not picture(self.world) and not any(self.world.tags.values())
            )

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
    emulator.world.works = 0.2
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services)
        await life.initialised(names)
        await life.routed(names)
        await life.served(services, {"80"}, names)
        assert not emulator.failures

        # The keys are changed: at first to those of a user who is shown no machine.
        emulator.blind = {"planted-api-key-0002"}
        emulator.key, emulator.secret = "planted-api-key-0002", "planted-secret-key-0002"
        life.configure()
        before = emulator.calls["listVirtualMachines"]
        await life.site.silence(names[0])

        async def looked() -> bool:
            return emulator.calls["listVirtualMachines"] > before + 5

        await life.until("the user who is shown less has looked", looked)
        assert (await life.site.nodes()).keys() == set(names)
        emulator.key, emulator.secret = "planted-api-key-0003", "planted-secret-key-0003"
        life.configure()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services)
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, {"80", "443"}, rest)

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
    assert not [secret for secret in ("planted-secret-key", "signature=") if secret in text]


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
