"""The masters of an emulated cluster of Mesos: one leads, the others redirect to it.

Written from the documentation and the protocol buffers of Apache Mesos 1.11. A request is refused
as a master refuses it: its method, media types, call, principal and rights.
"""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from .world import Json, MasterInfo, World

LOST: Final = -1
"""The status of a failure that is no answer at all."""
HANGS: Final = -2
"""The status of a failure that never ends."""
CALLS: Final = frozenset(("GET_AGENTS", "GET_MASTER", "GET_FLAGS"))
ACTIONS: Final = {"GET_FLAGS": "view_flags"}


class Refusal(Exception):
    """What a master answers in the place of what it was asked for."""

    def __init__(self, status: int, text: str = "", **headers: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Failure:
    """A failure of the next requests of an operation."""

    def __init__(self, status: int, times: int, body: bytes) -> None:
        self.status, self.times, self.body = status, times, body


class Master:
    """A master that listens on a port of loopback."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.address = ""
        self.calls: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None
        self.info = MasterInfo("127.0.0.1", "127.0.0.1", 0)

    async def start(self) -> None:
        """Listen, after a stop on the same port again; forget who it was, as a new process does."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.info.port).start()
        port = self._runner.addresses[0][1]
        self.info = MasterInfo(self.info.hostname, self.info.ip, port)
        self.address = f"{self.info.hostname}:{port}"

    async def stop(self) -> None:
        """End, as a master does that does not lead any more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self.cluster.leader is self:
            self.cluster.leader = None

    @property
    def leads(self) -> bool:
        return self.cluster.leader is self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            operation, answer = await self._answer(request)
            await self._fail(operation)
        except Refusal as refusal:
            if refusal.status == LOST:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return web.Response(status=refusal.status, text=refusal.text, headers=refusal.headers)
        response = web.json_response(answer)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async def _answer(self, request: web.Request) -> tuple[str, Json]:
        cluster, path = self.cluster, request.path.rstrip("/")
        path = path.removeprefix("/master") if path != "/master" else path
        self._authenticate(request)
        if path == "/registrar(1)/registry":
            self.calls["registry"] += 1
            self._allow("registry")
            return "registry", cluster.world.registry() if self.leads else {}
        if path not in {"/api/v1", "/state", "/state.json", "/redirect"}:
            raise Refusal(404)
        if not self.leads or path == "/redirect":
            self._redirect(request)
        if not cluster.recovered:
            raise Refusal(503, "Master has not finished recovery")
        if path != "/api/v1":
            self.calls["state"] += 1
            return "state", cluster.world.state()
        type_ = await _call(request)
        self.calls[type_] += 1
        self._allow(ACTIONS.get(type_, ""))
        key = type_.lower()
        if type_ == "GET_MASTER":
            return type_, {"type": type_, key: {"master_info": self.info.described()}}
        made = cluster.world.listed() if type_ == "GET_AGENTS" else cluster.world.flags()
        return type_, {"type": type_, key: made}

    def _authenticate(self, request: web.Request) -> None:
        cluster = self.cluster
        if cluster.secret:
            expected = base64.b64encode(f"{cluster.principal}:{cluster.secret}".encode()).decode()
            if request.headers.get("Authorization") != f"Basic {expected}":
                realm = 'Basic realm="mesos-master-readwrite"'
                raise Refusal(401, "Authentication failed", WWW_Authenticate=realm)

    def _allow(self, action: str) -> None:
        if action in self.cluster.forbidden:
            raise Refusal(403)

    def _redirect(self, request: web.Request) -> None:
        leader = self.cluster.sends_to or self.cluster.leader
        if leader is None:
            raise Refusal(503, "No leader elected")
        path = "" if request.path.endswith("/redirect") else request.path_qs
        self.calls["redirect"] += 1
        raise Refusal(307, Location=f"//{leader.address}{path}")

    async def _fail(self, operation: str) -> None:
        failure = self.cluster.failures.get(operation)
        if failure is None:
            return
        failure.times -= 1
        if failure.times <= 0:
            del self.cluster.failures[operation]
        if failure.status == HANGS:
            await asyncio.sleep(3600)
        raise Refusal(failure.status, failure.body.decode())


async def _call(request: web.Request) -> str:
    """Return which call of the operator API a request is, as `Master::Http::api` checks it."""
    if request.method != "POST":
        raise Refusal(405, f"Expecting one of {{ 'POST' }}, but received '{request.method}'")
    if "Content-Type" not in request.headers:
        raise Refusal(400, "Expecting 'Content-Type' to be present")
    if request.content_type != "application/json":
        raise Refusal(415, "Expecting 'Content-Type' of application/json")
    if request.headers.get("Accept", "*/*") not in {"application/json", "*/*"}:
        raise Refusal(406, "Expecting 'Accept' to allow application/json")
    try:
        call = json.loads(await request.read())
    except ValueError:
        raise Refusal(400, "Failed to parse body into JSON") from None
    if not isinstance(call, dict) or call.keys() != {"type"} or call["type"] not in CALLS:
        raise Refusal(400, "Failed to validate master::Call: unknown call")
    return str(call["type"])


class Cluster:
    """The masters of one cluster, and what they have in common."""

    def __init__(self) -> None:
        self.world = World()
        self.masters: list[Master] = []
        self.leader: Master | None = None
        self.sends_to: Master | None = None
        """Where all that do not lead send others, wrong as it may be."""
        self.recovered = True
        self.principal = self.secret = ""
        self.forbidden: set[str] = set()
        """Actions, and `registry`, that our principal is not allowed."""
        self.failures: dict[str, Failure] = {}

    def elect(self, number: int, *, agents_return: bool = True) -> None:
        """Let one of the masters lead."""
        self.leader = self.masters[number]
        self.world.elect(self.leader.info)
        if agents_return:
            self.world.reconnect()

    def fail(self, operation: str, status: int, times: int = 1, body: bytes = b"failed") -> None:
        """Let the next requests of an operation fail: a call, `registry` or `state`."""
        self.failures[operation] = Failure(status, times, body)

    @property
    def calls(self) -> Counter[str]:
        """How often each operation was asked for, of all masters."""
        return sum((master.calls for master in self.masters), Counter())

    def forget_calls(self) -> None:
        for master in self.masters:
            master.calls.clear()

    def config(self, more: str = "", *, master: str = "", sections: str = "") -> str:
        """A cloud-config; by default it leads to the first master."""
        place = master or self.masters[0].address
        return f"[mesos-cloud]\nmesos-master = {place}\nstate-cache-ttl = 0s\n{more}\n{sections}\n"


@asynccontextmanager
async def served(masters: int = 1) -> AsyncIterator[Cluster]:
    """A cluster of so many masters, of which the first leads."""
    cluster = Cluster()
    cluster.masters = [Master(cluster) for _ in range(masters)]
    try:
        for master in cluster.masters:
            await master.start()
        cluster.elect(0)
        yield cluster
    finally:
        for master in cluster.masters:
            await master.stop()
