"""The protocol of the emulated Rancher: keys, versions, lists in pages, errors, failures."""

import base64
import hmac
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from .checks import Checks, check_service
from .schemas import (
    FIELDS,
    LINKS,
    MADE,
    SERVICES,
    Json,
    action_input,
    actions,
    described,
    filters,
    plural,
)
from .world import TRANSITIONAL, Refusal, World

VERSIONS: Final = ("v1", "v2-beta")
PROJECT: Final = "1a5"
LOST: Final = -1
"""The status of a failure that is no answer at all."""
_KNOWN: Final = {"limit", "marker", "include", "sort", "order", "action"}
_HIDDEN: Final = {"hostId", "previous", "message", "stackId", "startOnCreate"}


class Failure:
    """A failure that is to come: `times` often, before or after the effect."""

    def __init__(self, status: int, times: int, *, after_effect: bool) -> None:
        self.status, self.times, self.after_effect = status, times, after_effect


class Emulator:
    """One Rancher server with one environment."""

    def __init__(self, versions: tuple[str, ...] = VERSIONS) -> None:
        self.world = World()
        self.world.now = time.monotonic
        self.versions = versions
        self.url = ""
        self.key, self.secret = "planted-access-key-0001", "planted-secret-key-0001"
        self.blind: set[str] = set()
        """Access keys of environments without hosts."""
        self.page, self.most = 100, 3000
        """Rows of a page that nobody chose, and the most that anybody may choose."""
        self.elsewhere = "refused"
        """What is answered to versions that the server does not have: also "page" or "moved"."""
        self.joins = True
        """Whether links can be joined with a list."""
        self.limit: int | None = None
        """Requests of a second that a proxy before the server lets through."""
        self.calls: Counter[str] = Counter()
        self.failures: dict[str, Failure] = {}
        self.dropped: set[str] = set()
        """Fields that were given and cannot be written."""
        self.ignored: set[str] = set()
        """Parameters of lists that mean nothing."""
        self.throttled = 0
        self._second = (0.0, 0)

    def config(self, sections: str = "") -> str:
        """A cloud-config that leads here."""
        return (
            f"[Global]\ncattle-url = {self.url}/v1\ncattle-access-key = {self.key}\n"
            f"cattle-secret-key = {self.secret}\n{sections}\n"
        )

    def fail(
        self, name: str, status: int = 500, times: int = 1, *, after_effect: bool = False
    ) -> None:
        """Let the next requests fail that are called so, such as `PUT externalservices`."""
        self.failures[name] = Failure(status, times, after_effect=after_effect)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.world.advance()
        body = await request.read()
        try:
            return self._respond(request, json.loads(body) if body else {})
        except Refusal as refusal:
            if refusal.status == LOST:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            return _error(refusal)

    def _respond(self, request: web.Request, body: Json) -> web.StreamResponse:
        self._admit(request)
        version, *path = [part for part in request.path.split("/") if part] or [""]
        if version not in self.versions:
            return self._outside()
        base = f"{self.url}/{version}"
        if path[:1] == ["projects"] and len(path) > 1:
            if path[1] != PROJECT:
                raise Refusal(404, "NotFound")
            base, path = f"{base}/projects/{PROJECT}", path[2:]
        name = f"{request.method} {path[0] if path else ''}"
        if action := request.query.get("action"):
            name += f"?{action}"
        self.calls[name] += 1
        failure = self.failures.get(name)
        if failure is not None:
            failure.times -= 1
            if failure.times <= 0:
                del self.failures[name]
            if not failure.after_effect:
                raise Refusal(failure.status, "Failed")
        answer = Exchange(self, version, base, request, body).answer(path)
        if failure is not None:
            raise Refusal(failure.status, "Failed")
        headers = {"X-API-Schemas": f"{base}/schemas"}
        return web.json_response(answer, headers=headers)

    def _outside(self) -> web.StreamResponse:
        """What a server says where its API is not."""
        if self.elsewhere == "page":
            return web.Response(text="<!DOCTYPE html><title>Rancher</title>")
        if self.elsewhere == "moved":
            return web.Response(status=302, headers={"Location": f"{self.url}/"})
        raise Refusal(404, "NotFound")

    def _admit(self, request: web.Request) -> None:
        keys = base64.b64encode(f"{self.key}:{self.secret}".encode()).decode()
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given, f"Basic {keys}"):
            raise Refusal(401, "Unauthorized")
        second, count = self._second
        now = time.monotonic()
        self._second = (second, count + 1) if now - second < 1.0 else (now, 1)
        if self.limit is not None and self._second[1] > self.limit:
            self.throttled += 1
            raise Refusal(429, "TooManyRequests")


