"""A cluster moves from the official manager to this one and back, with its load balancers of NSX-T."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_SERVICE_UID
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ....apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen, make  # noqa: TID252
from ...managers import build  # noqa: TID252
from ..nsxt.emulator.server import Emulator, served  # noqa: TID252
from ..site import Site  # noqa: TID252
from ..stage import LABELS, Stage  # noqa: TID252
from .test_nsxt import (
    BALANCING,
    LONG,
    MODULE,
    ROUTES,
    addresses,
    eventually,
    join_for_routes,
    official,
    port,
    servers,
    tags,
)

pytestmark = pytest.mark.long

KINDS = ("lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations")


@pytest.fixture
async def nsxt(tmp_path: Path) -> AsyncIterator[Emulator]:
    async with served(tmp_path) as running:
        running.realization.works = 0.2
        yield running


def parts(nsxt: Emulator, *kinds: str) -> dict[str, dict[str, str]]:
    """The tags of objects by their paths, but for the system's objects."""
    found = (one for kind in kinds for one in nsxt.of(kind) if not one["_system_owned"])
    return {one["path"]: tags(one) for one in found}


async def test_load_balancers_keep_ids_and_addresses_on_the_way_here_and_back(
    control_plane: ControlPlane, vcenter: Site, nsxt: Emulator, tmp_path: Path
) -> None:
    program = await build(MODULE, tmp_path)
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, vcenter, tmp_path)
        balancing = BALANCING.partition("[LoadBalancerClass")[0]
        stage.file.write_text(vcenter.config(LABELS + nsxt.config() + balancing))
        vcenter.gateway.restricted = False
        await stage.tag()
        await stage.join("node-a", "node-b")
        nodes = partial(stage.initialised, ["node-a", "node-b"])
        wanted = {
            "web": Change((port(80, 30080), port(443, 30443))),
            "dns": Change((port(53, 30053), port(53, 30054, "UDP"))),
        }
        async with official(stage, program):
            await until("the nodes are there", nodes, LONG)
            await make(site, wanted, LONG)
        told = await addresses(stage, *wanted)
        theirs = parts(nsxt, *KINDS, "lb-services")

        async with stage.manager("--cluster-name=test"):

            def is_marked() -> bool:
                found = parts(nsxt, *KINDS)
                return all(MARK_SERVICE_UID in one for one in found.values())

            await eventually("all parts are marked", is_marked)
            assert parts(nsxt, *KINDS, "lb-services").keys() == theirs.keys()
            assert await addresses(stage, *wanted) == told
            await happen(site, "web", Change((port(80, 30080), port(8443, 30444))))
            await eventually("another port is there", lambda: ("web", "TCP/8443") in servers(nsxt))
            await eventually("one is gone", lambda: ("web", "TCP/443") not in servers(nsxt))
        ours = parts(nsxt, *KINDS, "lb-services")
        assert {one["ip_address"] for one in servers(nsxt).values()} == set(told.values())

        async with official(stage, program):
            before = nsxt.calls["LIST lb-virtual-servers"]
            await eventually(
                "the official manager has looked at both Services",
                lambda: nsxt.calls["LIST lb-virtual-servers"] >= before + 3,
            )
            await asyncio.sleep(2.0)
            assert parts(nsxt, *KINDS, "lb-services") == ours
            assert await addresses(stage, *wanted) == told
            for name in wanted:
                await happen(site, name, Change())
            await eventually(
                "nothing is left", lambda: not parts(nsxt, *KINDS, "lb-services", "groups")
            )


async def test_routes_keep_ids_and_hops_on_the_way_here_and_go_with_their_nodes(
    control_plane: ControlPlane, vcenter: Site, nsxt: Emulator, tmp_path: Path
) -> None:
    program = await build(MODULE, tmp_path)
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, vcenter, tmp_path)
        stage.file.write_text(vcenter.config(LABELS + nsxt.config() + ROUTES))
        vcenter.gateway.restricted = False
        await join_for_routes(stage, program, "node-a", "node-b")
        async with official(stage, program):
            await eventually("both have routes", lambda: len(nsxt.of("static-routes")) == 2)
        theirs = {one["path"]: one["next_hops"] for one in nsxt.of("static-routes")}
        flags = ("--cluster-name=test", "--configure-cloud-routes=true")
        more = ("--cluster-cidr=10.244.0.0/16", "--route-reconciliation-period=1s")
        async with stage.manager(*flags, *more):

            def are_marked() -> bool:
                found = parts(nsxt, "static-routes").values()
                return all(MARK_CLUSTER_UID in one for one in found)

            await eventually("both are marked", are_marked)
            assert {one["path"]: one["next_hops"] for one in nsxt.of("static-routes")} == theirs
            await site.client.delete(NODES, "node-a")
            await eventually("one is left", lambda: len(nsxt.of("static-routes")) == 1)
        assert not nsxt.refused
