"""`proreus clusters` on a real API server and masters of Mesos, as a user who may only read."""

from pathlib import Path

from proreus.testing.controlplane import ControlPlane

from ...apiserver.read_only import reader  # noqa: TID252 - pytest imports tests by path
from ...apiserver.site import set_up  # noqa: TID252 - as above
from .emulator import LOST, Cluster


async def test_the_command_names_the_cluster_and_its_leading_master_and_only_reads(
    control_plane: ControlPlane, mesos: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "mesos.conf"
    file.write_text(mesos.config())
    cloud = ("--cloud-provider=mesos", f"--cloud-config={file}")
    mesos.world.cluster = "production"
    mesos.elect(1)
    mesos.masters[1].info.hostname = "m1.example"
    async with set_up(control_plane, tmp_path) as site, reader(site, "namer", tmp_path) as user:
        names = await user.run("clusters list", *cloud)
        master = await user.run("clusters master production", *cloud)
        unknown = await user.run("clusters master other", *cloud)
        without = await user.run("clusters list")
        file.with_name("wrong.conf").write_text("[mesos-cloud]\nmesos-mastr = m.example:5050\n")
        wrong = await user.run("clusters list", *cloud, f"--cloud-config={tmp_path}/wrong.conf")
        lost = await user.run("clusters list", *cloud, "--master=https://127.0.0.1:1")
        mesos.fail("GET_FLAGS", LOST, times=100)
        silent = await user.run("clusters list", *cloud)
        user.check_only_read()

    assert (names.code, names.out, names.err) == (0, "production\n", "")
    assert (master.code, master.out) == (0, "m1.example\n")
    assert (unknown.code, unknown.out) == (1, "")
    assert "there is no cluster 'other'" in unknown.err
    assert (without.code, without.out) == (2, "")
    assert "--cloud-provider: simulated lacks the capability Clusters" in without.err
    assert (wrong.code, wrong.out) == (2, "")
    assert "mesos-mastr" in wrong.err
    assert (lost.code, lost.out) == (1, "")
    assert "the request to the API server failed" in lost.err
    assert (silent.code, silent.out) == (1, "")
    assert "the call to the cloud failed" in silent.err
