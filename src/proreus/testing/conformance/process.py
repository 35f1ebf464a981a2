"""Rules about a provider's process: its calls are logged, it starts and closes."""

import asyncio
import contextlib
import gc
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any, Final, cast

from proreus.cloudprovider import CallRecord
from proreus.runtime.bucket import AdaptiveBucket
from proreus.runtime.priority import Priority
from proreus.testing.conformance.answers import Violated, outcome, shown
from proreus.testing.conformance.load_balancers import MORE_PORTS
from proreus.testing.conformance.machines import capabilities
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import CLUSTER, Site, Started, context, node
from proreus.testing.conformance.wire import Wire

_WRITING = {"PUT", "PATCH", "DELETE"}
_GRACE = 1.0

_of_provider: Final[ContextVar[bool]] = ContextVar("of_provider", default=False)


class _OneAtATime(AdaptiveBucket):
    """A bucket that lets one call go at a time, so that each request can be told to its call."""

    def __init__(self) -> None:
        super().__init__()
        self._free = asyncio.Semaphore()

    async def take(self, priority: Priority = Priority.USER) -> int:
        await self._free.acquire()
        return await super().take(priority)

    def _answered(self) -> None:
        self._free.release()
        super()._answered()


class _Witness:
    """Hooks that compare the requests on the wire with the calls of the provider."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._seen = Counter(wire.requests)
        self.unlogged: list[str] = []
        self.undeclared: list[str] = []

    def before(self, service: str, operation: str, *, read: bool) -> None:
        del service, operation, read
        self.note_requests()

    def after(self, record: CallRecord) -> None:
        requests = self._new_requests()
        name = f"{record.service}.{record.operation}"
        if requests.total() > 1:
            self.unlogged.append(f"{_counted(requests)} were sent by the one call {name}")
        if record.read and any(method in _WRITING for method, _ in requests):
            self.undeclared.append(f"{_counted(requests)} were sent by the call {name}, a read")

    def note_requests(self) -> None:
        """Note the requests since the last call."""
        if requests := self._new_requests():
            self.unlogged.append(f"{_counted(requests)} were sent outside of context.call")

    def _new_requests(self) -> Counter[tuple[str, str]]:
        new = self._wire.requests - self._seen
        self._seen = Counter(self._wire.requests)
        return new


def _counted(requests: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{n} x {method} {path}" for (method, path), n in requests.items())


async def _witnessed(site: Site) -> AsyncIterator[tuple[str, _Witness]]:
    """Run every verb once, whatever it answers, and return the witness of its calls."""
    wire = await site.wire()
    witness = _Witness(wire)
    started = await site.start(wire=wire, hooks=witness, bucket=_OneAtATime())
    async for verb in _day(site, started):
        witness.note_requests()
        yield verb, witness


async def _day(site: Site, started: Started) -> AsyncIterator[str]:
    yield "start"
    if started.provider.instances is not None:
        await site.hosts(await site.start(), 1)
        bare = [node(name) for name in await site.create(2)]
        await outcome(site.describe(started, bare))
        yield "describe"
    if started.provider.load_balancers is None:
        return
    hosts = await site.hosts(await site.start(), 2)
    first = site.desired(started, hosts[:1])
    more = site.desired(started, hosts, service=first.service, ports=MORE_PORTS)
    for verb, work in (
        ("ensure", lambda: site.ensure(started, first)),
        ("update_hosts", lambda: site.update_hosts(started, more)),
        ("ensure", lambda: site.ensure(started, more)),
        ("list_owned", lambda: started.load_balancers.list_owned(CLUSTER)),
        ("delete", lambda: site.delete(started, more.ref)),
    ):
        await outcome(work())
        yield verb


@rule(capabilities, wants=("endpoint",))
async def calls_logged(site: Site) -> None:
    """The cloud sees no request that did not go through `context.call`.

    Wrap each request, one by one, in `await context.call(service, operation, fn, read=…)`:
    quotas, time-outs, metrics and crash tests count calls. Requests for tokens count, too.
    """
    async for verb, witness in _witnessed(site):
        if witness.unlogged:
            raise Violated(f"{verb}: {'; '.join(witness.unlogged)}")


@rule(capabilities, wants=("endpoint",))
async def writes_declared(site: Site) -> None:
    """A request that changes something is not declared `read=True`.

    A read is sent again when it is throttled, and has a quota of its own. PUT, PATCH and DELETE
    are writes; a POST is one unless it only asks.
    """
    async for verb, witness in _witnessed(site):
        if witness.undeclared:
            raise Violated(f"{verb}: {'; '.join(witness.undeclared)}")


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
        raise Violated(f"tasks still run after close: {', '.join(coroutines)}")
    if left_open:
        raise Violated(f"close left open: {'; '.join(sorted(set(left_open)))}")


@contextlib.contextmanager
def _tasks() -> Iterator[set[asyncio.Task[Any]]]:
    """Collect the tasks that the provider creates; a cloud in this process has its own."""
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
    """Collect Python's warnings about resources that nobody closed."""
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
