"""etcd and kube-apiserver built from source with Go, versions pinned by `gomodule/go.mod`."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
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
        ControlPlaneError: there is no Go, or it failed; holds the end of what it said.
    """
    go = shutil.which("go", path=environ.get("PATH", os.defpath))
    if go is None:
        raise ControlPlaneError("no `go` on the PATH")
    source = directory / "gomodule"
    with as_file(files("proreus.testing.controlplane") / "gomodule") as shipped:
        shutil.copytree(shipped, source)
    report("building the control plane with Go takes about 3 minutes the first time")
    for program, package in PACKAGES.items():
        command = (
            *(go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
            # Without its version the API server answers /version with v0.0.0-master.
            f"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v{version}",
            *("-o", str(directory / program), package),
        )
        async with announced(report, f"building {program}"):
            await _run(command, source, environ)
    shutil.rmtree(source)


async def _run(command: tuple[str, ...], source: Path, environ: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=source,
        env={**environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that the compilers end with it
    )
    try:
        output, _ = await process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode != 0:
        last = output.decode(errors="replace").splitlines()[-10:]
        raise ControlPlaneError("go build failed: " + "\n    ".join(last))
