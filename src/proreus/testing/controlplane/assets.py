"""Find or get the programs etcd and kube-apiserver.

Their version is `KUBERNETES_VERSION`, or what `$PROREUS_KUBERNETES_VERSION` says. They come from,
in this order: the directory `$KUBEBUILDER_ASSETS`; the cache, which is
`proreus/controlplane/<version>-<os>-<arch>` in `$XDG_CACHE_HOME` or `~/.cache`; the published
envtest archive; `go build`. The last two fill the cache, one process at a time.
"""

import asyncio
import fcntl
import os
import platform
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from proreus.testing.controlplane import archive, build
from proreus.testing.controlplane.errors import ControlPlaneError
from proreus.testing.controlplane.progress import Report, to_stderr

KUBERNETES_VERSION = "1.36.3"
"""The default version; an archive may hold another patch release of the same minor version."""

OLDEST_VERSION = "1.30.14"
"""The oldest version that the tests of behaviour run on (`make test-oldest`)."""

VERSION_VARIABLE = "PROREUS_KUBERNETES_VERSION"
"""Environment variable with another version, such as 1.30.14."""

_VERSION = re.compile(r"1\.\d+\.\d+")

PROGRAMS = frozenset({"etcd", "kube-apiserver"})

_REMEDIES = f"""\
Any one of these helps:
  * set KUBEBUILDER_ASSETS to a directory that holds etcd and kube-apiserver
    (`setup-envtest use MINOR` of controller-runtime makes one);
  * let this machine reach {archive.DEFAULT_INDEX},
    or set {archive.INDEX_VARIABLE} to the URL of a mirror of it;
  * put Go 1.26 or newer on the PATH (it needs a Go module proxy)."""


class Assets(msgspec.Struct, frozen=True):
    """A directory with the programs of a control plane: etcd and kube-apiserver."""

    directory: Path

    @property
    def etcd(self) -> Path:
        """The path of etcd."""
        return self.directory / "etcd"

    @property
    def kube_apiserver(self) -> Path:
        """The path of kube-apiserver."""
        return self.directory / "kube-apiserver"

    def missing(self) -> list[str]:
        """Return the names of the programs that are not in the directory."""
        return sorted(p for p in PROGRAMS if not os.access(self.directory / p, os.X_OK))


def kubernetes_version(environ: Mapping[str, str] = os.environ) -> str:
    """Return the version of Kubernetes that is asked for.

    Raises:
        ControlPlaneError: the environment names no full version.
    """
    version = environ.get(VERSION_VARIABLE) or KUBERNETES_VERSION
    if not _VERSION.fullmatch(version):
        raise ControlPlaneError(
            f"{VERSION_VARIABLE}={version} is no version: give all three numbers, such as "
            f"{KUBERNETES_VERSION}, or unset it"
        )
    return version


async def ensure_assets(
    environ: Mapping[str, str] = os.environ, report: Report = to_stderr
) -> Assets:
    """Find the programs, or get them; the first time on a machine this takes minutes.

    Raises:
        ControlPlaneError: no way led to the programs; names what was tried and the remedies.
    """
    version = kubernetes_version(environ)
    if given := environ.get("KUBEBUILDER_ASSETS"):
        assets = Assets(Path(given))
        if missing := assets.missing():
            raise ControlPlaneError(
                f"KUBEBUILDER_ASSETS={given} holds no program {' and no '.join(missing)}: "
                "correct it, or unset it to have the programs fetched"
            )
        return assets
    machine = f"{platform.system().lower()}-{_go_architecture()}"
    assets = Assets(cache(environ, "controlplane") / f"{version}-{machine}")
    if assets.missing():
        assets.directory.parent.mkdir(parents=True, exist_ok=True)
        async with lock(assets.directory.with_name(f".{assets.directory.name}.lock"), report):
            if assets.missing():  # another process may have filled it meanwhile
                await _fill(assets, version, machine, environ, report)
    return assets


def _go_architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cache(environ: Mapping[str, str], kind: str) -> Path:
    """Return the directory for programs of a kind, whether it exists or not."""
    home = environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "proreus" / kind


@asynccontextmanager
async def lock(path: Path, report: Report) -> AsyncIterator[None]:
    """Hold the lock file; it is never removed, since another process may wait on it."""
    with path.open("w") as file:
        waiting = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    report(f"another process is getting the programs; waiting for {path}")
                    waiting = True
                await asyncio.sleep(0.2)
        yield


async def _fill(
    assets: Assets, version: str, machine: str, environ: Mapping[str, str], report: Report
) -> None:
    reasons, untold = list[str](), list[str]()

    def tell(line: str) -> None:
        """Report the last failure once the next source is at work; the error tells all anyway."""
        while untold:
            report(f"no programs from {untold.pop(0)}")
        report(line)

    sources = {
        "envtest archive": partial(
            archive.fetch,
            programs=PROGRAMS,
            version=version,
            platform=machine,
            environ=environ,
            report=tell,
        ),
        "go build": partial(build.build, version=version, environ=environ, report=tell),
    }
    # Beside its place, so that the rename is atomic.
    directory = assets.directory.with_name(f".{assets.directory.name}.new")
    for name, fill in sources.items():
        shutil.rmtree(directory, ignore_errors=True)  # of a process that was killed
        directory.mkdir()
        try:
            await fill(directory)
        except ControlPlaneError as error:
            reasons.append(f"{name}: {error}")
            untold.append(reasons[-1])
        else:
            shutil.rmtree(assets.directory, ignore_errors=True)  # an incomplete one
            directory.rename(assets.directory)
            return
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    tried = "\n".join(f"  * {reason}" for reason in reasons)
    raise ControlPlaneError(
        f"etcd and kube-apiserver {version} can be neither found, downloaded nor built:\n"
        f"  * KUBEBUILDER_ASSETS is not set, and {assets.directory} is empty\n{tried}\n{_REMEDIES}"
    )
