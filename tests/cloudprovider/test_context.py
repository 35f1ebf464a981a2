"""The gate for calls to the cloud. Time is virtual but where threads run."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from proreus.cloudprovider.calls import CallHooks, CallRecord, Outcome
from proreus.cloudprovider.context import CALL_VERBOSITY, Context, scope
from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled, Unauthenticated
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.threads import Threads
from proreus.runtime import metrics, priority
from proreus.runtime.priority import Priority
from proreus.testing import clock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class NoEvents:
    def event(self, ref: Any, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError("no test here sends events")


def context(
    *,
    gate: Callable[[], None] = lambda: None,
    hooks: CallHooks | None = None,
    threads: Threads | None = None,
) -> Context:
    return Context(
        ClusterIdentity("prod", "uid"),
        now=lambda: NOW,
        events=NoEvents(),
        listers={},
        gate=gate,
        hooks=hooks,
        threads=threads,
    )


def outcomes(ctx: Context) -> list[Outcome]:
    return [record.outcome for record in ctx.calls]


async def answer() -> str:
    return "answer"


def raising(error: BaseException) -> Callable[[], Any]:
    async def fn() -> None:
        raise error

    return fn


async def test_a_call_is_answered_logged_and_counted() -> None:
    ctx = context()
    labels = {"service": "ec2", "operation": "DescribeInstances", "code": "ok"}
    before = metrics.REGISTRY.get_sample_value("cloudprovider_requests_total", labels) or 0
    assert await ctx.call("ec2", "DescribeInstances", answer, read=True) == "answer"
    assert await ctx.call("ec2", "DescribeInstances", lambda: "plain", read=True) == "plain"
    assert metrics.REGISTRY.get_sample_value("cloudprovider_requests_total", labels) == before + 2
    record = ctx.calls[0]
    assert (record.service, record.operation, record.read) == ("ec2", "DescribeInstances", True)
    assert outcomes(ctx) == [Outcome.OK, Outcome.OK]
    assert ctx.now() == NOW


async def test_every_call_is_logged_for_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    ctx = context()
    with caplog.at_level(logging.INFO - CALL_VERBOSITY, "proreus"):
        await ctx.call("ec2", "DescribeInstances", answer, read=True)
    (line,) = [record for record in caplog.records if record.message == "Called the cloud"]
    fields = vars(line)["klog_fields"]
    assert (fields["call"], fields["code"]) == ("ec2.DescribeInstances", "ok")
    assert line.levelno == logging.INFO - CALL_VERBOSITY


def test_a_call_past_its_deadline_is_a_timeout_of_unknown_outcome() -> None:
    async def scenario() -> tuple[float, str, list[Outcome]]:
        ctx = context()
        with pytest.raises(CallTimeout) as caught:
            await ctx.call("lb", "Create", lambda: asyncio.sleep(100), read=False, deadline=7)
        return asyncio.get_running_loop().time(), str(caught.value), outcomes(ctx)

    ended, text, log = clock.run(scenario())
    assert ended == pytest.approx(7)
    assert text == "lb.Create: no answer in time (7 s), the outcome is unknown"
    assert log == [Outcome.TIMEOUT]


@pytest.mark.parametrize(
    ("error", "expected", "outcome"),
    [
        (CloudError("no"), CloudError, Outcome.ERROR),
        (Unauthenticated("who"), Unauthenticated, Outcome.ERROR),
        (KeyError("x"), KeyError, Outcome.ERROR),
        (TimeoutError("socket"), CallTimeout, Outcome.TIMEOUT),
        (CallTimeout("sdk"), CallTimeout, Outcome.TIMEOUT),
        (Throttled("slow"), Throttled, Outcome.THROTTLED),
        (SystemExit(3), CloudError, Outcome.ERROR),
        (KeyboardInterrupt(), CloudError, Outcome.ERROR),
        (BaseException("odd"), CloudError, Outcome.ERROR),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_errors_keep_their_kind_and_nothing_but_an_exception_leaves(
    error: BaseException, expected: type[Exception], outcome: Outcome, *, blocking: bool
) -> None:
    def blocks() -> None:
        raise error

    ctx = context()
    fn = blocks if blocking else raising(error)
    with pytest.raises(expected) as caught:
        await ctx.call("lb", "Create", fn, read=False, blocking=blocking)
    assert type(caught.value) is expected
    assert outcomes(ctx) == [outcome]
    if not isinstance(error, Exception):
        assert type(error).__name__ in str(caught.value)
        assert caught.value.__cause__ is error


async def test_cancelling_the_caller_cancels_the_call() -> None:
    ctx = context()
    task = asyncio.create_task(ctx.call("lb", "Create", lambda: asyncio.sleep(60), read=False))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcomes(ctx) == [Outcome.CANCELLED]


class Refused(Exception):
    """What the gate of this test raises."""


async def test_the_gate_is_asked_when_a_call_is_sent_and_stops_it() -> None:
    sent: list[str] = []
    closed = False

    def gate() -> None:
        if closed:
            raise Refused

    ctx = context(gate=gate)
    for _ in range(2):
        with suppress(Refused):
            await ctx.call("lb", "Create", lambda: sent.append("x"), read=False)
        closed = True
    assert sent == ["x"]
    assert len(ctx.calls) == 1


def test_the_gate_is_asked_after_the_wait_for_the_quota() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        asked: list[float] = []
        ctx = context(gate=lambda: asked.append(loop.time()))
        with suppress(Throttled):
            await ctx.call("lb", "Create", raising(Throttled("slow", after=5)), read=False)
        await ctx.call("lb", "Create", answer, read=False)
        return asked[-1]

    assert clock.run(scenario()) == pytest.approx(5)


class Cloud:
    """Refuses the first calls, and says how long to wait."""

    def __init__(self, refusals: int, after: float | None, takes: float = 0.0) -> None:
        self.times: list[float] = []
        self._refusals = refusals
        self._after = after
        self._takes = takes

    async def ask(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._takes)
        if len(self.times) <= self._refusals:
            raise Throttled("slow down", after=self._after)
        return "answer"


@pytest.mark.parametrize(
    ("read", "cloud", "deadline", "sent", "succeeds"),
    [
        (True, Cloud(3, 2.0), 30, 4, True),
        (True, Cloud(4, 2.0), 30, 4, False),
        (True, Cloud(3, None), 30, 4, True),
        (False, Cloud(1, 2.0), 30, 1, False),
        (True, Cloud(1, 31.0), 30, 1, False),
        (True, Cloud(3, 4.0), 10, 3, False),
        (True, Cloud(9, None, takes=6.0), 10, 2, False),
    ],
)
def test_a_throttled_read_is_sent_again_within_its_deadline_and_a_write_is_not(
    cloud: Cloud, deadline: float, sent: int, *, read: bool, succeeds: bool
) -> None:
    async def scenario() -> bool:
        ctx = context()
        try:
            await ctx.call("lb", "Get", cloud.ask, read=read, deadline=deadline)
        except Throttled:
            return False
        finally:
            assert len(ctx.calls) == len(cloud.times)
        return True

    assert clock.run(scenario()) is succeeds
    assert len(cloud.times) == sent


def test_a_call_is_not_sent_while_the_cloud_asks_to_stay_away_for_longer_than_the_deadline() -> (
    None
):
    async def scenario() -> tuple[float | None, int, float]:
        ctx = context()
        with suppress(Throttled):
            await ctx.call("lb", "Get", raising(Throttled("slow", after=600)), read=True)
        with pytest.raises(Throttled) as caught:
            await ctx.call("lb", "Get", answer, read=True)
        return caught.value.after, len(ctx.calls), asyncio.get_running_loop().time()

    after, sent, now = clock.run(scenario())
    assert after == pytest.approx(600)
    assert (sent, now) == (1, 0.0)


def test_each_quota_has_a_bucket_for_reads_and_one_for_writes() -> None:
    async def scenario() -> list[float]:
        loop = asyncio.get_running_loop()
        ctx = context()
        with suppress(Throttled):
            await ctx.call("lb", "Put", raising(Throttled("slow", after=9)), read=False, quota="a")
        times = []
        for read, quota in [(True, "a"), (False, "b"), (False, "a")]:
            await ctx.call("lb", "Any", answer, read=read, quota=quota)
            times.append(loop.time())
        return times

    assert clock.run(scenario()) == [0.0, 0.0, pytest.approx(9)]


def test_calls_wait_in_the_order_of_the_priority_of_their_task() -> None:
    async def scenario() -> list[str]:
        ctx = context()
        with suppress(Throttled):
            await ctx.call("lb", "Put", raising(Throttled("slow", after=1)), read=False)
        order: list[str] = []

        async def work(prior: Priority) -> None:
            priority.current.set(prior)
            await ctx.call("lb", "Put", lambda: order.append(prior.name), read=False)

        async with asyncio.TaskGroup() as group:
            for prior in (Priority.RESYNC, Priority.USER, Priority.CHECK):
                group.create_task(work(prior))
        return order

    assert clock.run(scenario()) == ["USER", "CHECK", "RESYNC"]


def test_a_crowd_of_calls_without_a_bulk_call_keeps_to_the_quota_of_the_cloud() -> None:
    """The promise for a cloud of batch 1: 20 calls a second, 1.2 times N/quota, under 2 %."""

    async def scenario() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        ctx = context()
        tokens, at = 20.0, 0.0

        async def ask() -> None:
            nonlocal tokens, at
            await asyncio.sleep(0.02)
            tokens, at = min(20.0, tokens + (loop.time() - at) * 20), loop.time()
            if tokens < 1:
                raise Throttled("slow down", after=1.0)
            tokens -= 1

        waiting = iter(range(1000))

        async def worker() -> None:
            for _ in waiting:
                await ctx.call("vm", "Get", ask, read=True)

        async with asyncio.TaskGroup() as group:
            for _ in range(64):
                group.create_task(worker())
        return loop.time(), outcomes(ctx).count(Outcome.THROTTLED)

    took, refused = clock.run(scenario())
    assert took <= 1.2 * 1000 / 20
    assert refused < 20


@pytest.mark.parametrize("after", [None, 5.0])
def test_a_few_that_are_refused_whatever_their_pace_do_not_slow_the_others_down(
    after: float | None,
) -> None:
    """Three are always refused, and try again each 10 s; others make 20 calls a second."""

    async def scenario() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        ctx = context()

        async def refused(who: str) -> None:
            scope.set(who)
            while True:
                with suppress(Throttled):
                    await ctx.call("lb", "Put", raising(Throttled("no", after=after)), read=False)
                await asyncio.sleep(10)

        async def admitted(who: int) -> None:
            scope.set(who)
            for _ in range(100):
                await asyncio.sleep(1)
                await ctx.call("lb", "Put", answer, read=False)

        poor = [asyncio.create_task(refused(who)) for who in ("a", "b", "c")]
        await asyncio.sleep(30)
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for who in range(20):
                group.create_task(admitted(who))
        took = loop.time() - began
        for task in poor:
            task.cancel()
        return took, outcomes(ctx).count(Outcome.THROTTLED)

    took, seen = clock.run(scenario())
    assert took < 200
    assert seen >= 3 * int(took / 10) - 3


def test_a_read_that_is_refused_whatever_its_pace_is_not_sent_again() -> None:
    async def scenario() -> list[int]:
        ctx = context()
        scope.set("a")
        sent = []
        for _ in range(3):
            await asyncio.sleep(10)
            before = len(ctx.calls)
            with suppress(Throttled):
                await ctx.call("lb", "Get", raising(Throttled("no")), read=True)
            sent.append(len(ctx.calls) - before)
        return sent

    first, *later = clock.run(scenario())
    assert first > 1
    assert later == [1, 1]


class Recorder:
    """Hooks that keep what they see, and kill once they are told to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.kill_at = ""

    def _see(self, what: str) -> None:
        self.seen.append(what)
        if what == self.kill_at:
            raise RuntimeError("killed")

    def before(self, service: str, operation: str, *, read: bool) -> None:
        self._see(f"before {service}.{operation} {read}")

    def after(self, record: CallRecord) -> None:
        self._see(f"after {record.operation} {record.outcome}")


