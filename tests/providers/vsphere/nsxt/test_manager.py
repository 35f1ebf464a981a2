"""A whole manager on vSphere with NSX-T: nodes, routes and Services, while NSX-T fails."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from proreus.kube.objects import Node
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ....apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ...lives import ClusterLife  # noqa: TID252
from ..site import Site as VCenter  # noqa: TID252
from .emulator import world
from .emulator.server import Emulator, Fault
from .site import NETWORK

FLAGS: Final = (
    "--cloud-provider=vsphere",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-status-update-frequency=2s",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--node-startup-grace=0s",
    "--route-reconciliation-period=2s",
)

# What goes wrong while things are made, changed and deleted. A lost answer had its effect.
WHILE_MADE: Final = (
    Fault("PUT lb-services", lost=True, after_effect=True),
    Fault("PUT lb-virtual-servers", lost=True, after_effect=True),
    Fault("PUT ip-allocations", lost=True, after_effect=True),
    Fault("PUT lb-pools", status=500),
    Fault("PUT lb-monitor-profiles", status=503, after_effect=True),
    Fault("PUT static-routes", lost=True, after_effect=True),
    Fault("GET realized-entities", status=500),
    Fault("LIST lb-pools", status=503),
)
WHILE_CHANGED: Final = (
    Fault("PUT lb-persistence-profiles", lost=True, after_effect=True),
    Fault("PUT lb-virtual-servers", status=500),
    Fault("LIST lb-virtual-servers", lost=True),
)
WHILE_DELETED: Final = (
    Fault("DELETE lb-virtual-servers", lost=True, after_effect=True),
    Fault("DELETE lb-pools", status=500, after_effect=True),
    Fault("DELETE ip-allocations", lost=True, after_effect=True),
    Fault("DELETE lb-services", lost=True, after_effect=True),
    Fault("DELETE static-routes", status=503),
    Fault("LIST ip-allocations", status=500),
)


class Life(ClusterLife):
    """A cluster whose machines are in a vCenter, and whose network is NSX-T's."""

    def __init__(
        self, site: Site, vcenter: VCenter, nsxt: Emulator, directory: Path, patience: float
    ) -> None:
        super().__init__(site, patience)
        self.vcenter = vcenter
        self.nsxt = nsxt
        world.add_pool(nsxt, "many", "Many", addresses="10.21.0.1-10.21.0.200")
        self._file = directory / "vsphere.conf"
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the password of now."""
        # Of size SMALL a service has 20 virtual servers at most, one for each port.
        network = NETWORK.replace("VIP pool", "Many").replace("SMALL", "MEDIUM")
        self._file.write_text(self.vcenter.config() + network + self.nsxt.config())

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    def fail(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.nsxt.fail(fault)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start machines; their kubelets register ready nodes. Their names."""
        names = [f"node-{number}" for number in range(count)]
        await self.vcenter.simulator.create(*names)
        ids = {name: self.vcenter.simulator.uuids[name] for name in names}
        return await self.register(ids, with_cidrs=True)

    async def leave(self, names: Sequence[str]) -> None:
        """Destroy machines, and let their kubelets end with them."""
        for name in names:
            await self.vcenter.simulator.destroy(name)
        await self.site.silence(*names)

    # What there is to be seen

    async def addresses(self, names: Iterable[str]) -> set[str]:
        """The internal addresses of nodes."""
        nodes = await self.site.nodes()
        return {address(nodes[name]) for name in names}

    async def served(self, count: int, ports: set[str], names: Sequence[str]) -> None:
        """Wait until every Service has servers at these ports, each with just these nodes."""

        async def are_served() -> bool:
            shown, hosts = await self.shown(), await self.addresses(names)
            there: dict[str, set[str]] = {}
            for one in self.nsxt.of("lb-virtual-servers"):
                there.setdefault(one["ip_address"], set()).update(one["ports"])
            pools = self.nsxt.of("lb-pools")
            return (
                len(shown) == count
                and there == dict.fromkeys(shown, ports)
                and len(pools) == count * len(ports)
                and all({one["ip_address"] for one in pool["members"]} == hosts for pool in pools)
            )

        await self.until(f"{count} Services are served at {ports}", are_served)

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route."""
        hops = await self.addresses(names)

        async def are_routed() -> bool:
            found = [one["next_hops"][0]["ip_address"] for one in self.nsxt.of("static-routes")]
            return sorted(found) == sorted(hops)

        await self.until(f"there are {len(hops)} routes", are_routed)

    def left(self) -> object:
        """What is left of load balancers."""
        from_here: list[str] = []
        kinds = ("lb-services", "lb-virtual-servers", "lb-pools", "ip-allocations", "groups")
        for kind in (*kinds, "lb-monitor-profiles", "lb-persistence-profiles"):
            found = (one for one in self.nsxt.of(kind) if not one["_system_owned"])
            from_here += [one["path"] for one in found]
        return from_here


def address(node: Node) -> str:
    """The internal address of a node, or "" while it has none."""
    found = (one.address for one in node.status.addresses if one.type == "InternalIP")
    return next(found, "")


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    nsxt = life.nsxt
    nsxt.realization.works = 0.3
    async with life.manager() as manager:
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services)
        await life.initialised(names)
        await life.routed(names)
        await life.served(services, {"80"}, names)
        assert not nsxt.unspent()

        nsxt.sessions.users["admin"] = "planted-nsxt-password-2"
        nsxt.sessions.expire()
        life.configure()
        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services, sessionAffinity="ClientIP")
        await life.leave(gone)
        await manager.kill()
        await manager.start()
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, {"80", "443"}, rest)
        assert not nsxt.unspent()
        assert len(nsxt.of("lb-services")) == 1

        nsxt.rate = 60
        life.fail(WHILE_DELETED)
        await life.end(services, rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty(life.left)
    text = manager.output()
    assert not [one for one in ("planted-nsxt-password", "Basic ") if one in text]


@pytest.mark.long
async def test_nothing_is_left_of_a_life_in_which_nsxt_throttles_fails_and_loses_answers(
    control_plane: ControlPlane, vcenter: VCenter, nsxt: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, vcenter, nsxt, tmp_path, 240.0), nodes=4, services=3, leaving=1)


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_100_nodes_and_20_services(
    control_plane: ControlPlane, vcenter: VCenter, nsxt: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, vcenter, nsxt, tmp_path, 1200.0), nodes=100, services=20, leaving=5)


@pytest.mark.long
async def test_nodes_are_looked_after_while_nsxt_is_away(
    control_plane: ControlPlane, vcenter: VCenter, nsxt: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        life = Life(site, vcenter, nsxt, tmp_path, 240.0)
        nsxt.fail(Fault("*", status=500, times=10**6))
        async with life.manager():
            names = await life.join(2)
            await life.serve(1)
            await life.initialised(names)
            assert not await life.shown()
            nsxt.mend()
            await life.served(1, {"80"}, names)
            await life.routed(names)
