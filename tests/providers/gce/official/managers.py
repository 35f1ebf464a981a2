"""The two managers: the official one, built from its Go module, and this one."""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from benchmarks.contestants import Process
from proreus.testing.controlplane.build import run
from proreus.testing.manager import ManagerProcess

from ..site import PATIENT  # noqa: TID252 - pytest imports tests by path
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
    """Build the official manager; from Go's own cache this takes seconds."""
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the official provider")
    program = directory / "ccm"
    command = ("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    await run((*command, "-o", str(program), "."), MODULE, os.environ)
    return program


def official(stage: Stage, program: Path) -> Process:
    """The controllers of the Go framework with the official provider."""
    kubeconfig = stage.site.plane.kubeconfig_for("official", ["system:masters"])
    cloud_config = stage.cloud_config("official", "")
    flags = (f"--cloud-config={cloud_config}", f"--kubeconfig={kubeconfig}")
    return Process([str(program), *PACE, *flags], stage.directory / "official.log")


def ours(stage: Stage) -> ManagerProcess:
    """This manager, with the rights of the generated roles."""
    manager = stage.site.lone_manager(user="gce-manager")
    return ManagerProcess(
        *[
            one
            for one in manager.flags
            if not one.startswith(("--cloud-", "--leader-elect", "-v="))
        ],
        *PACE,
        "--cloud-provider=gce",
        "--leader-elect=false",
        "--configure-cloud-routes=true",
        "--node-monitor-period=1s",
        f"--cloud-config={stage.cloud_config('ours', PATIENT)}",
        log=stage.directory / "ours.log",
    )
