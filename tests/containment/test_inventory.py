"""The shared snapshot of the machines: who pays a call, who shares one, and what a bad id costs."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    IdentityConflict,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.containment.batches import PROBES, SUSPECTS_ALONE, outage
from proreus.containment.failed_calls import FailedCalls
from proreus.containment.faults import Fault, Faults, Kind, Unanswered
from proreus.containment.guard import Guard
from proreus.containment.guarded import GuardedInstances
from proreus.containment.inventory import FLIGHTS_AT_ONCE, Inventory, Observation, Sighting
from proreus.kube.objects import Node
from proreus.testing import clock
from proreus.testing.objects import node


def nodes(count: int) -> list[Node]:
    return [node(f"n{number:03}") for number in range(count)]


class Cloud:
    """A cloud that fails whole batches which hold a bad name, as AWS does for malformed ids."""

    def __init__(self, *, batch_size: int = 100, latency: float = 1.0) -> None:
        self.batch_size = batch_size
        self.latency = latency
        self.bad: set[str] = set()
        self.down: BaseException | None = None
        self.refusal: Callable[[], CloudError] = lambda: CloudError("malformed id")
        self.answer: Callable[[Node], object] = lambda asked: Instance(
            provider_id=f"cloud://{asked.metadata.name}"
        )
        self.extra: Mapping[str, InstanceAnswer] = {}
        self.calls: list[tuple[str, ...]] = []
        self.cancelled = 0
        self.running = 0
        self.most_running = 0

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        names = tuple(asked.metadata.name for asked in nodes)
        self.calls.append(names)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.latency)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self.down is not None:
            raise self.down
        if self.bad & set(names):
            raise self.refusal()
        answers = {asked.metadata.name: self.answer(asked) for asked in nodes}
        return {**answers, **self.extra}  # type: ignore[dict-item]  # wrong types are a test


class Reports(Faults):
    """Keeps the faults of a provider."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.problems: list[str] = []

    def report(self, verb: str, kind: Kind, problem: str, **_: object) -> None:
        assert verb in {"describe", "batch_size"}
        self.kinds.append(kind)
        self.problems.append(problem)


class Bench:
    """An inventory over a guarded cloud, with the faults that were reported."""

    def __init__(self, cloud: Cloud, deadline: float = 30.0, faults: Reports | None = None) -> None:
        self.cloud = cloud
        self.faults = faults or Reports()
        self.inventory = Inventory(
            GuardedInstances(cloud, Guard(self.faults)),
            deadline=deadline,
            on_error=lambda error, kind: self.faults.report("describe", kind, str(error)),
            failed_calls=FailedCalls(),
        )

    async def get(self, asked: Iterable[Node], not_before: float = 0.0) -> dict[str, Observation]:
        return dict(await self.inventory.get(list(asked), not_before=not_before))


def good(observations: Mapping[str, Observation]) -> set[str]:
    return {name for name, seen in observations.items() if isinstance(seen.answer, Instance)}


def now() -> float:
    return asyncio.get_running_loop().time()


# Calls


def test_nodes_cost_one_call_per_full_batch() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=100))
        seen = await bench.get(nodes(250))
        assert sorted(len(call) for call in bench.cloud.calls) == [50, 100, 100]
        assert good(seen) == {asked.metadata.name for asked in nodes(250)}
        assert {observation.began for observation in seen.values()} == {0.0}
        assert bench.faults.kinds == []

    clock.run(scenario())


def test_no_nodes_cost_no_call() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        assert await bench.get([]) == {}
        assert bench.cloud.calls == []

    clock.run(scenario())


def test_a_batch_size_below_one_counts_as_one() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=0))
        await bench.get(nodes(2))
        assert [len(call) for call in bench.cloud.calls] == [1, 1]
        assert bench.inventory.batch_size == 1
        assert Bench(Cloud(batch_size=7)).inventory.batch_size == 7

    clock.run(scenario())


def test_only_so_many_flights_of_one_reader_are_in_the_air() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=1))
        seen = await bench.get(nodes(3 * FLIGHTS_AT_ONCE))
        assert bench.cloud.most_running == FLIGHTS_AT_ONCE
        assert sorted({observation.began for observation in seen.values()}) == [0.0, 1.0, 2.0]

    clock.run(scenario())


# Sharing


@pytest.mark.parametrize(("not_before", "calls"), [(9.9, 1), (10.0, 1), (10.1, 2)])
def test_an_answer_serves_those_whose_need_is_not_younger_than_its_call(
    not_before: float, calls: int
) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        await asyncio.sleep(10.0)
        first = await bench.get(nodes(3), 10.0)
        second = await bench.get(nodes(3), not_before)
        assert len(bench.cloud.calls) == calls
        assert first["n000"].began == 10.0
        assert second["n000"].began == (10.0 if calls == 1 else 11.0)

    clock.run(scenario())


def test_not_found_is_kept_and_served_as_it_is() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda _: NotFound(tombstone=True)
        await bench.get(nodes(1))
        seen = await bench.get(nodes(1))
        assert (seen["n000"].answer, seen["n000"].began) == (NotFound(tombstone=True), 0.0)
        assert len(bench.cloud.calls) == 1

    clock.run(scenario())


