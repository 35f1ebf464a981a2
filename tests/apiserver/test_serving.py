"""The secure port of a real manager, which asks a real API server who may."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from proreus.kube import config
from proreus.serving.selfsigned import self_signed
from proreus.testing.manager import ManagerProcess
from proreus.testing.waiting import until

from .site import Site

LONG_LEASE = (
    "--leader-elect-lease-duration=1h",
    "--leader-elect-renew-deadline=50m",
    "--leader-elect-retry-period=500ms",
)


@contextmanager
def held_port(*, shared: bool = True) -> Iterator[int]:
    """A free port: nobody else gets it, a manager that shares does."""
    with socket.socket() as holder:
        if shared:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        if not shared:
            holder.listen()
        yield holder.getsockname()[1]


def pair(site: Site, user: str, *groups: str) -> tuple[bytes, bytes]:
    """A certificate and key of the cluster's own authority."""
    held = config.load(str(site.plane.kubeconfig_for(user, groups)), env={}).in_memory()
    assert isinstance(held.client_certificate, bytes)
    assert isinstance(held.client_key, bytes)
    return held.client_certificate, held.client_key


def secure(port: int) -> tuple[str, ...]:
    return ("--bind-address=127.0.0.1", f"--secure-port={port}", "--permit-port-sharing")


def replace(files: tuple[Path, Path], name: str) -> None:
    """Another certificate and key in the same files."""
    made = self_signed([name])
    for path, content in zip(files, (made.certificate, made.key), strict=True):
        path.write_bytes(content)


async def shown(port: int) -> list[str]:
    """The names in the certificate that a client is shown."""
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port), timeout=60)
    names = x509.load_pem_x509_certificate(pem.encode()).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    return list(found.get_values_for_type(x509.DNSName))


class Visitor:
    """A client of a manager, with a certificate of the cluster's authority or without."""

    def __init__(self, port: int, shown: tuple[bytes, bytes] | None, directory: Path) -> None:
        self._url = f"https://127.0.0.1:{port}"
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        if shown is not None:
            pair = directory / "visitor.pem"
            pair.write_bytes(b"".join(shown))
            self._tls.load_cert_chain(pair)

    async def __call__(self, path: str, method: str = "GET", body: str = "") -> tuple[int, str]:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls)) as session,
            session.request(method, self._url + path, data=body or None) as answer,
        ):
            return answer.status, await answer.text()

    async def gets(self, path: str, status: int, manager: ManagerProcess) -> str:
        """Wait for this status; what is told with it."""

        async def attempt() -> tuple[int, str] | None:
            assert manager.is_running, manager.output()
            try:
                found = await self(path)
            except aiohttp.ClientConnectionError:
                return None
            return found if found[0] == status else None

        return (await until(f"{path} is {status}", attempt))[1]


async def test_the_secure_port_shows_health_to_all_and_the_rest_to_those_who_may(
    site: Site, tmp_path: Path
) -> None:
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    replace(files, "first.test")
    with held_port() as port:
        flags = (f"--tls-cert-file={files[0]}", f"--tls-private-key-file={files[1]}")
        async with site.lone_manager(*secure(port), *flags) as manager:
            anyone = Visitor(port, None, tmp_path)
            admin = Visitor(port, pair(site, "root", "system:masters"), tmp_path)
            assert await anyone.gets("/readyz", 200, manager) == "ok"
            assert (await anyone("/healthz"))[0] == 200
            refused = json.loads((await anyone("/metrics"))[1])
            assert (refused["code"], refused["reason"]) == (403, "Forbidden")

            # A young API server may not have published its authorities yet.
            assert "running_managed_controllers{" in await admin.gets("/metrics", 200, manager)
            assert "[+]leader-started ok" in (await admin("/readyz?verbose"))[1]
            found: dict[str, Any] = json.loads((await admin("/configz"))[1])
            component = found["cloudcontrollermanager.config.k8s.io"]
            assert component["KubeCloudShared"]["CloudProvider"]["Name"] == "simulated"
            assert component["Generic"]["LeaderElection"]["LeaseDuration"] == "15s"
            assert found["proreus.flags"]["secure-port"] == port
            assert (await admin("/debug/flags/v", "PUT", "5"))[0] == 200
            assert "MainThread" in (await admin("/debug/pprof/goroutine"))[1]

            assert await shown(port) == ["first.test"]
            replace(files, "second.test")

            async def is_replaced() -> bool:
                return await shown(port) == ["second.test"]

            await until("the new certificate is in use", is_replaced)
    assert "BEGIN" not in manager.output()


