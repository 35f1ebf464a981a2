"""The emulated Rackspace on a port: identity, the catalog, rights, rates, failures."""

import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from .balancers import Balancers
from .checks import Json
from .faults import LOST, Fault, clb, nova

TENANT: Final = "123456"
REGION: Final = "ORD"
LEAST: Final = frozenset({"nova:observer", "cbs:observer", "lbaas:admin"})
"""The roles that the guide asks for."""
_SERVICES: Final = {
    "nova": ("compute", "cloudServersOpenStack", "nova/v2"),
    "cbs": ("volume", "cloudBlockStorage", "cbs/v1"),
    "clb": ("rax:load-balancer", "cloudLoadBalancers", "clb/v1.0"),
}
_READ: Final = frozenset({"GET", "HEAD"})
_MAY: Final[Mapping[str, frozenset[str]]] = {
    "observer": _READ,
    "creator": _READ | {"POST", "PUT"},
    "admin": _READ | {"POST", "PUT", "DELETE"},
}
_BALANCING: Final = {"clb": "lbaas", "nova": "nova", "cbs": "cbs"}


class Failure:
    """A failure that is to come: `times` often, before or after the effect."""

    def __init__(self, status: int, times: int, *, after_effect: bool) -> None:
        self.status, self.times, self.after_effect = status, times, after_effect
        self.body: Json = {"message": "failed", "code": status}