def test_only_the_nodes_without_a_fresh_answer_are_asked_for() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        await bench.get(nodes(2))
        seen = await bench.get(nodes(4))
        assert bench.cloud.calls == [("n000", "n001"), ("n002", "n003")]
        assert list(seen) == ["n000", "n001", "n002", "n003"]

    clock.run(scenario())


def test_an_answer_is_about_the_uid_and_the_provider_id() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        await bench.get([node("a")])
        await bench.get([node("a", uid="reborn")])
        await bench.get([node("a", provider_id="cloud://b")])
        await bench.get([node("a", provider_id="cloud://b")])
        assert len(bench.cloud.calls) == 3

    clock.run(scenario())


def test_what_was_found_by_name_is_known_when_the_node_has_got_its_provider_id() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        await bench.get([node("a")])
        (known,) = (await bench.get([node("a", provider_id="cloud://a")])).values()
        assert isinstance(known.answer, Instance)
        assert len(bench.cloud.calls) == 1

    clock.run(scenario())


def test_a_flight_in_the_air_is_shared() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        async with asyncio.TaskGroup() as group:
            first = group.create_task(bench.get(nodes(3)))
            await asyncio.sleep(0.5)
            second = group.create_task(bench.get(nodes(2), 0.0))
        assert len(bench.cloud.calls) == 1
        assert second.result() == {name: first.result()[name] for name in ("n000", "n001")}

    clock.run(scenario())


def test_a_flight_that_began_before_the_need_is_not_joined() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        async with asyncio.TaskGroup() as group:
            first = group.create_task(bench.get(nodes(1)))
            await asyncio.sleep(0.5)
            second = group.create_task(bench.get(nodes(1), 0.5))
        assert len(bench.cloud.calls) == 2
        assert (first.result()["n000"].began, second.result()["n000"].began) == (0.0, 0.5)
        # The older flight landed first; what is kept is the newer one's answer.
        assert (await bench.get(nodes(1), 0.5))["n000"].began == 0.5
        assert len(bench.cloud.calls) == 2

    clock.run(scenario())


def test_a_flight_that_waits_for_a_slot_can_be_joined_by_any_need() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=1))
        waiting = nodes(FLIGHTS_AT_ONCE + 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.get(waiting))
            await asyncio.sleep(0.5)
            second = group.create_task(bench.get(waiting[-1:], 0.5))
        assert len(bench.cloud.calls) == FLIGHTS_AT_ONCE + 1
        assert next(iter(second.result().values())).began == 1.0

    clock.run(scenario())


def test_errors_go_to_all_who_wait_and_to_nobody_later() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.down = Throttled("slow down", after=3.0)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(bench.get(nodes(1)))
            second = group.create_task(bench.get(nodes(1)))
        assert first.result()["n000"].answer is second.result()["n000"].answer
        assert first.result()["n000"].answer is bench.cloud.down
        bench.cloud.down = None
        assert good(await bench.get(nodes(1))) == {"n000"}
        assert len(bench.cloud.calls) == 2
        assert bench.faults.kinds == []

    clock.run(scenario())


def test_an_error_for_one_node_is_not_kept_either() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda asked: (
            CloudError("odd") if asked.metadata.name == "n000" else NotFound()
        )
        await bench.get(nodes(2))
        await bench.get(nodes(2))
        assert bench.cloud.calls == [("n000", "n001"), ("n000",)]

    clock.run(scenario())


def test_an_injected_clock_dates_the_answers() -> None:
    async def scenario() -> None:
        inventory = Inventory(Cloud(), clock=lambda: 77.0, on_error=lambda *_: None)
        assert (await inventory.get(nodes(1), not_before=77.0))["n000"].began == 77.0

    clock.run(scenario())


def test_forgotten_nodes_are_asked_for_again() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        await bench.get(nodes(2))
        bench.inventory.forget("uid-n000")
        bench.inventory.forget("never heard of")
        await bench.get(nodes(2))
        assert bench.cloud.calls == [("n000", "n001"), ("n000",)]

    clock.run(scenario())


def test_a_node_forgotten_during_its_flight_leaves_nothing() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        reading = asyncio.create_task(bench.get(nodes(2)))
        await asyncio.sleep(0.5)
        bench.inventory.forget("uid-n000")
        assert good(await reading) == {"n000", "n001"}
        await bench.get(nodes(2))
        assert bench.cloud.calls == [("n000", "n001"), ("n000",)]

    clock.run(scenario())


# Cancellation


def test_a_cancelled_reader_does_not_cancel_the_flight_of_another() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        first = asyncio.create_task(bench.get(nodes(1)))
        second = asyncio.create_task(bench.get(nodes(1)))
        await asyncio.sleep(0.5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert good(await second) == {"n000"}
        assert (len(bench.cloud.calls), bench.cloud.cancelled) == (1, 0)

    clock.run(scenario())


def test_a_flight_without_readers_is_cancelled_and_not_joined_again() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=1))
        readers = [asyncio.create_task(bench.get(nodes(3))) for _ in range(2)]
        await asyncio.sleep(0.5)
        for reader in readers:
            reader.cancel()
        await asyncio.sleep(0)
        seen = await bench.get(nodes(3))
        assert good(seen) == {"n000", "n001", "n002"}
        assert (len(bench.cloud.calls), bench.cloud.cancelled) == (6, 3)
        assert all(reader.cancelled() for reader in readers)

    clock.run(scenario())


