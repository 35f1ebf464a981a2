"""Debian's packages of the services, unpacked into a directory of their own."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

PACKAGES = (
    "python3-keystone",
    "python3-placement",
    "python3-nova",
    "nova-common",
    "python3-neutron",
    "neutron-common",
    "python3-octavia",
)
"""What is asked for; what these need, and this machine lacks, comes with them."""

PYTHON = Path("/usr/bin/python3")
"""Debian's own, for which the packages are made."""

_RELEASE = "bookworm"
_LIBRARIES = (
    "usr/lib/x86_64-linux-gnu",
    "lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib/aarch64-linux-gnu",
)

Report = Callable[[str], None]


class PackagesError(Exception):
    """The packages cannot be had; the text says why."""


def cache() -> Path:
    """Return where everything is kept: `proreus/openstack` in `$XDG_CACHE_HOME` or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "proreus" / "openstack"


def root() -> Path:
    """Return the directory of unpacked packages, another one for another list of packages."""
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    return cache() / f"root-{digest}"


def environment(root_: Path) -> dict[str, str]:
    """Return the environment in which the services find what is unpacked, and nothing of ours."""
    libraries = [root_ / name for name in _LIBRARIES]
    libraries += [one / extra for one in libraries for extra in ("blas", "lapack")]
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(root_ / "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": ":".join(str(one) for one in libraries if one.is_dir()),
    }


def ensure(report: Report) -> Path:
    """Return the directory of the unpacked packages; downloads what is missing.

    Raises:
        PackagesError: This is no Debian 12, or apt cannot get them.
    """
    found = root()
    done = found / ".complete"
    if done.exists():
        return found
    _check()
    found.parent.mkdir(parents=True, exist_ok=True)
    with (found.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time
        if not done.exists():
            shutil.rmtree(found, ignore_errors=True)
            archives = _download(found.parent / "archives", report)
            report(f"unpacking {len(archives)} packages")
            found.mkdir()
            for one in archives:
                _run("dpkg-deb", "--extract", str(one), str(found))
            shutil.rmtree(found.parent / "archives")
            done.touch()
    return found


def _check() -> None:
    release = Path("/etc/os-release")
    if not release.exists() or f"VERSION_CODENAME={_RELEASE}" not in release.read_text():
        raise PackagesError("the packages are for Debian 12 (bookworm) only")
    for program in ("apt-get", "dpkg-deb", str(PYTHON)):
        if shutil.which(program) is None:
            raise PackagesError(f"{program} is missing")


def _download(into: Path, report: Report) -> list[Path]:
    (into / "partial").mkdir(parents=True, exist_ok=True)
    options = [
        f"Dir::Cache::archives={into}",
        "Debug::NoLocking=true",  # nothing of this machine's is changed
        "APT::Sandbox::User=root",
        "APT::Install-Recommends=false",
    ]
    given = [part for option in options for part in ("-o", option)]
    install = ["apt-get", *given, "-qq", "-y", "--download-only", "install", *PACKAGES]
    report("downloading Debian's packages (about 85 MB)")
    try:
        _run(*install)
    except PackagesError:
        if os.geteuid() != 0:
            raise
        _run("apt-get", "-qq", "update")  # its lists were old, or there were none
        _run(*install)
    return sorted(into.glob("*.deb"))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise PackagesError(f"{command[0]} failed:\n{last}")
