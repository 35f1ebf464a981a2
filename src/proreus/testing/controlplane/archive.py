"""Get etcd and kube-apiserver from the envtest archive that SIG API Machinery publishes.

An index, a YAML file, names each archive with its URL and SHA-512 digest:
`releases: {v1.36.0: {envtest-v1.36.0-linux-amd64.tar.gz: {hash: …, selfLink: …}}}`.
"""

import hashlib
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import aiohttp
import msgspec

from proreus.testing.controlplane.errors import ControlPlaneError
from proreus.testing.controlplane.progress import Report, announced

INDEX_VARIABLE = "PROREUS_ENVTEST_INDEX"
"""Environment variable with another URL of the index, for a mirror."""

DEFAULT_INDEX = (
    "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
)

TIMEOUT = aiohttp.ClientTimeout(total=None, connect=5, sock_read=15)
"""The timeouts of a download: 5 s to connect, in case packets are swallowed, more to read."""


class _Archive(msgspec.Struct, frozen=True):
    hash: str
    link: str = msgspec.field(name="selfLink")


class _Index(msgspec.Struct, frozen=True):
    releases: dict[str, dict[str, _Archive]]


async def fetch(
    directory: Path,
    programs: frozenset[str],
    *,
    version: str,
    platform: str,
    environ: Mapping[str, str],
    report: Report,
) -> None:
    """Download `programs` of `version` for `platform` ("linux-amd64") into `directory`.

    Takes the newest patch release of the same minor version where the index lacks `version`.

    Raises:
        ControlPlaneError: the index or the archive cannot be had, or is not what it should be.
    """
    index_url = environ.get(INDEX_VARIABLE) or DEFAULT_INDEX
    archive_file = directory / "archive.tar.gz"
    try:
        async with aiohttp.ClientSession(
            timeout=TIMEOUT, trust_env=True, raise_for_status=True
        ) as session:
            async with session.get(index_url) as response:
                index = msgspec.yaml.decode(await response.read(), type=_Index)
            name, archive = _choose(index, version, platform)
            async with announced(report, f"downloading {name}"):
                digest = await _download(session, archive.link, archive_file)
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise ControlPlaneError(f"cannot read {index_url} or its archive: {reason}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ControlPlaneError(f"{index_url} is not an index of archives: {error}") from error
    if digest != archive.hash.lower():
        raise ControlPlaneError(f"{archive.link} has the SHA-512 {digest}, not {archive.hash}")
    _unpack(archive_file, directory, programs)
    archive_file.unlink()


def _choose(index: _Index, version: str, platform: str) -> tuple[str, _Archive]:
    minor = version.rpartition(".")[0]
    candidates = {
        release.removeprefix("v"): archives[name]
        for release, archives in index.releases.items()
        if release.startswith(f"v{minor}.")
        and release.rpartition(".")[2].isdecimal()
        and (name := f"envtest-{release}-{platform}.tar.gz") in archives
    }
    if not candidates:
        raise ControlPlaneError(f"the index has no archive of Kubernetes {minor} for {platform}")
    newest = max(candidates, key=lambda release: int(release.rpartition(".")[2]))
    chosen = version if version in candidates else newest
    return f"envtest-v{chosen}-{platform}.tar.gz", candidates[chosen]


async def _download(session: aiohttp.ClientSession, url: str, target: Path) -> str:
    digest = hashlib.sha512()
    async with session.get(url) as response:
        with target.open("wb") as file:
            async for chunk in response.content.iter_chunked(1 << 20):
                digest.update(chunk)
                file.write(chunk)
    return digest.hexdigest()


def _unpack(archive: Path, directory: Path, programs: frozenset[str]) -> None:
    """Extract the needed files by name only: no path of the archive is used."""
    found = set[str]()
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                source = members.extractfile(member) if name in programs else None
                if source is None:
                    continue
                with source, (directory / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
                (directory / name).chmod(0o755)
                found.add(name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ControlPlaneError(f"the archive cannot be unpacked: {error}") from error
    if missing := programs - found:
        raise ControlPlaneError(f"the archive lacks {', '.join(sorted(missing))}")
