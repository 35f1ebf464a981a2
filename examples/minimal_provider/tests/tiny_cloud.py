"""The tiny cloud: its HTTP API, served from memory. `python tests/tiny_cloud.py PORT` runs it.

    GET    /servers?name=NAME             {"servers": [S...]}
    GET    /servers/ID                    S
    GET    /balancers?label=K=V&after=N   {"balancers": [B...], "next": N or ""}; pages of 20
    GET    /balancers/NAME                B
    POST   /balancers                     B without address -> B; 409 if there is one of that name
    PUT    /balancers/NAME                B without address -> B
    DELETE /balancers/NAME                204 without a body

    S = {"id", "name", "status": "running"|"off", "type", "zone", "address"}
    B = {"name", "address", "labels": {K: V}, "forwards": {PORT: PORT OF THE TARGETS},
         "targets": [ADDRESS...], "sources": [CIDR...] (none: nobody), "health": "PORT/PATH" or ""}

Errors are {"error": TEXT}; the text of a 404 is "not found". `Authorization: Bearer secret`.
A body must have `Content-Type: application/json`.
"""

import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

PAGE = 20
TOKEN = "secret"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TinyCloud:
    """What there is in the cloud."""

    def __init__(self) -> None:
        """Empty."""
        self.servers: dict[str, dict[str, Any]] = {}
        self.balancers: dict[str, dict[str, Any]] = {}
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
            "address": f"10.0.{number >> 8}.{number & 255}",
        }

    def server(self, name: str) -> dict[str, Any]:
        """The newest machine of that name."""
        return [one for one in self.servers.values() if one["name"] == name][-1]

    def add_balancer(self, balancer: dict[str, Any]) -> dict[str, Any]:
        """Make a balancer and give it an address."""
        number = next(self._numbers)
        made = {**balancer, "address": f"198.18.{number >> 8}.{number & 255}"}
        self.balancers[balancer["name"]] = made
        return made

    def app(self) -> web.Application:
        """The HTTP API."""
        app = web.Application(middlewares=[authenticated])
        app.router.add_get("/servers", self._search)
        app.router.add_get("/servers/{key}", self._of(self.servers))
        app.router.add_get("/balancers", self._list)
        app.router.add_post("/balancers", self._create)
        app.router.add_get("/balancers/{key}", self._of(self.balancers))
        app.router.add_put("/balancers/{key}", self._replace)
        app.router.add_delete("/balancers/{key}", self._remove)
        return app

    async def _search(self, request: web.Request) -> web.Response:
        name = request.query["name"]
        found = [one for one in self.servers.values() if one["name"] == name]
        return web.json_response({"servers": found})

    def _of(self, things: dict[str, dict[str, Any]]) -> Handler:
        async def get(request: web.Request) -> web.Response:
            found = things.get(request.match_info["key"])
            return web.json_response(found) if found else refused(404, "not found")

        return get

    async def _list(self, request: web.Request) -> web.Response:
        key, _, value = request.query["label"].partition("=")
        names = sorted(n for n, b in self.balancers.items() if b["labels"].get(key) == value)
        names = [name for name in names if name > request.query["after"]]
        page = [self.balancers[name] for name in names[:PAGE]]
        last = names[PAGE - 1] if len(names) > PAGE else ""
        return web.json_response({"balancers": page, "next": last})

    async def _create(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        if wanted["name"] in self.balancers:
            return refused(409, "this name is taken")
        return web.json_response(self.add_balancer(wanted), status=201)

    async def _replace(self, request: web.Request) -> web.Response:
        name = request.match_info["key"]
        if name not in self.balancers:
            return refused(404, "not found")
        address = self.balancers[name]["address"]
        self.balancers[name] = {**await request.json(), "address": address}
        return web.json_response(self.balancers[name])

    async def _remove(self, request: web.Request) -> web.Response:
        removed = self.balancers.pop(request.match_info["key"], None)
        return web.Response(status=204) if removed else refused(404, "not found")


def refused(status: int, text: str) -> web.Response:
    """An error."""
    return web.json_response({"error": text}, status=status)


@web.middleware
async def authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let in who knows the token."""
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return refused(401, "who are you?")
    if request.can_read_body and request.content_type != "application/json":
        return refused(415, "the body must be application/json")
    return await handler(request)


if __name__ == "__main__":
    cloud = TinyCloud()
    for number in range(1, 4):
        cloud.add_server(f"node-{number}")
    web.run_app(cloud.app(), host="127.0.0.1", port=int(sys.argv[1]))
