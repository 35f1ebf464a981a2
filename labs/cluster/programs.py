"""The programs of a cluster: Kubernetes' and CoreDNS built with Go, the rest from the system.

`gomodule/kubernetes` and `gomodule/coredns` pin what is built. The cache is
`proreus/cluster/<version>-<digest of the modules>-<os>-<arch>` beside that of the control plane; a
program is built when somebody first needs it.
"""

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from labs.cluster import cgroups
from labs.cluster.errors import ClusterError
from proreus.testing.controlplane import KUBERNETES_VERSION, Assets, ensure_assets
from proreus.testing.controlplane.assets import cache, lock
from proreus.testing.controlplane.build import run, stamp
from proreus.testing.controlplane.progress import Report, announced, to_stderr

_KUBERNETES = "k8s.io/kubernetes"

CLUSTER_PROGRAMS: dict[str, str] = {
    "pause": "./pause",
    "kubectl": f"{_KUBERNETES}/cmd/kubectl",
    "kube-scheduler": f"{_KUBERNETES}/cmd/kube-scheduler",
    "kube-proxy": f"{_KUBERNETES}/cmd/kube-proxy",
    "kubelet": f"{_KUBERNETES}/cmd/kubelet",
    "kube-controller-manager": f"{_KUBERNETES}/cmd/kube-controller-manager",
    "agnhost": f"{_KUBERNETES}/test/images/agnhost",
    "coredns": "github.com/coredns/coredns",
}
"""What a cluster runs, beside etcd and kube-apiserver, and the Go packages of it."""

SPEC_PROGRAMS: dict[str, str] = {
    "ginkgo": "github.com/onsi/ginkgo/v2/ginkgo",
    "e2e.test": f"{_KUBERNETES}/test/e2e",
}
"""What runs Kubernetes' own specs; `e2e.test` is a test program of its package."""

_MODULES = Path(__file__).with_name("gomodule")
_MODULE = {"coredns": "coredns"}

SYSTEM_PROGRAMS = {
    "busybox": "busybox-static",
    "containerd": "containerd",
    "ctr": "containerd",
    "curl": "curl",
    "dig": "bind9-dnsutils",
    "ip": "iproute2",
    "mount": "mount",
    "nc.openbsd": "netcat-openbsd",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "setsid": "util-linux",
    "unshare": "util-linux",
    "wget": "wget",
}
"""Programs of the system, and the package of Debian and Ubuntu that each is in."""

CNI_DIRECTORIES = (Path("/opt/cni/bin"), Path("/usr/lib/cni"), Path("/usr/libexec/cni"))
"""Where systems keep the CNI plugins."""

_CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")


class Programs(msgspec.Struct, frozen=True):
    """The paths of the programs of a cluster."""

    built: Path
    """Directory of what was built for clusters."""
    control_plane: Assets
    """etcd and kube-apiserver."""
    cni: Path
    """Directory of the CNI plugins."""

    def path(self, name: str) -> str:
        """Return the path of a program that was built."""
        return str(self.built / name)


def why_not() -> list[str]:
    """Return why no cluster can run here, each reason with its remedy; empty if one can."""
    reasons = list[str]()
    if sys.platform != "linux":
        return [f"nodes are network namespaces, which {sys.platform} does not have: use Linux"]
    if os.geteuid() != 0:
        reasons.append("namespaces and mounts need root: run it with sudo")
    elif reason := cgroups.why_not():
        reasons.append(reason)
    absent = {name: package for name, package in SYSTEM_PROGRAMS.items() if not shutil.which(name)}
    packages = set(absent.values())
    if cni_directory() is None:
        absent[f"the CNI plugins {', '.join(_CNI_PLUGINS)}"] = "containernetworking-plugins"
        packages.add("containernetworking-plugins")
    if absent:
        reasons.append(
            f"missing: {', '.join(sorted(absent))}; on Debian and Ubuntu: "
            f"apt install {' '.join(sorted(packages))}"
        )
    return reasons


def cni_directory() -> Path | None:
    """Return the directory with the CNI plugins that nodes use, None if there is none."""
    for directory in CNI_DIRECTORIES:
        if all(os.access(directory / plugin, os.X_OK) for plugin in _CNI_PLUGINS):
            return directory
    return None


async def ensure_programs(
    names: Iterable[str] = CLUSTER_PROGRAMS,
    environ: Mapping[str, str] = os.environ,
    report: Report = to_stderr,
) -> Programs:
    """Find the programs, and build those that are wanted and not in the cache.

    Raises:
        ClusterError: this machine cannot run a cluster.
        ControlPlaneError: a program cannot be had.
    """
    if reasons := why_not():
        raise ClusterError("no cluster can run here:\n" + "\n".join(f"  * {r}" for r in reasons))
    control_plane = await ensure_assets(environ, report)
    directory = await ensure_built(names, environ, report)
    cni = cni_directory()
    if cni is None:  # removed a moment ago
        raise ClusterError("the CNI plugins are gone")
    return Programs(directory, control_plane, cni)


async def ensure_built(
    names: Iterable[str],
    environ: Mapping[str, str] = os.environ,
    report: Report = to_stderr,
) -> Path:
    """Build programs that are not in the cache, and return the directory with all of them.

    Raises:
        ClusterError: There is no Go to build one with.
        ControlPlaneError: A program cannot be built.
    """
    directory = _cache_directory(environ)
    directory.mkdir(parents=True, exist_ok=True)
    async with lock(directory / ".lock", report):
        for name in names:
            if not os.access(directory / name, os.X_OK):
                await _build(name, directory, environ, report)
    return directory


def _cache_directory(environ: Mapping[str, str]) -> Path:
    digest = hashlib.sha256()
    for file in sorted(one for one in _MODULES.rglob("*") if one.is_file()):
        digest.update(file.read_bytes())
    machine = f"{platform.system().lower()}-{platform.machine().lower()}"
    name = f"{KUBERNETES_VERSION}-{digest.hexdigest()[:12]}-{machine}"
    return cache(environ, "cluster") / name


async def _build(name: str, directory: Path, environ: Mapping[str, str], report: Report) -> None:
    go = shutil.which("go", path=environ.get("PATH", os.defpath))
    if go is None:
        raise ClusterError(
            f"{name} is not in {directory}, and there is no `go` on the PATH: install Go 1.26 or "
            "newer (it needs a Go module proxy or a filled module cache)"
        )
    package = (CLUSTER_PROGRAMS | SPEC_PROGRAMS)[name]
    verb = ("test", "-c") if name.endswith(".test") else ("build", "-buildvcs=false")
    new = directory / f".{name}.new"
    command = (
        *(go, *verb, "-mod=readonly", "-trimpath"),
        f"-ldflags=-s -w {stamp(KUBERNETES_VERSION)}",
        *("-o", str(new), package),
    )
    async with announced(report, f"building {name} (the first time on this machine)"):
        await run(command, _MODULES / _MODULE.get(name, "kubernetes"), environ)
    new.rename(directory / name)
