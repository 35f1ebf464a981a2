"""The managers that are compared, and how one of them is run."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from proreus.testing.controlplane.child import tied_to_this_process
from proreus.testing.manager import cloud_config
from proreus.testing.simulated import SimulatedCloudProcess

_STOP_SECONDS = 30.0
_SOURCE = Path(__file__).parent / "goccm"


class Contestant(msgspec.Struct, frozen=True):
    """A manager with some flags.

    Attributes:
        key: Names it in files.
        title: Names it for people.
        flags: What it is given beyond what its work needs.
        go: Whether it is the one of the Go framework.
        batch_size: The most machines asked for in one call, for Proreus; 0 for its default.
    """

    key: str
    title: str
    flags: tuple[str, ...] = ()
    go: bool = False
    batch_size: int = 0


GO_DEFAULT = Contestant("go-default", "Go, default flags", go=True)
GO_TUNED = Contestant(
    "go-tuned",
    "Go, tuned",
    (
        "--kube-api-qps=10000",
        "--kube-api-burst=10000",
        "--concurrent-node-syncs=64",
        "--concurrent-service-syncs=64",
    ),
    go=True,
)
PROREUS = Contestant("proreus", "Proreus")
PROREUS_SINGLE = Contestant("proreus-single", "Proreus, cloud without bulk calls", batch_size=1)
BARE = Contestant("bare", "bare loop of the same patches")
"""Not a manager: the two patches of each node, and nothing else."""

CONTESTANTS = (GO_DEFAULT, GO_TUNED, PROREUS)
REFERENCE = GO_TUNED


class Process:
    """A manager that runs, for `async with`; it ends with the process that starts it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Keep the command; nothing is started yet."""
        self._command = tuple(command)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        if self._process is None:
            raise RuntimeError("the manager was never started")
        return self._process.pid

    def check(self) -> None:
        """Find out whether it still runs.

        Raises:
            RuntimeError: It has ended; holds the end of its log.
        """
        if self._process is None or self._process.returncode is not None:
            last = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"the manager ended; the last lines of {self._log}:\n{last}")

    async def start(self) -> None:
        """Start it; its log goes on in the same file."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *tied_to_this_process(),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if that does not help."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def terminate(self) -> None:
        """Send SIGTERM, without waiting for the end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def command(
    contestant: Contestant,
    *,
    goccm: Path,
    kubeconfig: Path,
    cloud: SimulatedCloudProcess,
    directory: Path,
    routes: bool = False,
    elect: bool = False,
) -> list[str]:
    """Return the command line of a contestant; writes its cloud-config to `directory`."""
    config = directory / f"{contestant.key}-{kubeconfig.parent.name}.conf"
    flags = [
        "--cloud-provider=simulated",
        f"--cloud-config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--leader-elect={str(elect).lower()}",
        "--secure-port=0",
        *_route_flags(contestant, routes=routes),
        *contestant.flags,
    ]
    if contestant == BARE:
        config.write_text(cloud_config(cloud))
        return [sys.executable, "-m", "benchmarks.bare", str(kubeconfig)]
    if contestant.go:
        content = {"endpoint": cloud.endpoint, "token": cloud.token, "region": "sim-1"}
        config.write_bytes(msgspec.json.encode(content))
        return [str(goccm), *flags]
    config.write_text(cloud_config(cloud, batch_size=contestant.batch_size))
    own = "--metrics-bind-address=0"
    return [sys.executable, "-m", "proreus", "run", *flags, own]


def _route_flags(contestant: Contestant, *, routes: bool) -> list[str]:
    if not routes:
        return ["--configure-cloud-routes=false"]
    # Go's route controller wants this flag, though it allocates nothing.
    more = ["--allocate-node-cidrs=true"] if contestant.go else []
    return ["--configure-cloud-routes=true", "--cluster-cidr=10.128.0.0/9", *more]


async def build_go(directory: Path) -> Path:
    """Build the Go manager into `directory`; from Go's own cache this takes seconds.

    Raises:
        RuntimeError: There is no Go, or it failed; holds what it said.
    """
    program = directory / "goccm"
    try:
        process = await asyncio.create_subprocess_exec(
            *("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
            *("-ldflags=-s -w", "-o", str(program), "."),
            cwd=_SOURCE,
            env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except FileNotFoundError as error:
        raise RuntimeError("no `go` on the PATH: install Go 1.26 or newer") from error
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"go build failed:\n{output.decode(errors='replace')}")
    return program
