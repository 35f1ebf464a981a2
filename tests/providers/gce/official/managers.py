"""The two managers: the official one, built from its Go module, and this one."""

from pathlib import Path
from typing import Final

from benchmarks.contestants import Process
from proreus.testing.manager import ManagerProcess

from ... import managers  # noqa: TID252 - pytest imports tests by path
from ..site import PATIENT  # noqa: TID252
from .stage import CLUSTER_CIDR, Stage

MODULE: Final = Path(__file__).parent / "ccm"
PACE: Final = (
    "--cluster-name=test",
    f"--cluster-cidr={CLUSTER_CIDR}",
    "--node-status-update-frequency=2s",
    "--route-reconciliation-period=1s",
    "-v=2",
)
"""Flags of both: what they do every few minutes they do every few seconds."""


async def build(directory: Path) -> Path:
    """Build the official manager."""
    return await managers.build(MODULE, directory)


def official(stage: Stage, program: Path) -> Process:
    """The controllers of the Go framework with the official provider."""
    kubeconfig = stage.site.plane.kubeconfig_for("official", ["system:masters"])
    cloud_config = stage.cloud_config("official", "")
    flags = (f"--cloud-config={cloud_config}", f"--kubeconfig={kubeconfig}")
    return Process([str(program), *PACE, *flags], stage.directory / "official.log")


def ours(stage: Stage) -> ManagerProcess:
    """This manager, with the rights of the generated roles."""
    manager = stage.site.lone_manager(user="gce-manager")
    return managers.alone(
        manager,
        *PACE,
        "--cloud-provider=gce",
        "--configure-cloud-routes=true",
        "--node-monitor-period=1s",
        f"--cloud-config={stage.cloud_config('ours', PATIENT)}",
        log=stage.directory / "ours.log",
    )
