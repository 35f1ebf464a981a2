"""Serves the Compute API, the metadata server and tokens on a port of this machine."""

import asyncio
import contextlib
import fnmatch
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from . import members
from .dispatch import answer, operation_path, text
from .errors import ApiError
from .permissions import check_permission
from .spec import find
from .tokens import Tokens
from .world import PROJECT, ZONES, Resource, World

LONGEST_WAIT: Final = 120.0
_BEFORE, _AFTER = "before", "after"
_READING: Final = (".wait", ".listInstances", ".listNetworkEndpoints")
"""How methods end that are no GET and change nothing."""


class Fault(msgspec.Struct):
    """What is to go wrong.

    Attributes:
        method: Which methods, such as `compute.firewalls.*`.
        times: How often.
        status: The HTTP status; 0 answers nothing and closes the connection.
        reason: The reason.
        after: Whether the effect comes nevertheless.
        target: What the path must hold.
        message: What is said, if not that the test did it.
    """

    method: str
    times: int = 1
    status: int = 503
    reason: str = "backendError"
    after: bool = False
    target: str = ""
    message: str = ""


class Gce:
    """Compute Engine, as a server in a thread of its own."""

    def __init__(self) -> None:
        self.world = World()
        self.tokens = Tokens()
        self.reset()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gce", daemon=True)
        self._thread.start()
        self._ready.wait()

    def reset(self) -> None:
        """Begin anew: an empty project, no faults, no quota."""
        self.world.reset()
        self.tokens.reset()
        self.calls: list[str] = []
        """The methods that were called, as `compute.instances.get`."""
        self.requests: list[tuple[str, str, Any]] = []
        """The writes: method, path and body."""
        self.clusters: Resource = {}
        """What Kubernetes Engine answers when it is asked for clusters."""
        self.faults: list[Fault] = []
        self.granted: frozenset[str] | None = None
        """The permissions that the account has; None: all."""
        self.quota: dict[str, int] = {}
        """Requests that are admitted each minute, by `read` and `write`."""
        self.minute = 60.0
        self._used: Counter[tuple[str, int]] = Counter()
        self._numbers = 0

    @property
    def endpoint(self) -> str:
        """Where the server is."""
        return self.world.base

    @property
    def api(self) -> str:
        """What the cloud-config has as `api-endpoint`."""
        return f"{self.world.base}/compute/v1/"

    def close(self) -> None:
        """End the server."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def run(
        self, *names: str, zone: str = ZONES[0], tags: tuple[str, ...] = ("node",), **more: Any
    ) -> None:
        """Start machines."""
        with self.world.lock:
            for name in names:
                self._numbers += 1
                members.instance(self.world, name, zone, number=self._numbers, tags=tags, **more)

    def terminate(self, name: str) -> None:
        """Delete a machine."""
        with self.world.lock:
            members.remove_instance(self.world, self.machine(name))

    def rename(self, name: str, new: str) -> None:
        """Give a machine that is stopped another name; it keeps its id."""
        with self.world.lock:
            path = self.machine(name)
            resource = {**self.world.objects[path], "name": new}
            self.world.drop(path)
            at = f"{path.rpartition('/')[0]}/{new}"
            self.world.objects[at] = {**self.world.put(at, resource), "id": resource["id"]}

    def machine(self, name: str) -> str:
        """The path of a machine."""
        paths = (path for path, _ in self.world.of("instances"))
        return next(path for path in paths if path.endswith(f"/{name}"))

    @contextlib.contextmanager
    def changing(self, path: str) -> Iterator[Resource]:
        """A resource, for a change behind everybody's back."""
        with self.world.lock:
            yield self.world.objects[path]

    def names(self, kind: str) -> list[str]:
        """The names of all resources of a kind."""
        with self.world.lock:
            return sorted(path.split("/")[-1] for path, _ in self.world.of(kind))

    def one(self, kind: str, name: str) -> Resource:
        """A resource by kind and name."""
        with self.world.lock:
            found = [one for path, one in self.world.of(kind) if path.endswith(f"/{name}")]
            assert len(found) == 1, (kind, name, self.names(kind))
            return dict(found[0])

    def fail(self, method: str, **fields: Any) -> None:
        """Let methods fail."""
        self.faults.append(Fault(method, **fields))

    def writes(self) -> list[str]:
        """The methods that were called and change something."""
        return [one for one, _, _ in self.requests]

    def write_key(self, directory: Path) -> Path:
        """Write a key file of the service account."""
        file = directory / "key.json"
        file.write_text(self.tokens.key_file(f"{self.endpoint}/token"))
        return file

    # Serving

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._serve())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _serve(self) -> web.AppRunner:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/compute/{version}/{path:.*}", self._compute)
        app.router.add_get("/computeMetadata/v1/{path:.*}", self._metadata)
        app.router.add_get("/v1/projects/{project}/locations/-/clusters", self._clusters)
        app.router.add_post("/token", self._token)
        app.router.add_post("/alternative", self._alternative)
        app.router.add_post("/sts", self._token)
        app.router.add_post("/impersonate", self._alternative)
        app.router.add_get("/workload", self._workload)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.world.base = f"http://{host}:{port}"
        self.world.reset()
        return runner

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        try:
            found = self.tokens.metadata(request.match_info["path"], request.headers)
        except ApiError as error:
            return web.Response(status=error.status, text=error.message)
        return web.Response(text=found, headers={"Metadata-Flavor": "Google"})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        try:
            if request.path == "/sts":
                return web.json_response(self.tokens.exchange_foreign(form))
            return web.json_response(self.tokens.exchange(form, f"{self.endpoint}/token"))
        except ApiError as error:
            body = {"error": error.reason, "error_description": error.message}
            return web.json_response(body, status=error.status)

    async def _alternative(self, request: web.Request) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        try:
            if request.path == "/impersonate":
                return web.json_response(self.tokens.impersonate(header, await request.json()))
            self.tokens.check(header)
        except ApiError as error:
            return _refused(error)
        return web.json_response(self.tokens.issue_alternative())

    async def _clusters(self, request: web.Request) -> web.StreamResponse:
        """Kubernetes Engine: projects.locations.clusters.list, in all locations."""
        try:
            self.tokens.check(request.headers.get("Authorization", ""))
        except ApiError as error:
            return _refused(error)
        return web.json_response(self.clusters if request.match_info["project"] == PROJECT else {})

    async def _workload(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Metadata") != "True":
            return web.Response(status=400)
        return web.json_response({"id_token": self.tokens.workload})

    async def _compute(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(content) if (content := await request.read()) else None
        path = request.match_info["path"].replace("//", "/")
        try:
            self.tokens.check(request.headers.get("Authorization", ""))
            method, parameters = find(request.method, path)
            fault = self._fault(method.id, request.path)
            self._note(method.id, request.method, path, body)
            query = {key: one for key, one in request.query.items() if one}
            if fault is not None and not fault.after:
                return self._failed(fault, request)
            self._admit("read" if request.method == "GET" else "write")
            method.check(parameters, query, body)
            with self.world.lock:
                check_permission(self.granted, method, body)
                found = answer(self.world, method, parameters, query, body)
            if method.verb == "wait":
                found = await self._waited(operation_path(method, parameters))
        except ApiError as error:
            return _refused(error)
        if fault is not None:
            return self._failed(fault, request)
        return web.Response(body=text(found), content_type="application/json")

    async def _waited(self, path: str) -> Resource:
        end = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < end:
            with self.world.lock:
                self.world.tick()
                left = self.world.remaining(path)
            if left <= 0:
                break
            await asyncio.sleep(min(left, 1.0))
        with self.world.lock:
            self.world.tick()
            return self.world.operation(path)

    def _note(self, method: str, verb: str, path: str, body: Any) -> None:
        self.calls.append(method)
        if verb != "GET" and not method.endswith(_READING):
            self.requests.append((method, path, body))

    def _fault(self, method: str, path: str) -> Fault | None:
        for one in self.faults:
            if one.times and fnmatch.fnmatch(method, one.method) and one.target in path:
                one.times -= 1
                return one
        return None

    def _failed(self, fault: Fault, request: web.Request) -> web.StreamResponse:
        if not fault.status:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        message = fault.message or f"{fault.reason} by the test"
        return _refused(ApiError(fault.status, fault.reason, message))

    def _admit(self, group: str) -> None:
        most = self.quota.get(group)
        window = int(time.monotonic() / self.minute)
        self._used[group, window] += 1
        if most is not None and self._used[group, window] > most:
            why = f"Quota exceeded for quota metric 'Queries' and limit '{group} per minute'"
            raise ApiError(403, "rateLimitExceeded", why)


def _refused(error: ApiError) -> web.Response:
    headers: Mapping[str, str] = {}
    return web.json_response(error.body, status=error.status, headers=headers)