def test_a_reader_cancelled_before_its_flight_began_costs_no_call() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        reader = asyncio.create_task(bench.get(nodes(1)))
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.sleep(5.0)
        assert len(bench.cloud.calls) <= 1
        assert bench.cloud.running == 0
        assert good(await bench.get(nodes(1))) == {"n000"}

    clock.run(scenario())


def test_a_provider_that_cancels_its_own_call_gives_an_error_and_cancels_nobody() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.down = asyncio.CancelledError()
        seen = await bench.get(nodes(2))
        assert all("cancelled its own call" in str(seen[name].answer) for name in seen)
        assert all(isinstance(observation.answer, Fault) for observation in seen.values())
        assert set(bench.faults.kinds) == {Kind.CANCELLED}

    clock.run(scenario())


# Answers that break the interface


def test_names_left_out_are_unknown_never_absent() -> None:
    class Forgetful(Cloud):
        async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
            answers = dict(await super().describe(nodes))
            del answers["n001"]
            return answers

    async def scenario() -> None:
        bench = Bench(Forgetful())
        seen = await bench.get(nodes(2))
        assert good(seen) == {"n000"}
        assert isinstance(seen["n001"].answer, Fault)
        assert bench.faults.kinds == [Kind.LEFT_OUT]
        assert "n001: it is unknown, not gone" in str(seen["n001"].answer)

    clock.run(scenario())


def test_answers_for_names_not_asked_are_ignored_and_counted() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.extra = {"stranger": NotFound(), "other": NotFound()}
        seen = await bench.get(nodes(2))
        assert good(seen) == {"n000", "n001"} == set(seen)
        await bench.get(nodes(3))
        assert bench.faults.kinds == [Kind.UNASKED] * 2
        assert all("2 objects that were not in the call" in text for text in bench.faults.problems)

    clock.run(scenario())


@pytest.mark.parametrize("value", [None, True, {"provider_id": "x"}, Instance])
def test_an_answer_of_a_wrong_type_names_the_provider(value: object) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda asked: value if asked.metadata.name == "n000" else NotFound()
        seen = await bench.get(nodes(2))
        error = seen["n000"].answer
        assert isinstance(error, CloudError)
        assert f"{Cloud.__module__}.Cloud.describe" in str(error)
        assert "for n000: expected Instance" in str(error)
        assert bench.faults.kinds == [Kind.WRONG_ANSWER]
        assert bench.faults.problems == [str(error)]
        assert seen["n001"].answer == NotFound()

    clock.run(scenario())


def test_a_batch_answer_that_is_no_mapping_is_an_error_for_each() -> None:
    class Lister(Cloud):
        async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
            await super().describe(nodes)
            return [NotFound()]  # type: ignore[return-value]  # that is the test

    async def scenario() -> None:
        bench = Bench(Lister())
        seen = await bench.get(nodes(1))
        assert "Lister.describe answered with a list; it must be a mapping" in str(
            seen["n000"].answer
        )

    clock.run(scenario())


@pytest.mark.parametrize("raised", [KeyError("id"), SystemExit(371), ValueError("secret=hunter2")])
def test_whatever_a_provider_raises_becomes_an_error_with_its_class(raised: BaseException) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.down = raised
        error = (await bench.get(nodes(1)))["n000"].answer
        assert type(error) is Fault
        assert f"Cloud.describe raised {type(raised).__name__}" in str(error)
        assert str(raised) not in str(error)
        assert error.__cause__ is raised

    clock.run(scenario())


# One machine for two nodes


def test_one_machine_for_two_nodes_is_a_conflict_for_both() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda _: Instance(provider_id="cloud://same")
        seen = await bench.get([node("a"), node("b")])
        for name in ("a", "b"):
            assert isinstance(seen[name].answer, IdentityConflict)
            assert seen[name].began == 0.0
        assert "node a and node b are both cloud://same" in str(seen["a"].answer)

    clock.run(scenario())


def test_the_node_that_has_the_provider_id_is_that_machine() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda _: Instance(provider_id="cloud://same")
        seen = await bench.get([node("a", "cloud://same"), node("b")])
        assert good(seen) == {"a"}
        assert isinstance(seen["b"].answer, IdentityConflict)

    clock.run(scenario())


def test_a_machine_of_an_earlier_answer_is_known_in_later_ones() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda _: Instance(provider_id="cloud://same")
        assert good(await bench.get([node("a")])) == {"a"}
        seen = await bench.get([node("b")])
        assert isinstance(seen["b"].answer, IdentityConflict)
        # With the first one gone, the machine is free for the second.
        bench.inventory.forget("uid-a")
        assert good(await bench.get([node("b")])) == {"b"}
        assert len(bench.cloud.calls) == 2

    clock.run(scenario())


def test_a_newer_answer_frees_the_machine_of_the_older_one() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda _: Instance(provider_id="cloud://same")
        await bench.get([node("a")])
        bench.cloud.answer = lambda _: NotFound()
        await bench.get([node("a")], now())
        bench.cloud.answer = lambda _: Instance(provider_id="cloud://same")
        assert good(await bench.get([node("b")])) == {"b"}

    clock.run(scenario())


