"""Nothing of a cluster stays, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labs.cluster import Cluster, ClusterError, directory_of, find, remove
from labs.cluster.cgroups import hierarchies
from labs.cluster.cluster import cgroup_of

from .conftest import Make
from .looking import serve, until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
MANY = 10


def test_a_killed_gateway_takes_everything_with_it(make: Make) -> None:
    before = machine()
    cluster = make(nodes=1)
    cluster.start()
    cluster.plane.kubectl(
        "taint", "node", "node-1", "node.cloudprovider.kubernetes.io/uninitialized-"
    )
    serve(cluster, "server", node="node-1")
    space, processes = members(cluster)
    assert len(processes) > MANY
    assert containers(cluster)

    os.kill(int(cluster.gateway.entry[-1]), signal.SIGKILL)

    until("the end of all", lambda: not of_namespace(space) and not containers(cluster))
    assert machine() == before

    remove(cluster.settings.name)

    assert not directory_of(cluster.settings.name).exists()
    assert not groups(cluster.settings.name)


def test_removal_ends_a_cluster_whose_programs_were_killed(make: Make) -> None:
    before = machine()
    cluster = make(nodes=1)
    cluster.start()
    space, _ = members(cluster)
    node = cluster.nodes[0].machine
    for program in ("containerd", "kubelet"):
        node.kill(program, signal.SIGKILL)
    cluster.gateway.kill("etcd", signal.SIGKILL)
    cluster.gateway.kill("holder-node-1", signal.SIGKILL)

    remove(cluster.settings.name)

    # What is killed takes a moment to end.
    until("the end of all", lambda: not of_namespace(space))
    assert not directory_of(cluster.settings.name).exists()
    assert not groups(cluster.settings.name)
    assert machine() == before


def test_what_a_killed_maker_left_is_removed(make: Make) -> None:
    cluster = make()
    name = cluster.settings.name
    maker = subprocess.Popen(
        [sys.executable, "-m", "labs.cluster", f"--name={name}", "up"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    until("a gateway", (cluster.directory / "node-1").exists)
    maker.kill()
    maker.wait()
    space, _ = namespace(find(name, cluster.programs)["gateway"].entry[-1])

    remove(name)

    assert not of_namespace(space)
    assert not cluster.directory.exists()
    with pytest.raises(ClusterError, match="no cluster"):
        find(name, cluster.programs)


def test_a_second_cluster_of_a_name_is_refused_and_the_first_one_stays(make: Make) -> None:
    cluster = make()
    cluster.directory.mkdir(parents=True)

    with pytest.raises(ClusterError, match="make cluster-down"):
        cluster.start()

    assert cluster.directory.exists()


def machine() -> dict[str, object]:
    """What clusters must leave as it was; mounts and links of others may come and go."""
    return {
        "mounts": [
            line for line in Path("/proc/mounts").read_text().splitlines() if "proreus" in line
        ],
        "links": sorted(Path("/sys/class/net").glob("nodes*")),
        "tunables": [
            Path("/proc/sys", one).read_text() for one in ("vm/overcommit_memory", "kernel/panic")
        ],
        "places": [Path(one).exists() for one in ("/var/lib/kubelet", "/var/log/pods")],
    }


def namespace(pid: str) -> tuple[str, list[str]]:
    space = str(Path(f"/proc/{pid}/ns/pid").readlink())
    return space, of_namespace(space)


def members(cluster: Cluster) -> tuple[str, list[str]]:
    return namespace(cluster.gateway.entry[-1])


def of_namespace(space: str) -> list[str]:
    """The processes of a PID namespace."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if str((place / "ns/pid").readlink()) == space:
                found.append(place.name)
        except OSError:
            continue
    return found


def containers(cluster: Cluster) -> list[str]:
    """The processes of pods; they have PID namespaces of their own."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if cgroup_of(cluster.settings.name) in (place / "cgroup").read_text():
                found.append(place.name)
        except OSError:
            continue
    return found


def groups(name: str) -> list[Path]:
    return [one / cgroup_of(name) for one in hierarchies() if (one / cgroup_of(name)).exists()]
