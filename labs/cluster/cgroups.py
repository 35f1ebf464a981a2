"""Control groups of the nodes: made before, removed after a cluster, in whatever hierarchies.

Version 1 has a hierarchy for each controller, version 2 has one.
https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html ,
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from labs.cluster.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
"""Where control groups are mounted."""

_PATIENCE = 600.0


def hierarchies() -> list[Path]:
    """Return the directories in which groups are made so that a container runtime finds them."""
    if (ROOT / "cgroup.procs").exists():
        return [ROOT]
    return sorted(place for place in ROOT.glob("*") if (place / "cgroup.procs").exists())


def why_not() -> str:
    """Return why no groups can be made, "" if they can."""
    if (places := hierarchies()) and all(os.access(place, os.W_OK) for place in places):
        return ""
    return (
        f"{ROOT} cannot be written: in a container, run it privileged and with the cgroup "
        "namespace of the host"
    )


def make(group: str, member: str) -> None:
    """Make a group, and one in it that a kubelet can have as its root."""
    for hierarchy in hierarchies():
        parent = hierarchy
        for name in (group, member):
            place = parent / name
            place.mkdir(exist_ok=True)
            # Version 1: without these nothing can be started in it.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (place / setting).exists() and not (hierarchy / "cgroup.controllers").exists():
                    (place / setting).write_text((parent / setting).read_text())
            # Version 2: what the parent does not hand on, children do not have.
            if (parent / "cgroup.subtree_control").exists():
                _hand_on(parent)
            parent = place


def remove(group: str) -> None:
    """End the processes of a group and remove it.

    Raises:
        ClusterError: some process does not end.
    """
    deadline = time.monotonic() + _PATIENCE
    for place in (hierarchy / group for hierarchy in hierarchies()):
        while place.exists():
            if time.monotonic() > deadline:
                raise ClusterError(f"{place} cannot be removed: processes in it do not end")
            for directory, _, _ in os.walk(place, topdown=False):
                for pid in _processes(Path(directory)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(OSError):  # not empty yet
                    Path(directory).rmdir()
            time.sleep(0.02)


def _hand_on(parent: Path) -> None:
    for controller in (parent / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # some cannot be handed on here
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def _processes(place: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from map(int, (place / "cgroup.procs").read_text().split())
