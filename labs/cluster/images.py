"""Container images made of programs that this machine has, without a registry.

An image is written as `docker save` writes it, with one layer; containerd imports that.
https://github.com/moby/docker-image-spec/blob/main/spec.md
"""

import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from labs.cluster.errors import ClusterError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_APPLETS = (
    *("cat", "cp", "cut", "date", "dd", "env", "grep", "head", "hostname", "id", "ip", "kill"),
    *("ls", "mkdir", "mv", "nslookup", "ping", "printf", "ps", "rm", "sed", "seq"),
    *("sleep", "sort", "tail", "tar", "test", "timeout", "touch", "tr", "uname", "wc"),
)
"""What scripts in pods ask of busybox."""

_DIRECTORIES = ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "usr/lib", "var/run")


class Root:
    """The root directory of an image that is being made."""

    def __init__(self, path: Path) -> None:
        """An empty root with the usual directories."""
        self.path = path
        for name in _DIRECTORIES:
            (path / name).mkdir(parents=True, exist_ok=True)
        (path / "tmp").chmod(0o1777)
        (path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (path / "etc/group").write_text("root:x:0:\n")

    def program(self, source: Path, target: str) -> None:
        """Copy a program, and the libraries that it is linked with.

        Raises:
            ClusterError: a library is missing.
        """
        self.copy(source, target)
        self.libraries([source])

    def libraries(self, binaries: Sequence[Path]) -> None:
        """Copy the libraries that programs and other libraries are linked with.

        Raises:
            ClusterError: one is missing.
        """
        linked = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
        if missing := [line for line in linked.stdout.splitlines() if "not found" in line]:
            raise ClusterError(f"a library is missing: {missing[0].strip()}")
        # Nothing is found for static programs.
        for path in sorted(
            set(re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", linked.stdout, re.MULTILINE))
        ):
            self.copy(Path(path), path)

    def copy(self, source: Path, target: str) -> None:
        """Copy a file, or what a link leads to."""
        path = self.path / target.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            shutil.copy(source, path)

    def shell(self) -> None:
        """Add this machine's shell, and the usual commands, all of them busybox.

        Busybox' own shell would prefer its commands to others of the same name, and a static
        busybox cannot look names up: what does so is added by its own name.

        Raises:
            ClusterError: busybox is not there.
        """
        busybox = shutil.which("busybox")
        if busybox is None:
            raise ClusterError("there is no busybox: apt install busybox-static")
        self.program(Path("/bin/sh").resolve(), "/bin/sh")
        self.program(Path(busybox), "/bin/busybox")
        for applet in _APPLETS:
            link = self.path / "bin" / applet
            if not link.is_symlink():
                link.symlink_to("busybox")


def pack(
    root: Path,
    names: Sequence[str],
    archive: Path,
    *,
    entrypoint: Sequence[str],
    command: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Make the archive of an image with all of `names` of what is in `root`."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as packed:
        packed.add(root, ".", filter=_as_root)
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    variables |= environ or {}
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(entrypoint),
            "Cmd": list(command),
            "Env": [f"{key}={value}" for key, value in variables.items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as whole:
        whole.add(layer, "layer.tar")
        for name, document in (("config.json", config), ("manifest.json", manifest)):
            content_of = json.dumps(document).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content_of)
            whole.addfile(entry, io.BytesIO(content_of))
    layer.unlink()


def pause_image(pause: Path, name: str, place: Path) -> Path:
    """Make the image that holds the namespaces of pods; answers its archive."""
    root = Root(place / "pause")
    root.copy(pause, "/pause")
    archive = place / "pause.tar"
    pack(root.path, [name], archive, entrypoint=["/pause"])
    return archive


def agnhost_image(agnhost: Path, names: Iterable[str], place: Path) -> Path:
    """Make the image of Kubernetes' own specs, a server and client of many kinds.

    Raises:
        ClusterError: a program of it is missing.
    """
    root = Root(place / "agnhost")
    root.copy(agnhost, "/agnhost")
    root.shell()
    for name in ("curl", "dig", "nc.openbsd", "wget"):
        if found := shutil.which(name):
            root.program(Path(found), f"/usr/bin/{name.partition('.')[0]}")
    # Specs that expect no answer would otherwise wait for twenty attempts, more than four minutes.
    (root.path / "etc/wgetrc").write_text("tries = 1\n")
    archive = place / "agnhost.tar"
    pack(root.path, list(names), archive, entrypoint=["/agnhost"], command=["pause"])
    return archive


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
