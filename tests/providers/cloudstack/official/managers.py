"""The two managers: the official one, built from its Go module, and this one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.contestants import Process
from proreus.testing.manager import ManagerProcess

from ....apiserver.site import Site  # noqa: TID252
from ... import managers  # noqa: TID252 - pytest imports tests by path

MODULE: Final = Path(__file__).parent / "ccm"
BOTH: Final = ("--cluster-name=test", "--node-status-update-frequency=2s", "-v=4")


async def build(directory: Path) -> Path:
    """Build the official manager."""
    return await managers.build(MODULE, directory, CGO_ENABLED="0")


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
    return managers.alone(
        manager,
        *pace,
        "--cloud-provider=external-cloudstack",
        f"--cloud-config={config}",
    )
