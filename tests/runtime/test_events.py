import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proreus.kube.client import Written
from proreus.kube.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    RefusedByGate,
    ServerError,
    Unreachable,
)
from proreus.kube.messages import MESSAGE_LIMIT
from proreus.kube.objects import EndpointSlice, Node, ObjectMeta, Service
from proreus.kube.patch import Patch
from proreus.kube.requests import EVENTS, Resource
from proreus.runtime import metrics
from proreus.runtime.correlation import BURST, COMBINED, REFILL, SIMILAR
from proreus.runtime.events import QUEUE_LIMIT, EventRecorder, ref_of
from proreus.testing.clock import virtual_time

START = datetime(2026, 1, 1, tzinfo=UTC)
NODE = Node(metadata=ObjectMeta(name="n1", uid="u1"))
SERVICE = Service(metadata=ObjectMeta(name="web", namespace="shop", uid="u2"))


class Writer:
    """Stands for the API server; keeps events by namespace and name."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes: list[tuple[float, str]] = []
        self.failures: list[KubeError] = []
        self.loses_answers = False

    async def create(
        self, resource: Resource[Any], body: Mapping[str, Any], namespace: str = ""
    ) -> Written:
        assert resource is EVENTS
        self._write("create")
        name = body["metadata"]["name"]
        if (namespace, name) in self.events:
            raise AlreadyExists(409, "there is one")
        self.events[namespace, name] = dict(body)
        if self.loses_answers:
            self.loses_answers = False
            raise Unreachable("the answer was lost", sent=True)
        return Written("uid", 1)

    async def patch(
        self, resource: Resource[Any], name: str, patch: Patch, namespace: str = ""
    ) -> Written:
        self._write("patch")
        if (namespace, name) not in self.events:
            raise NotFound(404, "expired")
        self.events[namespace, name].update(patch.body)
        return Written("uid", 2)

    def _write(self, verb: str) -> None:
        self.writes.append((asyncio.get_running_loop().time(), verb))
        if self.failures:
            raise self.failures.pop(0)

    @property
    def verbs(self) -> list[str]:
        return [verb for _, verb in self.writes]

    @property
    def only(self) -> dict[str, Any]:
        (event,) = self.events.values()
        return event


class Site:
    """A recorder, the writer behind it, and whether others are writing."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.writer = Writer()
        self.busy = False
        self.recorder = EventRecorder(
            self.writer, host="h1", busy=lambda: self.busy,
            now=lambda: START + timedelta(seconds=loop.time()),
        )  # fmt: skip

    def record(self, message: str = "Ready", obj: Node | Service = NODE) -> None:
        self.recorder.source("node-controller").event(obj, "Normal", "Initialized", message)

    def warn(self, message: str, reason: str = "SyncLoadBalancerFailed") -> None:
        self.recorder.source("service-lb-controller").event(SERVICE, "Warning", reason, message)

    @property
    def told(self) -> list[tuple[str, int]]:
        """Message and count of each event, the oldest first."""
        return [(event["message"], event["count"]) for event in self.writer.events.values()]


@asynccontextmanager
async def recording() -> AsyncIterator[Site]:
    site = Site()
    task = asyncio.create_task(site.recorder.run())
    yield site
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def counted(result: str) -> float:
    return metrics.REGISTRY.get_sample_value("proreus_events_total", {"result": result}) or 0.0


@virtual_time
async def test_an_event_has_object_component_and_time() -> None:
    async with recording() as site:
        site.record("Node is initialised")
        await asyncio.sleep(1)
        ((namespace, name),) = site.writer.events
        event = site.writer.only
        assert namespace == "default"
        assert name.startswith("n1.")
        assert event["involvedObject"] == {
            "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1",
        }  # fmt: skip
        assert (event["type"], event["reason"]) == ("Normal", "Initialized")
        assert event["message"] == "Node is initialised"
        assert event["source"] == {"component": "node-controller", "host": "h1"}
        assert event["reportingComponent"] == "node-controller"
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"
        assert event["count"] == 1


@virtual_time
async def test_an_event_lives_in_the_namespace_of_its_object() -> None:
    async with recording() as site:
        site.record(obj=SERVICE)
        await asyncio.sleep(1)
        ((namespace, _),) = site.writer.events
        assert namespace == "shop"
        assert site.writer.only["involvedObject"]["namespace"] == "shop"


@virtual_time
async def test_the_same_event_again_is_counted_up() -> None:
    async with recording() as site:
        for _ in range(3):
            site.record()
            await asyncio.sleep(120)
        assert site.writer.verbs == ["create", "patch", "patch"]
        assert site.writer.only["count"] == 3
        assert site.writer.only["firstTimestamp"] == "2026-01-01T00:00:00Z"
        assert site.writer.only["lastTimestamp"] == "2026-01-01T00:04:00Z"