class Exchange:
    """One request of one version, and its answer."""

    def __init__(
        self, emulator: Emulator, version: str, base: str, request: web.Request, body: Json
    ) -> None:
        self._emulator, self._world = emulator, emulator.world
        self._version, self._base = version, base
        self._request, self._body = request, body
        self._checks = Checks(version, emulator.world, emulator.dropped)
        self._types = {plural(one).lower(): one for one in FIELDS[version]}

    def answer(self, path: list[str]) -> Json:
        if not path:
            links = {name: f"{self._base}/{name}" for name in self._types}
            return {"id": self._version, "type": "apiVersion", "links": links, "actions": {}}
        if path[0] == "schemas":
            return self._schemas(path[1:])
        type_ = self._types.get(path[0].lower())
        if type_ is None or len(path) > 3:
            raise Refusal(404, "NotFound")
        if len(path) == 1:
            return self._make(type_) if self._request.method == "POST" else self._list(type_)
        one = self._object(type_, path[1])
        if len(path) == 3:
            return self._follow(type_, one, path[2].lower())
        return self._one(type_, one)

    def _schemas(self, rest: list[str]) -> Json:
        if rest:
            known = {name.lower(): name for name in FIELDS[self._version]}
            if rest[0].lower() not in known:
                raise Refusal(404, "NotFound")
            return described(self._version, known[rest[0].lower()], self._base)
        found = [described(self._version, one, self._base) for one in FIELDS[self._version]]
        return self._collection("schema", found, None)

    # One object

    def _object(self, type_: str, id_: str) -> Json:
        one = self._world.objects.get(id_)
        if one is None or one["removed"] or not _is_a(one, type_):
            raise Refusal(404, "NotFound")
        return one

    def _one(self, type_: str, one: Json) -> Json:
        match self._request.method:
            case "GET":
                return self._shown(one)
            case "POST" if name := self._request.query.get("action"):
                return self._act(type_, one, name)
            case "PUT" if type_ in MADE:
                fields = self._checks.sanitized(type_, self._body, create=False)
                check_service(type_, self._version, fields)
                self._need(one, "update")
                self._world.update(one, fields)
                return self._shown(one)
            case "DELETE" if type_ in MADE or type_ == "service":
                self._need(one, "remove")
                self._world.remove(one)
                return self._shown(one)
        raise Refusal(405, "MethodNotAllowed")

    def _act(self, type_: str, one: Json, name: str) -> Json:
        known = actions(self._version, type_)
        if name not in known:
            raise Refusal(422, "InvalidAction", "action")
        if one["state"] not in known[name]:
            raise Refusal(422, "ActionNotAvailable", "action")
        input_ = action_input(self._version, type_, name)
        fields = self._checks.sanitized(input_, self._body, create=True) if input_ else {}
        self._world.act(one, name, fields)
        return self._shown(one)

    def _need(self, one: Json, name: str) -> None:
        if one["state"] not in actions(self._version, str(one["kind"])).get(name, ()):
            raise Refusal(409, "Conflict")

    def _make(self, type_: str) -> Json:
        if type_ not in MADE:
            raise Refusal(405, "MethodNotAllowed")
        fields = self._checks.sanitized(type_, self._body, create=True)
        check_service(type_, self._version, fields)
        return self._shown(self._world.make(type_, self._version, fields))

    # Lists

    def _list(self, type_: str) -> Json:
        if self._request.method != "GET":
            raise Refusal(405, "MethodNotAllowed")
        if type_ == "setting":
            found = [
                {"id": name, "type": "setting", "name": name, "value": value, "activeValue": value}
                for name, value in self._world.settings.items()
            ]
        else:
            found = [one for one in self._world.objects.values() if self._is_listed(type_, one)]
        return self._selected(type_, found)

    def _is_listed(self, type_: str, one: Json) -> bool:
        is_hidden = type_ == "host" and self._emulator.key in self._emulator.blind
        return _is_a(one, type_) and not one["removed"] and not is_hidden

    def _selected(self, type_: str, found: list[Json]) -> Json:
        """The objects that the filters select, a page of them."""
        for parameter, value in self._request.query.items():
            if parameter in _KNOWN:
                continue
            name, _, modifier = parameter.rpartition("_")
            name, modifier = (name, modifier) if name else (parameter, "eq")
            is_known = name in filters(self._version, type_)
            if not is_known or modifier not in {"eq", "ne", "null", "notnull"}:
                self._emulator.ignored.add(f"{type_}.{parameter}")
                continue
            found = [one for one in found if self._fits(one, name, modifier, value)]
        return self._page(type_, found)

    def _fits(self, one: Json, name: str, modifier: str, value: str) -> bool:
        field = "stackId" if name == "environmentId" else name
        shown = one.get(field)
        if modifier in {"null", "notnull"}:
            return (shown is None) is (modifier == "null")
        return (str(shown) == value) is (modifier == "eq")

    def _page(self, type_: str, found: list[Json]) -> Json:
        """A page: an object that is joined with several has a row for each."""
        link = self._request.query.get("include", "").lower()
        links = {one.lower(): one for one in LINKS.get(type_, ())}
        name = links.get(link, "") if self._emulator.joins else ""
        rows: list[tuple[Json, Json | None]] = []
        for one in found:
            joined = self._linked(one, name.lower()) if name else []
            rows += [(one, other) for other in joined] or [(one, None)]
        size = min(int(self._request.query.get("limit", self._emulator.page)), self._emulator.most)
        first = int(self._request.query.get("marker", "m0")[1:])
        shown: dict[str, Json] = {}
        for one, other in rows[first : first + size]:
            whole = shown.setdefault(one["id"], self._shown(one))
            if name:
                whole.setdefault(name, [])
                whole[name] += [self._shown(other)] if other is not None else []
        more = first + size if len(rows) > first + size else None
        return self._collection(type_, list(shown.values()), self._next(more), size)

    def _next(self, marker: int | None) -> str | None:
        if marker is None:
            return None
        query = {**self._request.query, "marker": f"m{marker}"}
        return f"{self._emulator.url}{self._request.path}?{urlencode(query)}"

    def _collection(
        self, type_: str, data: list[Json], more: str | None, size: int | None = None
    ) -> Json:
        return {
            "type": "collection", "resourceType": type_, "data": data,
            "links": {"self": f"{self._emulator.url}{self._request.path}"}, "actions": {},
            "createTypes": {}, "sortLinks": {}, "sort": None, "filters": {}, "createDefaults": {},
            "pagination": {"next": more, "limit": size, "partial": more is not None, "total": None},
        }  # fmt: skip

    def _follow(self, type_: str, one: Json, link: str) -> Json:
        if link not in {name.lower() for name in LINKS.get(type_, ())}:
            raise Refusal(404, "NotFound")
        target = "ipAddress" if link == "ipaddresses" else "service"
        return self._selected(target, self._linked(one, link))

    def _linked(self, one: Json, link: str) -> list[Json]:
        if link == "ipaddresses":
            return self._world.addresses(one)
        ends = ("serviceId", "consumedServiceId")
        mine, other = ends if link == "consumedservices" else ends[::-1]
        maps = self._world.of("serviceConsumeMap")
        return [self._world.objects[of[other]] for of in maps if of[mine] == one["id"]]

    # What is shown

    def _shown(self, one: Json) -> Json:
        if one.get("type") == "setting":
            return one
        kind = str(one["kind"])
        type_ = "environment" if kind == "stack" and self._version == "v1" else kind
        fields = {name: value for name, value in one.items() if name not in _HIDDEN}
        if kind in SERVICES:
            fields["stackId" if self._version == "v2-beta" else "environmentId"] = one["stackId"]
        if kind == "loadBalancerService":
            fields["publicEndpoints"] = self._world.endpoints(one) or None
            links = self._world.links_of(one["id"])
            names = {self._world.objects[of["consumedServiceId"]]["name"]: of for of in links}
            fields["linkedServices"] = {name: of["consumedServiceId"] for name, of in names.items()}
        known = FIELDS[self._version][type_]
        self_link = f"{self._base}/{plural(type_).lower()}/{one['id']}"
        offered = actions(self._version, type_)
        return {
            **{name: fields.get(name) for name in known},
            **_transition(one),
            "id": one["id"],
            "type": type_,
            "links": {
                "self": self_link,
                **{name: f"{self_link}/{name.lower()}" for name in LINKS.get(type_, ())},
            },
            "actions": {
                name: f"{self_link}/?action={name}"
                for name, states in offered.items()
                if one["state"] in states
            },
        }


