"""A gateway before the simulator: it speaks TLS, counts what is asked, refuses and fails.

It lets pass what `operations` names and nothing else, as a vCenter would with a role of these
privileges; other programs than ours need `restricted` to be False. It can have the REST API below
`/api`, which the simulator lacks: the same operations with another spelling.
"""

import asyncio
import json
import re
import ssl
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

from proreus.providers.vsphere import operations
from proreus.testing.controlplane.certificates import Authority

_METHOD: Final = re.compile(rb"<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)")
_PAGE: Final = re.compile(rb"(<maxObject(?:Update)?s>)\d+<")
_HOP: Final = frozenset(
    ("connection", "content-length", "content-encoding", "transfer-encoding", "host", "date")
)
_API: Final = re.compile(r"/api/(session|cis/tagging/.*)")
_REST: Final = "/rest/com/vmware/"
_NAMES: Final = (
    ("POST", r"cis/session", "session.create"),
    ("GET", r"cis/tagging/category", "category.list"),
    ("GET", r"cis/tagging/category/id:[^/]+", "category.get"),
    ("POST", r"cis/tagging/tag/id:[^/]+\?~action=list-tags-for-category", "tag.list"),
    ("GET", r"cis/tagging/tag/id:[^/]+", "tag.get"),
    ("POST", r"cis/tagging/tag-association\?~action=list-attached-objects-on-tags", "tag.attached"),
)
_SOAP: Final = ("/sdk", "/vsanHealth")
_FAULT: Final = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>
<faultcode>ServerFaultCode</faultcode><faultstring>{text}</faultstring><detail>
<{name}Fault xmlns="urn:vim25" xsi:type="{name}">{more}</{name}Fault></detail>
</soapenv:Fault></soapenv:Body></soapenv:Envelope>"""


class Fault(msgspec.Struct, frozen=True):
    """A failure of some calls.

    Attributes:
        operation: A regular expression, which their name must match as a whole.
        times: To how many of them.
        skipped: How many of them pass before.
        name: The fault that is answered, such as NoPermission.
        status: Without a name: the HTTP status that is answered.
        lost: The connection is closed instead.
        after_effect: The vCenter gets the call before.
        seconds: So long the call waits.
    """

    operation: str
    times: int = 1
    skipped: int = 0
    name: str = ""
    status: int = 500
    lost: bool = False
    after_effect: bool = False
    seconds: float = 0.0


class Gateway:
    """Serves on a port of loopback, for `async with`.

    Attributes:
        port: Where it listens.
        authority: Signs its certificate.
        certificate: That certificate, PEM.
        calls: The calls so far by operation.
        answered: The bytes that the vCenter has answered to them.
        has_api: Whether the REST API is below `/api`, too.
        restricted: Whether operations that are not in `operations` are refused.
        page: How many objects are shown at once, if that is fewer than is asked for.
    """

    def __init__(self, upstream: str, authority: Authority | None = None) -> None:
        """Serve nothing yet; `upstream` is the simulator's address."""
        self._upstream = upstream
        self.authority = authority or Authority()
        self.port = 0
        self.calls: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.has_api = False
        self.restricted = True
        self.page = 0
        self._left: list[list[Any]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.port}"

    def fail(self, fault: Fault) -> None:
        """Let calls fail."""
        self._left.append([fault, fault.times, fault.skipped])

    def unspent(self) -> list[Fault]:
        """Return the faults that have not all happened yet."""
        return [fault for fault, left, _ in self._left if left]

    def mend(self) -> None:
        """Let no call fail any more."""
        self._left.clear()

    async def __aenter__(self) -> Self:
        """Serve."""
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self.certificate, key = self.authority.serving()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "server.pem"
            file.write_bytes(self.certificate + key)
            tls.load_cert_chain(file)
        app = web.Application(client_max_size=0, handler_args={"access_log": None})
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; the port is used again by the next `async with`."""
        await self._runner.cleanup()
        await self._client.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body, path = await request.read(), request.raw_path
        is_api = self.has_api and _API.match(path) is not None
        if is_api:
            path, body = _to_rest(path, body)
        if self.page:
            body = _PAGE.sub(rb"\g<1>%d<" % self.page, body)
        name, allowed = _operation(request.method, path, body)
        self.calls[name] += 1
        if self.restricted and not allowed:
            return _refused(request, name)
        fault = self._fault(name)
        if fault is not None:
            await asyncio.sleep(fault.seconds)
            if fault.after_effect:
                await self._forward(request, path, body)
            if fault.lost and request.transport is not None:
                request.transport.close()
            elif fault.name:
                return web.Response(
                    status=500,
                    text=_FAULT.format(
                        name=fault.name, text=f"made to fail: {fault.name}", more=""
                    ),
                    content_type="text/xml",
                )
            elif not fault.seconds:
                return web.Response(status=fault.status, text="<html>made to fail</html>")
        answer = await self._forward(request, path, body)
        self.answered[name] += len(answer.body) if isinstance(answer.body, bytes) else 0
        return _from_rest(answer) if is_api else answer

    def _fault(self, name: str) -> Fault | None:
        for one in self._left:
            if one[1] and re.fullmatch(one[0].operation, name):
                if one[2]:
                    one[2] -= 1
                    continue
                one[1] -= 1
                fault: Fault = one[0]
                return fault
        return None

    async def _forward(self, request: web.Request, path: str, body: bytes) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        async with self._client.request(
            request.method, self._upstream + path, data=body or None, headers=headers
        ) as answer:
            made = web.Response(status=answer.status, body=await answer.read())
            for key, value in answer.headers.items():
                if key.lower() not in _HOP:
                    made.headers.add(key, value)
            return made


def _operation(method: str, path: str, body: bytes) -> tuple[str, bool]:
    """Return the name of what is called, and whether `operations` has it."""
    if path in _SOAP:
        found = _METHOD.search(body)
        name = found[1].decode() if found else "?"
        return name, name in operations.SOAP
    rest = path.removeprefix(_REST)
    for verb, pattern, name in _NAMES:
        if verb == method and re.fullmatch(pattern, rest):
            return name, name in operations.REST
    return f"{method} {path.partition('?')[0]}", False


def _refused(request: web.Request, name: str) -> web.Response:
    if request.path in _SOAP:
        more = "<privilegeId>Any.Other</privilegeId>"
        text = _FAULT.format(name="NoPermission", text=f"{name} is not allowed", more=more)
        return web.Response(status=500, text=text, content_type="text/xml")
    if not request.path.startswith(_REST):
        return web.Response(status=404, text="404 page not found")
    return web.json_response({"error_type": "UNAUTHORIZED", "messages": []}, status=403)


def _to_rest(path: str, body: bytes) -> tuple[str, bytes]:
    """Return a request of `/api` as `/rest` has it."""
    rest = path.removeprefix("/api/")
    if rest == "session":
        return f"{_REST}cis/session", body
    rest = rest.replace("?action=", "?~action=")
    if rest.startswith("cis/tagging/tag?~action=list-tags-for-category"):
        id_ = json.loads(body)["category_id"]
        return f"{_REST}cis/tagging/tag/id:{id_}?~action=list-tags-for-category", b""
    rest = re.sub(r"^(cis/tagging/(?:tag|category)/)(?=[^?])", r"\1id:", rest)
    return f"{_REST}{rest}", body


def _from_rest(answer: web.Response) -> web.Response:
    """Return an answer of `/rest` as `/api` has it: without its wrapper."""
    content = answer.body if isinstance(answer.body, bytes) else b""
    if answer.status >= 400:  # noqa: PLR2004 - HTTP
        return answer
    value = json.loads(content or b"{}").get("value")
    return web.json_response([] if value is None else value, status=answer.status)