def test_a_node_made_anew_under_its_name_is_no_conflict() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        await bench.get([node("a", uid="first")])
        assert good(await bench.get([node("a", uid="second")])) == {"a"}

    clock.run(scenario())


def test_instances_without_a_provider_id_are_no_conflict() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.answer = lambda _: Instance(provider_id="")
        assert good(await bench.get([node("a"), node("b")])) == {"a", "b"}
        assert good(await bench.get([node("a"), node("b")], now())) == {"a", "b"}

    clock.run(scenario())


# Bad ids


def test_one_bad_id_costs_only_itself() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=500, latency=0.1))
        bench.cloud.bad = {"n321"}
        asked = nodes(500)
        seen = await bench.get(asked)
        assert good(seen) == {asked.metadata.name for asked in asked} - {"n321"}
        assert str(seen["n321"].answer) == "malformed id"
        assert len(bench.cloud.calls) <= 1 + 1 + 2 * 9
        assert all(observation.began > 0.0 for observation in seen.values())

    clock.run(scenario())


def test_a_bad_id_found_once_is_asked_by_itself_from_then_on() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=500, latency=0.1))
        bench.cloud.bad = {"n321"}
        await bench.get(nodes(500))
        for _ in range(3):
            bench.cloud.calls.clear()
            seen = await bench.get(nodes(500), now())
            assert len(good(seen)) == 499
            assert sorted(len(call) for call in bench.cloud.calls) == [1, 499]
        # Once it is mended, it goes with the others again.
        bench.cloud.bad.clear()
        await bench.get(nodes(500), now())
        bench.cloud.calls.clear()
        assert len(good(await bench.get(nodes(500), now()))) == 500
        assert len(bench.cloud.calls) == 1

    clock.run(scenario())


def test_a_forgotten_bad_id_is_no_suspect_any_more() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(latency=0.1))
        bench.cloud.bad = {"n003"}
        await bench.get(nodes(10))
        bench.inventory.forget("uid-n003")
        bench.cloud.bad.clear()
        bench.cloud.calls.clear()
        await bench.get(nodes(10), now())
        assert [len(call) for call in bench.cloud.calls] == [10]

    clock.run(scenario())


def test_an_id_forgotten_while_it_is_found_bad_is_no_suspect() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(latency=0.1))
        bench.cloud.bad = {"n003"}
        reading = asyncio.create_task(bench.get(nodes(10)))
        await asyncio.sleep(0.25)
        bench.inventory.forget("uid-n003")
        await reading
        bench.cloud.bad.clear()
        bench.cloud.calls.clear()
        await bench.get(nodes(10), now())
        assert [len(call) for call in bench.cloud.calls] == [10]

    clock.run(scenario())


def test_a_bad_id_that_a_probe_meets_is_not_searched_for() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(latency=0.1))
        bench.cloud.bad = {"n001"}
        await bench.get(nodes(9))
        assert [len(call) for call in bench.cloud.calls] == [9, 1, 1, 7]
        assert bench.cloud.calls[1:3] == [("n001",), ("n004",)]

    clock.run(scenario())


def test_probes_are_other_nodes_each_time() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(latency=0.1))
        bench.cloud.down = CloudError("500 internal error")
        await bench.get(nodes(9))
        await bench.get(nodes(9))
        assert bench.cloud.calls[1:4] == [("n001",), ("n004",), ("n007",)]
        assert bench.cloud.calls[5:8] == [("n002",), ("n005",), ("n008",)]

    clock.run(scenario())


def test_a_defect_in_reporting_is_raised_and_is_no_answer() -> None:
    class Broken(Reports):
        def report(self, *_: object, **__: object) -> None:
            raise LookupError("no such metric")

    async def scenario() -> None:
        bench = Bench(Cloud(), faults=Broken())
        bench.cloud.down = OSError("x")
        with pytest.raises(LookupError):
            await bench.get(nodes(2))

    clock.run(scenario())