def _is_a(one: Json, type_: str) -> bool:
    kind = "stack" if type_ == "environment" else type_
    return one["kind"] == kind or (type_ == "service" and one["kind"] in SERVICES)


def _transition(one: Json) -> Json:
    message = str(one.get("message") or "")
    works = bool(TRANSITIONAL.fullmatch(str(one["state"])))
    return {
        "transitioning": "error" if message else "yes" if works else "no",
        "transitioningMessage": message or ("In Progress" if works else None),
        "transitioningProgress": None,
    }


def _error(refusal: Refusal) -> web.Response:
    body: dict[str, Any] = {
        "id": str(uuid.uuid4()), "type": "error", "links": {}, "actions": {},
        "status": refusal.status, "code": refusal.code, "message": refusal.text or refusal.code,
        "detail": None, "baseType": "error",
    }  # fmt: skip
    if refusal.field:
        body["fieldName"] = refusal.field
    headers: Mapping[str, str] = {"Retry-After": "1"} if refusal.status == 429 else {}
    return web.json_response(body, status=refusal.status, headers=headers)


@asynccontextmanager
async def served(emulator: Emulator | None = None) -> AsyncIterator[Emulator]:
    """An emulator that listens on a port of loopback."""
    emulator = emulator or Emulator()
    async with listening(emulator.handle) as emulator.url:
        yield emulator
