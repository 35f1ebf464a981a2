"""Serve the simulated cloud over HTTP: credentials, quotas, faults, latency and the call log."""

import asyncio
import hmac
import math
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from proreus.testing.simulated.cloud import Cloud
from proreus.testing.simulated.model import (
    ApiError,
    Call,
    Fault,
    FaultMode,
    Instance,
    Volume,
)
from proreus.testing.simulated.operations import (
    OPERATIONS,
    Answer,
    ApiRequest,
    Operation,
    show_instance,
)
from proreus.testing.simulated.weather import Faults, Quotas, spoil

_MAX_CALLS = 200_000
_MAX_BODY = 64 * 1024 * 1024
_HANG_POLL = 0.05

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """The HTTP server of `cloud`; `tokens` maps each token to its credential's name."""

    def __init__(self, cloud: Cloud, tokens: Mapping[str, str], admin_token: str) -> None:
        """Keep cloud and tokens; serve once `app` is run."""
        self._cloud = cloud
        self._tokens = dict(tokens)
        self._admin_token = admin_token
        self._quotas = Quotas()
        self._faults = Faults()
        self._calls: deque[Call] = deque(maxlen=_MAX_CALLS)
        self._counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._last: dict[str, float] = {}

    def app(self) -> web.Application:
        """Return the aiohttp application of both APIs."""
        app = web.Application(client_max_size=_MAX_BODY)
        for operation in OPERATIONS:
            app.router.add_route(operation.method, operation.path, self._cloud_call(operation))
        for method, path, run in (
            ("GET", "/admin/settings", self._get_settings),
            ("PATCH", "/admin/settings", self._patch_settings),
            ("POST", "/admin/instances", self._create_instances),
            ("PATCH", "/admin/instances/{id}", self._change_instance),
            ("DELETE", "/admin/instances/{id}", self._terminate_instance),
            ("POST", "/admin/volumes", self._create_volumes),
            ("GET", "/admin/state", self._get_state),
            ("DELETE", "/admin/parts/{id}", self._remove_part),
            ("POST", "/admin/faults", self._add_fault),
            ("DELETE", "/admin/faults", self._clear_faults),
            ("GET", "/admin/calls", self._get_calls),
            ("DELETE", "/admin/calls", self._clear_calls),
            ("GET", "/admin/counters", self._get_counters),
        ):
            app.router.add_route(method, path, self._admin_call(run))
        return app

    def _cloud_call(self, operation: Operation) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            started = self._cloud.now()
            caller = ""
            status = 0
            try:
                caller = self._caller(request)
                response = await self._weathered(request, operation, caller)
                status = 0 if response is None else response.status
            except ApiError as error:
                response = _refusal(error)
                status = error.status
            self._log(operation, caller, started, status, request.match_info.get("id", ""))
            return _cut(request) if response is None else response

        return handle

    async def _weathered(
        self, request: web.Request, operation: Operation, caller: str
    ) -> web.Response | None:
        """Run an operation within quotas, faults and latency; return None to send no answer."""
        settings = self._cloud.settings()
        now = self._cloud.now()
        wait = self._quotas.take(caller, settings, now, read=operation.read)
        if wait > 0:
            raise ApiError(429, "Throttled", "the quota is used up", retry_after=wait)
        api_request = await _api_request(request)
        fault = self._faults.take(operation.name, request.match_info.get("id", ""))
        await asyncio.sleep(settings.latency / 2)
        if fault is not None and not await _effect_takes_place(request, fault):
            return None
        answer = await operation.run(self._cloud, api_request)
        await asyncio.sleep(settings.latency / 2)
        if fault is not None and fault.mode is FaultMode.CUT_AFTER:
            return None
        if fault is not None and fault.mode is FaultMode.GARBAGE:
            return web.Response(text="<html>Bad Gate", content_type="text/html")
        return _response(Answer(spoil(fault, answer.body, api_request.body), answer.status))

    def _caller(self, request: web.Request) -> str:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        for token, name in self._tokens.items():
            if hmac.compare_digest(given.encode(), token.encode()):
                return name
        raise ApiError(401, "Unauthenticated", "no such token")

    def _log(
        self, operation: Operation, caller: str, started: float, status: int, id_: str
    ) -> None:
        call = Call(operation.name, caller, started, status, operation.read, id_)
        self._calls.append(call)
        self._counters[operation.name][str(status)] += 1
        self._last[operation.name] = self._cloud.now()

    def _admin_call(self, run: Callable[[ApiRequest], Awaitable[dict[str, Any]]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._admin_token}".encode()):
                return _refusal(ApiError(401, "Unauthenticated", "this is not the admin token"))
            try:
                return _response(Answer(await run(await _api_request(request))))
            except msgspec.ValidationError as error:
                return _refusal(ApiError(400, "BadRequest", str(error)))
            except ApiError as error:
                return _refusal(error)

        return handle

    async def _get_settings(self, api_request: ApiRequest) -> dict[str, Any]:
        del api_request
        shown: dict[str, Any] = msgspec.to_builtins(self._cloud.settings())
        return shown

    async def _patch_settings(self, api_request: ApiRequest) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self._cloud.configure(api_request.body))
        self._cloud.dataplane.health.wake()
        return shown

    async def _create_instances(self, api_request: ApiRequest) -> dict[str, Any]:
        instances = msgspec.convert(api_request.body.get("instances"), tuple[Instance, ...])
        return {"instances": msgspec.to_builtins(self._cloud.machines.create(instances))}

    async def _change_instance(self, api_request: ApiRequest) -> dict[str, Any]:
        return show_instance(self._cloud.machines.change(api_request.id, api_request.body))

    async def _terminate_instance(self, api_request: ApiRequest) -> dict[str, Any]:
        self._cloud.machines.terminate(api_request.id)
        return {}

    async def _create_volumes(self, api_request: ApiRequest) -> dict[str, Any]:
        volumes = msgspec.convert(api_request.body.get("volumes"), tuple[Volume, ...])
        return {"volumes": msgspec.to_builtins(self._cloud.disks.create(volumes))}

    async def _get_state(self, api_request: ApiRequest) -> dict[str, Any]:
        del api_request
        return {
            "instances": [show_instance(one) for one in self._cloud.machines.all()],
            "parts": [self._cloud.view(part) for part in self._cloud.parts.all()],
        }

    async def _remove_part(self, api_request: ApiRequest) -> dict[str, Any]:
        part = self._cloud.parts.find(api_request.id)
        if part is None:
            raise ApiError(404, "NotFound", f"there is no part {api_request.id}")
        await self._cloud.changed(self._cloud.parts.remove(part))
        return {}

    async def _add_fault(self, api_request: ApiRequest) -> dict[str, Any]:
        self._faults.add(msgspec.convert(api_request.body, Fault))
        return {}

    async def _clear_faults(self, api_request: ApiRequest) -> dict[str, Any]:
        del api_request
        self._faults.clear()
        return {}

    async def _get_calls(self, api_request: ApiRequest) -> dict[str, Any]:
        del api_request
        calls = [msgspec.to_builtins(call) for call in self._calls]
        return {"calls": calls, "counters": {op: dict(c) for op, c in self._counters.items()}}

    async def _get_counters(self, api_request: ApiRequest) -> dict[str, Any]:
        del api_request
        return {"counters": {op: dict(c) for op, c in self._counters.items()}, "last": self._last}

    async def _clear_calls(self, api_request: ApiRequest) -> dict[str, Any]:
        del api_request
        self._calls.clear()
        self._counters.clear()
        self._last.clear()
        return {}