def failures_logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The fields of each line about failed calls since this was last asked."""
    found = [
        record.__dict__["klog_fields"]
        for record in caplog.records
        if record.getMessage() == "Describing instances failed"
    ]
    caplog.clear()
    return found


def test_an_outage_is_one_line_of_the_log_that_names_some_nodes_and_is_not_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=6))
        bench.cloud.down = CloudError("no answer")
        waiting = nodes(13)
        await bench.get(waiting)
        assert failures_logged(caplog) == [
            {"nodes": "n000, n001, n002, n003, n004 and 8 more", "err": bench.cloud.down}
        ]
        bench.cloud.down = CloudError("no answer, as before")
        await bench.get(waiting, now())
        await bench.inventory.ask_with_witnesses(waiting[:2], waiting[2:], ())
        assert failures_logged(caplog) == []
        # Another error, and a node that was not named yet.
        bench.cloud.down = Unauthenticated("who are you?")
        await bench.get([*waiting[:2], node("new")], now())
        assert [one["nodes"] for one in failures_logged(caplog)] == ["n000, n001, new"]
        # It ends, and begins again; so does one look at a machine that may be gone.
        bench.cloud.down = None
        await bench.get(waiting, now())
        assert failures_logged(caplog) == []
        bench.cloud.down = CloudError("no answer")
        await bench.inventory.ask_with_witnesses(waiting[:1], waiting[1:2], ())
        assert [one["nodes"] for one in failures_logged(caplog)] == ["n000, n001"]
        # A Node of the same name that is another one.
        bench.inventory.forget("uid-n000")
        await bench.get([node("n000", uid="later")], now())
        assert [one["nodes"] for one in failures_logged(caplog)] == ["n000"]

    with caplog.at_level("WARNING"):
        clock.run(scenario())


def test_a_call_that_fails_for_one_node_alone_names_that_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.bad = {"n003"}
        for _ in range(3):
            await bench.get(nodes(9), now())
        assert [one["nodes"] for one in failures_logged(caplog)] == ["n003"]

    with caplog.at_level("WARNING"):
        clock.run(scenario())


def test_an_outage_costs_few_calls_and_suspects_nobody() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=500))
        bench.cloud.down = CloudError("500 internal error")
        seen = await bench.get(nodes(500))
        assert good(seen) == set()
        assert [len(call) for call in bench.cloud.calls] == [500, *[1] * PROBES]
        bench.cloud.down = None
        bench.cloud.calls.clear()
        assert len(good(await bench.get(nodes(500), now()))) == 500
        assert len(bench.cloud.calls) == 1

    clock.run(scenario())


@pytest.mark.parametrize(
    "error",
    [
        Throttled("quota"),
        RetryAfter("later", after=1.0),
        Unauthenticated("no"),
        CallTimeout("late"),
        ConfigError(("bad",)),
        TimeoutError(),
    ],
)
def test_what_no_id_can_cause_is_not_asked_again_in_parts(error: Exception) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud())
        bench.cloud.down = error
        seen = await bench.get(nodes(9))
        assert len(bench.cloud.calls) == 1
        wanted = Unanswered if isinstance(error, TimeoutError) else type(error)
        assert {type(observation.answer) for observation in seen.values()} == {wanted}

    clock.run(scenario())


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_a_throttle_during_the_search_ends_it(limit: int) -> None:
    class Limited(Cloud):
        async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
            if len(self.calls) == limit:
                self.down = Throttled("quota")
            return await super().describe(nodes)

    async def scenario() -> None:
        bench = Bench(Limited(latency=0.1))
        bench.cloud.bad = {"n050"}
        seen = await bench.get(nodes(100))
        assert len(bench.cloud.calls) == limit + 1
        assert any(isinstance(observation.answer, Throttled) for observation in seen.values())
        bench.cloud.down = None
        bench.cloud.calls = [()] * 1000
        assert len(good(await bench.get(nodes(100), now()))) == 99

    clock.run(scenario())


def test_more_bad_ids_than_one_search_can_find_are_found_by_several() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=500, latency=0.1))
        bench.cloud.bad = {f"n{number:03}" for number in range(0, 500, 20)}
        for _ in range(8):
            seen = await bench.get(nodes(500), now())
        assert len(good(seen)) == 475
        bench.cloud.calls.clear()
        seen = await bench.get(nodes(500), now())
        assert len(good(seen)) == 475
        assert len(bench.cloud.calls) <= 1 + SUSPECTS_ALONE + 1 + PROBES

    clock.run(scenario())


def test_a_mended_id_among_many_bad_ones_gets_its_turn() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=500, latency=0.1))
        bench.cloud.bad = {f"n{number:03}" for number in range(40)}
        for _ in range(12):
            await bench.get(nodes(100), now())
        for number in range(40):
            bench.cloud.bad.discard(f"n{number:03}")
            served = False
            for _ in range(4):
                served = served or f"n{number:03}" in good(await bench.get(nodes(100), now()))
            assert served
            bench.cloud.bad.add(f"n{number:03}")

    clock.run(scenario())


class Scopes(Cloud):
    """A cloud of three scopes, of which the node's number tells which it is in."""

    def scope(self, node: Node) -> str:
        return "abc"[int(node.metadata.name[1:]) % 3]

    def names(self, scope: str) -> set[str]:
        return {one.metadata.name for one in nodes(90) if self.scope(one) == scope}


def test_a_scope_that_is_down_makes_no_suspects_of_the_nodes_of_others() -> None:
    async def scenario() -> None:
        cloud = Scopes()
        bench = Bench(cloud)
        cloud.bad = cloud.names("a")
        for _ in range(3):
            cloud.calls.clear()
            seen = await bench.get(nodes(90), now())
            assert good(seen) == cloud.names("b") | cloud.names("c")
            assert [len(call) for call in cloud.calls] == [90, 30, 30, 30, *[1] * PROBES]
            await asyncio.sleep(1.0)

    clock.run(scenario())


def test_a_bad_id_is_looked_for_in_its_scope_alone() -> None:
    async def scenario() -> None:
        cloud = Scopes()
        bench = Bench(cloud)
        cloud.bad = {"n004"}
        seen = await bench.get(nodes(90), now())
        assert good(seen) == {one.metadata.name for one in nodes(90)} - cloud.bad
        assert all(cloud.names("b").issuperset(call) for call in cloud.calls[4:])
        cloud.calls.clear()
        await asyncio.sleep(1.0)
        await bench.get(nodes(90), now())
        assert sorted(map(len, cloud.calls)) == [1, 89]

    clock.run(scenario())


