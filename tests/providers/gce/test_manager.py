"""A whole manager on Compute Engine: many nodes and Services, while Google throttles and fails."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import ENDPOINT_SLICES
from proreus.providers.gce.balancing.annotations import TYPE
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..lives import ClusterLife  # noqa: TID252
from .cloud.server import Gce
from .cloud.world import ZONES
from .lb_site import KINDS
from .site import PATIENT, config_text

FLAGS = (
    "--cloud-provider=gce",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)

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


class Life(ClusterLife):
    """A cluster whose machines and load balancers are in a project."""

    def __init__(
        self, site: Site, gce: Gce, directory: Path, patience: float, sections: str = ""
    ) -> None:
        super().__init__(site, patience)
        self.gce = gce
        self._file = directory / "gce.conf"
        self._file.write_text(config_text(gce, sections=f"{PATIENT}{sections}"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

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
        return await self.register({name: name for name in names}, with_cidrs=True)

    async def leave(self, names: Sequence[str]) -> None:
        """Let machines end, and their kubelets with them."""
        for name in names:
            self.gce.terminate(name)
        await self.site.silence(*names)

    async def served(self, count: int, ports: str, names: Iterable[str]) -> dict[str, str]:
        """Wait until every Service has its load balancer, with these ports and hosts."""
        hosts = set(names)

        async def are_served() -> dict[str, str] | None:
            shown = {
                one.metadata.name: point.ip
                for one in await self.services()
                for point in one.status.load_balancer.ingress
            }
            if len(shown) < count or set(shown.values()) != set(self._rules(ports)):
                return None
            pools = [set(map(_name, one["instances"])) for one in self.of("targetPools")]
            groups = self.of("instanceGroups")
            members = {_name(link) for one in groups for link in one["members"]}
            is_full = all(pool == hosts for pool in pools) and members == hosts
            return shown if is_full else None

        return await self.until(f"{count} Services are served at {ports}", are_served)

    def _rules(self, ports: str) -> list[str]:
        """The addresses of forwarding rules with these ports."""
        return [
            one["IPAddress"]
            for one in self.of("forwardingRules")
            if one.get("portRange", ",".join(one.get("ports", ()))).replace("80-80", "80")
            in {ports, ports.replace(",", "-")}
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All resources of a kind."""
        with self.gce.world.lock:
            return [dict(one) for _, one in self.gce.world.of(kind)]

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route."""
        wanted = sorted(names)

        async def are_routed() -> bool:
            return sorted(_name(one["nextHopInstance"]) for one in self.of("routes")) == wanted

        await self.until(f"there are {len(wanted)} routes", are_routed)

    def left(self) -> bool:
        """Whether anything is left of load balancers."""
        return any(map(self.gce.names, KINDS))


def _name(link: str) -> str:
    return link.rpartition("/")[2]


def _service(number: int) -> dict[str, Any]:
    """Both kinds by turns."""
    return {"annotations": {TYPE: "Internal"} if number % 2 else {}}


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    gce = life.gce
    gce.world.latency, gce.world.lag, gce.world.page = 0.05, 0.5, 50
    gce.quota, gce.minute = {"read": 400, "write": 400}, 2.0
    async with life.manager():
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services, _service)
        await life.initialised(names)
        await life.routed(names)
        before = await life.served(services, "80", names)
        assert not life.unspent()

        life.fail(WHILE_CHANGED)
        gce.tokens.revoke()
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services, loadBalancerSourceRanges=["192.0.2.0/24"])
        await life.leave(gone)
        await life.initialised(rest)
        await life.routed(rest)
        assert await life.served(services, "80,443", rest) == before
        assert not life.unspent()

    # Another process goes on, while rights are missing for a moment.
    life.fail(WHILE_DELETED)
    gce.granted = frozenset({"compute.instances.list", "compute.zones.list"})
    async with life.manager():
        await life.end(services)
        await asyncio.sleep(3.0)
        assert set(await life.site.nodes()) == set(rest)
        gce.granted = None
        await life.end(0, rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty(life.left)
        assert not life.unspent()


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_200_nodes_and_20_services(
    control_plane: ControlPlane, gce: Gce, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, gce, tmp_path, 600.0), nodes=200, services=20, leaving=10)


def _slice(node: str) -> dict[str, Any]:
    """A ready pod of the Service on this node, as its controller would write it."""
    meta = {"name": "web-0-1", "labels": {"kubernetes.io/service-name": "web-0"}}
    pod = {"addresses": ["10.64.0.9"], "conditions": {"ready": True}, "nodeName": node}
    ports = [{"name": "http", "port": 80}]
    return {"metadata": meta, "addressType": "IPv4", "endpoints": [pod], "ports": ports}


@pytest.mark.long
async def test_a_subset_of_local_traffic_follows_the_pods(
    control_plane: ControlPlane, gce: Gce, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        life = Life(site, gce, tmp_path, 120.0, "[LoadBalancer]\nsubsetting = true\n")
        local = {"externalTrafficPolicy": "Local", "annotations": {TYPE: "Internal"}}

        async def follow(node: str) -> None:
            async def is_attached() -> bool:
                groups = life.of("networkEndpointGroups")
                return [each["instance"] for one in groups for each in one["endpoints"]] == [node]

            await life.until(f"{node} alone is attached", is_attached)

        async with life.manager():
            names = await life.join(3)
            await life.initialised(names)
            await life.serve(1, lambda _: local)
            await site.client.create(ENDPOINT_SLICES, _slice(names[0]), "default")
            await follow(names[0])
            moved = Patch(PatchType.MERGE, {"endpoints": _slice(names[2])["endpoints"]})
            await site.client.patch(ENDPOINT_SLICES, "web-0-1", moved, "default")
            await follow(names[2])
            await life.end(1, names)
            await life.empty(life.left)
            await site.client.delete(ENDPOINT_SLICES, "web-0-1", "default")
