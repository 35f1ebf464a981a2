"""A whole manager on Compute Engine: many nodes and Services, while Google throttles and fails."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.providers.gce.balancing.annotations import TYPE
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, all_of, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import ZONES
from .lb_site import KINDS
from .site import config_text

T = TypeVar("T")

FLAGS = (
    "--cloud-provider=gce",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)
HTTP = {"name": "http", "port": 80}
HTTPS = {"name": "https", "port": 443}

# A fault without a status is a lost answer; one after the effect leaves what was asked for.
WHILE_MADE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("compute.forwardingRules.insert", {"status": 0, "after": True, "times": 2}),
    ("compute.targetPools.insert", {"status": 0, "after": True}),
    ("compute.firewalls.insert", {"status": 503, "after": True, "times": 2}),
    ("compute.regionBackendServices.insert", {"status": 0}),
    ("compute.routes.insert", {"status": 0, "after": True, "times": 3}),
    ("compute.instances.aggregatedList", {"status": 500, "reason": "internalError"}),
    ("compute.instanceGroups.addInstances", {"status": 0, "after": True}),
)
WHILE_CHANGED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("compute.forwardingRules.delete", {"status": 0, "after": True, "times": 2}),
    ("compute.addresses.insert", {"status": 0, "after": True, "times": 2}),
    ("compute.firewalls.patch", {"status": 503}),
    ("compute.forwardingRules.setLabels", {"status": 0, "after": True}),
)
WHILE_DELETED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("compute.forwardingRules.delete", {"status": 0, "after": True, "times": 2}),
    ("compute.targetPools.delete", {"status": 0, "after": True}),
    ("compute.firewalls.delete", {"status": 500}),
    ("compute.regionBackendServices.delete", {"status": 0}),
    ("compute.routes.delete", {"status": 0, "after": True}),
)


class Life:
    """A cluster whose machines and load balancers are in a project."""

    def __init__(self, site: Site, gce: Gce, directory: Path, patience: float) -> None:
        self.site = site
        self.gce = gce
        self._patience = patience
        self._file = directory / "gce.conf"
        self._file.write_text(config_text(gce))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    def fail(self, faults: Iterable[tuple[str, dict[str, Any]]]) -> None:
        for method, fields in faults:
            self.gce.fail(method, **fields)

    def unspent(self) -> list[str]:
        return [one.method for one in self.gce.faults if one.times]

    async def join(self, count: int) -> list[str]:
        """Start machines in all zones; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        for number, name in enumerate(names):
            self.gce.run(name, zone=ZONES[number % 3])
        await all_of(
            self.site.register_node(
                Instance(name=name, id=name), ready=True, podCIDR=cidr, podCIDRs=[cidr]
            )
            for number, name in enumerate(names)
            for cidr in [f"10.{64 + number // 256}.{number % 256}.0/24"]
        )
        return names

    async def leave(self, names: Sequence[str]) -> None:
        """Let machines end, and their kubelets with them."""
        for name in names:
            self.gce.terminate(name)
        await self.site.silence(*names)

    async def serve(self, count: int) -> None:
        """Make Services, of both kinds by turns."""
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

    async def served(self, count: int, ports: str, names: Iterable[str]) -> dict[str, str]:
        """Wait until every Service has its load balancer, with these ports and hosts."""
        hosts = set(names)

        async def are_served() -> dict[str, str] | None:
            services = (await self.site.client.list(SERVICES, "default")).items
            shown = {
                one.metadata.name: point.ip
                for one in services
                for point in one.status.load_balancer.ingress
            }
            if len(shown) < count or set(shown.values()) != set(self._rules(ports)):
                return None
            pools = [set(map(_name, one["instances"])) for one in self._all("targetPools")]
            groups = self._all("instanceGroups")
            members = {_name(link) for one in groups for link in one["members"]}
            is_full = all(pool == hosts for pool in pools) and members == hosts
            return shown if is_full else None

        return await self.until(f"{count} Services are served at {ports}", are_served)

    def _rules(self, ports: str) -> list[str]:
        """The addresses of forwarding rules with these ports."""
        return [
            one["IPAddress"]
            for one in self._all("forwardingRules")
            if one.get("portRange", ",".join(one.get("ports", ()))).replace("80-80", "80")
            in {ports, ports.replace(",", "-")}
        ]

    def _all(self, kind: str) -> list[dict[str, Any]]:
        with self.gce.world.lock:
            return [dict(one) for _, one in self.gce.world.of(kind)]

    async def initialised(self, names: Sequence[str]) -> None:
        async def are_initialised() -> bool:
            nodes = await self.site.nodes()
            return nodes.keys() == set(names) and all(map(is_initialised, nodes.values()))

        await self.until("the nodes are initialised", are_initialised)

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route."""
        wanted = sorted(names)

        async def are_routed() -> bool:
            return sorted(_name(one["nextHopInstance"]) for one in self._all("routes")) == wanted

        await self.until(f"there are {len(wanted)} routes", are_routed)

    async def empty(self) -> None:
        """Wait until nothing is left of any load balancer."""

        async def is_empty() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            return len(services) == 1 and not any(map(self.gce.names, KINDS))

        await self.until("nothing is left", is_empty)


def _name(link: str) -> str:
    return link.rpartition("/")[2]


def _service(number: int) -> dict[str, Any]:
    kind = {TYPE: "Internal"} if number % 2 else {}
    return {
        "metadata": {"name": f"web-{number}", "annotations": kind},
        "spec": {"type": "LoadBalancer", "ports": [HTTP]},
    }


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    gce = life.gce
    gce.world.latency, gce.world.lag, gce.world.page = 0.05, 0.5, 50
    gce.quota, gce.minute = {"read": 400, "write": 400}, 2.0
    async with life.manager():
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services)
        await life.initialised(names)
        await life.routed(names)
        before = await life.served(services, "80", names)
        assert not life.unspent()

        life.fail(WHILE_CHANGED)
        gce.tokens.revoke()
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services)
        await life.leave(gone)
        await life.initialised(rest)
        await life.routed(rest)
        assert await life.served(services, "80,443", rest) == before
        assert not life.unspent()

    # Another process goes on, while rights are missing for a moment.
    life.fail(WHILE_DELETED)
    gce.granted = frozenset({"compute.instances.list", "compute.zones.list"})
    async with life.manager():
        await all_of(
            life.site.client.delete(SERVICES, f"web-{number}", "default")
            for number in range(services)
        )
        await asyncio.sleep(3.0)
        assert set(await life.site.nodes()) == set(rest)
        gce.granted = None
        await all_of(life.site.client.delete(NODES, name) for name in rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty()
        assert not life.unspent()


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_200_nodes_and_20_services(
    control_plane: ControlPlane, gce: Gce, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, gce, tmp_path, 600.0), nodes=200, services=20, leaving=10)
