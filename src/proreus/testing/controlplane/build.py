"""Build etcd and kube-apiserver from source with Go, versions pinned by `gomodule/<version>`.

To add a version, make that directory with a `go.mod` like those beside it: it requires
`k8s.io/kubernetes` of the version, replaces the modules that Kubernetes replaces with its staging
directory by their published versions, and names the two programs as tools.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path

from proreus.testing.controlplane.errors import ControlPlaneError
from proreus.testing.controlplane.progress import Report, announced

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}


async def build(
    directory: Path, *, version: str, environ: Mapping[str, str], report: Report
) -> None:
    """Build the programs into `directory`; needs the Go module proxy or a filled module cache.

    Raises:
        ControlPlaneError: there is no Go, no module of the version, or the build failed; holds the
            end of what Go said.
    """
    modules = files("proreus.testing.controlplane") / "gomodule"
    if not (modules / version).is_dir():
        known = ", ".join(sorted(one.name for one in modules.iterdir()))
        raise ControlPlaneError(f"there is no Go module of Kubernetes {version}, only of {known}")
    go = shutil.which("go", path=environ.get("PATH", os.defpath))
    if go is None:
        raise ControlPlaneError("no `go` on the PATH")
    source = directory / "gomodule"
    with as_file(modules / version) as shipped:
        shutil.copytree(shipped, source)
    report(
        "building the control plane with Go, once on a machine: "
        "some 4 minutes on four processors, 8 on two"
    )
    for program, package in PACKAGES.items():
        command = (
            *(go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
            f"-ldflags=-s -w {stamp(version)}",
            *("-o", str(directory / program), package),
        )
        async with announced(report, f"building {program}"):
            await run(command, source, environ)
    shutil.rmtree(source)


def stamp(version: str) -> str:
    """Return the linker flags without which /version answers v0.0.0-master."""
    major, minor, _ = version.split(".")
    fields = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(
        f"-X k8s.io/component-base/version.{name}={value}" for name, value in fields.items()
    )


async def run(command: tuple[str, ...], source: Path, environ: Mapping[str, str]) -> None:
    """Run Go in a directory; stop it and its compilers when this task ends.

    Raises:
        ControlPlaneError: Go failed; the message holds the end of what it said.
    """
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command,
            cwd=source,
            env={**environ, "CGO_ENABLED": "0", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that the compilers end with it
        )
    )
    try:
        # Cancelled in the middle of its start, asyncio would end Go and not its compilers.
        process = await asyncio.shield(starting)
        output, _ = await process.communicate()
    except BaseException:
        process = await starting
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode != 0:
        last = output.decode(errors="replace").splitlines()[-10:]
        raise ControlPlaneError("go build failed: " + "\n    ".join(last))
