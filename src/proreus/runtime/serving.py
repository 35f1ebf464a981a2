"""The process's HTTP endpoints: /healthz, /livez, /readyz and /metrics.

`/healthz` and `/livez` run the checks of liveness (charts use the first as liveness probe),
`/readyz` runs all. Each takes `?verbose` and `?exclude=NAME`, and answers for one check at
`/healthz/NAME`, as Kubernetes components do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, exposition

from proreus.runtime import klog, metrics
from proreus.runtime.health import Health

log = klog.logger(__name__)

_SHUTDOWN_SECONDS = 2.0


def app(health: Health, registry: CollectorRegistry = metrics.REGISTRY) -> web.Application:
    """The web application that shows this health and these metrics."""
    result = web.Application()
    for kind, live in (("healthz", True), ("livez", True), ("readyz", False)):
        handler = _HealthHandler(health, kind, live=live)
        result.router.add_get(f"/{kind}", handler.all)
        result.router.add_get(f"/{kind}/{{name}}", handler.one)

    async def show_metrics(request: web.Request) -> web.Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    result.router.add_get("/metrics", show_metrics)
    return result


@asynccontextmanager
async def serve(
    application: web.Application, host: str, port: int, *, any_port: bool = False
) -> AsyncIterator[int]:
    """Serve while the body runs; the value is the port.

    Port 0 binds nothing, unless `any_port` asks for a free one.

    Raises:
        OSError: The address cannot be bound; the message names it.
    """
    if port == 0 and not any_port:
        yield 0
        return
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound: int = runner.addresses[0][1]
        klog.info(log, "Serving health and metrics", address=f"{host}:{bound}")
        yield bound
    finally:
        await runner.cleanup()


class _HealthHandler:
    def __init__(self, health: Health, kind: str, *, live: bool) -> None:
        self._health = health
        self._kind = kind
        self._live = live

    async def all(self, request: web.Request) -> web.Response:
        """Run the checks; 500 and the list of them if one fails."""
        exclude = set(request.query.getall("exclude", []))
        results = self._run(exclude)
        failed = any(problem is not None for _, problem in results)
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}"
            for name, problem in results
        ]
        lines += [
            f'warn: no check named "{name}" to exclude'
            for name in sorted(exclude.difference(self._health.names(live=self._live)))
        ]
        lines.append(f"{self._kind} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=500 if failed else 200)

    async def one(self, request: web.Request) -> web.Response:
        """Run one check; 404 if there is none of that name."""
        name = request.match_info["name"]
        names = self._health.names(live=self._live)
        if name not in names:
            raise web.HTTPNotFound(text=f"no check {name!r}; there are: {', '.join(names)}")
        ((_, problem),) = self._run(set(names) - {name})
        if problem is None:
            return web.Response(text="ok")
        return web.Response(text=f"{name} failed: {problem}\n", status=500)

    def _run(self, exclude: set[str]) -> list[tuple[str, str | None]]:
        results = self._health.run(exclude, live=self._live)
        for name, problem in results:
            status = "success" if problem is None else "error"
            metrics.HEALTH_CHECK.labels(name, self._kind).set(problem is None)
            metrics.HEALTH_CHECKS.labels(name, self._kind, status).inc()
        return results