def test_the_only_node_of_a_scope_that_fails_is_asked_by_itself_from_then_on() -> None:
    async def scenario() -> None:
        cloud = Scopes()
        bench = Bench(cloud)
        cloud.bad = {"n001"}
        asked = [one for one in nodes(90) if cloud.scope(one) != "b" or one.metadata.name == "n001"]
        assert len(good(await bench.get(asked, now()))) == 60
        cloud.calls.clear()
        await asyncio.sleep(1.0)
        await bench.get(asked, now())
        assert sorted(map(len, cloud.calls)) == [1, 60]

    clock.run(scenario())


def test_a_scope_that_refuses_all_is_not_asked_again_in_parts() -> None:
    async def scenario() -> None:
        for error in (Throttled("slow down"), Unauthenticated("who")):
            cloud = Scopes()
            bench = Bench(cloud)
            cloud.bad = cloud.names("a")

            def then(error: CloudError = error, cloud: Scopes = cloud) -> CloudError:
                return error if len(cloud.calls) > 1 else CloudError("the whole")

            cloud.refusal = then
            seen = await bench.get(nodes(90), now())
            assert good(seen) == cloud.names("b") | cloud.names("c")
            assert [len(call) for call in cloud.calls] == [90, 30, 30, 30]

    clock.run(scenario())


def test_a_call_past_the_deadline_is_a_timeout_and_is_not_repeated() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(latency=100.0), deadline=5.0)
        seen = await bench.get(nodes(4))
        assert now() == 5.0
        assert {type(observation.answer) for observation in seen.values()} == {Unanswered}
        assert "no answer for 4 nodes in 5 s" in str(seen["n000"].answer)
        assert len(bench.cloud.calls) == 1

    clock.run(scenario())


def test_after_a_call_that_hung_each_of_its_nodes_is_asked_by_itself() -> None:
    class HangsForOne(Cloud):
        async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
            if any(asked.metadata.name == "n001" for asked in nodes):
                self.calls.append(tuple(asked.metadata.name for asked in nodes))
                await asyncio.Event().wait()
            return await super().describe(nodes)

    async def scenario() -> None:
        bench = Bench(HangsForOne())
        assert good(await bench.get(nodes(4))) == set()
        assert bench.faults.kinds == [Kind.HUNG]
        for time in (30.0, 60.0):
            seen = await bench.get(nodes(4), not_before=time)
            assert good(seen) == {"n000", "n002", "n003"}
            assert isinstance(seen["n001"].answer, CallTimeout)
        assert bench.cloud.calls[-2:] == [("n000", "n002", "n003"), ("n001",)]

    clock.run(scenario())


def test_the_deadline_covers_all_calls_of_a_flight() -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(latency=2.0), deadline=5.0)
        bench.cloud.bad = {"n050"}
        seen = await bench.get(nodes(100))
        assert now() == 5.0
        assert isinstance(seen["n050"].answer, CloudError)
        assert 0 < len(good(seen)) < 99

    clock.run(scenario())


X, Y = CloudError("x"), CloudError("y")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], None),
        ([NotFound()], None),
        ([X, NotFound()], None),
        ([X], None),
        ([X, Y], X),
        ([X, IdentityConflict("z")], None),
    ],
)
def test_errors_for_all_of_several_nodes_are_an_outage(
    answers: list[InstanceAnswer], expected: CloudError | None
) -> None:
    seen = {str(number): Observation(answer, 0.0) for number, answer in enumerate(answers)}
    assert outage(seen) is expected


@pytest.mark.parametrize(
    "error", [Throttled("x"), RetryAfter("x", after=1.0), Unauthenticated("x"), CallTimeout("x")]
)
def test_what_no_node_can_cause_is_an_outage_even_for_one(error: CloudError) -> None:
    assert outage({"n": Observation(error, 0.0)}) is error


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 60),
    bad=st.sets(st.integers(0, 59), max_size=5),
    rounds=st.integers(1, 4),
)
def test_every_sound_node_is_served_in_the_end_and_no_bad_one_is(
    count: int, batch_size: int, bad: set[int], rounds: int
) -> None:
    async def scenario() -> None:
        bench = Bench(Cloud(batch_size=batch_size, latency=0.01))
        bench.cloud.bad = {f"n{number:03}" for number in bad}
        names = {asked.metadata.name for asked in nodes(count)}
        for _ in range(count + rounds):
            seen = await bench.get(nodes(count), now())
            assert set(seen) == names
            assert not good(seen) & bench.cloud.bad
            assert all(isinstance(o.answer, Instance | CloudError) for o in seen.values())
        assert good(seen) == names - bench.cloud.bad

    clock.run(scenario())


# Looks of the lifecycle controller: with witnesses, in a call of their own


def word(observations: Sequence[Observation]) -> list[InstanceAnswer]:
    return [seen.answer for seen in observations]


GONE = NotFound()
HERE, LOST = "w", "c"