async def test_hooks_stand_right_before_and_after_the_effect() -> None:
    hooks = Recorder()
    ctx = context(hooks=hooks)
    effects: list[str] = []

    async def create() -> None:
        await ctx.call("lb", "Create", lambda: effects.append("made"), read=False)

    await create()
    assert hooks.seen == ["before lb.Create False", "after Create ok"]
    hooks.kill_at = "before lb.Create False"
    with pytest.raises(RuntimeError):
        await create()
    assert effects == ["made"]
    hooks.kill_at = "after Create ok"
    with pytest.raises(RuntimeError):
        await create()
    assert effects == ["made", "made"]


async def test_a_blocking_call_runs_in_a_daemon_thread_with_the_callers_context() -> None:
    def blocks() -> tuple[bool, bool, object]:
        thread = threading.current_thread()
        return thread.daemon, thread is threading.main_thread(), scope.get()

    scope.set("group")
    assert await context().call("vm", "Get", blocks, read=True, blocking=True) == (
        True,
        False,
        "group",
    )


def shown_threads(state: str) -> float:
    return metrics.REGISTRY.get_sample_value("proreus_provider_threads", {"state": state}) or 0.0


async def test_a_thread_past_its_deadline_keeps_its_scope_unsettled_until_it_ends() -> None:
    before = {state: shown_threads(state) for state in ("called", "abandoned")}
    ctx = context()
    release = threading.Event()
    scope.set("group")
    with pytest.raises(CallTimeout):
        await ctx.call("lb", "Create", release.wait, read=False, deadline=0.01, blocking=True)
    assert ctx.threads_running == {"group": 1}
    assert shown_threads("called") == before["called"] + 1
    assert shown_threads("abandoned") == before["abandoned"] + 1
    settled = asyncio.create_task(ctx.settled("group"))
    await ctx.settled("other")
    await asyncio.sleep(0)
    assert not settled.done()
    release.set()
    async with asyncio.timeout(30):
        await settled
    assert ctx.threads_running == {}
    assert {state: shown_threads(state) for state in before} == before