async def _effect_takes_place(request: web.Request, fault: Fault) -> bool:
    """Tell whether the call has its effect; raise the refusal if the fault is one."""
    if fault.mode is FaultMode.ERROR:
        raise ApiError(fault.status, "Internal", "injected failure")
    if fault.mode is FaultMode.THROTTLE:
        raise ApiError(429, "Throttled", "injected throttling", retry_after=fault.retry_after)
    if fault.mode is FaultMode.HANG:
        await _client_gone(request)
        return False
    return fault.mode is not FaultMode.CUT_BEFORE


async def _client_gone(request: web.Request) -> None:
    while True:
        await asyncio.sleep(_HANG_POLL)
        if request.transport is None or request.transport.is_closing():
            return


async def _api_request(request: web.Request) -> ApiRequest:
    raw = await request.read()
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    except msgspec.DecodeError as error:
        raise ApiError(400, "BadRequest", f"the body is not a JSON object: {error}") from error
    return ApiRequest(request.match_info.get("id", ""), tuple(request.query.items()), body)


def _response(answer: Answer) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(answer.body),
        status=answer.status,
        content_type="application/json",
    )


def _refusal(error: ApiError) -> web.Response:
    response = _response(
        Answer({"error": {"code": error.code, "message": str(error)}}, error.status)
    )
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return response


def _cut(request: web.Request) -> web.Response:
    """Cut the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
