"""Serve the policy API over TLS: who asks, what goes wrong, lists in pages, writes."""

import asyncio
import fnmatch
import itertools
import json
import ssl
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from proreus.testing.controlplane.certificates import Authority

from ....emulated import listening  # noqa: TID252 - pytest imports tests by path
from . import schema
from .errors import NsxError, concurrency_exceeded, rate_exceeded
from .realization import Realization
from .schema import PREFIX, Operation
from .search import query
from .sessions import Sessions
from .store import Store
from .world import seed

Json = dict[str, Any]

PAGE: Final = 1000
"""Objects of a page, unless fewer are asked for; it is the most, too."""


class Fault(msgspec.Struct):
    """What is to go wrong.

    Attributes:
        operation: Of which operations, as `PUT lb-*`: their names, or a pattern of a shell. That of
            a login is `session create`, which has its effect never.
        times: How often.
        status: The status that is answered; 0: none, the request is only slow.
        code: The error's code.
        message: What it says.
        after_effect: The request has its effect before.
        lost: The connection is closed instead.
        seconds: For so long the request waits first.
        target: What must be in the path.
    """

    operation: str
    times: int = 1
    status: int = 500
    code: int | str = 98
    message: str = "The emulator was told to fail."
    after_effect: bool = False
    lost: bool = False
    seconds: float = 0.0
    target: str = ""