@pytest.mark.parametrize("different", ["message", "object"])
@virtual_time
async def test_a_different_event_is_a_new_one(different: str) -> None:
    async with recording() as site:
        site.record()
        await asyncio.sleep(1)
        site.record(
            "other" if different == "message" else "Ready",
            SERVICE if different == "object" else NODE,
        )
        await asyncio.sleep(1)
        assert site.writer.verbs == ["create", "create"]


@virtual_time
async def test_the_same_event_after_the_api_server_has_forgotten_it_is_a_new_one() -> None:
    async with recording() as site:
        site.record()
        await asyncio.sleep(3601)
        site.record()
        await asyncio.sleep(1)
        assert site.writer.verbs == ["create", "create"]


@virtual_time
async def test_an_event_that_has_expired_is_written_anew() -> None:
    async with recording() as site:
        site.record()
        await asyncio.sleep(60)
        site.writer.events.clear()
        site.record()
        await asyncio.sleep(1)
        assert site.writer.verbs == ["create", "patch", "create"]
        assert site.writer.only["count"] == 1


@virtual_time
async def test_events_wait_behind_other_writes_and_are_counted_up_meanwhile() -> None:
    async with recording() as site:
        site.busy = True
        for _ in range(5):
            site.record()
        await asyncio.sleep(2)
        assert not site.writer.writes
        site.busy = False
        await asyncio.sleep(0.1)
        assert site.writer.verbs == ["create"]
        assert site.writer.only["count"] == 5


@virtual_time
async def test_events_do_not_starve_behind_writes_that_never_end() -> None:
    async with recording() as site:
        site.busy = True
        site.record("first")
        await asyncio.sleep(1)
        site.record("second")
        await asyncio.sleep(60)
        times = [at for at, _ in site.writer.writes]
        assert times == [pytest.approx(5.0, abs=0.1), pytest.approx(6.0, abs=0.1)]


@pytest.mark.parametrize("error", [Unreachable("cut", sent=False), ServerError(500, "etcd")])
@virtual_time
async def test_events_survive_an_outage_of_the_api_server(error: KubeError) -> None:
    async with recording() as site:
        site.writer.failures = [error] * 4
        site.record()
        await asyncio.sleep(60)
        assert len(site.writer.writes) == 5
        assert site.writer.only["count"] == 1


@virtual_time
async def test_an_event_whose_answer_was_lost_is_not_written_twice() -> None:
    async with recording() as site:
        site.writer.loses_answers = True
        site.record()
        await asyncio.sleep(60)
        assert site.writer.verbs == ["create", "create"]
        assert site.writer.only["count"] == 1
        site.record()
        await asyncio.sleep(1)
        assert site.writer.only["count"] == 2


@pytest.mark.parametrize("error", [Forbidden(403, "no role"), RefusedByGate("not the leader")])
@virtual_time
async def test_an_event_that_is_refused_is_dropped_and_the_next_one_goes_on(
    error: KubeError,
) -> None:
    async with recording() as site:
        before = counted("failed")
        site.writer.failures = [error]
        site.record("refused")
        site.record("next")
        await asyncio.sleep(1)
        assert site.writer.verbs == ["create", "create"]
        assert site.writer.only["message"] == "next"
        assert counted("failed") == before + 1


@virtual_time
async def test_a_flood_drops_the_oldest_and_counts_them() -> None:
    site = Site()
    before = counted("dropped")
    for number in range(QUEUE_LIMIT + 3):
        site.record(str(number), Node(metadata=ObjectMeta(name=f"n{number}", uid="u")))
    assert counted("dropped") == before + 3
    task = asyncio.create_task(site.recorder.run())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    messages = [event["message"] for event in site.writer.events.values()]
    assert messages[0] == "3"
    assert len(messages) == QUEUE_LIMIT


@virtual_time
async def test_events_of_one_object_at_one_moment_are_all_written() -> None:
    async with recording() as site:
        for number in range(3):
            site.record(str(number))
        await asyncio.sleep(1)
        assert {event["message"] for event in site.writer.events.values()} == {"0", "1", "2"}


@virtual_time
async def test_an_error_is_reported_at_once_and_while_it_lasts_every_ten_minutes() -> None:
    async with recording() as site:
        for _ in range(241):  # 20 minutes
            site.warn("quota exceeded")
            await asyncio.sleep(5)
        times = [at for at, _ in site.writer.writes]
        assert times == [0.0, 600.0, 1200.0]
        assert site.writer.verbs == ["create", "patch", "patch"]
        assert site.told == [("quota exceeded", 241)]
        assert site.writer.only["firstTimestamp"] == "2026-01-01T00:00:00Z"
        assert site.writer.only["lastTimestamp"] == "2026-01-01T00:20:00Z"