def the_cloud(*, batch_size: int = 100) -> Cloud:
    """Whoever is called c… is gone."""
    cloud = Cloud(batch_size=batch_size)
    cloud.answer = lambda asked: (
        GONE
        if asked.metadata.name.startswith(LOST)
        else Instance(provider_id=f"cloud://{asked.metadata.name}")
    )
    return cloud


def group(letter: str, count: int) -> list[Node]:
    return [node(f"{letter}{number}", f"cloud://{letter}{number}") for number in range(count)]


def test_an_observation_is_one_call_with_its_witnesses() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        lost, here = group(LOST, 3), group(HERE, 3)
        seen = await bench.inventory.ask_with_witnesses(lost, here, {"c0", "c1", "c2"})
        assert [set(call) for call in bench.cloud.calls] == [{"c0", "c1", "c2", "w0", "w1", "w2"}]
        assert {one.call for said in seen.values() for one in said} == {1}
        assert word(seen["c0"]) == [GONE]

    clock.run(scenario())


def test_an_observation_joins_no_other_call_and_takes_nothing_from_memory() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        lost, here = group(LOST, 1), group(HERE, 2)
        flying = asyncio.create_task(bench.get(lost))
        await asyncio.sleep(0.5)
        seen = await bench.inventory.ask_with_witnesses(lost, here, {"c0"})
        await flying
        assert len(bench.cloud.calls) == 2
        assert {one.call for said in seen.values() for one in said} == {2}
        await bench.inventory.ask_with_witnesses(lost, here, {"c0"})
        assert len(bench.cloud.calls) == 3

    clock.run(scenario())


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_where_not_all_fit_in_a_call_witnesses_are_asked_before_and_after(batch_size: int) -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud(batch_size=batch_size))
        lost, alive, here = group(LOST, 2), group("a", 1), group(HERE, 3)
        seen = await bench.inventory.ask_with_witnesses([*lost, *alive], here, {"c0", "c1"})
        for one in here:
            before, after = seen[one.metadata.name]
            for name in ("c0", "c1"):
                (said,) = seen[name]
                assert said.answer == GONE
                assert before.ended is not None
                assert said.ended is not None
                assert before.ended <= said.began
                assert said.ended <= after.began
        assert len(seen["a0"]) == 1

    clock.run(scenario())


def test_witnesses_cost_nothing_where_no_answer_hangs_on_them() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud(batch_size=1))
        alive, lost, here = group("a", 2), group(LOST, 1), group(HERE, 3)
        await bench.inventory.ask_with_witnesses(alive, here, {"a0", "a1"})
        assert sorted(bench.cloud.calls) == [("a0",), ("a1",)]
        await bench.inventory.ask_with_witnesses(lost, here, ())
        assert len(bench.cloud.calls) == 3

    clock.run(scenario())


def test_a_candidate_that_spoils_batches_is_asked_alone_between_witnesses() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        lost, here = group(LOST, 6), group(HERE, 3)
        bench.cloud.bad = {"c3"}
        due = {one.metadata.name for one in lost}
        seen = await bench.inventory.ask_with_witnesses(lost, here, due)
        assert isinstance(seen["c3"][-1].answer, CloudError)
        bench.cloud.calls.clear()
        seen = await bench.inventory.ask_with_witnesses(lost, here, due)
        assert sorted(len(call) for call in bench.cloud.calls) == [1, 8]
        assert len({seen[name][-1].call for name in ("c0", "c5", "w0")}) == 1
        bench.cloud.bad = set()
        bench.cloud.calls.clear()
        await bench.inventory.ask_with_witnesses(lost, here, due)
        asked = [set(call) for call in bench.cloud.calls]
        witnesses = {"w0", "w1", "w2"}
        assert asked == [{*due, *witnesses} - {"c3"}, {"c3"}, witnesses, {"c3"}, witnesses]

    clock.run(scenario())


def test_what_any_call_has_shown_is_kept_until_the_node_is_forgotten() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,), (lost,) = group(HERE, 1), group(LOST, 1)
        assert bench.inventory.sighting(one) == Sighting()
        await bench.get([one, lost])
        assert bench.inventory.sighting(one) == Sighting(shown=0.0, until=1.0, ran=0.0)
        assert bench.inventory.sighting(lost) == Sighting(missing=0.0)
        bench.cloud.answer = lambda _: GONE
        await asyncio.sleep(4.0)
        await bench.inventory.ask_with_witnesses([lost], [one], {LOST})
        await asyncio.sleep(4.0)
        await bench.inventory.ask_with_witnesses([lost], [one], {LOST})
        assert bench.inventory.sighting(one) == Sighting(shown=0.0, missing=5.0, until=1.0, ran=0.0)
        bench.cloud.answer = lambda _: NotFound(tombstone=True)
        await bench.inventory.ask_with_witnesses([lost], [one], {LOST})
        tombstone = bench.inventory.sighting(one).tombstone
        terminated = Sighting(shown=0.0, until=1.0, tombstone=tombstone, ran=0.0)
        assert bench.inventory.sighting(one) == terminated
        assert terminated.tombstone is not None
        bench.cloud.answer = lambda _: GONE
        await bench.inventory.ask_with_witnesses([lost], [one], {LOST})
        assert bench.inventory.sighting(one).tombstone == terminated.tombstone, "it was shown once"
        bench.cloud.answer = lambda asked: Instance(f"cloud://{asked.metadata.name}")
        await bench.inventory.ask_with_witnesses([lost], [one], {LOST})
        assert bench.inventory.sighting(one).tombstone is None
        assert bench.inventory.sighting(node(HERE + "0", "cloud://new")) == Sighting()
        bench.inventory.forget(one.metadata.uid)
        assert bench.inventory.sighting(one) == Sighting()

    clock.run(scenario())


