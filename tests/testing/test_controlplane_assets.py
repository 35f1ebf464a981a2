"""Where the control plane's programs come from: the environment, the cache, an archive, Go."""

import asyncio
import hashlib
import io
import os
import platform
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from proreus.testing.controlplane import (
    KUBERNETES_VERSION,
    OLDEST_VERSION,
    ControlPlaneError,
    build,
    ensure_assets,
)
from proreus.testing.waiting import until

PLATFORM = f"linux-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}[platform.machine()] }"
KEY = f"{KUBERNETES_VERSION}-{PLATFORM}"


def archive(**programs: bytes) -> bytes:
    """A tar.gz laid out like the published one, with the programs below a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        folder = tarfile.TarInfo("controller-tools/envtest")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in programs.items():
            member = tarfile.TarInfo("controller-tools/envtest/" + name.replace("_", "-"))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVE = archive(etcd=b"#!etcd", kube_apiserver=b"#!kube-apiserver", kubectl=b"#!kubectl")


class Mirror:
    """A local server of an index and its archives."""

    def __init__(self) -> None:
        self.archives: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.requests: list[str] = []
        self.hold: asyncio.Event | None = None
        self.url = ""

    def publish(self, version: str, content: bytes = ARCHIVE, digest: str | None = None) -> None:
        name = f"envtest-v{version}-{PLATFORM}.tar.gz"
        self.archives[name] = content
        self.digests[name] = digest or hashlib.sha512(content).hexdigest()

    async def index(self, request: web.Request) -> web.Response:
        self.requests.append("index")
        releases: dict[str, dict[str, dict[str, str]]] = {}
        for name, digest in self.digests.items():
            release = name.removeprefix("envtest-").partition("-")[0]
            entry = {"hash": digest, "selfLink": f"{self.url}/{name}"}
            releases.setdefault(release, {})[name] = entry
        return web.Response(text=yaml.safe_dump({"releases": releases}))

    async def archive(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.requests.append(name)
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(body=self.archives[name])


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def mirror() -> AsyncIterator[Mirror]:
    mirror = Mirror()
    app = web.Application()
    app.router.add_get("/index.yaml", mirror.index)
    app.router.add_get("/{name}", mirror.archive)
    async with serving(app) as mirror.url:
        yield mirror


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Nothing but a cache of our own: no Go on the PATH, and an index that refuses."""
    return {
        "XDG_CACHE_HOME": str(tmp_path),
        "PATH": str(tmp_path / "no-programs"),
        "PROREUS_ENVTEST_INDEX": "http://127.0.0.1:1/index.yaml",
    }


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "proreus" / "controlplane"


def put_programs(directory: Path, *names: str) -> None:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_bytes(b"#!/bin/true")
        (directory / name).chmod(0o755)


def put_go(directory: Path, script: str) -> None:
    """A program `go` that does what the shell script says; `$out` is the file asked for."""
    directory.mkdir(exist_ok=True)
    go = directory / "go"
    find_out = 'while [ "$1" != -o ]; do shift; done; out=$2\n'
    go.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{find_out}{script}\n")
    go.chmod(0o755)


async def test_kubebuilder_assets_come_first(environ: dict[str, str], tmp_path: Path) -> None:
    put_programs(tmp_path / "given", "etcd", "kube-apiserver")
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "given")

    assets = await ensure_assets(environ)

    assert assets.etcd == tmp_path / "given" / "etcd"
    assert assets.kube_apiserver == tmp_path / "given" / "kube-apiserver"


async def test_kubebuilder_assets_without_a_program_is_an_error(
    environ: dict[str, str], tmp_path: Path
) -> None:
    put_programs(tmp_path / "given", "etcd")
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "given")

    with pytest.raises(ControlPlaneError, match="given holds no program kube-apiserver"):
        await ensure_assets(environ)


