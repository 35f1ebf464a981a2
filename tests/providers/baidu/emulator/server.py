"""The protocol of the emulated APIs: signatures, rights, forms, pages, tokens, failures."""

import hashlib
import hmac
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from aiohttp import web

from proreus.providers.baidu.operations import OPERATIONS

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from . import forms
from .operations import ANSWERS, BODIES, DO, PAGED, QUERIES
from .world import Json, Refusal, World

POLICY: Final = Path(__file__).parents[4] / "deploy" / "baidu" / "policy.json"
LOST: Final = -1
"""The status of a failure that is no answer at all."""
_BY_DEFAULT: Final = frozenset({"host", "content-length", "content-type", "content-md5"})
_FLAGS: Final = frozenset(one.flag for one in OPERATIONS.values()) - {""}
_STRANGERS: Final = {
    "listTCPListeners": ("GET", "/v1/blb/{}/TCPlistener", ""),
    "listUDPListeners": ("GET", "/v1/blb/{}/UDPlistener", ""),
}
"""What the official manager asks for, and we do not."""
_PATHS: Final = [
    (name, method, re.compile(path.replace("{}", "([^/]+)")), flag)
    for name, (method, path, flag) in (
        *((name, (one.method, one.path, one.flag)) for name, one in OPERATIONS.items()),
        *_STRANGERS.items(),
    )
]


class Failure:
    """A failure that is to come: `times` often, before or after the effect."""

    def __init__(self, status: int, code: str, times: int, *, after_effect: bool) -> None:
        self.status, self.code, self.times, self.after_effect = status, code, times, after_effect