async def test_a_scope_is_settled_when_the_last_of_its_threads_has_ended() -> None:
    ctx = context()
    first, second = threading.Event(), threading.Event()
    scope.set("group")
    for event in (first, second):
        with pytest.raises(CallTimeout):
            await ctx.call("lb", "Create", event.wait, read=False, deadline=0.01, blocking=True)
    settled = asyncio.create_task(ctx.settled("group"))
    first.set()
    async with asyncio.timeout(30):
        while ctx.threads_running["group"] == 2:
            await asyncio.sleep(0.001)
    assert not settled.done()
    second.set()
    async with asyncio.timeout(30):
        await settled


async def test_a_cancelled_caller_leaves_its_thread_to_be_waited_for() -> None:
    ctx = context()
    started, release = threading.Event(), threading.Event()

    def blocks() -> None:
        started.set()
        release.wait(30)

    scope.set("group")
    task = asyncio.create_task(ctx.call("lb", "Create", blocks, read=False, blocking=True))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ctx.threads_running == {"group": 1}
    release.set()
    async with asyncio.timeout(30):
        await ctx.settled("group")


async def test_when_every_thread_hangs_a_call_reports_it_and_is_not_sent() -> None:
    ctx = context(threads=Threads(most=1))
    release = threading.Event()
    with pytest.raises(CallTimeout):
        await ctx.call("lb", "Create", release.wait, read=False, deadline=0.01, blocking=True)
    with pytest.raises(CloudError, match="no thread is free: 1 blocking calls still run"):
        await ctx.call("lb", "Create", release.wait, read=False, deadline=0.01, blocking=True)
    assert len(ctx.calls) == 1
    release.set()
    await ctx.settled(None)
    assert await ctx.call("lb", "Get", lambda: 1, read=True, blocking=True) == 1


