"""Serve the store over HTTP: requests, watches, and the faults that a test injects."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from proreus.kube.requests import Resource
from proreus.testing.memory import patches, selectors
from proreus.testing.memory.faults import Fault, refuse
from proreus.testing.memory.rules import RESOURCES, WITH_STATUS, Object
from proreus.testing.memory.store import ApiError, Change, Matches, Store, Stored

BODY_LIMIT: Final = 3 << 20
"""Bytes of a request body, as in kube-apiserver."""
BOOKMARK_SECONDS: Final = 60.0

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_NAMESPACE = re.compile(
    r"/api/(?P<version>v1)/(?P<plural>namespaces)(?:/(?P<name>[^/]+))?(?P<subresource>/status)?"
)


class LoggedRequest(msgspec.Struct, frozen=True):
    """A request in the log: `code` is 0 if it had no answer, `size` is that of the answer."""

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    code: int
    agent: str
    size: int = 0


class _CutOff(Exception):
    """The signal that a watch is to break off."""


class _Target(msgspec.Struct, frozen=True):
    resource: Resource[Any]
    namespace: str
    name: str
    subresource: str


class MemoryApiServer:
    """A server of a store on a port of loopback, for `async with`.

    Attributes:
        store: All objects; a test may change them behind the clients' backs.
        url: The URL at which it listens, while it runs.
        requests: Every request so far, if `keep_log`.
    """

    def __init__(self, store: Store | None = None, *, port: int = 0, keep_log: bool = True) -> None:
        """Keep the settings; port 0 is any free one."""
        self.store = store or Store()
        self.url = ""
        self.requests: list[LoggedRequest] = []
        self._keep_log = keep_log
        self._faults: list[Fault] = []
        self._runner: web.AppRunner | None = None
        self._port = port

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; after a `stop`, on the same port."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without a client nobody reads a watch; and zero seconds would mean for ever.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Cut all connections; the objects stay."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def inject(self, fault: Fault) -> None:
        """Make requests fail from now on."""
        self._faults.append(fault)

    def clear_faults(self) -> None:
        """Let all requests succeed again."""
        self._faults.clear()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in {"/healthz", "/livez", "/readyz"}:
            return web.Response(text="ok")
        target: _Target | None = None
        answer: web.StreamResponse | None = None
        verb = _verb(request)
        try:
            target = _target(request.path)
            fault = self._fault(verb, target.resource.plural)
            if fault is not None:
                refuse(fault)
            if verb == "watch":
                return await self._watch(request, target, fault)
            body, code = await self._answered(request, verb, target)
            if fault is None:
                answer = web.Response(body=body, status=code, content_type="application/json")
        except ApiError as exc:
            answer = _error(exc)
        finally:
            if self._keep_log and target is not None:
                self._log(request, verb, target, answer)
        if answer is None:
            _cut(request)
            return web.Response()
        return answer

    def _log(
        self, request: web.Request, verb: str, target: _Target, answer: web.StreamResponse | None
    ) -> None:
        body = answer.body if isinstance(answer, web.Response) else b""
        self.requests.append(
            LoggedRequest(
                verb,
                target.resource.plural,
                target.namespace,
                target.name,
                target.subresource,
                answer.status if answer is not None else 0,
                request.headers.get("User-Agent", ""),
                len(body) if isinstance(body, bytes) else 0,
            )
        )

    def _fault(self, verb: str, plural: str) -> Fault | None:
        for index, fault in enumerate(self._faults):
            if fault.verb in {"*", verb} and fault.resource in {"*", plural}:
                if fault.count == 1:
                    del self._faults[index]
                elif fault.count > 1:
                    self._faults[index] = msgspec.structs.replace(fault, count=fault.count - 1)
                return fault
        return None

    async def _answered(
        self, request: web.Request, verb: str, target: _Target
    ) -> tuple[bytes, int]:
        resource, store = target.resource, self.store
        if verb == "list":
            return self._list(request, target), 200
        if verb == "create":
            made = store.create(resource, target.namespace, _decoded(await request.read()))
            return _partial(request, made), 201
        present = store.get(resource, target.namespace, target.name)
        if verb == "get":
            return present.encoded, 200
        body = await request.read()
        # Reading the body gave others their turn: the object may be another by now.
        present = store.get(resource, target.namespace, target.name)
        if verb == "delete":
            options = _decoded(body) if body else {}
            gone = store.delete(resource, present, options.get("preconditions") or {})
            return _partial(request, gone), 200
        new = (
            _decoded(body)
            if verb == "update"
            else _patched(request.content_type, present.body, _decoded(body))
        )
        written = store.update(resource, present, new, status=target.subresource == "status")
        return _partial(request, written), 200

    def _list(self, request: web.Request, target: _Target) -> bytes:
        query = request.query
        limit = int(query.get("limit", "0"))
        if query.get("continue"):
            page = self.store.go_on(query["continue"], limit)
        else:
            page = self.store.first_page(target.resource, target.namespace, _matcher(query), limit)
        meta: dict[str, Any] = {"resourceVersion": str(page.version)}
        if page.token:
            meta |= {"continue": page.token, "remainingItemCount": page.remaining}
        kind, version = target.resource.kind, target.resource.api_version
        head = msgspec.json.encode({"kind": f"{kind}List", "apiVersion": version, "metadata": meta})
        items = b",".join(stored.encoded for stored in page.items)
        return head[:-1] + b',"items":[' + items + b"]}"

    async def _watch(
        self, request: web.Request, target: _Target, fault: Fault | None
    ) -> web.StreamResponse:
        changed = asyncio.Event()
        matches = _matcher(request.query)
        version = int(request.query.get("resourceVersion") or self.store.version)
        seconds = float(request.query.get("timeoutSeconds") or 1800)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        unsubscribe = self.store.subscribe(target.resource.plural, changed.set)
        try:
            await answer.prepare(request)
            async with asyncio.timeout(seconds):
                while True:
                    changed.clear()
                    version = await self._send_changes(answer, target, matches, version, fault)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), BOOKMARK_SECONDS)
                        continue
                    await answer.write(_bookmark(target.resource, version))
        except TimeoutError:
            await answer.write(_bookmark(target.resource, version))
        except ApiError as exc:
            await answer.write(_event("ERROR", msgspec.json.encode(_status(exc))))
        except _CutOff:
            _cut(request)
        except ConnectionResetError:
            pass  # the client has gone
        finally:
            unsubscribe()
        return answer

    async def _send_changes(
        self,
        answer: web.StreamResponse,
        target: _Target,
        matches: Matches | None,
        version: int,
        fault: Fault | None,
    ) -> int:
        """Send what happened after `version`; return the version that is reached."""
        reached = self.store.version
        events = []
        for change in self.store.changes(target.resource, version):
            if target.namespace in {"", change.last.namespace}:
                events += _told(change, matches)
        if events and fault is not None:
            await answer.write(events[0][: len(events[0]) // 2])
            raise _CutOff
        if events:
            await answer.write(b"".join(events))
        return reached


def _told(change: Change, matches: Matches | None) -> list[bytes]:
    """Return the event of one change, or none, for a watch that shows only matching objects."""
    before, after = (
        one is not None and (matches is None or matches(one.body))
        for one in (change.old, change.new)
    )
    if not before and not after:
        return []
    kind = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
    return [_event(kind, change.last.encoded)]


def _event(kind: str, encoded: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"


def _bookmark(resource: Resource[Any], version: int) -> bytes:
    body = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(version)},
    }
    return _event("BOOKMARK", msgspec.json.encode(body))


def _verb(request: web.Request) -> str:
    if request.method == "GET":
        if request.query.get("watch") in {"true", "1"}:
            return "watch"
        last = request.path.rpartition("/")[2]
        return "list" if any(last == plural for _, _, plural in RESOURCES) else "get"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs.get(request.method, request.method)


def _target(path: str) -> _Target:
    match = _NAMESPACE.fullmatch(path) or _PATH.fullmatch(path)
    parts = match.groupdict("") if match else {}
    resource = RESOURCES.get(
        (parts.get("group", ""), parts.get("version", ""), parts.get("plural", ""))
    )
    subresource = parts.get("subresource", "").removeprefix("/")
    if resource is None or (subresource and resource.plural not in WITH_STATUS):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    return _Target(resource, parts.get("namespace", ""), parts.get("name", ""), subresource)


def _matcher(query: Mapping[str, str]) -> Matches | None:
    return selectors.matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as exc:
        raise ApiError(400, "BadRequest", f"the body is not JSON: {exc}") from exc


def _patched(content_type: str, present: Object, change: Any) -> Object:
    kinds: dict[str, Callable[[Any, Any], Any]] = {
        "application/json-patch+json": patches.json_patch,
        "application/merge-patch+json": patches.merge_patch,
        "application/strategic-merge-patch+json": patches.strategic_merge,
    }
    if content_type not in kinds:
        raise ApiError(415, "UnsupportedMediaType", f"{content_type} is no patch")
    try:
        result: Object = kinds[content_type](present, change)
    except patches.PatchError as exc:
        raise ApiError(422, "Invalid", f"the server rejected our request: {exc}") from exc
    return result


def _partial(request: web.Request, stored: Stored) -> bytes:
    """Return an object, or its metadata if the request asks for these only."""
    if "as=PartialObjectMetadata" not in request.headers.get("Accept", ""):
        return stored.encoded
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return msgspec.json.encode({**kind, "metadata": stored.metadata})


def _status(error: ApiError) -> dict[str, Any]:
    causes = [msgspec.to_builtins(cause) for cause in error.causes]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
        "details": {"causes": causes} if causes else {},
    }


def _error(error: ApiError) -> web.Response:
    headers = {"Retry-After": "1"} if error.code == 429 else {}  # noqa: PLR2004 - HTTP's number
    return web.json_response(_status(error), status=error.code, headers=headers)


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
