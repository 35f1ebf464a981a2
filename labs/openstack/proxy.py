"""A proxy in front of the services, where chosen requests fail, are slow, or lose their answer.

    async with Proxy() as proxy:
        proxy.fail(Fault("POST", "octavia/.*/loadbalancers", lost=True, after_effect=True))

Clients are given `auth_url`; the catalog that keystone answers through it leads to the proxy, too.
"""

import asyncio
import json
import re
from collections import Counter
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from labs.openstack.settings import PORTS, url

_LONGEST_LINE = 65536
_THROTTLED = 429
_OF_ONE_CONNECTION: Final = frozenset(
    {"connection", "content-encoding", "content-length", "date", "host", "server"}
    | {"transfer-encoding", "keep-alive"}
)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")


class Fault(msgspec.Struct, frozen=True):
    """A failure of some requests.

    Attributes:
        method: Of the requests, such as POST.
        path: A regular expression; the service and the path, without the query, must match it as
            a whole: `octavia/v2.0/lbaas/loadbalancers`.
        times: To how many of them.
        status: What is answered.
        lost: The connection is closed instead of that.
        after_effect: The service gets the request before.
        seconds: So long the request waits; with `status` 0 it then goes its way.
    """

    method: str
    path: str
    times: int = 1
    status: int = 500
    lost: bool = False
    after_effect: bool = False
    seconds: float = 0.0


class Proxy:
    """Serves on a port of loopback, for `async with`.

    Attributes:
        url: Where it listens.
        calls: The requests so far, such as `nova GET /v2.1/servers/{id}`.
        log: The same in their order, with their ids and queries.
    """

    def __init__(self) -> None:
        """Serve nothing yet."""
        self.url = ""
        self.calls: Counter[str] = Counter()
        self.log: list[str] = []
        self._left: list[tuple[Fault, int]] = []

    async def __aenter__(self) -> Self:
        """Serve."""
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
        )
        app = web.Application(
            client_max_size=0, handler_args={"max_line_size": _LONGEST_LINE, "access_log": None}
        )
        app.router.add_route("*", "/{service}{rest:(/.*)?}", self._serve)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and cut off what is under way."""
        await self._runner.cleanup()
        await self._client.close()

    @property
    def auth_url(self) -> str:
        """The URL of keystone for clients."""
        return f"{self.url}/keystone/v3"

    def fail(self, *faults: Fault) -> None:
        """Let these happen, each as often as it says; of several the first one comes first."""
        self._left += [(one, one.times) for one in faults]

    def unspent(self) -> list[Fault]:
        """Faults that have not happened as often as they should."""
        return [one for one, _ in self._left]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        service, rest = request.match_info["service"], request.match_info["rest"]
        if service not in PORTS:
            raise web.HTTPNotFound
        self.calls[f"{service} {request.method} {_ID.sub('{id}', rest)}"] += 1
        asked = request.raw_path.removeprefix(f"/{service}")
        self.log.append(f"{service} {request.method} {asked}")
        fault = self._take(request.method, f"{service}{rest}")
        if fault is None:
            return await self._pass(request, service)
        await asyncio.sleep(fault.seconds)
        passed = None
        if fault.after_effect or not (fault.status or fault.lost):
            passed = await self._pass(request, service)
        if fault.lost and request.transport is not None:
            request.transport.abort()
        if passed is not None and not fault.status:
            return passed
        return _refusal(service, fault.status)

    def _take(self, method: str, what: str) -> Fault | None:
        for index, (fault, left) in enumerate(self._left):
            if fault.method == method and re.fullmatch(fault.path, what):
                self._left[index : index + 1] = [(fault, left - 1)] if left > 1 else []
                return fault
        return None

    async def _pass(self, request: web.Request, service: str) -> web.Response:
        path = request.raw_path.removeprefix(f"/{service}")
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _OF_ONE_CONNECTION | {"accept-encoding"}
        }
        async with self._client.request(
            request.method,
            URL(url(service, path or "/"), encoded=True),
            headers=headers,
            data=await request.read() or None,
            skip_auto_headers=("Content-Type", "User-Agent"),
            allow_redirects=False,
        ) as answer:
            body = await answer.read()
            for name in PORTS:  # in the catalog, and in links to further pages
                body = body.replace(url(name).encode(), f"{self.url}/{name}".encode())
            kept = [
                (name, value)
                for name, value in answer.headers.items()
                if name.lower() not in _OF_ONE_CONNECTION
            ]
            return web.Response(status=answer.status, headers=dict(kept), body=body)


def _refusal(service: str, status: int) -> web.Response:
    """Make an error in the form of the service."""
    message = "made to fail"
    body: object
    if service == "octavia":
        body = {"faultcode": "Server", "faultstring": message, "debuginfo": None}
    elif service == "neutron":
        body = {"NeutronError": {"type": "MadeToFail", "message": message, "detail": ""}}
    elif service == "nova":
        body = {"computeFault": {"code": status, "message": message}}
    else:
        body = {"error": {"code": status, "title": "Made to fail", "message": message}}
    headers = {"Retry-After": "1"} if status == _THROTTLED else {}
    return web.Response(
        status=status or 500,
        text=json.dumps(body),
        content_type="application/json",
        headers=headers,
    )
