"""Rules about a provider's life in the process: its calls are logged, it starts and closes."""

import asyncio
import contextlib
import gc
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any, Final, cast

from proreus.cloudprovider import NotSupported
from proreus.testing.conformance.load_balancers import MORE_PORTS
from proreus.testing.conformance.machines import capabilities
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import (
    CLUSTER,
    Site,
    Started,
    Violated,
    context,
    node,
    outcome,
    shown,
)
from proreus.testing.conformance.wire import Wire

_WRITING = {"PUT", "PATCH", "DELETE"}
_GRACE = 1.0

_of_provider: Final[ContextVar[bool]] = ContextVar("of_provider", default=False)


async def _day(site: Site, wire: Wire) -> AsyncIterator[tuple[str, Started]]:
    """Every verb once, whatever comes of it; each is told with its calls still in the log."""
    started = await site.start(wire=wire)
    wire.requests.clear()
    if started.provider.instances is not None:
        names = await site.create(2)
        bare = [node(name) for name in names]
        await outcome(site.describe(started, bare))
        yield "describe", started
    if started.provider.load_balancers is None:
        return
    hosts = await site.hosts(await site.start(), 2)
    first = site.wish(started, hosts[:1])
    more = site.wish(started, hosts, of=first.service, ports=MORE_PORTS)
    await outcome(site.ensure(started, first))
    yield "ensure", started
    await outcome(site.update_hosts(started, more))
    yield "update_hosts", started
    await outcome(site.ensure(started, more))
    yield "ensure with another wish", started
    try:
        await started.load_balancers.list_owned(CLUSTER)
        yield "list_owned", started
    except NotSupported:
        pass
    await outcome(site.delete(started, more.ref))
    yield "delete", started


@rule(capabilities)
async def calls_logged(site: Site) -> None:
    """The cloud sees no request that did not go through `context.call`.

    Wrap each request, one by one, in `await context.call(service, operation, fn, read=…)`:
    quotas, time-outs, metrics and crash tests count calls. Requests for tokens count, too.
    """
    wire = await site.wire()
    async for verb, started in _day(site, wire):
        logged = Counter(f"{c.service}.{c.operation}" for c in started.new_calls())
        if wire.requests.total() > logged.total():
            raise Violated(
                f"{verb} sent {_counted(wire.requests)}; in context.calls there is only"
                f" {_counted(logged)}"
            )
        wire.requests.clear()


@rule(calls_logged)
async def writes_declared(site: Site) -> None:
    """A request that changes something is not declared `read=True`.

    A read is sent again when it is throttled, and has a quota of its own. PUT, PATCH and DELETE
    are writes; a POST is one unless it only asks.
    """
    wire = await site.wire()
    async for verb, started in _day(site, wire):
        calls = started.new_calls()
        writing = Counter({k: n for k, n in wire.requests.items() if k[0] in _WRITING})
        if writing.total() > sum(not call.read for call in calls):
            names = sorted({f"{call.service}.{call.operation}" for call in calls if call.read})
            raise Violated(f"{verb} sent {_counted(writing)}; declared as reads: {names}")
        wire.requests.clear()


def _counted(things: Counter[Any]) -> str:
    said = [f"{n} x {k if isinstance(k, str) else ' '.join(k)}" for k, n in things.items()]
    return ", ".join(said) or "nothing"


@rule(capabilities)
async def closes(site: Site) -> None:
    """`close` releases everything, after a good `start` and after a failed one.

    Close sessions and cancel tasks in `close`, and expect that `start` has not got that far.
    """
    with _unclosed() as left_open, _tasks() as tasks:
        await _open_and_close(site, site.cloud.endpoint)
        if site.cloud.endpoint:
            wire = await site.wire()
            wire.cut()
            await _open_and_close(site, wire.url)
        gc.collect()
        _, still_running = await asyncio.wait(tasks, timeout=_GRACE) if tasks else ((), ())
    if still_running:
        coroutines = [str(task.get_coro()) for task in still_running]
        raise Violated(f"tasks go on after close: {', '.join(coroutines)}")
    if left_open:
        raise Violated(f"close left open: {'; '.join(sorted(set(left_open)))}")


@contextlib.contextmanager
def _tasks() -> Iterator[set[asyncio.Task[Any]]]:
    """Collect the tasks that are created for the provider; a cloud in this process has its own."""
    tasks: set[asyncio.Task[Any]] = set()
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()

    # Python's versions differ in the options that they pass.
    def create(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task = before(loop, coro, **options) if before else asyncio.Task(coro, loop=loop, **options)
        if _of_provider.get():
            tasks.add(cast("asyncio.Task[Any]", task))
        return task

    loop.set_task_factory(cast("Any", create))
    try:
        yield tasks
    finally:
        loop.set_task_factory(before)


@contextlib.contextmanager
def _unclosed() -> Iterator[list[str]]:
    """Collect what Python says about resources that nobody closed."""
    left_open: list[str] = []
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, told: left_open.append(str(told.get("message"))))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        try:
            yield left_open
        finally:
            loop.set_exception_handler(handler)
            left_open += [str(w.message) for w in caught if w.category is ResourceWarning]


async def _open_and_close(site: Site, endpoint: str) -> None:
    mark = _of_provider.set(True)
    try:
        provider = site.cloud.provider(endpoint)
        await outcome(provider.start(context(provider)))
        if provider.instances is not None:
            await outcome(provider.instances.describe([node("nobody")]))
        for what, one in (("", provider), (" without a start", site.cloud.provider(endpoint))):
            ended = await outcome(one.close())
            if isinstance(ended, Exception):
                raise Violated(f"close{what} raised {shown(ended)}")
    finally:
        _of_provider.reset(mark)


RULES = (calls_logged, writes_declared, closes)
