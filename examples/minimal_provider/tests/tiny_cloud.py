"""The tiny cloud: its HTTP API, served from memory. `python tests/tiny_cloud.py PORT` runs it.

    GET    /servers?id=ID&id=...&name=NAME&...   {"items": [S...], "next": ""}; at most 100 of both
    GET    /THINGS?label=K=V&after=N             {"items": [T...], "next": N or ""}; pages of 20
    GET    /THINGS/NAME                          T
    POST   /THINGS                               T -> T; 409 if there is one of that name
    PUT    /THINGS/NAME                          T -> T
    DELETE /THINGS/NAME                          204 without a body

    THINGS are balancers and routes, with T = B or R, of which the cloud sets what is in brackets:

    S = {"id", "name", "status": "running"|"off", "type", "zone", "address"}
    B = {"name", "labels": {K: V}, "forwards": {PORT: PORT OF THE TARGETS}, "targets": [ADDRESS...],
         "sources": [CIDR...] (none: nobody), "health": "PORT/PATH" or "", ["address"]}
    R = {"name", "labels": {K: V}, "destination": CIDR, "server": ID, ["works": BOOL]}

Errors are {"error": TEXT}; the text of a 404 is "not found". `Authorization: Bearer secret`.
A body must have `Content-Type: application/json`.
"""

import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

PAGE = 20
MOST = 100
TOKEN = "secret"

Things = dict[str, dict[str, Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TinyCloud:
    """A cloud in memory: servers, balancers and routes."""

    def __init__(self) -> None:
        """Start without any object."""
        self.servers: Things = {}
        self.balancers: Things = {}
        self.routes: Things = {}
        self._numbers = itertools.count(1)

    def add_server(self, name: str) -> None:
        """Start a machine."""
        number = next(self._numbers)
        self.servers[f"s{number}"] = {
            "id": f"s{number}",
            "name": name,
            "status": "running",
            "type": "small",
            "zone": "north",
            "address": address("10.0", number),
        }

    def server(self, name: str) -> dict[str, Any]:
        """Return the newest machine of that name."""
        return [found for found in self.servers.values() if found["name"] == name][-1]

    def add(self, things: Things, thing: dict[str, Any]) -> dict[str, Any]:
        """Make a balancer, which gets an address, or a route, or replace one."""
        if things is self.balancers:
            before = things.get(thing["name"]) or {
                "address": address("198.18", next(self._numbers))
            }
            thing = {**thing, "address": before["address"]}
        things[thing["name"]] = thing
        return self._shown(thing)

    def app(self) -> web.Application:
        """Return the HTTP API."""
        app = web.Application(middlewares=[authenticated])
        app.router.add_get("/servers", self._search)
        for path, things in (("/balancers", self.balancers), ("/routes", self.routes)):
            app.router.add_get(path, self._on(things, self._list))
            app.router.add_post(path, self._on(things, self._create))
            app.router.add_get(path + "/{key}", self._on(things, self._get))
            app.router.add_put(path + "/{key}", self._on(things, self._replace))
            app.router.add_delete(path + "/{key}", self._on(things, self._remove))
        return app

    def _on(self, things: Things, act: Callable[..., Awaitable[web.Response]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            return await act(things, request)

        return handle

    async def _search(self, request: web.Request) -> web.Response:
        ids, names = request.query.getall("id", []), request.query.getall("name", [])
        if len(ids) + len(names) > MOST:
            return refused(400, "too many of id and name")
        found = [s for s in self.servers.values() if s["id"] in ids or s["name"] in names]
        return web.json_response({"items": found, "next": ""})

    async def _list(self, things: Things, request: web.Request) -> web.Response:
        key, _, value = request.query["label"].partition("=")
        names = sorted(name for name, thing in things.items() if thing["labels"].get(key) == value)
        names = [name for name in names if name > request.query["after"]]
        page = [self._shown(things[name]) for name in names[:PAGE]]
        last = names[PAGE - 1] if len(names) > PAGE else ""
        return web.json_response({"items": page, "next": last})

    async def _get(self, things: Things, request: web.Request) -> web.Response:
        found = things.get(request.match_info["key"])
        return web.json_response(self._shown(found)) if found else refused(404, "not found")

    async def _create(self, things: Things, request: web.Request) -> web.Response:
        thing = await request.json()
        if thing["name"] in things:
            return refused(409, "this name is taken")
        return web.json_response(self.add(things, thing), status=201)

    async def _replace(self, things: Things, request: web.Request) -> web.Response:
        if request.match_info["key"] not in things:
            return refused(404, "not found")
        return web.json_response(self.add(things, await request.json()))

    async def _remove(self, things: Things, request: web.Request) -> web.Response:
        removed = things.pop(request.match_info["key"], None)
        return web.Response(status=204) if removed else refused(404, "not found")

    def _shown(self, thing: dict[str, Any]) -> dict[str, Any]:
        works = {"works": thing["server"] in self.servers} if "server" in thing else {}
        return {**thing, **works}


def address(net: str, number: int) -> str:
    """Return the address of that number in a net of 16 bits."""
    return f"{net}.{number >> 8}.{number & 255}"


def refused(status: int, text: str) -> web.Response:
    """Return an error."""
    return web.json_response({"error": text}, status=status)


@web.middleware
async def authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without the token."""
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return refused(401, "the bearer token is wrong")
    if request.can_read_body and request.content_type != "application/json":
        return refused(415, "the body must be application/json")
    return await handler(request)


if __name__ == "__main__":
    cloud = TinyCloud()
    for number in range(1, 4):
        cloud.add_server(f"node-{number}")
    web.run_app(cloud.app(), host="127.0.0.1", port=int(sys.argv[1]))