async def test_a_standby_is_ready(site: Site, tmp_path: Path) -> None:
    with held_port() as port:
        async with site.manager(*LONG_LEASE, user="first") as leader:

            async def leads() -> bool:
                return '"Became leader"' in leader.output()

            await until("the first leads", leads)
            async with site.manager(*LONG_LEASE, *secure(port), user="second") as standby:
                await Visitor(port, None, tmp_path).gets("/readyz", 200, standby)
                assert '"Became leader"' not in standby.output()


async def test_without_an_api_server_health_is_served_and_the_leader_is_not_ready(
    site: Site, tmp_path: Path
) -> None:
    nowhere = "https://127.0.0.1:1"
    with held_port() as port:
        async with site.lone_manager(*secure(port), api_server=nowhere) as manager:
            visitor = Visitor(port, None, tmp_path)
            text = await visitor.gets("/readyz", 500, manager)
            assert "[-]leader-started failed: reason withheld" in text
            assert await visitor("/healthz") == (200, "ok")
            assert (await visitor("/metrics"))[0] == 500  # nobody says who may


@pytest.mark.parametrize("flag", ["--secure-port", "--metrics-bind-address"])
async def test_a_taken_port_ends_the_process_with_one_clear_error(site: Site, flag: str) -> None:
    with held_port(shared=False) as port:
        own = (
            ("--bind-address=127.0.0.1", f"--secure-port={port}")
            if flag == "--secure-port"
            else (f"{flag}=127.0.0.1:{port}",)
        )
        async with site.lone_manager(*own) as manager:
            async with asyncio.timeout(60):
                assert await manager.wait() == 1
    (told,) = [line for line in manager.output().splitlines() if line.startswith("E")]
    assert f"{flag}: cannot listen on 127.0.0.1:{port} (Address already in use)" in told
    assert "Traceback" not in manager.output()


async def test_wrong_flags_and_files_of_the_secure_port_are_named_before_anything_starts(
    site: Site, tmp_path: Path
) -> None:
    async with site.lone_manager(
        "--secure-port=10258", "--tls-cipher-suites=TLS_NONE", "--tls-curve-preferences=1"
    ) as manager:
        assert await manager.wait() == 2
    assert "--tls-cipher-suites: TLS_NONE: not offered" in manager.output()
    assert "--tls-curve-preferences: 1: unknown" in manager.output()

    missing = tmp_path / "none.crt"
    async with site.manager(
        "--secure-port=10258",
        f"--tls-cert-file={missing}",
        f"--tls-private-key-file={missing}",
        user="second",
    ) as manager:
        assert await manager.wait() == 1
    assert f"--tls-cert-file: cannot read {missing}: No such file" in manager.output()


async def test_a_manager_whose_cloud_config_is_still_to_come_is_alive_and_can_be_ended(
    site: Site,
) -> None:
    place = "--cloud-config-secret=kube-system/cloud/cloud.conf"  # there is none
    with held_port() as port:
        flags = ("--cloud-config=", place, *secure(port))
        async with site.lone_manager(*flags) as manager, aiohttp.ClientSession() as client:

            async def status(path: str) -> int | None:
                try:
                    url = f"https://127.0.0.1:{port}{path}"
                    async with client.get(url, ssl=False) as response:
                        return response.status
                except aiohttp.ClientError:
                    return None

            async def is_alive() -> bool:
                return await status("/livez") == 200

            async def waits() -> bool:
                return await status("/readyz") == 500

            await until("it is alive", is_alive)
            await until("it is not ready", waits)
            assert manager.is_running
            assert await manager.stop() == 0
