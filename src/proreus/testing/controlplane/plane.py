"""Run one etcd and one kube-apiserver, from start to stop."""

import asyncio
import shutil
import socket
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from proreus.testing.controlplane import kubeconfig
from proreus.testing.controlplane.assets import ensure_assets
from proreus.testing.controlplane.certificates import Authority, signing_key, write_private
from proreus.testing.controlplane.child import Child
from proreus.testing.controlplane.errors import ControlPlaneError

READY_SECONDS = 60.0
"""How long kube-apiserver may take to be ready; on a quiet machine it takes 4 s."""

_SOCKET = "etcd.sock:0"

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""


class ControlPlane:
    """A real control plane on loopback, for `async with`.

    Its programs end with the process and thread that start them, also when that ends by SIGKILL
    (on Linux). The methods may be awaited in any event loop of that thread. No controller runs:
    nothing makes default service accounts or empties deleted namespaces.
    """

    kubeconfig: Path
    """Kubeconfig file of an administrator (group system:masters)."""
    url: str
    """Base URL of the API server."""
    ca_file: Path
    """Certificate of the authority that signed the API server's."""
    directory: Path
    """The folder of all files, logs too unless they have one of their own; removed at the end."""
    audit_log: Path
    """JSON lines, one for each answered request (a watch: two)."""

    def __init__(
        self, log_dir: Path | None = None, extra_apiserver_args: Sequence[str] = ()
    ) -> None:
        """Keep the settings; nothing is started yet.

        Args:
            log_dir: The directory where etcd.log, kube-apiserver.log and audit.jsonl are kept after
                the end.
            extra_apiserver_args: Further flags of kube-apiserver, after ours, so that they win.
        """
        self._given_log_dir = log_dir
        self._extra_args = tuple(extra_apiserver_args)
        self._etcd: Child | None = None
        self._apiserver: Child | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and wait until it is ready; on failure, stop what was started.

        Raises:
            ControlPlaneError: the programs cannot be had, or one of them does not get ready.
        """
        self._assets = await ensure_assets()
        # Not below log_dir: the path of a socket has at most 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="proreus-"))
        # Bound and never listening, it keeps the port ours while the API server is down.
        self._port_holder = socket.socket()
        try:
            self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._port_holder.bind(("127.0.0.1", 0))
            self._port: int = self._port_holder.getsockname()[1]
            self._write_files()
            self._etcd = Child(
                self._assets.etcd, self._etcd_arguments(), self._log_dir, cwd=self.directory
            )
            await self.start_apiserver()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the API server, then etcd, and remove the directory."""
        try:
            # In this order: without etcd the API server would linger for a minute and answer.
            await self.stop_apiserver()
        finally:
            etcd, self._etcd = self._etcd, None
            try:
                if etcd is not None:
                    await etcd.stop()
            finally:
                self._port_holder.close()
                shutil.rmtree(self.directory)

    async def start_apiserver(self) -> None:
        """Start the API server, on the port it had before, and wait until it is ready."""
        if self._apiserver is not None:
            raise ControlPlaneError("the API server has been started already: stop it first")
        self._apiserver = Child(
            self._assets.kube_apiserver, self._apiserver_arguments(), self._log_dir
        )
        await self._wait_until_ready(self._apiserver)

    async def stop_apiserver(self) -> None:
        """Stop the API server and wait for its end; its port then refuses connections."""
        apiserver, self._apiserver = self._apiserver, None
        if apiserver is not None:
            await apiserver.stop()

    async def restart_apiserver(self) -> None:
        """Stop the API server and start it again on the same port."""
        await self.stop_apiserver()
        await self.start_apiserver()

    @property
    def etcd_socket(self) -> Path:
        """The socket that etcd listens on."""
        return self.directory / _SOCKET

    @property
    def apiserver_pid(self) -> int:
        """The process id of the API server.

        Raises:
            ControlPlaneError: it is stopped.
        """
        if self._apiserver is None:
            raise ControlPlaneError("the API server is stopped: it has no process id")
        return self._apiserver.pid

    @property
    def etcd_pid(self) -> int:
        """The process id of etcd.

        Raises:
            ControlPlaneError: it is stopped.
        """
        if self._etcd is None:
            raise ControlPlaneError("etcd is stopped: it has no process id")
        return self._etcd.pid

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Make a kubeconfig file with a new client certificate for `user` in `groups`."""
        certificate, key = self._authority.client(user, groups)
        content = kubeconfig.render(
            url=self.url,
            ca=self._authority.certificate,
            user=user,
            certificate=certificate,
            key=key,
        )
        place = Path(tempfile.mkdtemp(prefix="kubeconfig-", dir=self.directory))
        return write_private(place / "kubeconfig.yaml", content.encode())

    def _write_files(self) -> None:
        self.url = f"https://127.0.0.1:{self._port}"
        self._log_dir = self._given_log_dir or self.directory
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self.audit_log = self._log_dir / "audit.jsonl"
        self._authority = Authority()
        self.ca_file = write_private(self.directory / "ca.crt", self._authority.certificate)
        certificate, key = self._authority.serving()
        write_private(self.directory / "serving.crt", certificate)
        write_private(self.directory / "serving.key", key)
        write_private(self.directory / "service-accounts.key", signing_key())
        write_private(self.directory / "audit-policy.yaml", _AUDIT_POLICY.encode())
        self.kubeconfig = self.kubeconfig_for("proreus-test-admin", ["system:masters"])

    def _etcd_arguments(self) -> list[str]:
        # Sockets, so that there is no port to fight for. Before 3.6 a socket must be named like
        # host:port, and lies in the working directory. What is advertised must look like
        # host:port, and is not used: there is no other member.
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls=unix://{_SOCKET}",
            "--listen-peer-urls=unix://etcd-peer.sock:0",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        ]

    def _apiserver_arguments(self) -> list[str]:
        return [
            f"--etcd-servers=unix://{self.etcd_socket}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # loopback is no valid endpoint
            f"--secure-port={self._port}",
            "--permit-port-sharing",  # with our port holder
            f"--cert-dir={self.directory}",
            f"--tls-cert-file={self.directory / 'serving.crt'}",
            f"--tls-private-key-file={self.directory / 'serving.key'}",
            f"--client-ca-file={self.ca_file}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.directory / 'service-accounts.key'}",
            f"--service-account-signing-key-file={self.directory / 'service-accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/16,fd00:10::/108",
            "--allow-privileged",
            # Nothing makes the service account "default", without which no Pod is admitted.
            "--disable-admission-plugins=ServiceAccount",
            # Without it an open watch over HTTP/1.1 holds up the end for a minute.
            "--shutdown-watch-termination-grace-period=2s",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1000",
            f"--audit-policy-file={self.directory / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=0",
            *self._extra_args,
        ]

    async def _wait_until_ready(self, apiserver: Child) -> None:
        tls = ssl.create_default_context(cafile=self.ca_file)
        certificate, key = self._authority.client("proreus-test-readiness", ["system:masters"])
        pair = write_private(self.directory / "readiness.pem", certificate + key)
        tls.load_cert_chain(pair)
        try:
            async with (
                asyncio.timeout(READY_SECONDS),
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            ):
                while not await self._is_ready(session):
                    for child in (self._etcd, apiserver):
                        if child is not None and child.ended():
                            raise ControlPlaneError(f"{child.name} ended; {child.last_words()}")
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise ControlPlaneError(
                f"kube-apiserver is not ready after {READY_SECONDS:.0f} s; {apiserver.last_words()}"
            ) from error

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        for path in ("/readyz", "/api/v1/namespaces/kube-system"):
            try:
                async with session.get(self.url + path) as response:
                    if not response.ok:
                        return False
            except aiohttp.ClientError:
                return False
        return True
