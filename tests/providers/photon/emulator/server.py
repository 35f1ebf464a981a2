"""The protocol of the emulated Photon Controller: ages of its API, tokens, pages, errors, failures."""

import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from proreus.providers.photon.operations import OPERATIONS
from proreus.testing.controlplane.certificates import Authority

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from .lightwave import Lightwave, serving
from .world import Json, Refusal, World, shown

LOST: Final = -1
"""The status of a failure that is no answer at all."""


class Age(Enum):
    """The ages of the API: prefix, place of status and tokens, word for a machine's networks."""

    SYSTEM = ("/v1", "/system", "subnets")
    V1 = ("/v1", "", "subnets")
    SUBNETS = ("", "", "subnets")
    NETWORKS = ("", "", "networks")

    @property
    def paths(self) -> list[tuple[re.Pattern[str], str]]:
        """The operations by their paths."""
        prefix, system, networks = self.value
        id_ = r"([^/]+)"
        known = {
            f"{system}/auth": "auth.get",
            f"{system}/status": "status.get",
            "/tenants": "tenants.list",
            f"/tenants/{id_}/projects": "projects.list",
            f"/projects/{id_}": "projects.get",
            f"/projects/{id_}/vms": "vms.list",
            f"/vms/{id_}": "vms.get",
            f"/vms/{id_}/{networks}": "vms.networks",
            f"/tasks/{id_}": "tasks.get",
        }
        return [(re.compile(prefix + path), name) for path, name in known.items()]


_QUERY: Final[Mapping[str, set[str]]] = {
    "tenants.list": {"name", "pageSize", "pageLink"},
    "projects.list": {"name", "pageSize", "pageLink"},
    "vms.list": {"name", "pageSize", "pageLink"},
    "vms.page": {"pageLink"},
}


class Failure:
    """A failure that is to come: `times` often, before or after the effect."""

    def __init__(self, status: int, code: str, times: int, *, after_effect: bool) -> None:
        self.status, self.code, self.times, self.after_effect = status, code, times, after_effect


