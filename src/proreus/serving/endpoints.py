"""Define the pages that the process serves: health, metrics, configuration, profiles.

`/healthz` and `/livez` run the checks of liveness (charts use the first as liveness probe),
`/readyz` runs all. Each takes `?verbose` and `?exclude=NAME`, and answers for one check at
`/healthz/NAME`, as Kubernetes components do. Everybody may ask for the first three, so they name
what fails and not why: that is in the log, and for those who may at `/readyz/NAME`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.registry import RestrictedRegistry

from proreus.runtime import klog, metrics
from proreus.serving import debugging
from proreus.serving.health import Health

log = klog.logger(__name__)

SLIS: Final = ("kubernetes_healthcheck", "kubernetes_healthchecks_total")
"""The metrics that /metrics/slis shows."""

PROFILE_SECONDS: Final = 30.0
"""Seconds that /debug/pprof/profile takes without `?seconds=`; as Go's."""

PROFILE_LIMIT: Final = 300.0

WITHHELD: Final = "reason withheld"
"""The text in place of a failed check's reason, as Kubernetes components give it."""

Configz = Callable[[], Mapping[str, Any]]
"""A function that returns the configuration in use, by component."""


def open_application(
    health: Health, registry: CollectorRegistry = metrics.REGISTRY
) -> web.Application:
    """Serve only health and metrics, which need no authorization."""
    result = web.Application()
    _add_health(result, health, reasons=False)
    _add_metrics(result, registry)
    return result


def application(
    health: Health,
    configz: Configz,
    *,
    profiling: bool,
    middlewares: tuple[Any, ...] = (),
    registry: CollectorRegistry = metrics.REGISTRY,
) -> web.Application:
    """Serve all pages; the middlewares decide who may use which."""
    result = web.Application(middlewares=middlewares)
    _add_health(result, health, reasons=True)
    _add_metrics(result, registry)

    async def show_configz(_: web.Request) -> web.Response:
        body = msgspec.json.format(msgspec.json.encode(configz()), indent=2)
        return web.Response(body=body, content_type="application/json")

    result.router.add_get("/configz", show_configz)
    if profiling:
        _add_debugging(result)
    return result


def _add_health(app: web.Application, health: Health, *, reasons: bool) -> None:
    for kind, live in (("healthz", True), ("livez", True), ("readyz", False)):
        handler = _HealthHandler(health, kind, live=live, reasons=reasons)
        app.router.add_get(f"/{kind}", handler.all)
        app.router.add_get(f"/{kind}/{{name}}", handler.one)


def _add_metrics(app: web.Application, registry: CollectorRegistry) -> None:
    slis = RestrictedRegistry(SLIS, registry)

    def showing(source: CollectorRegistry | RestrictedRegistry) -> Any:
        async def show(request: web.Request) -> web.Response:
            encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
            return web.Response(body=encode(source), headers={"Content-Type": content_type})

        return show

    app.router.add_get("/metrics", showing(registry))
    app.router.add_get("/metrics/slis", showing(slis))


class _HealthHandler:
    def __init__(self, health: Health, kind: str, *, live: bool, reasons: bool) -> None:
        self._health = health
        self._reasons = reasons
        self._kind = kind
        self._live = live

    async def all(self, request: web.Request) -> web.Response:
        """Run all checks; answer 500 and the list of them if one fails."""
        exclude = set(request.query.getall("exclude", []))
        results = dict(self._run(exclude))
        failed = any(problem is not None for problem in results.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        names = self._health.names(live=self._live)
        lines = [_line(name, results) for name in names]
        lines += [
            f'warn: no check named "{name}" to exclude'
            for name in sorted(exclude.difference(names))
        ]
        lines.append(f"{self._kind} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=500 if failed else 200)

    async def one(self, request: web.Request) -> web.Response:
        """Run one check; answer 404 if there is none of that name."""
        name = request.match_info["name"]
        names = self._health.names(live=self._live)
        if name not in names:
            raise web.HTTPNotFound(text=f"no check {name!r}; there are: {', '.join(names)}")
        ((_, problem),) = self._run(set(names) - {name})
        if problem is None:
            return web.Response(text="ok")
        why = problem if self._reasons else WITHHELD
        return web.Response(text=f"{name} failed: {why}\n", status=500)

    def _run(self, exclude: set[str]) -> list[tuple[str, str | None]]:
        results = self._health.run(exclude, live=self._live)
        for name, problem in results:
            status = "success" if problem is None else "error"
            metrics.HEALTH_CHECK.labels(name, self._kind).set(problem is None)
            metrics.HEALTH_CHECKS.labels(name, self._kind, status).inc()
        return results


def _line(name: str, results: Mapping[str, str | None]) -> str:
    if name not in results:
        return f"[+]{name} excluded: ok"
    return f"[+]{name} ok" if results[name] is None else f"[-]{name} failed: {WITHHELD}"


def _add_debugging(app: web.Application) -> None:
    async def goroutine(_: web.Request) -> web.Response:
        return web.Response(text=debugging.tasks_and_threads())

    async def heap(_: web.Request) -> web.Response:
        return web.Response(text=await debugging.memory())

    async def index(_: web.Request) -> web.Response:
        return web.Response(text="".join(f"{path}: {what}\n" for path, what in _PROFILES.items()))

    app.router.add_get("/debug/pprof/", index)
    app.router.add_get("/debug/pprof/profile", _Profiler().profile)
    app.router.add_get("/debug/pprof/goroutine", goroutine)
    app.router.add_get("/debug/pprof/heap", heap)
    app.router.add_put("/debug/flags/v", _set_verbosity)


_PROFILES: Final = {
    "/debug/pprof/profile?seconds=30": "where the event loop spends CPU time: collapsed stacks",
    "/debug/pprof/goroutine": "tasks and what they await; threads and their stacks",
    "/debug/pprof/heap": "objects by type",
}


class _Profiler:
    """A runner of profiles, one at a time."""

    def __init__(self) -> None:
        self._is_busy = False

    async def profile(self, request: web.Request) -> web.Response:
        text = request.query.get("seconds", str(PROFILE_SECONDS))
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= PROFILE_LIMIT:
            message = f"seconds: {text!r} must be a number above 0, at most {PROFILE_LIMIT:g}\n"
            raise web.HTTPBadRequest(text=message)
        if self._is_busy:
            raise web.HTTPConflict(text="a profile is being taken: try again when it has ended\n")
        self._is_busy = True
        try:
            return web.Response(text=await debugging.profile(seconds))
        finally:
            self._is_busy = False


async def _set_verbosity(request: web.Request) -> web.Response:
    text = (await request.text()).strip()
    if not (text.isascii() and text.isdecimal() and int(text) <= klog.MAX_VERBOSITY):
        raise web.HTTPBadRequest(text=f"must be a number, 0 to {klog.MAX_VERBOSITY}\n")
    klog.set_verbosity(int(text))
    klog.info(log, "The verbosity of logs was changed", v=int(text))
    return web.Response(text=f"logs have verbosity {int(text)} now\n")