class Emulator:
    """All APIs of one region, at one address."""

    def __init__(self) -> None:
        self.world = World()
        self.url = ""
        self.key, self.secret = "planted-access-key-0001", "planted-secret-key-0001"
        self.token = ""
        self.blind: set[str] = set()
        """Keys of users who are shown no machine."""
        self.page = 1000
        self.rights: Collection[tuple[str, str]] | None = policy()
        """Product and permission of what our user may do; None: all."""
        self.limit: int | None = None
        """Requests of a second, after which the API refuses."""
        self.throttled = 0
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, list[str], Mapping[str, str], Json]] = []
        self.failures: dict[str, Failure] = {}
        self.meanwhile: dict[str, Callable[[], object]] = {}
        """What somebody else does right after the next request of an operation."""
        self.missing: set[str] = set()
        """Requests that are no operation."""
        self._interval = (0.0, 0)

    def config(self, **more: Any) -> str:
        """A cloud-config that leads here."""
        keys = {"AccessKeyID": self.key, "SecretAccessKey": self.secret}
        given = {
            "ClusterId": "cce-5f3k2n8a", "MasterId": "m", "Endpoint": "https://cce.example.org",
            "Region": "bj", "APIEndpoint": self.url, **keys,
            **({"SessionToken": self.token} if self.token else {}), **more,
        }  # fmt: skip
        return json.dumps({key: value for key, value in given.items() if value is not None})

    def fail(
        self, operation: str, status: int = 500, code: str = "InternalError", times: int = 1, *,
        after_effect: bool = False,
    ) -> None:  # fmt: skip
        """Let the next requests of an operation fail."""
        self.failures[operation] = Failure(status, code, times, after_effect=after_effect)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.world.advance()
        content = await request.read()
        try:
            operation, ids = self._operation(request)
            failure = self._failure(operation)
            self._admit(operation, request, content)
            if failure is not None and not failure.after_effect:
                raise Refusal(failure.status, failure.code)
            answer = self._answer(operation, ids, request, content)
            if meanwhile := self.meanwhile.pop(operation, None):
                meanwhile()
            if failure is not None:
                raise Refusal(failure.status, failure.code)
        except Refusal as refusal:
            if refusal.status == LOST:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            said = {"code": refusal.code, "message": refusal.text, "requestId": "4b1d"}
            return web.json_response(said, status=refusal.status)
        return web.json_response(answer) if answer is not None else web.Response()

    def _operation(self, request: web.Request) -> tuple[str, list[str]]:
        flags = _FLAGS & request.query.keys()
        for name, method, path, flag in _PATHS:
            found = path.fullmatch(request.rel_url.raw_path)
            if found is not None and method == request.method and flags == ({flag} - {""}):
                return name, [unquote(one) for one in found.groups()]
        self.missing.add(f"{request.method} {request.path}")
        raise Refusal(400, "InvalidURI", f"{request.method} {request.path}")

    def _failure(self, operation: str) -> Failure | None:
        failure = self.failures.get(operation)
        if failure is not None:
            failure.times -= 1
            if failure.times <= 0:
                del self.failures[operation]
        return failure

    def _admit(self, operation: str, request: web.Request, content: bytes) -> None:
        self._authenticate(request)
        second, count = self._interval
        count = count + 1 if time.monotonic() - second < 1.0 else 1
        self._interval = (second if count > 1 else time.monotonic(), count)
        if self.limit is not None and count > self.limit:
            self.throttled += 1
            raise Refusal(429, "RequestLimited", "Request frequency is too high")
        self.calls[operation] += 1
        body = json.loads(content) if content else {}
        plain = {name: one for name, one in request.query.items() if name not in _FLAGS}
        self.log.append((operation, [request.path], plain, body))
        if self.rights is not None:
            known = OPERATIONS.get(operation)
            if known is None or (known.product, known.right) not in self.rights:
                raise Refusal(403, "AccessDenied", f"the policy does not allow {operation}")

    def _authenticate(self, request: web.Request) -> None:
        """Check key, time and signature as the documents of bce-auth-v1 say."""
        parts = request.headers.get("Authorization", "").split("/")
        if len(parts) != 6 or parts[0] != "bce-auth-v1":
            raise Refusal(400, "InvalidHTTPAuthHeader", "no bce-auth-v1")
        _, key, at, lifetime, names, given = parts
        if key != self.key:
            raise Refusal(403, "InvalidAccessKeyId", f"there is no key {key}")
        headers = {name.lower(): value.strip() for name, value in request.headers.items()}
        signed = set(names.split(";")) if names else _BY_DEFAULT & headers.keys()
        own = {name for name in headers if name.startswith("x-bce-")} - {"x-bce-request-id"}
        if not names:
            signed |= own
        if "host" not in signed or not own <= signed:
            raise Refusal(400, "InvalidHTTPAuthHeader", "Host and x-bce-* must be signed")
        if headers.get("x-bce-security-token", "") != self.token:
            raise Refusal(403, "InvalidSessionToken", "the token does not count")
        query = "&".join(sorted(f"{_quoted(k)}={_quoted(v)}" for k, v in request.query.items()))
        lines = sorted(f"{_quoted(name)}:{_quoted(headers[name])}" for name in signed)
        path = quote(unquote(request.rel_url.raw_path), safe="/~")
        text = "\n".join((request.method, path, query, "\n".join(lines)))
        prefix = "/".join(parts[:4])
        digest = _hmac(_hmac(self.secret, prefix), text)
        if not hmac.compare_digest(digest, given):
            raise Refusal(403, "SignatureDoesNotMatch", f"it must sign: {text!r}")
        since = datetime.fromisoformat(at)
        if datetime.now(UTC) > since + timedelta(seconds=int(lifetime)):
            raise Refusal(400, "RequestExpired", "the signature is too old")

    def _answer(
        self, operation: str, ids: list[str], request: web.Request, content: bytes
    ) -> Json | None:
        query = {name: one for name, one in request.query.items() if name not in _FLAGS}
        body = self._body(operation, content)
        token = query.pop("clientToken", "")
        known = {
            *QUERIES.get(operation, "").split(),
            *(("marker", "maxKeys") if operation in PAGED else ()),
        }
        if unknown := query.keys() - known:
            raise Refusal(400, "InvalidParameter", f"{operation} has no {sorted(unknown)}")
        done = self.world.answered.get((operation, token)) if token else None
        if done is not None:
            return done
        answer = DO[operation](self.world, ids, query, body)
        if operation in PAGED:
            if operation == "listInstances" and self.key in self.blind:
                answer = []
            answer = self._page(operation, answer, query)
        if operation in {"getInstance", "getBareMetal"} and self.key in self.blind:
            raise Refusal(404, "NoSuchObject", "The specified object is not found")
        if operation in ANSWERS or operation in PAGED:
            type_ = ANSWERS.get(operation) or PAGED[operation][1]
            assert not (texts := forms.wrong(type_, answer)), texts
        if token:
            self.world.answered[operation, token] = answer or {}
        return answer if isinstance(answer, dict) else None

    def _body(self, operation: str, content: bytes) -> Json:
        body: Json = json.loads(content) if content else {}
        if operation not in BODIES:
            return body
        texts = forms.wrong(BODIES[operation], body, is_request=True)
        lacking = set(forms.missing(BODIES[operation], body))
        if operation == "deleteListeners" and body.keys() & {"portList", "portTypeList"}:
            lacking = set()
        if texts or lacking:
            raise Refusal(400, "InappropriateJSON", f"{texts} {sorted(lacking)}")
        return body

    def _page(self, operation: str, found: list[Json], query: Mapping[str, str]) -> Json:
        field, _, marker = PAGED[operation]
        most = min(int(query.get("maxKeys", "1000")), self.page)
        if int(query.get("maxKeys", "1000")) > 1000:
            raise Refusal(400, "InvalidParameter", "maxKeys: at most 1000")
        names = [str(one[marker]) for one in found]
        at = query.get("marker", "")
        first = names.index(at) if at in names else 0
        shown = found[first : first + most]
        rest = names[first + most :]
        page: Json = {"marker": at, "isTruncated": bool(rest), "maxKeys": most, field: shown}
        return {**page, "nextMarker": rest[0]} if rest else page


def policy() -> frozenset[tuple[str, str]]:
    """What the generated policy allows."""
    document = json.loads(POLICY.read_text())
    return frozenset(
        (rule["service"], right)
        for rule in document["accessControlList"]
        if rule["effect"] == "Allow"
        for right in rule["permission"]
    )


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _quoted(text: str) -> str:
    return quote(text, safe="~")


@asynccontextmanager
async def served(emulator: Emulator | None = None) -> AsyncIterator[Emulator]:
    """An emulator that listens on a port of loopback."""
    emulator = emulator or Emulator()
    async with listening(emulator.handle) as emulator.url:
        yield emulator
