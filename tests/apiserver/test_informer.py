"""The informer and the event recorder on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from proreus.kube import config, patch, requests
from proreus.kube.client import Client, Written
from proreus.kube.errors import NotFound
from proreus.kube.objects import Node, ObjectMeta
from proreus.kube.requests import EVENTS, NODES
from proreus.runtime.events import EventRecorder, ObjectReference, ref_of
from proreus.runtime.informer import Informer
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from .memory_plane import MemoryPlane

HANG = 60.0


@pytest.fixture
async def client(api_server: ControlPlane | MemoryPlane) -> AsyncIterator[Client]:
    async with Client(config.load(str(api_server.kubeconfig), env={})) as client:
        yield client


@pytest.fixture
async def name(client: Client) -> AsyncIterator[str]:
    """A name for a node, which is removed at the end."""
    name = f"informed-{uuid4().hex[:8]}"
    yield name
    with suppress(NotFound):
        await client.delete(NODES, name)


@asynccontextmanager
async def running(informer: Informer[Node]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(HANG):
            await informer.wait_synced()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Changes:
    """What a handler was told of one node."""

    def __init__(self, informer: Informer[Node], name: str) -> None:
        self.name = name
        self.kinds: list[str] = []
        self._told = asyncio.Event()
        informer.subscribe(self._handle)

    def _handle(self, old: Node | None, new: Node | None) -> None:
        if (new or old or Node()).metadata.name == self.name:
            self.kinds.append("add" if old is None else "delete" if new is None else "update")
            self._told.set()

    async def until(self, condition: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(HANG):
            while not condition(self.kinds):
                self._told.clear()
                await self._told.wait()


def label(node: Node, value: str) -> patch.Patch:
    ops = patch.labels(node.metadata.labels, {"test": value})
    return patch.json_patch(node.metadata.uid, ops)


async def test_own_writes_are_seen_up_to_the_deletion(client: Client, name: str) -> None:
    informer = Informer(client, NODES)
    async with running(informer):
        changes = Changes(informer, name)
        written = await client.create(NODES, {"metadata": {"name": name}})
        await informer.wait_seen(name, written, HANG)
        node = informer.get(name)
        assert node is not None
        assert node.metadata.uid == written.uid
        for value in ("one", "two"):
            written = await client.patch(NODES, name, label(node, value))
            await informer.wait_seen(name, written, HANG)
            node = informer.get(name)
            assert node is not None
            assert node.metadata.labels["test"] == value
        await client.delete(NODES, name)
        await changes.until(lambda kinds: "delete" in kinds)
        assert informer.get(name) is None
        assert informer.seen(name, written)
        assert changes.kinds[0] == "add"


async def test_a_cache_without_a_watch_is_settled_by_one_get(client: Client, name: str) -> None:
    """The watch selects another node, so only the GET can show the write."""
    informer = Informer(client, NODES, field_selector="metadata.name=nobody")
    async with running(informer):
        written = await client.create(NODES, {"metadata": {"name": name}})
        await informer.wait_seen(name, written, timeout=0.2)
        node = informer.get(name)
        assert node is not None
        assert node.metadata.uid == written.uid
        gone = Written("gone", written.resource_version)
        await informer.wait_seen("there-is-no-such-node", gone, timeout=0.2)
        assert informer.get("there-is-no-such-node") is None


async def test_a_selector_limits_the_cache(client: Client, name: str) -> None:
    informer = Informer(client, NODES, field_selector=f"metadata.name={name}")
    other = f"{name}-other"
    await client.create(NODES, {"metadata": {"name": other}})
    try:
        async with running(informer):
            written = await client.create(NODES, {"metadata": {"name": name}})
            await informer.wait_seen(name, written, HANG)
            assert [node.metadata.name for node in informer.all()] == [name]
    finally:
        await client.delete(NODES, other)


async def test_what_happened_while_nobody_watched_is_reported_afterwards(
    client: Client, name: str
) -> None:
    informer = Informer(client, NODES)
    changes = Changes(informer, name)
    first = await client.create(NODES, {"metadata": {"name": name}})
    async with running(informer):
        await changes.until(lambda kinds: kinds == ["add"])
    await client.delete(NODES, name)
    second = await client.create(NODES, {"metadata": {"name": name}})
    assert first.uid != second.uid
    async with running(informer):
        await informer.wait_seen(name, second, HANG)
    assert changes.kinds[:3] == ["add", "delete", "add"]
    node = informer.get(name)
    assert node is not None
    assert node.metadata.uid == second.uid


async def test_the_watch_goes_on_after_a_restart_of_the_api_server(
    client: Client, name: str, api_server: ControlPlane | MemoryPlane
) -> None:
    informer = Informer(client, NODES)
    async with running(informer):
        changes = Changes(informer, name)
        await client.create(NODES, {"metadata": {"name": name}})
        await changes.until(lambda kinds: "add" in kinds)
        await api_server.restart_apiserver()
        written = await client.patch(NODES, name, label(await client.get(NODES, name), "after"))
        await informer.wait_seen(name, written, HANG)
        node = informer.get(name)
        assert node is not None
        assert node.metadata.labels["test"] == "after"
        assert "delete" not in changes.kinds


async def events_of(client: Client, obj: str, namespace: str) -> list[dict[str, Any]]:
    request = requests.list_page(EVENTS, namespace, field_selector=f"involvedObject.name={obj}")
    answer: dict[str, Any] = await client.send(request, dict[str, Any])
    events: list[dict[str, Any]] = answer["items"]
    return events


async def test_events_are_accepted_and_counted_up(client: Client, name: str) -> None:
    recorder = EventRecorder(client, host="here")
    source = recorder.source("test-controller")
    node = Node(metadata=ObjectMeta(name=name, uid=str(uuid4())))
    lease = ObjectReference("coordination.k8s.io/v1", "Lease", name, "kube-system")
    run = asyncio.create_task(recorder.run())
    try:
        source.event(ref_of(node), "Normal", "Testing", "The same")
        source.event(lease, "Normal", "LeaderElection", "became leader")
        await until("an event", lambda: events_of(client, name, "kube-system"), HANG)
        source.event(ref_of(node), "Normal", "Testing", "The same")

        async def is_counted() -> bool:
            return bool((await events_of(client, name, "default"))[0]["count"] == 2)

        await until("the event counts two", is_counted, HANG)
        (event,) = await events_of(client, name, "default")
        assert (event["type"], event["reason"], event["message"]) == (
            "Normal", "Testing", "The same",
        )  # fmt: skip
        assert event["involvedObject"]["uid"] == node.metadata.uid
        assert event["source"]["component"] == "test-controller"
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
