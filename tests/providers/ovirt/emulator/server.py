"""The protocol of the emulated engine: single sign-on, rights, searches, pages, failures."""

import base64
import binascii
import contextlib
import re
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from xml.etree import ElementTree as ET

from aiohttp import web

from proreus.providers.ovirt.operations import OPERATIONS

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from . import wire
from .search import search
from .world import World

ROOT: Final = "/ovirt-engine"
NEVER: Final = 2**63 - 1
LOST: Final = -1
"""The status of a failure that is no answer at all."""
MOST_FAILURES: Final = 5
_PARAMETERS: Final = {"search", "max", "follow", "case_sensitive", "filter"}
_PAGE = "<html><head><title>Error</title></head><body>{}</body></html>"


class Failure:
    """A failure that is to come: `times` often after `skip` requests, before or after the effect."""

    def __init__(
        self, status: int, detail: str, times: int, skip: int, *, after_effect: bool
    ) -> None:
        self.status, self.detail = status, detail
        self.times, self.skip, self.after_effect = times, skip, after_effect


class Refusal(Exception):
    """The signal that a request is refused."""

    def __init__(self, status: int, detail: str, reason: str = "Operation Failed") -> None:
        super().__init__(detail)
        self.status, self.detail, self.reason = status, detail, reason


class Engine:
    """One engine with one user."""

    def __init__(self) -> None:
        self.world = World()
        self.url = ""
        self.username, self.password = "k8s@internal", "planted-password-0001"
        self.version = (4, 5)
        self.restricted = True
        """Whether requests are refused that the provider need not send."""
        self.is_admin = True
        """Whether the user may see more than what is shared with it."""
        self.lifetime: float | None = None
        """Seconds after which a token ends; by default when nobody uses it for long."""
        self.tokens: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, Mapping[str, str]]] = []
        self.kept: set[str] = set()
        """Searches that the engine keeps for ever."""
        self.failures: dict[str, Failure] = {}
        self.rejected = 0
        """Logins with a wrong password since the last good one."""

    def config(self, extra: str = "", sections: str = "", url: str = "") -> str:
        """A cloud-config that leads here."""
        return (
            f"[connection]\nuri = {url or self.url}\nusername = {self.username}\n"
            f"password = {self.password}\n{extra}\n{sections}\n"
        )

    def fail(
        self, name: str, status: int = 500, detail: str = "failed", times: int = 1, skip: int = 0,
        *, after_effect: bool = False,
    ) -> None:  # fmt: skip
        """Let the next requests of this name fail, or those after the next ones."""
        self.failures[name] = Failure(status, detail, times, skip, after_effect=after_effect)

    def _failure(self, name: str) -> Failure | None:
        """The failure that is due for a request of this name."""
        failure = self.failures.get(name)
        if failure is None or failure.skip > 0:
            if failure is not None:
                failure.skip -= 1
            return None
        failure.times -= 1
        if failure.times <= 0:
            del self.failures[name]
        return failure

    def end_tokens(self) -> None:
        """Let all sessions end."""
        self.tokens.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name, id_ = _operation(request)
        failure = self._failure(name)
        self.calls[name] += 1
        self.log.append((name, dict(request.query)))
        try:
            if failure is not None and not failure.after_effect:
                raise Refusal(failure.status, failure.detail)
            answer = await self._answer(request, name, id_)
            if failure is not None:
                raise Refusal(failure.status, failure.detail)
        except Refusal as refusal:
            return self._refused(request, name, refusal)
        return answer

    def _refused(self, request: web.Request, name: str, refusal: Refusal) -> web.Response:
        if refusal.status == LOST:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if refusal.status == 401:
            headers = {"WWW-Authenticate": 'Basic realm="RESTAPI"'}
            text = _PAGE.format("Unauthorized")
            return web.Response(status=401, headers=headers, text=text, content_type="text/html")
        if name.startswith("sso."):
            said = {"error_code": refusal.reason, "error": refusal.detail}
            return web.json_response(said, status=refusal.status)
        if refusal.status == 404:
            return web.Response(status=404)
        return _xml(wire.fault(refusal.reason, refusal.detail), refusal.status)

    async def _answer(self, request: web.Request, name: str, id_: str) -> web.Response:
        if name == "sso.token":
            return self._token(request, {k: str(v) for k, v in (await request.post()).items()})
        if name == "sso.revoke":
            form = await request.post()
            self.tokens.pop(str(form.get("token", "")), None)
            return web.json_response({})
        self._authenticate(request)
        if self.restricted and name not in OPERATIONS:
            raise Refusal(400, "Query execution failed due to insufficient permissions.")
        if request.path.startswith(f"{ROOT}/api/v3/") or request.headers.get("Version") == "3":
            return _xml(wire.vms_3(self._found(request)))
        return _xml(self._document(request, name, id_))

    def _document(self, request: web.Request, name: str, id_: str) -> ET.Element:
        world, follow = self.world, request.query.get("follow", "")
        if unknown := request.query.keys() - _PARAMETERS:
            raise Refusal(400, f"unknown parameters: {', '.join(sorted(unknown))}")
        if name == "api.get":
            return wire.api(self.version)
        if not self.is_admin:
            raise Refusal(400, "[Query execution failed due to insufficient permissions.]")
        lists = {
            "clusters.list": ("clusters", "cluster", "clusters", world.clusters),
            "datacenters.list": ("data_centers", "data_center", "datacenters", world.data_centers),
            "instancetypes.list": (
                "instance_types", "instance_type", "instancetypes", world.instance_types,
            ),
            "hosts.list": ("hosts", "host", "hosts", world.hosts),
        }  # fmt: skip
        if name in lists:
            plural, singular, path, found = lists[name]
            shown = [one for one in found.values() if one.id not in world.hidden]
            return wire.named(plural, singular, path, shown)
        vm = world.vms.get(id_.lower())
        try:
            if name == "vms.list":
                return wire.vms(world, self._found(request), follow)
            if vm is None:
                raise Refusal(404, "")
            if name == "vms.get":
                return wire.vm_element(world, vm, follow)
            if name == "nics.list":
                return wire.nics(vm)
            if name == "reporteddevices.list":
                return wire.devices(vm)
        except wire.Unfollowed as error:
            raise Refusal(500, f"Problem following '{error}' link") from None
        raise Refusal(404, "")

    def _found(self, request: web.Request) -> Collection[Any]:
        most = request.query.get("max")
        if most is not None and not most.isdecimal():
            raise Refusal(400, "max must be a number")
        sensitive = request.query.get("case_sensitive", "true") == "true"
        text = request.query.get("search", "")
        if "*" not in text:
            self.kept.add(text)
        return search(self.world, text, int(most) if most else None, case_sensitive=sensitive)

    def _token(self, request: web.Request, form: Mapping[str, str]) -> web.Response:
        if request.headers.get("Accept") != "application/json":
            raise Refusal(400, "Missing parameter: 'Accept Header'", "invalid_request")
        if form.get("grant_type") != "password":
            raise Refusal(400, "The grant type is not supported.", "unsupported_grant_type")
        if "ovirt-app-api" not in form.get("scope", "").split():
            raise Refusal(400, "The requested scope is invalid.", "invalid_scope")
        self._check(form.get("username", ""), form.get("password", ""))
        token, end = secrets.token_urlsafe(64), NEVER
        if self.lifetime is not None:
            end = int((time.time() + self.lifetime) * 1000)
        self.tokens[token] = end / 1000
        said = {"access_token": token, "scope": form["scope"], "exp": str(end)}
        return web.json_response({**said, "token_type": "bearer"})

    def _check(self, username: str, password: str) -> None:
        """Check the password; after some wrong ones the account is locked, until it is unlocked."""
        is_good = (username, password) == (self.username, self.password)
        if not is_good:
            self.rejected += 1
        if not is_good or self.rejected >= MOST_FAILURES:
            raise Refusal(
                400, f"Cannot authenticate user '{username}': Unable to log in because the user"
                " account is disabled or locked, or the user name or password is incorrect.",
                "access_denied",
            )  # fmt: skip
        self.rejected = 0

    def _authenticate(self, request: web.Request) -> None:
        kind, _, value = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            with contextlib.suppress(binascii.Error, UnicodeDecodeError, Refusal):
                username, _, password = base64.b64decode(value).decode().partition(":")
                self._check(username, password)
                return
        elif kind == "Bearer" and self.tokens.get(value.strip(), 0) > time.time():
            return
        raise Refusal(401, "")


def _operation(request: web.Request) -> tuple[str, str]:
    """The name of a request, and the id in its path."""
    path = request.path.removeprefix(ROOT).rstrip("/")
    path = re.sub(r"^/api/v[34](?=/|$)", "/api", path)
    for name, one in OPERATIONS.items():
        pattern = re.escape(one.path).replace(r"\{id\}", "(?P<id>[^/]+)")
        if request.method == one.method and (match := re.fullmatch(pattern, path)):
            return name, match.groupdict().get("id", "")
    match = re.fullmatch(r"/api/vms/(?P<id>[^/]+)/(?P<kind>nics|reporteddevices)", path)
    if match:
        return f"{match['kind']}.list", match["id"]
    return f"{path.rpartition('/')[2]}.list", ""


def _xml(root: ET.Element, status: int = 200) -> web.Response:
    ET.indent(root)
    body = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return web.Response(status=status, body=body, content_type="application/xml", charset="utf-8")


@asynccontextmanager
async def served(
    engine: Engine | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Engine]:
    """An engine that listens on a port of loopback."""
    engine = engine or Engine()
    async with listening(engine.handle, tls=tls, largest=2**20) as url:
        engine.url = f"{url}{ROOT}/api"
        yield engine