class Emulator:
    """One NSX manager.

    Attributes:
        now: Its clock, in seconds since it was made; a test may have another that is ahead.
        store: What is desired.
        realization: What has come of it.
        sessions: Who may ask.
        page: How many objects a page has at most.
        rate: Requests of a second that are let through; None: all.
        concurrency: Requests that are worked on at once; None: all.
        search_lag: Seconds for which searches do not see a change.
        calls: The requests so far by the operation's name.
        log: The requests, the oldest first: name, path and body.
        refused: What was refused: name, path, status and message.
        hooks: They are called with each request's name and path, before it has its effect.
        most_at_once: The most requests that were worked on at once.
    """

    def __init__(self, authority: Authority | None = None) -> None:
        self.authority = authority or Authority()
        begun = time.monotonic()
        self.now: Callable[[], float] = lambda: time.monotonic() - begun
        self.store = Store(self._time)
        self.realization = Realization(self.store, self._time)
        self.sessions = Sessions(self._time)
        self.host = ""
        self.ca_file = Path()
        self.page = PAGE
        self.rate: int | None = None
        self.concurrency: int | None = None
        self.search_lag = 0.0
        self.calls: Counter[str] = Counter()
        self.log: deque[tuple[str, str, Any]] = deque(maxlen=100_000)
        self.refused: list[tuple[str, str, int, str]] = []
        self.hooks: list[Callable[[str, str], None]] = []
        self.most_at_once = 0
        self._faults: list[Fault] = []
        self._busy = 0
        self._second = (0.0, 0)
        self._index: list[tuple[float, str, Json | None]] = []
        self._indexed: dict[str, Json] = {}
        seed(self)

    def _time(self) -> float:
        return self.now()

    # What tests ask and do

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://{self.host}"

    def config(self, **changed: Any) -> str:
        """The section `[NSXT]` of the official cloud-config; keys are given with `_` for `-`."""
        keys = {
            "host": self.host, "user": "admin", "password": self.sessions.users["admin"],
            "ca-file": self.ca_file,
        } | {key.replace("_", "-"): value for key, value in changed.items()}  # fmt: skip
        lines = [f'{key} = "{value}"' for key, value in keys.items() if value != ""]
        return "\n".join(("[NSXT]", *lines)) + "\n"

    def fail(self, fault: Fault) -> None:
        """Let requests fail, or wait."""
        self._faults.append(fault)

    def unspent(self) -> list[Fault]:
        """The faults that have not all happened."""
        return [one for one in self._faults if one.times]

    def mend(self) -> None:
        """Let no request fail any more."""
        self._faults.clear()

    def counted(self) -> Counter[str]:
        """The requests since this was called last."""
        found, self.calls = self.calls, Counter()
        return found

    def of(self, kind: str) -> list[Json]:
        """All objects of a kind, such as `lb-pools` or `static-routes`, by name."""
        found = [one for path, one in self.store.objects.items() if path.split("/")[-2] == kind]
        return sorted(found, key=lambda one: (str(one["display_name"]), str(one["path"])))

    def put(self, path: str, **body: Any) -> Json:
        """Create or replace an object as somebody else would; what it is then."""
        operation, path = schema.find("PATCH", PREFIX + path)
        kind, whole = schema.filled(operation.body, body)
        return self._written(self.store.write(path, kind, whole, body, "somebody", patch=True))

    @contextmanager
    def changing(self, path: str) -> Iterator[Json]:
        """An object, for a change behind everybody's back."""
        one = self.store.objects[path]
        yield one
        one["_revision"] += 1
        self._written(one)

    def remove(self, path: str) -> None:
        """Delete an object as somebody else would, whoever uses it."""
        self._deleted(self.store.delete(path, force=True))

    # Serving

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self._busy += 1
        self.most_at_once = max(self.most_at_once, self._busy)
        name = path = ""
        try:
            if request.path.startswith("/api/session/"):
                return await self._session(request)
            user = self.sessions.user(request)
            self._admit(user)
            raw = request.rel_url.raw_path
            operation, path = schema.find(request.method, raw)
            name = operation.name
            return await self._operate(operation, path, request, user)
        except _Lost:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        except NsxError as error:
            self.refused.append((name, path or request.path, error.status, error.message))
            return web.json_response(error.body(), status=error.status)
        finally:
            self._busy -= 1

    async def _session(self, request: web.Request) -> web.StreamResponse:
        name = f"session {request.path.rpartition('/')[2]}"
        self.calls[name] += 1
        if (fault := self._fault(name, request.path)) is not None:
            await asyncio.sleep(fault.seconds)
            _fail(fault)
        if request.method == "POST" and name == "session create":
            form = {key: str(value) for key, value in (await request.post()).items()}
            return self.sessions.create(form)
        if name == "session destroy":
            return self.sessions.destroy(request)
        raise NsxError(404, 98, f"No handler of {request.path}")

    def _admit(self, user: str) -> None:
        """Refuse requests above the limits of a client."""
        if self.concurrency is not None and self._busy > self.concurrency:
            raise concurrency_exceeded(user, self.concurrency)
        begun, count = self._second
        if time.monotonic() - begun >= 1.0:
            begun, count = time.monotonic(), 0
        self._second = begun, count + 1
        if self.rate is not None and count >= self.rate:
            raise rate_exceeded(user, self.rate)

    async def _operate(
        self, operation: Operation, path: str, request: web.Request, user: str
    ) -> web.StreamResponse:
        content = await request.read()
        body = schema.read(content) if operation.body else {}
        self.calls[operation.name] += 1
        self.log.append((operation.name, path, body or dict(request.query)))
        fault = self._fault(operation.name, path)
        if fault is not None and fault.seconds:
            await asyncio.sleep(fault.seconds)
        if fault is not None and not fault.after_effect:
            _fail(fault)
        for hook in self.hooks:
            hook(operation.name, path)
        self.sessions.check_right(user, request.method)
        operation.check_query(request.query)
        answer = self._answer(operation, path, dict(request.query), body, user)
        if fault is not None:
            _fail(fault)
        if answer is None:
            return web.Response()
        return web.json_response(answer)

    def _fault(self, name: str, path: str) -> Fault | None:
        for one in self._faults:
            if one.times and fnmatch.fnmatch(name, one.operation) and one.target in path:
                one.times -= 1
                return one
        return None

    # Doing

    def _answer(
        self, operation: Operation, path: str, asked: dict[str, str], body: Json, user: str
    ) -> Json | None:
        self.realization.advance()
        if operation.name == "GET realized-entities":
            found = self.realization.entities(asked["intent_path"])
            return {"results": found, "result_count": len(found)}
        if operation.name == "GET query":
            return self._searched(asked)
        if operation.lists:
            marked = asked.get("include_mark_for_delete_objects") == "true"
            found = self.store.listed(path, with_deleted=marked)
            return self._page([self._shown(one) for one in found], asked, is_search=False)
        if operation.method == "GET":
            return self._shown(self.store.get(path))
        if operation.method == "DELETE":
            self._deleted(self.store.delete(path, force=asked.get("force") == "true"))
            return None
        patch = operation.method == "PATCH"
        given = body
        if patch and self.store.partial and path in self.store.objects:
            body = {**self.store.objects[path], **body}
        kind, whole = schema.filled(operation.body, body)
        written = self._written(self.store.write(path, kind, whole, given, user, patch=patch))
        return None if patch else self._shown(written)

    def _written(self, one: Json) -> Json:
        self.realization.written(one)
        self._index.append((self.now() + self.search_lag, one["path"], json.loads(json.dumps(one))))
        return one

    def _deleted(self, one: Json) -> None:
        self.realization.deleted(one)
        self._index.append((self.now() + self.search_lag, one["path"], None))

    def _shown(self, one: Json) -> Json:
        if one["resource_type"] == "IpAddressPool":
            return {**one, "pool_usage": self.realization.usage(one["path"])}
        return one

    def _searched(self, asked: dict[str, str]) -> Json:
        test = query(asked["query"])
        while self._index and self._index[0][0] <= self.now():
            _, path, one = self._index.pop(0)
            if one is None:
                self._indexed.pop(path, None)
            else:
                self._indexed[path] = one
        marked = [one for one in self.store.all() if one["marked_for_delete"]]
        found = [one for one in (*self._indexed.values(), *marked) if test(one)]
        return self._page(found, asked, is_search=True)

    def _page(self, found: list[Json], asked: dict[str, str], *, is_search: bool) -> Json:
        """One page.

        A list tells the count of all on its first page only, and its cursor is opaque. A search
        tells it on each, and its cursor is how many were shown so far.
        """
        by = asked.get("sort_by", "display_name")
        rising = asked.get("sort_ascending", "true") == "true"
        found.sort(key=lambda one: (str(one.get(by, "")), one["path"]), reverse=not rising)
        cursor = asked.get("cursor", "")
        first = _position(cursor) if cursor else 0
        size = min(int(asked.get("page_size") or PAGE), self.page)
        shown = found[first : first + size]
        if wanted := asked.get("included_fields"):
            shown = [{k: one[k] for k in wanted.split(",") if k in one} for one in shown]
        answer: Json = {"results": shown}
        if is_search or not cursor:
            answer["result_count"] = len(found)
        if not is_search:
            answer |= {"sort_by": by, "sort_ascending": rising}
        if is_search:
            answer["cursor"] = str(first + len(shown))
        elif first + size < len(found):
            answer["cursor"] = f"{first + size:08d}{found[first + size]['unique_id']}"
        return answer


class _Lost(Exception):
    """The connection is to be closed."""


def _fail(fault: Fault) -> None:
    if fault.lost:
        raise _Lost
    if fault.status:
        raise NsxError(fault.status, fault.code, fault.message, "common-services")


def _position(cursor: str) -> int:
    if not cursor[:8].isdigit():
        raise NsxError(400, 98, f"The cursor {cursor} is invalid.")
    return int(cursor[:8])


@asynccontextmanager
async def served(
    directory: Path, authority: Authority | None = None, emulator: Emulator | None = None
) -> AsyncIterator[Emulator]:
    """An emulator that listens on a port of loopback; its CA's certificate is in `directory`."""
    emulator = emulator or Emulator(authority)
    certificate, key = emulator.authority.serving()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_verify_locations(cadata=emulator.authority.certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    pair = directory / f"nsxt-{next(_NUMBERS)}.pem"
    pair.write_bytes(certificate + key)
    context.load_cert_chain(pair)
    emulator.ca_file = pair.with_suffix(".ca.pem")
    emulator.ca_file.write_bytes(emulator.authority.certificate)
    async with listening(emulator.handle, tls=context) as url:
        emulator.host = url.removeprefix("https://")
        yield emulator


_NUMBERS = itertools.count(1)
