"""The two managers: the official one, built from its Go module, and this one."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from benchmarks.contestants import Process
from proreus.testing.controlplane.build import run
from proreus.testing.manager import ManagerProcess

from ....apiserver.site import Site  # noqa: TID252 - pytest imports tests by path

MODULE: Final = Path(__file__).parent / "ccm"
BOTH: Final = ("--cluster-name=test", "--node-status-update-frequency=2s", "-v=4")


async def build(directory: Path) -> Path:
    """Build the official manager; from Go's own cache this takes seconds, else minutes."""
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the official provider")
    program = directory / "ccm"
    command = ("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    environment = {**os.environ, "CGO_ENABLED": "0"}
    await run((*command, "-o", str(program), "."), MODULE, environment)
    return program


def official(
    site: Site, program: Path, config: Path, log: Path, pace: Sequence[str] = BOTH
) -> Process:
    """The controllers of the Go framework with the official provider."""
    kubeconfig = site.plane.kubeconfig_for("official", ["system:masters"])
    flags = (f"--cloud-config={config}", f"--kubeconfig={kubeconfig}")
    return Process([str(program), *pace, *flags], log)


def ours(site: Site, config: Path, pace: Sequence[str] = BOTH) -> ManagerProcess:
    """This manager, with the rights of the generated roles."""
    manager = site.lone_manager(user="cloudstack-manager")
    apart = ("--cloud-", "--leader-elect", "-v=")
    return ManagerProcess(
        *[one for one in manager.flags if not one.startswith(apart)],
        *pace,
        "--cloud-provider=external-cloudstack",
        "--leader-elect=false",
        f"--cloud-config={config}",
        log=manager.log,
    )