class Emulator:
    """One account in one region."""

    def __init__(self) -> None:
        self.url = ""
        self.username, self.key, self.password = "ccm", "planted-api-key-0001", "planted-password"
        self.roots: dict[str, str] = {}
        """Where the catalog leads other users to, by their names: a proxy before us."""
        self.roles = LEAST
        self.lasts = 86400.0
        """Seconds for which a token counts."""
        self.tokens: dict[str, str] = {}
        self.blind: set[str] = set()
        """Keys of users who are shown no server."""
        self.servers: dict[str, Json] = {}
        self.volumes: dict[str, Json] = {}
        self.clb = Balancers(time.monotonic)
        self.page = 1000
        self.rates: Mapping[str, int] = {}
        """Requests of a method to Cloud Load Balancers within a second."""
        self.throttled = 0
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, str, Any]] = []
        self.failures: dict[str, Failure] = {}
        self._seconds: dict[str, tuple[float, int]] = {}

    # What tests do

    def config(self, sections: str = "", region: str = REGION) -> str:
        """A cloud-config that leads here."""
        return (
            f"[Global]\nauth-url = {self.url}/identity/v2.0/\nusername = {self.username}\n"
            f"api-key = {self.key}\nregion = {region}\n{sections}\n"
        )

    def fail(
        self, operation: str, status: int = 500, times: int = 1, *, after_effect: bool = False
    ) -> None:
        """Let the next requests fail: a method and what it is about, such as `POST nodes`."""
        self.failures[operation] = Failure(status, times, after_effect=after_effect)

    def add_servers(self, names: Sequence[str], **fields: Any) -> list[str]:
        """Make servers on ServiceNet and PublicNet; their ids."""
        made = []
        for name in names:
            number, id_ = len(self.servers) + 1, str(uuid.uuid4())
            place = f"{number // 250}.{number % 250 + 1}"
            public = [
                {"version": 4, "addr": f"198.51.{place}"},
                {"version": 6, "addr": f"2001:4800:780e:0510:d87b:9cbc:ff04:{number:04x}"},
            ]
            self.servers[id_] = {
                "id": id_, "name": name, "status": "ACTIVE", "tenant_id": TENANT, "user_id": "1",
                "addresses": {
                    "private": [{"version": 4, "addr": f"10.180.{place}"}], "public": public,
                },
                "accessIPv4": public[0]["addr"], "accessIPv6": public[1]["addr"],
                "flavor": {"id": "general1-8", "links": []}, "image": {"id": str(uuid.uuid4())},
                "metadata": {}, "created": "2026-01-01T00:00:00Z", "OS-DCF:diskConfig": "AUTO",
                "OS-EXT-STS:vm_state": "active", "hostId": "1", "progress": 100, **fields,
            }  # fmt: skip
            made.append(id_)
        return made

    # The protocol

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self.clb.advance()
        body = await request.json() if request.can_read_body else {}
        operation = f"{request.method} {_subject(request.path)}"
        failure = self.failures.get(operation)
        if failure is not None:
            failure.times -= 1
            if failure.times <= 0:
                del self.failures[operation]
        self.calls[operation] += 1
        self.log.append((request.method, request.path_qs, body))
        try:
            if failure is not None and not failure.after_effect:
                raise Fault(failure.status, failure.body)
            status, answer = self._answer(request, body)
            if failure is not None:
                raise Fault(failure.status, failure.body)
        except Fault as fault:
            if fault.status == LOST:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            return web.json_response(fault.body, status=fault.status, headers=fault.headers)
        return web.Response(status=status) if answer is None else web.json_response(
            answer, status=status
        )  # fmt: skip

    def _answer(self, request: web.Request, body: Json) -> tuple[int, Any]:
        parts = request.path.strip("/").split("/")
        if parts[0] == "identity":
            return self._identity(request, parts[1:], body)
        self._admit(request, parts)
        service, rest = parts[0], parts[3:]
        if service == "nova":
            return 200, self._nova(request, rest)
        if service == "cbs":
            return 200, self._cbs(rest)
        return self._clb(request, rest, body)

    def _identity(self, request: web.Request, rest: list[str], body: Json) -> tuple[int, Any]:
        if rest == []:
            links = [{"rel": "self", "href": f"{self.url}/identity/v2.0/"}]
            version = {"id": "v2.0", "status": "CURRENT", "links": links}
            return 200, {"versions": {"values": [version]}}
        if rest != ["v2.0", "tokens"] or request.method != "POST":
            raise nova(404, "itemNotFound", "Not Found")
        auth = body.get("auth", {})
        key, password = auth.get("RAX-KSKEY:apiKeyCredentials"), auth.get("passwordCredentials")
        name = (key or password or {}).get("username", "")
        is_known = name in {self.username, *self.roots}
        if not is_known or key not in (None, {"username": name, "apiKey": self.key}):
            raise nova(401, "unauthorized", "Username or api key is invalid.")
        if key is None and password != {"username": name, "password": self.password}:
            raise nova(
                401, "unauthorized", "Unable to authenticate user with credentials provided."
            )
        if auth.get("tenantId", TENANT) != TENANT or auth.get("tenantName", TENANT) != TENANT:
            raise nova(401, "unauthorized", "Tenant with Name/Id is not valid for this user.")
        token = f"planted-token-{uuid.uuid4().hex}"
        self.tokens[token] = self.key
        ends = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + self.lasts))
        tenant = {"id": TENANT, "name": TENANT}
        return 200, {
            "access": {
                "token": {"id": token, "expires": ends, "tenant": tenant},
                "user": {
                    "id": "1", "name": self.username, "RAX-AUTH:defaultRegion": REGION,
                    "roles": [{"id": str(n), "name": r} for n, r in enumerate(sorted(self.roles))],
                },
                "serviceCatalog": self._catalog(self.roots.get(name, self.url)),
            }
        }  # fmt: skip

    def _catalog(self, root: str) -> list[Json]:
        first = {"type": "compute", "name": "cloudServers", "endpoints": [
            {"tenantId": TENANT, "publicURL": f"{root}/first/v1.0/{TENANT}"},
        ]}  # fmt: skip
        found = [first]
        for type_, name, path in _SERVICES.values():
            ends = [
                {
                    "region": region, "tenantId": TENANT,
                    "publicURL": f"{root}/{path}/{TENANT}" if region == REGION else f"{root}/none",
                    "internalURL": f"{root}/none",
                }
                for region in ("DFW", REGION)
            ]  # fmt: skip
            found.append({"type": type_, "name": name, "endpoints": ends})
        return found

    def _admit(self, request: web.Request, parts: list[str]) -> None:
        key = self.tokens.get(request.headers.get("X-Auth-Token", ""))
        if key is None or parts[2] != TENANT:
            raise Fault(401, {"message": "No valid token provided.", "code": 401})
        product = _BALANCING[parts[0]]
        roles = [one.partition(":")[2] for one in self.roles if one.startswith(f"{product}:")]
        if not any(request.method in _MAY[role] for role in roles):
            raise Fault(403, {"message": "Access Denied", "code": 403})
        limit = self.rates.get(request.method) if parts[0] == "clb" else None
        begun, count = self._seconds.get(request.method, (0.0, 0))
        now = time.monotonic()
        begun, count = (begun, count + 1) if now - begun < 1.0 else (now, 1)
        self._seconds[request.method] = begun, count
        if limit is not None and count > limit:
            self.throttled += 1
            text = {"code": 413, "message": "OverLimit Retry...", "details": "Error Details..."}
            raise Fault(413, {"overLimit": text}, {"Retry-After": "1"})

    def _nova(self, request: web.Request, rest: list[str]) -> Json:
        key = self.tokens[request.headers["X-Auth-Token"]]
        servers = {} if key in self.blind else self.servers
        if len(rest) == 2 and rest[1] != "detail":
            if rest[1] not in servers:
                raise nova(404, "itemNotFound", "Instance could not be found")
            return {"server": _shown(servers[rest[1]])}
        query = request.query
        found = list(servers.values())
        if name := query.get("name"):
            found = [one for one in found if re.search(name, one["name"], re.IGNORECASE)]
        if status := query.get("status"):
            found = [one for one in found if one["status"] == status]
        ids = [one["id"] for one in found]
        first = ids.index(query["marker"]) + 1 if query.get("marker") else 0
        limit = min(int(query.get("limit", self.page)), self.page)
        shown = found[first : first + limit]
        answer: Json = {"servers": [_shown(one) for one in shown]}
        if first + limit < len(found):
            href = request.url.update_query(marker=shown[-1]["id"])
            answer["servers_links"] = [{"rel": "next", "href": str(href)}]
        return answer

    def _cbs(self, rest: list[str]) -> Json:
        if len(rest) == 1:
            return {"volumes": list(self.volumes.values())}
        if rest[1] not in self.volumes:
            raise nova(404, "itemNotFound", "The resource could not be found.")
        return {"volume": self.volumes[rest[1]]}

    def _clb(self, request: web.Request, rest: list[str], body: Json) -> tuple[int, Any]:
        method, clb_ = request.method, self.clb
        ids = [int(one) for one in request.query.getall("id", [])]
        if len(rest) == 1:
            match method:
                case "GET":
                    return 200, clb_.listed(dict(request.query))
                case "POST":
                    return 202, clb_.create(body)
                case _:
                    clb_.delete(ids)
                    return 202, None
        id_ = int(rest[1])
        part = rest[2] if len(rest) > 2 else ""
        ids += [int(one) for one in rest[3:]]
        if method == "GET":
            return 200, clb_.part(id_, part) if part else clb_.details(id_)
        if method == "DELETE" and not part:
            if id_ not in clb_.by_id:
                raise clb(404, "Load balancer not found")
            clb_.delete([id_])
            return 202, None
        answer = clb_.change(method, id_, part, body, ids)
        return (200 if part == "metadata" else 202), answer


def _subject(path: str) -> str:
    """What a request is about, without ids: `nodes`, `loadbalancer`, `loadbalancers`."""
    parts = path.strip("/").split("/")
    if parts[0] == "identity":
        return parts[-1]
    words = [one for one in parts[3:] if not re.fullmatch(r"\d+|.*-.*-.*-.*", one)]
    if len(parts) == 5 and words and parts[-1] not in words:
        return words[0].removesuffix("s")
    return "/".join(words[-1:] if words[0] == "loadbalancers" else words)


@asynccontextmanager
async def served(emulator: Emulator | None = None) -> AsyncIterator[Emulator]:
    """An emulator that listens on a port of loopback."""
    emulator = emulator or Emulator()
    async with listening(emulator.handle) as emulator.url:
        yield emulator


def _shown(server: Json) -> Json:
    """A server with its extended status (Extended Status Extension of the API): 4 is shut off."""
    power = 4 if server["status"] == "SHUTOFF" else 1
    return {"OS-EXT-STS:power_state": power, "OS-EXT-STS:task_state": None, **server}