async def test_the_cache_is_used_without_asking_anyone(
    environ: dict[str, str], cache: Path, mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    put_programs(cache / KEY, "etcd", "kube-apiserver")

    assert (await ensure_assets(environ)).directory == cache / KEY
    assert mirror.requests == []


async def test_the_archive_fills_the_cache_once(
    environ: dict[str, str], cache: Path, mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    mirror.publish(KUBERNETES_VERSION)
    lines: list[str] = []

    assets = await ensure_assets(environ, lines.append)
    again = await ensure_assets(environ, lines.append)

    assert assets == again
    assert assets.etcd.read_bytes() == b"#!etcd"
    assert assets.kube_apiserver.read_bytes() == b"#!kube-apiserver"
    assert os.access(assets.kube_apiserver, os.X_OK)
    assert sorted(p.name for p in assets.directory.iterdir()) == ["etcd", "kube-apiserver"]
    assert sorted(p.name for p in cache.iterdir()) == [f".{KEY}.lock", KEY]
    name = f"envtest-v{KUBERNETES_VERSION}-{PLATFORM}.tar.gz"
    assert mirror.requests == ["index", name]
    assert lines == [f"downloading {name}"]


async def test_an_incomplete_cache_is_replaced(
    environ: dict[str, str], cache: Path, mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    mirror.publish(KUBERNETES_VERSION)
    put_programs(cache / KEY, "etcd")
    put_programs(cache / f".{KEY}.new", "left-by-a-killed-process")

    assets = await ensure_assets(environ)

    assert assets.missing() == []
    assert assets.etcd.read_bytes() == b"#!etcd"
    assert not (cache / f".{KEY}.new").exists()


async def test_the_newest_patch_release_stands_in_for_one_not_published(
    environ: dict[str, str], mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    for version in ("1.36.9", "1.36.10", "1.37.11", "1.36.11-rc.0"):
        mirror.publish(version)

    await ensure_assets(environ)

    assert mirror.requests[1] == f"envtest-v1.36.10-{PLATFORM}.tar.gz"


async def test_an_archive_with_another_digest_is_refused(
    environ: dict[str, str], cache: Path, mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    mirror.publish(KUBERNETES_VERSION, digest="0" * 128)

    with pytest.raises(ControlPlaneError, match=r"has the SHA-512 [0-9a-f]{128}, not 000"):
        await ensure_assets(environ)
    assert [p.name for p in cache.iterdir()] == [f".{KEY}.lock"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (archive(etcd=b"#!etcd"), "the archive lacks kube-apiserver"),
        (b"not an archive", "the archive cannot be unpacked"),
        (ARCHIVE[:-40], "the archive cannot be unpacked"),
    ],
)
async def test_a_useless_archive_is_refused(
    environ: dict[str, str], mirror: Mirror, content: bytes, complaint: str
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    mirror.publish(KUBERNETES_VERSION, content)

    with pytest.raises(ControlPlaneError, match=complaint):
        await ensure_assets(environ)


async def test_an_index_without_our_version_is_named(
    environ: dict[str, str], mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    mirror.publish("1.35.0")

    with pytest.raises(ControlPlaneError, match=f"no archive of Kubernetes 1.36 for {PLATFORM}"):
        await ensure_assets(environ)


async def test_something_else_than_an_index_is_named(
    environ: dict[str, str],
) -> None:
    async def login_page(request: web.Request) -> web.Response:
        return web.Response(text="<html>: [")

    app = web.Application()
    app.router.add_get("/", login_page)
    async with serving(app) as url:
        environ["PROREUS_ENVTEST_INDEX"] = url
        with pytest.raises(ControlPlaneError, match=f"{url} is not an index of archives"):
            await ensure_assets(environ)


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The URL of a port whose connections are never accepted: its backlog is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/index.yaml"


async def test_a_network_that_swallows_packets_is_given_up(
    environ: dict[str, str], black_hole: str
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = black_hole

    # The default of aiohttp, 5 minutes, would run into this limit.
    async with asyncio.timeout(60):
        with pytest.raises(ControlPlaneError, match=f"envtest archive: cannot read {black_hole}"):
            await ensure_assets(environ)


async def test_go_builds_what_no_archive_gives(
    environ: dict[str, str], cache: Path, tmp_path: Path
) -> None:
    put_go(
        tmp_path / "no-programs",
        'test -s go.mod && test -s go.sum && echo "$CGO_ENABLED $GOWORK" > $out && chmod +x $out',
    )
    lines: list[str] = []

    assets = await ensure_assets(environ, lines.append)

    assert assets.directory == cache / KEY
    assert assets.kube_apiserver.read_text() == "0 off\n"
    assert sorted(p.name for p in assets.directory.iterdir()) == ["etcd", "kube-apiserver"]
    assert lines[0].startswith(
        "no programs from envtest archive: cannot read http://127.0.0.1:1/index.yaml "
    )
    assert lines[1:] == [
        (
            "building the control plane with Go, once on a machine: "
            "some 4 minutes on four processors, 8 on two"
        ),
        "building etcd",
        "building kube-apiserver",
    ]


async def test_go_builds_the_version_that_the_environment_asks_for(
    environ: dict[str, str], cache: Path, tmp_path: Path
) -> None:
    put_go(tmp_path / "no-programs", "grep 'k8s.io/kubernetes v' go.mod > $out && chmod +x $out")
    environ["PROREUS_KUBERNETES_VERSION"] = OLDEST_VERSION

    assets = await ensure_assets(environ, lambda _: None)

    assert assets.directory == cache / f"{OLDEST_VERSION}-{PLATFORM}"
    assert f"k8s.io/kubernetes v{OLDEST_VERSION}" in assets.kube_apiserver.read_text()


async def test_a_version_without_go_module_is_refused_with_those_that_have_one(
    environ: dict[str, str], tmp_path: Path
) -> None:
    put_go(tmp_path / "no-programs", "exit 1")
    environ["PROREUS_KUBERNETES_VERSION"] = "1.2.3"

    known = f"of Kubernetes 1.2.3, only of {OLDEST_VERSION}, {KUBERNETES_VERSION}"
    with pytest.raises(ControlPlaneError, match=known):
        await ensure_assets(environ, lambda _: None)


@pytest.mark.parametrize("version", ["1.30", "v1.30.14", "../1.30.14", "1.30.14-rc.1"])
async def test_something_else_than_a_version_is_named(
    environ: dict[str, str], version: str
) -> None:
    environ["PROREUS_KUBERNETES_VERSION"] = version

    with pytest.raises(ControlPlaneError, match=f"PROREUS_KUBERNETES_VERSION={version} is no"):
        await ensure_assets(environ)


async def test_a_failing_build_shows_the_output_of_go(
    environ: dict[str, str], tmp_path: Path
) -> None:
    put_go(tmp_path / "no-programs", 'echo "go.mod requires go >= 1.26.0" >&2; exit 1')

    with pytest.raises(ControlPlaneError, match=r"go build failed: go.mod requires go >= 1.26.0"):
        await ensure_assets(environ)


async def test_a_cancelled_build_ends_with_its_compilers(
    environ: dict[str, str], cache: Path, tmp_path: Path
) -> None:
    pid_file = tmp_path / "compiler.pid"
    put_go(
        tmp_path / "no-programs",
        f"sleep 600 & echo $! > {pid_file}.new\nmv {pid_file}.new {pid_file}; wait",
    )

    building = asyncio.create_task(ensure_assets(environ))
    await until("the compiler runs", pid_file.exists)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(building, 60)
    await until("the compiler ends", lambda: not is_running(int(pid_file.read_text())))
    assert [p.name for p in cache.iterdir()] == [f".{KEY}.lock"]


async def test_a_build_cancelled_while_go_starts_ends_with_its_compilers(tmp_path: Path) -> None:
    pid_file = tmp_path / "compiler.pid"
    script = f"sleep 600 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait"
    building = asyncio.create_task(build.run(("sh", "-c", script), tmp_path, os.environ))
    for _ in range(3):  # until the process is made
        await asyncio.sleep(0)
    while not pid_file.exists():
        time.sleep(0.01)  # noqa: ASYNC251 - the event loop is not to learn that it runs
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(building, 60)
    await until("the compiler ends", lambda: not is_running(int(pid_file.read_text())))


def is_running(pid: int) -> bool:
    """Whether the process runs; a zombie, which nobody may reap in a container, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_one_error_names_what_was_tried_and_the_remedies(
    environ: dict[str, str], cache: Path
) -> None:
    with pytest.raises(ControlPlaneError) as caught:
        await ensure_assets(environ)

    text = str(caught.value)
    assert str(cache / KEY) in text
    assert "envtest archive: cannot read http://127.0.0.1:1/index.yaml" in text
    assert "go build: no `go` on the PATH" in text
    for remedy in ("set KUBEBUILDER_ASSETS", "PROREUS_ENVTEST_INDEX", "put Go 1.26 or newer"):
        assert remedy in text


async def test_a_second_process_waits_and_downloads_nothing(
    environ: dict[str, str], mirror: Mirror
) -> None:
    environ["PROREUS_ENVTEST_INDEX"] = f"{mirror.url}/index.yaml"
    mirror.publish(KUBERNETES_VERSION)
    mirror.hold = asyncio.Event()
    command = (sys.executable, "-m", "proreus.testing.controlplane", "--print-assets")

    async with asyncio.timeout(60):
        first, second = [
            await asyncio.create_subprocess_exec(
                *command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(2)
        ]
        streams = [first.stderr, second.stderr]
        said: list[Awaitable[bytes]] = [s.readline() for s in streams if s is not None]
        lines = sorted([line.decode() for line in await asyncio.gather(*said)], reverse=True)
        mirror.hold.set()
        outputs = [await process.communicate() for process in (first, second)]

    assert "downloading" in lines[0]
    assert "another process is getting the programs" in lines[1]
    expected = Path(environ["XDG_CACHE_HOME"]) / "proreus" / "controlplane" / KEY
    assert [out.decode() for out, _ in outputs] == [f"{expected}\n"] * 2
    assert [first.returncode, second.returncode] == [0, 0]
    assert mirror.requests.count("index") == 1


async def test_the_command_fails_with_the_error_alone(environ: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proreus.testing.controlplane", "--download-only"),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert process.returncode == 1
    assert out == b""
    assert err.startswith(b"error: etcd and kube-apiserver ")
    assert b"Traceback" not in err
