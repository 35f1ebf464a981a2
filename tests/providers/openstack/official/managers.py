"""The two managers: the official one, built from its Go module, and this one."""

from pathlib import Path
from typing import Final

from benchmarks.contestants import Process
from proreus.testing.manager import ManagerProcess

from ... import managers  # noqa: TID252 - pytest imports tests by path
from .stage import CLUSTER_CIDR, Stage

MODULE: Final = Path(__file__).parent / "ccm"
PACE: Final = (
    "--node-status-update-frequency=2s",
    "--route-reconciliation-period=1s",
    "--node-monitor-period=1s",
)
"""What both do every few minutes they do every few seconds."""
USUAL: Final = (
    "--node-status-update-frequency=5m",
    "--route-reconciliation-period=10s",
    "--node-monitor-period=5s",
)
"""The pace that managers have by default."""
_BOTH: Final = ("--cluster-name=test", f"--cluster-cidr={CLUSTER_CIDR}", "-v=2")


async def build(directory: Path) -> Path:
    """Build the official manager."""
    return await managers.build(MODULE, directory)


def official(stage: Stage, program: Path, pace: tuple[str, ...] = PACE) -> Process:
    """The controllers of the Go framework with the official provider."""
    kubeconfig = stage.site.plane.kubeconfig_for("official", ["system:masters"])
    flags = (f"--cloud-config={stage.cloud_config()}", f"--kubeconfig={kubeconfig}")
    return Process([str(program), *_BOTH, *pace, *flags], stage.directory / "official.log")


def ours(stage: Stage, pace: tuple[str, ...] = PACE) -> ManagerProcess:
    """This manager, with the rights of the generated roles."""
    manager = stage.site.lone_manager(user="openstack-manager")
    return managers.alone(
        manager,
        *_BOTH,
        *pace,
        "--cloud-provider=openstack",
        "--configure-cloud-routes=true",
        f"--cloud-config={stage.cloud_config()}",
        log=stage.directory / "ours.log",
    )
