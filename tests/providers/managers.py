"""The official manager of a cloud, built from its Go module, and this one in its place."""

import os
import shutil
from pathlib import Path

import pytest

from proreus.testing.controlplane.build import run
from proreus.testing.manager import ManagerProcess

_REPLACED = ("--cloud-", "--leader-elect", "-v=")


async def build(module: Path, directory: Path, **environment: str) -> Path:
    """Build the official manager; from Go's own cache this takes seconds, else minutes."""
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the official provider")
    program = directory / "ccm"
    command = ("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    await run((*command, "-o", str(program), "."), module, {**os.environ, **environment})
    return program


def alone(manager: ManagerProcess, *flags: str, log: Path | None = None) -> ManagerProcess:
    """This manager without an election, with these flags for the cloud and for what is logged."""
    kept = [flag for flag in manager.flags if not flag.startswith(_REPLACED)]
    return ManagerProcess(*kept, "--leader-elect=false", *flags, log=log or manager.log)
