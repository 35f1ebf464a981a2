"""The control plane for tests: real programs, started, restarted and stopped."""

import asyncio
import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from proreus.testing.controlplane import ControlPlane, ControlPlaneError, kubernetes_version


@asynccontextmanager
async def session(kubeconfig: Path, scratch: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """HTTP as the user of a kubeconfig."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    # As strict as Python 3.13 is by default.
    tls.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    pair = scratch / "pair.pem"
    fields = ("client-certificate-data", "client-key-data")
    pair.write_bytes(b"".join(base64.b64decode(user[field]) for field in fields))
    tls.load_cert_chain(pair)
    async with aiohttp.ClientSession(
        cluster["server"], connector=aiohttp.TCPConnector(ssl=tls)
    ) as http:
        yield http


async def get(kubeconfig: Path, scratch: Path, path: str) -> tuple[int, dict[str, Any]]:
    async with session(kubeconfig, scratch) as http, http.get(path) as response:
        return response.status, await response.json()


def is_running(pid: int) -> bool:
    """Whether the process runs; a zombie, which nobody may reap in a container, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_naming(directory: Path) -> list[int]:
    """Processes with the directory in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if os.fsencode(directory) in command:
                found.append(int(entry.name))
    return found


async def test_it_answers_as_the_version_that_is_asked_for(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    status, version = await get(control_plane.kubeconfig, tmp_path, "/version")

    assert status == 200
    wanted = kubernetes_version().split(".")
    assert [version["major"], version["minor"]] == wanted[:2]
    assert control_plane.url.startswith("https://127.0.0.1:")


async def test_the_ca_file_verifies_the_server(control_plane: ControlPlane) -> None:
    tls = ssl.create_default_context(cafile=control_plane.ca_file)
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{control_plane.url}/version", ssl=tls) as response,
    ):
        assert response.status == 200


async def test_rbac_decides_over_other_identities(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = control_plane.kubeconfig_for("someone", ["observers", "guests"])

    async with session(kubeconfig, tmp_path) as http:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with http.post(path, json=review) as response:
            seen = (await response.json())["status"]["userInfo"]
        async with http.get("/api/v1/nodes") as response:
            refused = (response.status, (await response.json())["message"])

    assert seen["username"] == "someone"
    assert seen["groups"] == ["observers", "guests", "system:authenticated"]
    assert refused[0] == 403
    assert 'User "someone" cannot list resource "nodes"' in refused[1]


async def test_services_are_dual_stack(control_plane: ControlPlane, tmp_path: Path) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "dual-stack"},
        "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]},
    }
    path = "/api/v1/namespaces/default/services"
    async with session(control_plane.kubeconfig, tmp_path) as http:
        async with http.post(path, json=service) as response:
            created = await response.json()
        async with http.delete(f"{path}/dual-stack") as response:
            assert response.status == 200

    first, second = created["spec"]["clusterIPs"]
    assert first.startswith("10.0.")
    assert second.startswith("fd00:10::")


async def test_the_audit_log_has_each_answered_request(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = control_plane.kubeconfig_for("counted", ["system:masters"])
    async with session(kubeconfig, tmp_path) as http:
        for name in ("default", "kube-system", "default"):
            async with http.get(f"/api/v1/namespaces/{name}") as response:
                assert response.status == 200

    events = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
    seen = [
        (event["verb"], event["requestURI"])
        for event in events
        if event["user"].get("username") == "counted"  # of a refused token it is not known
    ]
    assert seen == [
        ("get", "/api/v1/namespaces/default"),
        ("get", "/api/v1/namespaces/kube-system"),
        ("get", "/api/v1/namespaces/default"),
    ]


@pytest.mark.long  # a control plane more
async def test_a_restart_keeps_the_port_and_the_objects(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    _, before = await get(control_plane.kubeconfig, tmp_path, "/api/v1/namespaces/kube-system")
    pid, url = control_plane.apiserver_pid, control_plane.url

    await control_plane.restart_apiserver()

    _, after = await get(control_plane.kubeconfig, tmp_path, "/api/v1/namespaces/kube-system")
    assert control_plane.url == url
    assert control_plane.apiserver_pid != pid
    assert not is_running(pid)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_stopped_api_server_ends_its_watches_and_refuses_connections(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        session(control_plane.kubeconfig, tmp_path) as http,
        http.get("/api/v1/namespaces?watch=true") as watch,
    ):
        assert await watch.content.readline()
        await control_plane.stop_apiserver()
        try:
            await watch.read()  # no error: it was ended, not cut
            with pytest.raises(aiohttp.ClientConnectorError):
                await http.get("/version")
            with pytest.raises(ControlPlaneError, match="the API server is stopped"):
                _ = control_plane.apiserver_pid
        finally:
            await control_plane.start_apiserver()
    assert (await get(control_plane.kubeconfig, tmp_path, "/version"))[0] == 200


async def test_a_running_api_server_is_not_started_twice(control_plane: ControlPlane) -> None:
    with pytest.raises(ControlPlaneError, match="stop it first"):
        await control_plane.start_apiserver()


async def test_the_end_leaves_the_logs_and_nothing_else(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    async with ControlPlane(log_dir=logs) as plane:
        directory, pid = plane.directory, plane.apiserver_pid
        running = processes_naming(directory)

    assert pid in running
    assert len(running) == 2
    assert processes_naming(directory) == []
    assert not directory.exists()
    assert {log.name for log in logs.iterdir()} == {
        "audit.jsonl",
        "etcd.log",
        "kube-apiserver.log",
    }


async def test_a_start_that_fails_shows_why_and_leaves_nothing(tmp_path: Path) -> None:
    plane = ControlPlane(log_dir=tmp_path, extra_apiserver_args=["--no-such-flag"])

    with pytest.raises(
        ControlPlaneError, match=r"kube-apiserver ended; (.|\n)*unknown flag: --no-such-flag"
    ):
        await plane.start()

    assert processes_naming(plane.directory) == []
    assert not plane.directory.exists()


@pytest.fixture
async def standalone(tmp_path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """`python -m proreus.testing.controlplane`, and the directory of its control plane."""
    scratch = tempfile.mkdtemp(prefix="proreus-test-")  # short, for the sockets
    with (tmp_path / "errors").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus.testing.controlplane"),
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "TMPDIR": scratch},
        )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        kubeconfig = Path(line.strip().removeprefix("export KUBECONFIG="))
        assert kubeconfig.is_file(), (tmp_path / "errors").read_text()
        yield process, kubeconfig.parent.parent
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        shutil.rmtree(scratch)


async def test_the_command_ends_in_order_on_ctrl_c(
    standalone: tuple[asyncio.subprocess.Process, Path],
) -> None:
    process, directory = standalone
    assert len(processes_naming(directory)) == 2

    process.send_signal(signal.SIGINT)

    assert await process.wait() == 0
    assert processes_naming(directory) == []
    assert not directory.exists()


@pytest.mark.long  # a control plane more
async def test_the_programs_end_with_a_parent_that_was_killed(
    standalone: tuple[asyncio.subprocess.Process, Path],
) -> None:
    process, directory = standalone
    children = processes_naming(directory)
    assert len(children) == 2

    process.kill()

    async with asyncio.timeout(60):
        while any(is_running(pid) for pid in children):
            await asyncio.sleep(0.02)