class Emulator:
    """One Photon Controller and its Lightwave."""

    def __init__(self, age: Age = Age.SYSTEM, *, authentication: bool = False) -> None:
        self.authority = Authority()
        self.world = World()
        self.lightwave = Lightwave(self.authority, time.monotonic)
        self.age = age
        self.authentication = authentication
        self.tls = False
        self.url = ""
        self.page = 100
        self.forbidden = False
        """Whether the user is in no security group of the project."""
        self.limit: int | None = None
        """Requests of a second, after which further ones are refused."""
        self.throttled = 0
        self.calls: Counter[str] = Counter()
        self.failures: dict[str, Failure] = {}
        self.missing: set[str] = set()
        """Paths that were asked for and are not there."""
        self._pages: dict[str, tuple[str, list[Json]]] = {}
        self._second = (0.0, 0)

    def fail(
        self, operation: str, status: int = 500, code: str = "InternalError", times: int = 1, *,
        after_effect: bool = False,
    ) -> None:  # fmt: skip
        """Let the next requests of an operation fail."""
        self.failures[operation] = Failure(status, code, times, after_effect=after_effect)

    def expire_pages(self) -> None:
        """Forget all lists that are read page by page."""
        self._pages.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        failure = None
        try:
            name, ids = self._route(request)
            self._admit(name, request)
            failure = self.failures.get(name)
            if failure is not None:
                failure.times -= 1
                if failure.times <= 0:
                    del self.failures[name]
                if not failure.after_effect:
                    raise Refusal(failure.status, failure.code, "failed")
            status, answer = self._answer(name, ids, request)
            if failure is not None:
                raise Refusal(failure.status, failure.code, "failed")
        except Refusal as refusal:
            if refusal.status == LOST:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            body = {"code": refusal.code, "message": refusal.text, "data": {}}
            return web.json_response(body, status=refusal.status)
        return web.json_response(answer, status=status)

    def _route(self, request: web.Request) -> tuple[str, Sequence[str]]:
        for pattern, name in self.age.paths:
            if request.method == "GET" and (match := pattern.fullmatch(request.path)):
                # A further page of machines is an operation of its own, to fail by itself.
                is_page = name == "vms.list" and "pageLink" in request.query
                return "vms.page" if is_page else name, match.groups()
        self.missing.add(f"{request.method} {request.path}")
        raise Refusal(404, "NotFound", "HTTP 404 Not Found")

    def _admit(self, name: str, request: web.Request) -> None:
        begun, count = self._second
        now = time.monotonic()
        self._second = (begun, count + 1) if now - begun < 1.0 else (now, 1)
        if self.limit is not None and self._second[1] > self.limit:
            self.throttled += 1
            raise Refusal(429, "TooManyRequests", "too many requests")
        counted = "vms.list" if name == "vms.page" else name
        assert counted in OPERATIONS
        self.calls[counted] += 1
        if name != "auth.get" and self.authentication:
            self._authenticate(request.headers.get("Authorization"))
        if self.forbidden and name not in {"auth.get", "status.get", "tenants.list"}:
            raise Refusal(403, "AccessForbidden", "access is forbidden")
        if unknown := request.query.keys() - _QUERY.get(name, set()):
            raise Refusal(400, "InvalidQueryParams", f"unknown: {', '.join(sorted(unknown))}")

    def _authenticate(self, header: str | None) -> None:
        if header is None:
            raise Refusal(401, "MissingAuthToken", "AuthToken was missing in the request")
        if not header.startswith("Bearer "):
            raise Refusal(400, "MalformedAuthToken", "Malformed AuthToken received")
        ends = self.lightwave.tokens.get(header.removeprefix("Bearer "))
        if ends is None:
            raise Refusal(401, "InvalidAuthToken", "Passed OAuth token is invalid.")
        if ends <= time.monotonic():
            raise Refusal(401, "ExpiredAuthToken", "The OAuth token has expired")

    def _answer(self, name: str, ids: Sequence[str], request: web.Request) -> tuple[int, Any]:
        world = self.world
        match name:
            case "auth.get":
                on = {"enabled": True, "endpoint": "127.0.0.1", "port": self.lightwave.port}
                answer: Any = on if self.authentication else {"enabled": False}
            case "status.get":
                answer = {"status": "READY", "components": []}
            case "vms.get":
                answer = shown(world.vm(ids[0]))
            case "vms.networks":
                answer = shown(world.begin(world.vm(ids[0])))
            case "tasks.get":
                answer = shown(world.task(ids[0]))
            case "projects.get":
                answer = shown(world.found(ids[0]))
            case _:
                answer = self._page(name, ids, request)
        return 201 if name == "vms.networks" else 200, answer

    def _page(self, name: str, ids: Sequence[str], request: web.Request) -> Json:
        """A page of a list; the others are kept as they are now, as by Xenon."""
        query = request.query
        prefix = self.age.value[0]
        if link := query.get("pageLink"):
            if link not in self._pages:
                raise Refusal(404, "PageExpired", f"Page {link} has expired")
            place, items = self._pages.pop(link)
        else:
            place, items = self._list(name, ids, query.get("name"))
        size = int(query.get("pageSize", self.page))
        if not 1 <= size <= self.page:
            raise Refusal(400, "InvalidPageSize", f"The page size {size} is not allowed")
        following = None
        if rest := items[size:]:
            following = f"/00/core/query-page/{len(self._pages)}{time.monotonic_ns()}"
            self._pages[following] = (place, rest)
            following = f"{prefix}{place}?pageLink={following}"
        return {
            "items": [shown(one) for one in items[:size]],
            "nextPageLink": following,
            "previousPageLink": None,
        }

    def _list(self, name: str, ids: Sequence[str], called: str | None) -> tuple[str, list[Json]]:
        world = self.world
        if name == "vms.list":
            return f"/projects/{ids[0]}/vms", world.in_project(ids[0], called)
        if name == "tenants.list":
            place, found = "/tenants", list(world.tenants.values())
        else:
            if ids[0] not in world.tenants:
                raise Refusal(404, "NotFound", f"Tenant {ids[0]} not found")
            found = [one for one in world.projects.values() if one["_tenant"] == ids[0]]
            place = f"/tenants/{ids[0]}/projects"
        return place, [one for one in found if called in {None, one["name"]}]


@asynccontextmanager
async def served(emulator: Emulator | None = None) -> AsyncIterator[Emulator]:
    """An emulator that listens on ports of loopback."""
    emulator = emulator or Emulator()
    tls = serving(emulator.authority) if emulator.tls else None
    async with listening(emulator.handle, tls=tls, largest=2**20) as emulator.url:
        await emulator.lightwave.start()
        try:
            yield emulator
        finally:
            await emulator.lightwave.stop()


def write_login(emulator: Emulator, file: Path) -> Path:
    """Write the file with user and password, as the in-tree provider reads it."""
    file.write_text(f"{emulator.lightwave.user}\n{emulator.lightwave.password}\n")
    return file