def test_a_row_of_answers_without_power_is_that_of_all_calls() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,) = group(HERE, 1)

        async def seen(answer: InstanceAnswer) -> float | None:
            bench.cloud.answer = lambda _: answer
            await bench.inventory.ask_with_witnesses([one], [], ())
            return bench.inventory.sighting(one).off

        lit = Instance("cloud://w0")
        dark = Instance("cloud://w0", state=InstanceState.STOPPED, powered_off=True)
        assert [await seen(dark), await seen(dark)] == [0.0, 0.0]
        unclear = Instance("cloud://w0", state=InstanceState.UNKNOWN)
        for other in (lit, unclear, GONE, NotFound(tombstone=True)):
            assert await seen(other) is None
            assert bench.inventory.sighting(one).is_running is (other is lit)
            began = now()
            assert [await seen(dark), await seen(dark)] == [began, began]

    clock.run(scenario())


@pytest.mark.parametrize("late", ["off", "on"])
def test_a_late_answer_that_shows_power_ends_a_row_without(late: str) -> None:
    dark = Instance("cloud://w0", state=InstanceState.STOPPED, powered_off=True)

    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,) = group(HERE, 1)
        bench.cloud.latency = 10.0
        slow = asyncio.create_task(bench.get([one]))
        await asyncio.sleep(1.0)
        bench.cloud.latency = 1.0
        bench.cloud.answer = lambda _: dark
        await bench.inventory.ask_with_witnesses([one], [], ())
        bench.cloud.answer = lambda _: dark if late == "off" else Instance("cloud://w0")
        await slow
        assert bench.inventory.sighting(one).off == (1.0 if late == "off" else None)

    clock.run(scenario())


def test_a_node_that_is_forgotten_during_a_call_stays_forgotten() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,), (lost,) = group(HERE, 1), group(LOST, 1)
        looking = asyncio.create_task(bench.inventory.ask_with_witnesses([lost], [one], {LOST}))
        await asyncio.sleep(0.5)
        bench.inventory.forget(one.metadata.uid)
        await looking
        assert bench.inventory.sighting(one) == Sighting()
        assert bench.inventory.sighting(lost) != Sighting()
        await bench.get([one])
        assert bench.inventory.sighting(one) != Sighting()

    clock.run(scenario())


@pytest.mark.parametrize("before", [0, 1])
def test_a_late_answer_undoes_no_newer_one_but_has_shown_the_machine(before: int) -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,) = group(HERE, 1)
        bench.cloud.answer = lambda _: GONE
        for _ in range(before):
            await bench.inventory.ask_with_witnesses([one], [], ())
        began = now()
        bench.cloud.latency = 10.0
        slow = asyncio.create_task(bench.get([one], began))
        await asyncio.sleep(1.0)
        bench.cloud.latency = 1.0
        await bench.inventory.ask_with_witnesses([one], [], ())
        bench.cloud.answer = lambda _: Instance(provider_id="cloud://w0")
        await slow
        seen = bench.inventory.sighting(one)
        assert seen == Sighting(shown=began, missing=began + 1.0, until=began + 10.0, ran=began)
        assert seen.is_after(began + 9.0)
        assert not seen.is_after(began + 10.0)

    clock.run(scenario())


@pytest.mark.parametrize("lands", ["first", "last"])
def test_an_answer_counts_though_the_node_was_asked_for_again_meanwhile(lands: str) -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,) = group(HERE, 1)
        began, bench.cloud.latency = now(), 10.0
        former = asyncio.create_task(bench.get([one], began))
        await asyncio.sleep(1.0)
        bench.cloud.latency = 1.0 if lands == "last" else 20.0
        again = asyncio.create_task(bench.get([one], now()))
        if lands == "last":
            bench.cloud.answer = lambda _: GONE
            await again
            bench.cloud.answer = lambda _: Instance(provider_id="cloud://w0")
        await former
        bench.cloud.answer = lambda _: GONE
        await again
        seen = bench.inventory.sighting(one)
        assert seen == Sighting(shown=began, missing=began + 1.0, until=began + 10.0, ran=began)

    clock.run(scenario())


def test_a_late_answer_that_shows_nothing_changes_nothing() -> None:
    async def scenario() -> None:
        bench = Bench(the_cloud())
        (one,) = group(HERE, 1)
        bench.cloud.latency = 10.0
        slow = asyncio.create_task(bench.get([one]))
        await asyncio.sleep(1.0)
        bench.cloud.latency = 1.0
        await bench.inventory.ask_with_witnesses([one], [], ())
        bench.cloud.answer = lambda _: GONE
        await slow
        assert bench.inventory.sighting(one) == Sighting(shown=1.0, until=2.0, ran=1.0)

    clock.run(scenario())