@virtual_time
async def test_the_report_of_an_error_does_not_depend_on_how_soon_it_is_written() -> None:
    async with recording() as site:
        site.busy = True
        site.warn("quota exceeded")
        await asyncio.sleep(1)
        site.warn("quota exceeded")
        site.busy = False
        await asyncio.sleep(1)
        assert site.told == [("quota exceeded", 1)]
        await asyncio.sleep(600)
        site.warn("quota exceeded")
        await asyncio.sleep(1)
        assert site.told == [("quota exceeded", 3)]


@virtual_time
async def test_an_error_whose_event_could_not_be_written_is_reported_with_the_next_one() -> None:
    async with recording() as site:
        site.writer.failures = [Forbidden(403, "no")]
        site.warn("quota exceeded")
        await asyncio.sleep(1)
        assert site.told == []
        site.warn("quota exceeded")
        await asyncio.sleep(1)
        assert site.told == [("quota exceeded", 2)]


@virtual_time
async def test_an_error_that_comes_back_is_reported_at_once() -> None:
    async with recording() as site:
        site.warn("quota exceeded")
        await asyncio.sleep(5)
        site.warn("quota exceeded")
        await asyncio.sleep(5)
        site.recorder.source("service-lb-controller").event(SERVICE, "Normal", "Ensured", "Done")
        await asyncio.sleep(5)
        site.warn("quota exceeded")
        await asyncio.sleep(1)
        assert [at for at, _ in site.writer.writes] == [0.0, 10.0, 15.0]
        assert site.told == [("quota exceeded", 3), ("Done", 1)]


@virtual_time
async def test_an_error_of_one_object_does_not_hold_back_that_of_another() -> None:
    async with recording() as site:
        for number in range(3):
            node = Node(metadata=ObjectMeta(name=f"n{number}", uid=f"u{number}"))
            site.recorder.source("c").event(node, "Warning", "Failed", "the cloud is down")
        await asyncio.sleep(1)
        assert site.writer.verbs == ["create"] * 3


@virtual_time
async def test_texts_that_differ_only_in_a_request_id_are_one_event() -> None:
    async with recording() as site:
        for number in range(3):
            site.warn(f"refused, RequestId: {number:08x}-1111-2222-3333-444444444444")
            await asyncio.sleep(300)
        assert site.told == [("refused, RequestId: <id>", 3)]


@virtual_time
async def test_ids_in_what_is_no_error_are_kept() -> None:
    async with recording() as site:
        site.record("is openstack:///12345678-1111-2222-3333-444444444444")
        await asyncio.sleep(1)
        assert site.told == [("is openstack:///12345678-1111-2222-3333-444444444444", 1)]


@virtual_time
async def test_similar_events_are_combined_from_the_tenth_on() -> None:
    async with recording() as site:
        for number in range(14):
            site.record(f"port {number}")
            await asyncio.sleep(1)
        alone = [(f"port {number}", 1) for number in range(SIMILAR - 1)]
        assert site.told == [*alone, (f"{COMBINED}port 13", 5)]


@virtual_time
async def test_a_component_that_floods_one_object_is_cut_and_others_are_not() -> None:
    async with recording() as site:
        before = counted("filtered")
        for number in range(60):
            site.record()
            site.recorder.source("other").event(NODE, "Normal", f"R{number // 12}", "x")
            await asyncio.sleep(1)
        mine = [event for event in site.writer.events.values() if event["message"] == "Ready"]
        assert [event["count"] for event in mine] == [BURST]
        assert counted("filtered") == before + 2 * (60 - BURST)
        site.record(obj=SERVICE)
        await asyncio.sleep(1)
        assert site.told[-1] == ("Ready", 1)
        await asyncio.sleep(REFILL)
        site.record()
        await asyncio.sleep(1)
        assert mine[0]["count"] == 61


@virtual_time
async def test_names_and_messages_keep_to_the_limits_of_the_api() -> None:
    async with recording() as site:
        name = "a" * 230 + "." + "b" * 22
        site.record("x" * 5000, Node(metadata=ObjectMeta(name=name, uid="u")))
        await asyncio.sleep(1)
        ((_, event_name),) = site.writer.events
        assert len(event_name) <= 253
        assert ".." not in event_name
        assert len(site.writer.only["message"]) == MESSAGE_LIMIT


def test_a_reference_names_the_api_of_its_object() -> None:
    obj = EndpointSlice(metadata=ObjectMeta(name="s", namespace="n", uid="u"))
    ref = ref_of(obj)
    assert (ref.api_version, ref.kind) == ("discovery.k8s.io/v1", "EndpointSlice")
    assert (ref.namespace, ref.name, ref.uid) == ("n", "s", "u")


@virtual_time
async def test_a_flush_waits_for_the_queued_events_but_not_for_ever() -> None:
    async with recording() as site:
        await site.recorder.flush(1.0)
        site.record("one")
        site.record("two")
        await site.recorder.flush(60.0)
        assert len(site.writer.events) == 2
        site.busy = True
        site.record("three")
        await site.recorder.flush(1.0)
        assert len(site.writer.events) == 2
