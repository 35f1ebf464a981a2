"""A layer before Mimic that has what it lacks, checked as the emulator checks it.

Mimic does identity, servers with their pages, and of load balancers creation, lists, details,
deletion, nodes and health monitors. It lacks the filter of servers by a pattern, virtual IPs of
their own, changes of a load balancer's fields, access lists, session persistence, throttling and
changes of metadata: those are kept here, beside the load balancer of the same id in Mimic. Its
servers have ids of its own form, which are UUIDs to those in front, as at Rackspace.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import aiohttp
from aiohttp import web

from ..emulator.balancers import Balancers  # noqa: TID252 - pytest imports tests by path
from ..emulator.checks import Json  # noqa: TID252
from ..emulator.faults import Fault  # noqa: TID252

_HERE: Final = frozenset({"", "accesslist", "sessionpersistence", "connectionthrottle", "metadata"})
"""Parts of load balancers that Mimic lacks."""
_OF_MIMIC: Final = frozenset({"nodes", "status", "healthMonitor"})
_SERVER: Final = re.compile(r"test-server\d+-id-\d+")
_BALANCERS: Final = re.compile(
    r"/mimicking/LoadBalancerApi-[^/]+/[^/]+/v2/[^/]+/loadbalancers"
    r"(?:/(?P<id>\d+))?(?:/(?P<part>[a-z]+))?(?:/(?P<item>\d+))?"
)


def _with(ids: Mapping[str, str], text: str) -> str:
    """Return the text with other ids."""
    for one, other in ids.items():
        text = text.replace(one, other)
    return text


class Layer:
    """What is in front of one Mimic."""

    def __init__(self, mimic: str) -> None:
        self.mimic = mimic
        self.url = ""
        self.parts = Balancers(lambda: 0.0)
        self.servers: dict[str, str] = {}
        """Ids of Mimic's servers, by the UUIDs in front."""
        self.calls: Counter[str] = Counter()
        """Requests that Mimic has answered, and those that it was not asked."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request: by Mimic, here, or by both."""
        body = await request.json() if request.can_read_body else None
        found = _BALANCERS.fullmatch(request.path)
        try:
            if found is not None:
                status, answer = await self._balancers(request, body, found)
            elif request.path.endswith("/servers/detail") and "name" in request.query:
                status, answer = await self._named(request)
            else:
                status, answer = await self._forward(request, body)
        except Fault as fault:
            return web.json_response(fault.body, status=fault.status)
        if request.path.endswith("/tokens"):
            answer["access"]["serviceCatalog"] = [
                one for one in answer["access"]["serviceCatalog"] if "Control" not in one["name"]
            ]
        return web.json_response(answer, status=status) if answer else web.Response(status=status)

    async def _forward(
        self, request: web.Request, body: Any, query: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Ask Mimic, whose links lead to itself: here they lead to this layer."""
        self.calls["mimic"] += 1
        headers = {"Content-Type": "application/json"}
        if token := request.headers.get("X-Auth-Token"):
            headers["X-Auth-Token"] = token
        async with aiohttp.ClientSession() as session, session.request(
            request.method, self.mimic + _with(self.servers, request.path),
            data=json.dumps(body) if body else None, headers=headers,
            params={
                name: _with(self.servers, value)
                for name, value in (request.query if query is None else query).items()
            },
        ) as response:  # fmt: skip
            text = (await response.text()).replace(self.mimic, self.url)
        for theirs in set(_SERVER.findall(text)):
            self.servers[str(uuid5(NAMESPACE_URL, theirs))] = theirs
        text = _with({theirs: id_ for id_, theirs in self.servers.items()}, text)
        try:
            return response.status, json.loads(text) if text else None
        except ValueError:
            raise Fault(response.status, {"message": text[:200], "code": 500}) from None

    async def _named(self, request: web.Request) -> tuple[int, Any]:
        status, answer = await self._forward(request, None, {})
        pattern = request.query["name"]
        wanted = [
            one for one in answer["servers"] if re.search(pattern, one["name"], re.IGNORECASE)
        ]
        return status, {"servers": wanted}

    async def _balancers(
        self, request: web.Request, body: Any, found: re.Match[str]
    ) -> tuple[int, Any]:
        part, id_ = found["part"] or "", int(found["id"] or 0)
        if not id_ and request.method == "POST":
            return await self._create(request, body)
        is_here = part in _HERE and (part or request.method == "PUT")
        if id_ and is_here:
            self.calls["here"] += 1
            if request.method == "GET":
                return 200, self.parts.part(id_, part)
            ids = [int(one) for one in request.query.getall("id", [])]
            ids += [int(found["item"])] if found["item"] else []
            return 202, self.parts.change(request.method, id_, part, body or {}, ids)
        status, answer = await self._forward(request, body)
        if status < 300 and request.method == "GET" and not part:
            answer = self._completed(answer, id_)
        return status, answer

    async def _create(self, request: web.Request, body: Json) -> tuple[int, Any]:
        made = self.parts.create(json.loads(json.dumps(body)))["loadBalancer"]
        status, answer = await self._forward(request, body)
        id_ = answer["loadBalancer"]["id"]
        kept = self.parts.by_id.pop(made["id"])
        self.parts.by_id[id_] = kept | {"id": id_}
        if "healthMonitor" in body["loadBalancer"]:
            path = f"{request.path}/{id_}/healthmonitor"
            monitor = {"healthMonitor": body["loadBalancer"]["healthMonitor"]}
            async with aiohttp.ClientSession() as session:
                await session.put(self.mimic + path, data=json.dumps(monitor))
        return status, self._completed(answer, id_)

    def _completed(self, answer: Any, id_: int) -> Any:
        """What Mimic shows, with what it lacks."""
        if id_:
            theirs = answer["loadBalancer"]
            if theirs["status"] == "DELETED":
                self.parts.by_id[id_] |= {"status": "DELETED", "virtualIps": []}
            mine = self.parts.details(id_)["loadBalancer"]
            kept = {field: value for field, value in theirs.items() if field in _OF_MIMIC}
            return {"loadBalancer": {**mine, "nodes": [], **kept}}
        shown = {one["id"]: one for one in self.parts.listed({})["loadBalancers"]}
        listed = [
            {**shown.get(one["id"], one), "status": one["status"]}
            for one in answer["loadBalancers"]
            if one["status"] != "DELETED"
        ]
        return {"loadBalancers": listed}


@asynccontextmanager
async def served(mimic: str) -> AsyncIterator[Layer]:
    """The layer on a port of loopback."""
    layer = Layer(mimic)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", layer.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    layer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield layer
    finally:
        await runner.cleanup()
