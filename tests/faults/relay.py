"""Relays before the API server and the cloud that know each call, and can spoil any of them.

A call is known by its side, the object that it is for, what it does to it, and how often that was
done before. So a recording of one story names every boundary, and a plan says what befalls which.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from yarl import URL

from proreus.cloudprovider.identity import MARK_SERVICE
from proreus.kube.clientconfig import ClientConfig

VERSIONED: Final = "@version"
"""What the name of a call has if the write is of one version of a Node only."""
_SENT_ON: Final = ("Accept", "Content-Type", "User-Agent", "Authorization")
_SENT_BACK: Final = ("Content-Type", "Retry-After")
_POLL: Final = 0.2
_SLOW_SECONDS: Final = 1.0
_CLOUD_PATH: Final = re.compile(r"/v1/(?P<collection>\w+)(?:/(?P<id>[^/]+))?(?P<verb>[:/].+)?")
_API_PATH: Final = re.compile(
    r"/apis?(?:/[^/]+)??/v1/(?:namespaces/[^/]+/)?(?P<plural>\w+)(?:/(?P<name>[^/]+))?(?P<sub>/.+)?"
)


class Act(StrEnum):
    """What befalls a call."""

    KILL_BEFORE = "killed before"
    KILL_AFTER = "killed after"
    CUT_BEFORE = "cut before"
    CUT_AFTER = "answer lost"
    ERROR = "500"
    THROTTLE = "429"
    HANG = "hang"
    GARBAGE = "garbage"
    CONFLICT = "409"
    FORBIDDEN = "403"
    SLOW = "slow"
    EXPIRED = "410"
    CUT_AMID = "cut in mid-object"


_REFUSALS: Final[Mapping[Act, tuple[int, str]]] = {
    Act.ERROR: (500, "InternalError"),
    Act.THROTTLE: (429, "TooManyRequests"),
    Act.CONFLICT: (409, "Conflict"),
    Act.FORBIDDEN: (403, "Forbidden"),
    Act.EXPIRED: (410, "Expired"),
}


class Call(msgspec.Struct, frozen=True, order=True):
    """A call: "api" or "cloud", the name of the object or "", and what is done, such as
    `PATCH nodes spec.taints` or `POST listeners`; `nth` counts from 1."""

    side: str
    owner: str
    what: str
    nth: int

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return not self.what.startswith(("GET", "WATCH")) and "batchGet" not in self.what


class Script:
    """What both relays have seen, and what they are to do.

    Attributes:
        plan: What befalls which call, once.
        choose: Says what befalls a call that is not in the plan.
        hits: What has befallen calls.
        seen: All calls.
        made: How many parts were made (201) for an owner by a kind of call.
        owners: Names of objects by ids in the cloud.
        before: Work to be done before a call is sent on, once.
        strike: Kills the manager.
        epoch: Watches of an earlier one end.
        rewrite: Changes what the cloud answers; it gets what was done and the answer.
    """

    def __init__(self) -> None:
        self.plan: dict[Call, Act] = {}
        self.choose: Callable[[Call], Act | None] = lambda _: None
        self.hits: dict[Call, Act] = {}
        self.seen: list[Call] = []
        self.made: Counter[tuple[str, str]] = Counter()
        self.owners: dict[str, str] = {}
        self.before: dict[Call, Callable[[], Awaitable[None]]] = {}
        self.rewrite: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda _, answer: answer
        self.strike: Callable[[], Awaitable[None]]
        self.epoch = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def come(self, side: str, owner: str, what: str) -> tuple[Call, Act | None]:
        """Note a call; what is to befall it."""
        self._counts[side, owner, what] += 1
        call = Call(side, owner, what, self._counts[side, owner, what])
        self.seen.append(call)
        act = self.plan.pop(call, None) or self.choose(call)
        if act is not None:
            self.hits[call] = act
        return call, act

    def count(self, what: str) -> int:
        """How often something was done, for whatever object."""
        return sum(call.what == what for call in self.seen)

    def cut_watches(self) -> None:
        """End the watches that run."""
        self.epoch += 1

    def learn(self, answer: object) -> None:
        """Remember whose the parts in an answer of the cloud are."""
        if isinstance(answer, list):
            for one in answer:
                self.learn(one)
        elif isinstance(answer, dict):
            if owner := self.owner(answer):
                self.owners.setdefault(str(answer.get("id", "")), owner)
            for field in ("resources", "load_balancer"):
                self.learn(answer.get(field))

    def owner(self, part: Mapping[str, Any]) -> str:
        """Whose a part is, or ""."""
        tags = part.get("tags") or {}
        if MARK_SERVICE in tags:
            return str(tags[MARK_SERVICE]).rpartition("/")[2]
        return self.owners.get(str(part.get("instance_id", "")), "")


class Relay:
    """Stands before the API server or the cloud.

    Attributes:
        url: Where it listens.
    """

    def __init__(
        self, side: str, target: str, session: aiohttp.ClientSession, script: Script
    ) -> None:
        self.url = ""
        self._side = side
        self._target = target
        self._session = session
        self._script = script

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send a call on, unless something is to befall it."""
        body = await request.read()
        read = _read_api if self._side == "api" else self._read_cloud
        call, act = self._script.come(self._side, *read(request, body))
        if call in self._script.before:
            await self._script.before.pop(call)()
        if act is Act.KILL_BEFORE:
            await self._script.strike()
        if act in {Act.KILL_BEFORE, Act.CUT_BEFORE}:
            return _cut(request)
        if act is Act.HANG:
            await _client_gone(request)
            return _cut(request)
        if act is not None and act in _REFUSALS:
            return self._refuse(act)
        if act is Act.SLOW:
            await asyncio.sleep(_SLOW_SECONDS)
        try:
            return await self._send_on(request, body, call, act)
        except (aiohttp.ClientError, ConnectionError):
            return _cut(request)  # the server is away, or the client is

    async def _send_on(
        self, request: web.BaseRequest, body: bytes, call: Call, act: Act | None
    ) -> web.StreamResponse:
        async with self._session.request(
            request.method,
            URL(self._target + request.raw_path, encoded=True),
            data=body or None,
            headers={name: request.headers[name] for name in _SENT_ON if name in request.headers},
        ) as answer:
            headers = {name: answer.headers[name] for name in _SENT_BACK if name in answer.headers}
            if call.what.startswith("WATCH"):
                return await self._stream(request, answer, headers, is_cut=act is Act.CUT_AMID)
            text = await answer.read()
        text = self._note(call, answer.status, text)
        if act is Act.KILL_AFTER:
            await self._script.strike()
        if act in {Act.KILL_AFTER, Act.CUT_AFTER}:
            return _cut(request)
        if act is Act.GARBAGE:
            return web.Response(text="<html>Bad Gate", content_type="text/html")
        if act is Act.CUT_AMID:
            return await _half(request, text)
        return web.Response(body=text, status=answer.status, headers=headers)

    async def _stream(
        self,
        request: web.BaseRequest,
        answer: aiohttp.ClientResponse,
        headers: Mapping[str, str],
        *,
        is_cut: bool,
    ) -> web.StreamResponse:
        """Send on what comes, until either side ends; cut amid the first line if told so."""
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        epoch = self._script.epoch
        while epoch == self._script.epoch and not _is_gone(request):
            try:
                async with asyncio.timeout(_POLL):
                    chunk = await answer.content.readany()
            except TimeoutError:
                continue
            if not chunk:
                break
            if is_cut:
                await response.write(chunk[: len(chunk) // 2])
                return _cut(request)
            await response.write(chunk)
        return response

    def _note(self, call: Call, status: int, text: bytes) -> bytes:
        if self._side == "api":
            return text
        answer = json.loads(text)
        self._script.learn(answer)
        if status == HTTPStatus.CREATED:
            self._script.made[call.owner, call.what] += 1
        return json.dumps(self._script.rewrite(call.what, answer)).encode()

    def _refuse(self, act: Act) -> web.Response:
        status, reason = _REFUSALS[act]
        headers = {"Retry-After": "1"} if act is Act.THROTTLE else {}
        message = "injected failure"
        body: dict[str, Any] = {"error": {"code": reason, "message": message}}
        if self._side == "api":
            body = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "message": message,
                "reason": reason,
                "code": status,
            }
        return web.json_response(body, status=status, headers=headers)

    def _read_cloud(self, request: web.BaseRequest, body: bytes) -> tuple[str, str]:
        found = _CLOUD_PATH.fullmatch(request.path)
        assert found is not None, request.path
        id_, verb = found["id"] or "", found["verb"] or ""
        script = self._script
        owner = script.owners.get(id_, "") or (script.owner(json.loads(body)) if body else "")
        return owner, f"{request.method} {found['collection']}{'/*' if id_ else ''}{verb}"


def _read_api(request: web.BaseRequest, body: bytes) -> tuple[str, str]:
    """Whom a call to the API server is for, and what it does."""
    found = _API_PATH.fullmatch(request.path)
    if found is None:
        return "", f"{request.method} {request.path}"
    method = "WATCH" if request.query.get("watch") else request.method
    changes = ""
    if method == "PATCH":
        changes = _changes(json.loads(body), of_node=found["plural"] == "nodes")
    elif method == "PUT" and found["plural"] == "leases":
        changes = _deed(json.loads(body)["spec"])
    return found["name"] or "", f"{method} {found['plural']}{found['sub'] or ''} {changes}".strip()


def _changes(patch: Any, *, of_node: bool) -> str:
    """What of an object a patch changes; of a Node also whether only of one version (`@version`)."""
    if isinstance(patch, list):
        changes = [".".join(op["path"].split("/")[1:3]) for op in patch if op["op"] != "test"]
    else:
        metadata, status = patch.get("metadata", {}), patch.get("status", {})
        changes = [name for name in status if name != "conditions"]
        changes += [str(one.get("type")) for one in status.get("conditions", ())]
        changes += [name for name in metadata if "finalizers" in name.lower()]
        changes += [f"metadata.{name}" for name in metadata if name in {"labels", "annotations"}]
        changes += [f"spec.{name}" for name in patch.get("spec", {})]
        if of_node and "resourceVersion" in metadata:
            changes.append(VERSIONED)
    return " ".join(sorted(set(changes)))


def _deed(spec: Mapping[str, Any]) -> str:
    """What a PUT does to a lease."""
    if not spec["holderIdentity"]:
        return "release"
    return "take" if spec["acquireTime"] == spec["renewTime"] else "renew"


async def _half(request: web.BaseRequest, text: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(text))})
    await response.prepare(request)
    await response.write(text[: len(text) // 2])
    return _cut(request)


def _is_gone(request: web.BaseRequest) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _client_gone(request: web.BaseRequest) -> None:
    while not _is_gone(request):
        await asyncio.sleep(_POLL)


def _cut(request: web.BaseRequest) -> web.Response:
    """Cut the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def relay(
    side: str, target: str, script: Script, config: ClientConfig | None = None
) -> AsyncIterator[Relay]:
    """A relay before a server; to the API server it speaks as the one whose `config` it is."""
    tls = config.ssl_context() if config is not None else False
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        made = Relay(side, target, session, script)
        server = RawTestServer(made.handle)
        await server.start_server()
        made.url = str(server.make_url("/")).rstrip("/")
        try:
            yield made
        finally:
            await server.close()
