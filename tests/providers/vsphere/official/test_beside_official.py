"""The official manager and this one on the same vCenter: both end alike, and a cluster moves."""

from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.contestants import Process
from labs.vsphere.simulator import nic
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ....apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...managers import build  # noqa: TID252
from ..site import Site  # noqa: TID252
from ..stage import LABELS, PACE, Stage  # noqa: TID252

pytestmark = pytest.mark.long

MODULE: Final = Path(__file__).parent / "ccm"
LONG: Final = 240.0
ROUNDS: Final = 5
"""Looks at all nodes after which a manager is taken to be content."""
RULES: Final = """
[Nodes]
internal-network-subnet-cidr = "192.168.0.0/16,10.0.0.0/8"
external-vm-network-name = "dmz"
exclude-external-network-subnet-cidr = "172.16.9.0/24"
"""
STATIC: Final = {
    "guestinfo.metadata": "bmV0d29yazoge2V0aGVybmV0czoge2E6IHthZGRyZXNzZXM6IFsxMC4yLjIuMi8yNF19fX0=",
    "guestinfo.metadata.encoding": "base64",
}
MACHINES: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "several": {"nics": [nic("127.0.0.1", "fe80::1", "10.1.1.1"), nic("192.168.1.1", network="DMZ")]},
    "inside": {"nics": [nic("10.3.3.3", "192.168.3.3"), nic("172.16.9.3", "172.16.8.3", network="DMZ")]},
    "static": {"nics": [nic("10.2.2.1", "10.2.2.2")], "extra": STATIC},
    "virtual": {"nics": [nic("10.4.4.1", device=-1), nic("10.4.4.2")]},
    "large": {"cpus": 16, "memory": 65535, "guest": "other3xLinux64Guest"},
    "newer": {"guest": "rhel9_64Guest"},
}  # fmt: skip

Picture = dict[str, tuple[str, list[str], dict[str, str], list[str]]]


def official(stage: Stage, program: Path) -> Process:
    """The node controllers of the Go framework with the official provider."""
    kubeconfig = stage.site.plane.kubeconfig_for("official", ["system:masters"])
    flags = (f"--cloud-config={stage.file}", f"--kubeconfig={kubeconfig}", "-v=2")
    return Process([str(program), *PACE, *flags], stage.directory / "official.log")


def picture(nodes: dict[str, Node]) -> Picture:
    """What a manager writes to nodes."""
    return {
        name: (
            one.spec.provider_id,
            [f"{at.type} {at.address}" for at in one.status.addresses],
            dict(sorted(one.metadata.labels.items())),
            sorted(taint.key for taint in one.spec.taints),
        )
        for name, one in nodes.items()
    }


async def settled(stage: Stage, names: list[str]) -> Picture:
    """The nodes once they are initialised, and have been looked at some times more."""
    await until("the nodes are initialised", partial(stage.initialised, names), LONG)
    operations = ("WaitForUpdatesEx", "FindByUuid")

    def looks() -> int:
        return sum(stage.vcenter.gateway.calls[one] for one in operations)

    enough = looks() + ROUNDS

    async def are_done() -> bool:
        return looks() >= enough

    await until("they are looked at", are_done, LONG)
    return picture(await stage.site.nodes())


async def start(stage: Stage) -> None:
    """Make the machines and their Nodes."""
    stage.vcenter.gateway.restricted = False
    await stage.tag()
    for name, more in MACHINES.items():
        await stage.join(name, **more)


@pytest.mark.parametrize("rules", ["", RULES], ids=["no rules", "rules"])
async def test_both_give_nodes_the_same(
    control_plane: ControlPlane, vcenter: Site, tmp_path: Path, rules: str
) -> None:
    program = await build(MODULE, tmp_path)
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, vcenter, tmp_path)
        stage.file.write_text(vcenter.config(LABELS + rules))
        await start(stage)
        async with official(stage, program):
            theirs = await settled(stage, list(MACHINES))
        for name in MACHINES:
            await site.client.delete(NODES, name)
        for number, (name, uuid) in enumerate(vcenter.simulator.uuids.items()):
            await stage.register(name, uuid, ready=number > 0)
        async with stage.manager():
            ours = await settled(stage, list(MACHINES))
    assert ours == theirs


async def test_a_cluster_moves_from_the_official_manager_and_back_and_its_nodes_stay_as_they_are(
    control_plane: ControlPlane, vcenter: Site, tmp_path: Path
) -> None:
    program = await build(MODULE, tmp_path)
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, vcenter, tmp_path)
        await start(stage)
        async with official(stage, program):
            before = await settled(stage, list(MACHINES))
        async with stage.manager():
            assert await settled(stage, list(MACHINES)) == before
            # Only the condition that says so.
            assert site.patches() == {name: {"status": 1} for name in MACHINES}
            await stage.join("later")
            moved = await settled(stage, [*MACHINES, "later"])
        assert {name: one for name, one in moved.items() if name != "later"} == before
        async with official(stage, program):
            assert await settled(stage, [*MACHINES, "later"]) == moved
