"""A cluster on CloudStack moves from the official manager to this one and back, and keeps its parts.

The official provider of release 1.2.0 speaks to the emulator by CloudStack's SDK for Go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.kube.objects import Node
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ....apiserver.site import Site, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, make  # noqa: TID252
from ...changes import happen as change  # noqa: TID252
from ..emulator.server import Emulator, role  # noqa: TID252
from .managers import build, official, ours
from .picture import picture

pytestmark = pytest.mark.long

PREFIX: Final = "service.beta.kubernetes.io/cloudstack-load-balancer-"
GIVEN, FREE = "203.0.113.50", "203.0.113.60"
NAMES: Final = ("node-a", "node-b", "node-c")


def port(number: int, node_port: int, protocol: str = "TCP") -> Mapping[str, Any]:
    name = f"p{number}-{protocol.lower()}"
    return {"name": name, "port": number, "nodePort": node_port, "protocol": protocol}


FIRST: Final[Mapping[str, Change]] = {
    "plain": Change((port(80, 30080),)),
    "many": Change((port(80, 30180), port(443, 30543), port(53, 30153, "UDP"))),
    "sticky": Change((port(80, 30280),), spec={"sessionAffinity": "ClientIP"}),
    "proxied": Change((port(80, 30380),), {f"{PREFIX}proxy-protocol": "true"}),
    "ranges": Change(
        (port(80, 30480),), spec={"loadBalancerSourceRanges": ["192.0.2.0/24", "10.0.0.0/8"]}
    ),
    "sources": Change((port(80, 30580),), {f"{PREFIX}source-cidrs": "192.0.2.0/24, 10.0.0.0/8"}),
    "given": Change((port(80, 30680),), spec={"loadBalancerIP": GIVEN}),
    "named": Change((port(80, 30780),), spec={"loadBalancerIP": FREE}),
    "short": Change((port(80, 30880),)),
}
HARMLESS: Final = {"createTags", "createLBStickinessPolicy"}
QUIET: Final = 4.0
"""Seconds after which a manager that has begun has changed what it wants to change."""


class Stage:
    """A cluster of three machines in an isolated network."""

    def __init__(self, site: Site, emulator: Emulator, directory: Path) -> None:
        self.site, self.emulator, self.world = site, emulator, emulator.world
        self.network = self.world.add_network()
        self.world.add_addresses("203.0.113.1", 80)
        self.given = next(one for one in self.world.ips.values() if one["ipaddress"] == GIVEN)
        self.given |= {"state": "Allocated", "associatednetworkid": self.network}
        self.given["allocated"] = "2026-01-01T00:00:00+0000"
        self.config = directory / "cloud-config"
        self.config.write_text(emulator.config("region = north"))

    async def join(self) -> None:
        ids = self.world.add_machines(NAMES, self.network, publicip="198.51.100.9")
        for name, id_ in zip(NAMES, ids, strict=True):
            await self.site.register_node(Instance(name=name, id=id_), ready=True)

    async def nodes(self) -> dict[str, Any]:
        """What managers write on Nodes, once all are initialised and have addresses."""

        async def are_initialised() -> dict[str, Node] | None:
            found = await self.site.nodes()
            ready = all(
                is_initialised(one)
                and one.spec.provider_id
                and any(of.type == "ExternalIP" for of in one.status.addresses)
                for one in found.values()
            )
            return found if ready else None

        found = await until("the nodes are initialised", are_initialised, 300.0)
        return {
            name: (one.spec.provider_id, one.status.addresses, topology(one))
            for name, one in found.items()
        }

    def ids(self) -> dict[str, str]:
        """Rules, firewall rules and allocated addresses by their ids."""
        found = {id_: one["name"] for id_, one in self.world.rules.items()}
        found |= {id_: f"firewall {one['startport']}" for id_, one in self.world.firewall.items()}
        taken = (one for one in self.world.ips.values() if one["state"] != "Free")
        return found | {one["id"]: one["ipaddress"] for one in taken}

    def allocated(self) -> set[str]:
        taken = (one for one in self.world.ips.values() if one["state"] != "Free")
        return {one["ipaddress"] for one in taken}

    def writes(self) -> list[str]:
        """The commands since the last call that were no questions."""
        found = [command for command, _ in self.emulator.log]
        self.emulator.log.clear()
        return [one for one in found if not one.startswith(("list", "query"))]

    def looked(self, log: Path, names: set[str]) -> Callable[[], Awaitable[bool]]:
        """Whether the official manager has begun to ensure these Services since now."""
        start = log.stat().st_size

        async def all_named() -> bool:
            text = log.read_bytes()[start:].decode(errors="replace")
            return all(f"EnsureLoadBalancer(test, default, {name}," in text for name in names)

        return all_named

    async def ensured(self, names: set[str]) -> None:
        """Wait until our manager has found these Services to be as desired."""

        async def are_ready() -> bool:
            found = {name: await self.site.service(name) for name in names}
            conditions = [
                (one.type, one.status) for s in found.values() for one in s.status.conditions
            ]
            return conditions.count(("LoadBalancerReady", "True")) == len(names)

        await until("the Services are ensured", are_ready, 300.0)


def topology(node: Node) -> dict[str, str]:
    kept = ("topology.kubernetes.io/", "node.kubernetes.io/instance-type", "failure-domain")
    return {k: v for k, v in node.metadata.labels.items() if k.startswith(kept)}


async def test_a_cluster_moves_from_the_official_manager_and_back_and_keeps_its_parts(
    control_plane: ControlPlane, emulator: Emulator, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    log = tmp_path / "official.log"
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, emulator, tmp_path)
        theirs, mine = official(site, program, stage.config, log), ours(site, stage.config)
        try:
            # The official manager makes everything.
            emulator.rights = None
            await theirs.start()
            await stage.join()
            machines = await stage.nodes()
            await make(site, FIRST, 300.0)
            before, ids = picture(stage.world), stage.ids()
            await theirs.stop()
            assert len(before["rules"]) == 11

            # This one keeps all of it, and writes marks, and the time of affinity.
            emulator.rights = role()
            stage.writes()
            await mine.start()
            await stage.ensured(set(FIRST))
            assert picture(stage.world) == before
            assert stage.ids() == ids
            assert await stage.nodes() == machines
            assert set(stage.writes()) <= HARMLESS

            # It changes, deletes and makes some.
            await change(site, "plain", Change((port(80, 30080), port(443, 30443))))
            await change(site, "short", Change())
            late = {"late": Change((port(80, 30980),), spec={"sessionAffinity": "ClientIP"})}
            await make(site, late, 300.0)

            async def is_edited() -> bool:
                rules = picture(stage.world)["rules"]
                members = all(one["members"] == list(NAMES) for one in rules.values())
                return len(rules) == 12 and members and len(stage.world.firewall) == 12

            await until("all is edited", is_edited, 300.0)
            await stage.ensured(set(FIRST) - {"short"} | {"late"})
            edited, ids = picture(stage.world), stage.ids()
            await mine.stop()

            # Back, the official manager finds everything as it would have made it.
            emulator.rights = None
            stage.writes()
            names = set(FIRST) - {"short"} | {"late"}
            looked = stage.looked(log, names)
            await theirs.start()
            await until("the official one has looked at all", looked, 300.0)
            await asyncio.sleep(QUIET)
            assert picture(stage.world) == edited
            assert stage.ids() == ids
            assert stage.writes() == []
            for name in names:
                await change(site, name, Change())

            async def is_empty() -> bool:
                return not stage.world.rules and stage.allocated() == {GIVEN}

            await until("the official one has deleted all but the given address", is_empty, 300.0)
        finally:
            await mine.stop()
            await theirs.stop()
            print(mine.output()[-4000:], log.read_text()[-6000:] if log.exists() else "")