async def test_a_thread_that_begins_after_the_gate_closed_sends_nothing() -> None:
    answers = iter((None, Refused()))
    sent: list[str] = []

    def gate() -> None:
        if error := next(answers):
            raise error

    with pytest.raises(Refused):
        await context(gate=gate).call(
            "s", "o", lambda: sent.append("sent"), read=False, blocking=True
        )
    assert sent == []


async def test_a_call_that_the_gate_refuses_gives_its_thread_back() -> None:
    def gate() -> None:
        raise Refused

    ctx = context(threads=Threads(most=1), gate=gate)
    for _ in range(3):
        with pytest.raises(Refused):
            await ctx.call("lb", "Create", lambda: 1, read=False, deadline=30, blocking=True)


async def test_the_learned_quota_is_a_metric() -> None:
    ctx = context()
    await ctx.call("vm", "Get", answer, read=True, quota="metric-test")
    labels = {"quota": "metric-test", "kind": "read"}
    assert metrics.REGISTRY.get_sample_value("proreus_cloud_call_rate", labels) == float("inf")
    assert metrics.REGISTRY.get_sample_value("proreus_cloud_calls_waiting", labels) == 0


async def test_an_sdk_that_calls_exit_in_a_thread_ends_neither_thread_nor_process() -> None:
    ctx = context(threads=Threads(most=1))
    with pytest.raises(CloudError, match="SystemExit"):
        await ctx.call("lb", "Get", lambda: sys.exit(1), read=False, blocking=True)
    assert await ctx.call("lb", "Get", lambda: 1, read=False, blocking=True) == 1
