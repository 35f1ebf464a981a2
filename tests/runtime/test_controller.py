"""The controller loop, in virtual time, with a reconciler and a cache of the test's own."""

import asyncio
import io
import itertools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from proreus.kube.client import Written
from proreus.kube.errors import Conflict
from proreus.kube.objects import Namespace, ObjectMeta
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import SLOW_AFTER, Controller, Outcome
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue
from proreus.testing import clock

Apply = Callable[[Hashable, Mapping[str, str]], Awaitable[Mapping[str, Outcome]]]


class World:
    """A reconciler whose steps a test may replace, and a cache that a test moves on."""

    def __init__(self) -> None:
        self.queue: WorkQueue[str] = WorkQueue("test", backoff=Backoff(first=1.0, cap=100.0))
        self.versions: dict[str, int] = {}
        self.caught_up = asyncio.Event()
        self.caught_up.set()
        self.observed: list[tuple[str, ...]] = []
        self.planned: list[tuple[str, object]] = []
        self.applied: list[tuple[float, Hashable, tuple[str, ...]]] = []
        self.observing: Callable[[Sequence[str]], Awaitable[None]] = _nothing
        self.planning: Callable[[str], None] = lambda _key: None
        self.applying: Apply = self._succeed
        self.settling: Callable[[Hashable], Awaitable[None]] = _nothing
        self.grouping: Callable[[str], Hashable] = lambda key: key

    def get(self, key: str) -> Namespace | None:
        version = str(self.versions.get(key, 1))
        return Namespace(ObjectMeta(name=key, uid="u", resource_version=version))

    async def wait_seen(self, key: str, written: Written, /) -> None:
        await self.caught_up.wait()

    def group(self, key: str, obj: Namespace | None) -> Hashable:
        return self.grouping(key)

    async def observe(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.observed.append(tuple(keys))
        await self.observing(keys)
        return {key: f"seen {key}" for key in keys}

    def plan(self, key: str, obj: Namespace | None, observed: str | Exception) -> str | None:
        self.planned.append((key, observed))
        self.planning(key)
        return f"change {key}"

    async def apply(self, group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
        self.applied.append((asyncio.get_running_loop().time(), group, tuple(changes)))
        return await self.applying(group, changes)

    async def settled(self, group: Hashable) -> None:
        await self.settling(group)

    async def _succeed(self, group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
        return {key: Outcome() for key in changes}

    @asynccontextmanager
    async def running(self, *, batch: int = 100, slots: int = 10) -> AsyncIterator[None]:
        loop: Controller[Namespace, str, str] = Controller(
            "test", self, self.queue, self, batch=batch, slots=slots, chance=lambda: 0.0
        )
        task = asyncio.create_task(loop.run())
        try:
            yield
        finally:
            self.queue.shut_down()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def keys_applied(self) -> list[str]:
        return [key for _, _, keys in self.applied for key in keys]


async def _nothing(_: object) -> None:
    """Do nothing."""


def virtually(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    clock.run(run())


def test_all_ready_keys_are_observed_together_and_applied_each() -> None:
    async def scenario() -> None:
        world = World()
        for number in range(50):
            world.queue.add(f"k{number}")
        async with world.running():
            await asyncio.sleep(1)
        assert len(world.observed) == 1
        assert sorted(world.keys_applied()) == sorted(f"k{number}" for number in range(50))
        assert not world.queue.in_flight

    virtually(scenario)


def test_batches_are_full_ones_while_work_is_waiting() -> None:
    async def scenario() -> None:
        world = World()

        async def slowly(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            await asyncio.sleep(0.5)
            return {key: Outcome() for key in changes}

        world.applying = slowly
        for number in range(100):
            world.queue.add(f"k{number}")
        async with world.running(batch=25, slots=4):
            await asyncio.sleep(60)
        assert [len(keys) for keys in world.observed] == [25, 25, 25, 25]

    virtually(scenario)


def test_no_more_keys_are_out_than_the_slots_and_one_batch() -> None:
    async def scenario() -> None:
        world, most = World(), 0

        async def slowly(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            nonlocal most
            await asyncio.sleep(1)
            most = max(most, len(world.queue.in_flight))
            return {key: Outcome() for key in changes}

        world.applying = slowly
        for number in range(100):
            world.queue.add(f"k{number}")
        async with world.running(batch=10, slots=5):
            await asyncio.sleep(60)
        assert len(world.keys_applied()) == 100
        assert most <= 15

    virtually(scenario)


def test_a_key_is_not_planned_again_until_the_cache_holds_its_write() -> None:
    async def scenario() -> None:
        world = World()
        world.caught_up.clear()

        async def write(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            return {key: Outcome(written=Written("u", 2)) for key in changes}

        world.applying = write
        world.queue.add("a")
        async with world.running():
            await asyncio.sleep(1)
            world.queue.add("a")
            world.queue.add("b")
            await asyncio.sleep(1)
            assert world.keys_applied() == ["a", "b"]
            world.caught_up.set()
            await asyncio.sleep(1)
            assert world.keys_applied() == ["a", "b", "a"]

    virtually(scenario)


def test_a_failed_batch_counts_against_no_key_and_recovers_in_seconds() -> None:
    async def scenario() -> None:
        world, outage = World(), True

        async def fail(keys: Sequence[str]) -> None:
            if outage:
                raise OSError("the cloud is down")

        world.observing = fail
        world.queue.add("a")
        world.queue.add("b")
        async with world.running():
            await asyncio.sleep(600)
            assert world.queue.failures("a") == world.queue.failures("b") == 0
            tries = len(world.observed)
            assert tries < 40
            outage = False
            world.applied.clear()
            await asyncio.sleep(31)
            assert {"a", "b"} <= set(world.keys_applied())

    virtually(scenario)


def test_from_the_third_failure_on_keys_are_planned_with_the_error() -> None:
    async def scenario() -> None:
        world = World()

        async def fail(keys: Sequence[str]) -> None:
            raise OSError("the cloud is down")

        world.observing = fail
        world.queue.add("a")
        async with world.running():
            while len(world.observed) < 3:
                assert world.planned == []
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.1)
            assert [key for key, _ in world.planned] == ["a"]
            assert isinstance(world.planned[0][1], OSError)

    virtually(scenario)


def test_an_observation_past_its_deadline_is_a_failed_batch() -> None:
    async def scenario() -> None:
        world, hangs = World(), True

        async def hang(keys: Sequence[str]) -> None:
            if hangs:
                await asyncio.sleep(1e6)

        world.observing = hang
        world.queue.add("a")
        async with world.running():
            await asyncio.sleep(60.2)
            hangs = False
            await asyncio.sleep(5)
            assert world.keys_applied() == ["a"]
            assert world.queue.failures("a") == 0

    virtually(scenario)


@pytest.mark.parametrize("raised", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])  # fmt: skip
@pytest.mark.parametrize("step", ["planning", "applying", "settling"])
def test_whatever_a_step_raises_is_that_keys_failure_alone(
    raised: BaseException, step: str
) -> None:
    async def scenario() -> None:
        world = World()

        def plan(key: str) -> None:
            if key == "bad":
                raise raised

        async def apply(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            plan(str(group))
            return {key: Outcome() for key in changes}

        async def settle(group: Hashable) -> None:
            plan(str(group))

        setattr(world, step, {"planning": plan, "applying": apply, "settling": settle}[step])
        world.queue.add("bad")
        world.queue.add("good")
        async with world.running():
            await asyncio.sleep(0.5)
            assert "good" in world.keys_applied()
            assert world.queue.failures("bad") == (0 if step == "settling" else 1)
            world.queue.add("later")
            await asyncio.sleep(0.5)
            assert "later" in world.keys_applied()

    virtually(scenario)


def test_system_exit_from_an_observation_fails_the_batch_only() -> None:
    async def scenario() -> None:
        world, calls = World(), 0

        async def exit_once(keys: Sequence[str]) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise SystemExit(1)

        world.observing = exit_once
        world.queue.add("a")
        async with world.running():
            await asyncio.sleep(5)
        assert world.keys_applied() == ["a"]

    virtually(scenario)


def test_a_failed_key_is_retried_with_backoff_and_a_success_forgets_it() -> None:
    async def scenario() -> None:
        world = World()

        async def fail(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            if len(world.applied) <= 3:
                return {key: Outcome(error=ValueError("no")) for key in changes}
            return {key: Outcome() for key in changes}

        world.applying = fail
        world.queue.add("a")
        async with world.running():
            await asyncio.sleep(60)
        times = [time for time, _, _ in world.applied]
        gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
        assert gaps == [1, 2, 4]
        assert world.queue.failures("a") == 0

    virtually(scenario)


def test_after_is_kept_exactly_for_failures_and_for_pending_work() -> None:
    async def scenario() -> None:
        world = World()

        async def later(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            error = ValueError("no") if group == "failing" else None
            return {key: Outcome(after=20.0, error=error) for key in changes}

        world.applying = later
        world.queue.add("failing")
        world.queue.add("pending")
        async with world.running():
            await asyncio.sleep(45)
        for key in ("failing", "pending"):
            times = [time for time, group, _ in world.applied if group == key]
            assert [round(time - times[0]) for time in times] == [0, 20, 40]
        assert world.queue.failures("pending") == 0

    virtually(scenario)


def test_a_conflict_is_planned_again_and_is_no_failure() -> None:
    async def scenario() -> None:
        world = World()

        async def conflict(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            if len(world.applied) < 3:
                error = Conflict(409, "the object has been modified", reason="Conflict")
                return {key: Outcome(error=error) for key in changes}
            return {key: Outcome() for key in changes}

        world.applying = conflict
        world.queue.add("a")
        async with world.running():
            await asyncio.sleep(2)
        assert len(world.applied) == 3
        assert world.queue.failures("a") == 0

    virtually(scenario)


def test_a_key_left_out_of_the_answer_has_failed() -> None:
    async def scenario() -> None:
        world = World()

        async def forget_one(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            return {key: Outcome() for key in changes if key != "b"}

        world.applying = forget_one
        world.grouping = lambda _key: "all"
        world.queue.add("a")
        world.queue.add("b")
        async with world.running():
            await asyncio.sleep(0.5)
        assert (world.queue.failures("a"), world.queue.failures("b")) == (0, 1)

    virtually(scenario)


def test_members_of_a_group_go_in_one_apply_and_never_beside_another() -> None:
    async def scenario() -> None:
        world, running, overlap = World(), set(), False

        async def slowly(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            nonlocal overlap
            overlap = overlap or group in running
            running.add(group)
            await asyncio.sleep(5)
            running.discard(group)
            return {key: Outcome() for key in changes}

        world.applying = slowly
        world.grouping = lambda key: key[0]
        for key in ("a1", "a2", "b1"):
            world.queue.add(key)
        async with world.running():
            await asyncio.sleep(1)
            world.queue.add("a3")
            world.queue.add("a4", Priority.RESYNC)
            await asyncio.sleep(60)
        assert not overlap
        assert [keys for _, group, keys in world.applied if group == "a"] == [
            ("a1", "a2"),
            ("a3", "a4"),
        ]

    virtually(scenario)


@pytest.mark.parametrize("raised", [KeyError("k"), SystemExit(3)])
def test_a_key_whose_group_is_unknown_fails_alone(raised: BaseException) -> None:
    def grouping(key: str) -> Hashable:
        if key == "bad":
            raise raised
        return key

    async def scenario() -> None:
        world = World()
        world.grouping = grouping
        for key in ("good", "bad", "fine"):
            world.queue.add(key)
        async with world.running():
            await asyncio.sleep(0.5)
            assert sorted(world.keys_applied()) == ["fine", "good"]
            world.grouping = lambda key: key
            await asyncio.sleep(3600)
        assert sorted(world.keys_applied()) == ["bad", "fine", "good"]

    virtually(scenario)


def test_a_group_stays_busy_until_its_calls_have_settled() -> None:
    async def scenario() -> None:
        world, free = World(), asyncio.Event()

        async def hang(group: Hashable) -> None:
            if world.applied:
                await free.wait()

        world.settling = hang
        world.queue.add("a")
        async with world.running():
            await asyncio.sleep(1)
            world.queue.add("a")
            await asyncio.sleep(100)
            assert len(world.applied) == 1
            free.set()
            await asyncio.sleep(1)
            assert len(world.applied) == 2

    virtually(scenario)


def test_a_group_waits_for_calls_of_a_controller_before_this_one() -> None:
    async def scenario() -> None:
        world, free = World(), asyncio.Event()

        async def hang(group: Hashable) -> None:
            if group == "a":
                await free.wait()

        world.settling, world.grouping = hang, lambda key: key
        world.queue.add("a")
        world.queue.add("b")
        async with world.running():
            await asyncio.sleep(100)
            assert world.keys_applied() == ["b"]
            free.set()
            await asyncio.sleep(1)
            assert world.keys_applied() == ["b", "a"]

    virtually(scenario)


def test_slow_applies_leave_the_normal_slots_to_others() -> None:
    async def scenario() -> None:
        world = World()

        async def hang(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            if str(group).startswith("slow"):
                await asyncio.sleep(1e6)
            return {key: Outcome() for key in changes}

        world.applying = hang
        world.queue.add("slow1")
        world.queue.add("slow2")
        async with world.running(slots=2):
            await asyncio.sleep(1)
            world.queue.add("quick")
            await asyncio.sleep(SLOW_AFTER / 2)
            assert "quick" not in world.keys_applied()
            await asyncio.sleep(SLOW_AFTER)
            assert "quick" in world.keys_applied()

    virtually(scenario)


def test_after_the_shut_down_what_is_under_way_is_finished() -> None:
    async def scenario() -> None:
        world, finished = World(), []

        async def slowly(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            await asyncio.sleep(5)
            finished.append(group)
            return {key: Outcome() for key in changes}

        world.applying = slowly
        world.queue.add("a")
        loop: Controller[Namespace, str, str] = Controller(
            "test", world, world.queue, world, batch=10, slots=2
        )
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(1)
        world.queue.add("b")
        world.queue.shut_down()
        await task
        assert finished == ["a"]

    virtually(scenario)


def test_every_line_that_a_key_logs_names_its_object() -> None:
    async def scenario() -> None:
        world = World()
        world.grouping = lambda key: "alone" if key == "a" else "together"

        async def failing(group: Hashable, changes: Mapping[str, str]) -> Mapping[str, Outcome]:
            klog.info(klog.logger("proreus.test"), "Applying")
            return {key: Outcome(error=ValueError("no")) for key in changes}

        world.applying = failing
        for key in ("a", "b", "c"):
            world.queue.add(key)
        async with world.running():
            await asyncio.sleep(0.5)

    stream = io.StringIO()
    before = logging.getLogger().handlers[:], logging.getLogger("proreus").level
    klog.setup(0, "json", stream=stream)
    try:
        virtually(scenario)
    finally:
        logging.getLogger().handlers[:] = before[0]
        logging.getLogger("proreus").setLevel(before[1])
    seen = [json.loads(line) for line in stream.getvalue().splitlines()]
    about = [
        (line["msg"], line["controller"], line.get("namespace") or line.get("namespaces"))
        for line in seen
    ]
    assert sorted(about) == [
        ("Applying", "test", "a"),
        ("Applying", "test", "b,c"),
        ("Reconciling failed", "test", "a"),
        ("Reconciling failed", "test", "b"),
        ("Reconciling failed", "test", "c"),
    ]
