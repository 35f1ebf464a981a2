"""A whole manager that does nothing by itself for hours learns of changes from vCenters."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from labs.vsphere import Fault
from labs.vsphere.simulator import nic
from proreus.kube.objects import TAINT_SHUTDOWN, has_taint
from proreus.testing.controlplane import ControlPlane
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.waiting import until

from ...apiserver.site import is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from .site import Site, site, two
from .stage import Stage
from .test_news import waiting

RARELY = (
    "--node-status-update-frequency=24h",
    "--node-monitor-period=24h",
    "--node-startup-grace=0s",
)
"""Only what a vCenter tells can have anything done."""
PATIENCE = 120.0
MANY = 500


async def has_address(stage: Stage, name: str, address: str) -> bool:
    """Whether a Node has the address."""
    node = await stage.site.existing(name)
    return any(one.address == address for one in node.status.addresses)


async def is_tainted(stage: Stage, name: str) -> bool:
    """Whether a Node has the taint of machines that are off."""
    return has_taint(await stage.site.existing(name), TAINT_SHUTDOWN)


async def test_a_new_address_and_a_power_off_are_on_nodes_without_a_round(
    control_plane: ControlPlane, vcenter: Site, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as cluster:
        stage = Stage(cluster, vcenter, tmp_path)
        stage.file.write_text(vcenter.config())
        names = ("a", "b", "c")
        await stage.join(*names)
        async with stage.manager(*RARELY):
            await until("all are initialised", partial(stage.initialised, names), PATIENCE)
            await waiting(vcenter)
            before = vcenter.gateway.calls.copy()
            await vcenter.simulator.change("a", address="10.9.9.9", nics=[nic("10.9.9.9")])
            await until("it is there", partial(has_address, stage, "a", "10.9.9.9"), PATIENCE)
            # One tells, one asks, and one waits for what comes next.
            assert (vcenter.gateway.calls - before).keys() == {"WaitForUpdatesEx"}
            assert (vcenter.gateway.calls - before).total() <= 4
            await vcenter.simulator.change("b", power="poweredOff", nics=[], hostName="")
            await stage.site.silence("b")
            await until("it is tainted", partial(is_tainted, stage, "b"), PATIENCE)


@pytest.mark.long
async def test_1000_machines_of_two_vcenters_cost_few_calls_and_changes_are_seen_at_once(
    control_plane: ControlPlane,
    vcenter: Site,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with (
        set_up(control_plane, tmp_path) as cluster,
        site(tmp_path_factory.mktemp("b"), Authority()) as other,
    ):
        east, west = (Stage(cluster, one, tmp_path) for one in (vcenter, other))
        east.file.write_text(two(vcenter, other))
        halves = [[f"{name}{number}" for number in range(MANY)] for name in ("e", "w")]
        for stage, half in zip((east, west), halves, strict=True):
            await stage.create(*half)
            await stage.register_all(*half)
        for one in (vcenter, other):  # slow ones, with sessions that end
            one.gateway.fail(Fault("WaitForUpdatesEx", times=5, seconds=1.0))
            one.gateway.fail(Fault("WaitForUpdatesEx", name="NotAuthenticated"))
        async with east.manager(*RARELY):
            await until("all are initialised", partial(are_initialised, east, halves), 600.0)
            for one in (vcenter, other):
                await waiting(one)
                assert one.gateway.calls.total() < 100, one.gateway.calls
                assert one.gateway.answered.total() < 10_000_000, one.gateway.answered
                assert not one.gateway.unspent()
            for stage, half in zip((east, west), halves, strict=True):
                await sees_changes(stage, half)
            # One vCenter hangs, sessions of the other are killed: it tells all the same.
            vcenter.gateway.fail(Fault(".*", times=10**6, seconds=3600.0))
            await other.simulator.expire()
            await other.gateway.__aexit__(None, None, None)
            await other.simulator.change("w7", address="10.9.9.7", nics=[nic("10.9.9.7")])
            await other.gateway.__aenter__()
            await until("it is there", partial(has_address, west, "w7", "10.9.9.7"), PATIENCE)


async def are_initialised(stage: Stage, halves: Sequence[Sequence[str]]) -> bool:
    """Whether all Nodes are."""
    nodes = await stage.site.nodes()
    return len(nodes) == sum(map(len, halves)) and all(map(is_initialised, nodes.values()))


async def sees_changes(stage: Stage, names: Sequence[str]) -> None:
    """Change one machine's address, and stop another one."""
    simulator, gateway = stage.vcenter.simulator, stage.vcenter.gateway
    before = gateway.calls.total()
    await simulator.change(names[3], address="10.9.9.3", nics=[nic("10.9.9.3")])
    has_it = partial(has_address, stage, names[3], "10.9.9.3")
    await until("it is there", has_it, PATIENCE)
    assert gateway.calls.total() - before <= 6
    await simulator.change(names[4], power="poweredOff", nics=[], hostName="")
    await stage.site.silence(names[4])
    await until("it is tainted", partial(is_tainted, stage, names[4]), PATIENCE)
