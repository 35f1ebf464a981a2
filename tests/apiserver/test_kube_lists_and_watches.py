"""Lists by pages and watches that outlive what happens to the API server.

The watch cache hides how old a version is, so most of these have a control plane without it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from proreus.kube import config, patch
from proreus.kube.client import Client
from proreus.kube.errors import Gone, KubeError, Unreachable
from proreus.kube.objects import ConfigMap
from proreus.kube.requests import CONFIG_MAPS, ENDPOINT_SLICES, Request
from proreus.kube.watch import Applied, Deleted, Event, Restarted, watch
from proreus.testing.controlplane import ControlPlane

from .memory_plane import MemoryPlane

Plane = ControlPlane | MemoryPlane

PATIENCE = 60.0


def run(work: Coroutine[Any, Any, None]) -> None:
    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(
        log_dir=tmp_path_factory.mktemp("uncached"), extra_apiserver_args=["--watch-cache=false"]
    )
    run(plane.start())
    try:
        yield plane
    finally:
        run(plane.stop())


@pytest.fixture(params=["control_plane", "uncached", "in_memory"])
def plane(request: pytest.FixtureRequest) -> Plane:
    found: Plane = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["uncached", "in_memory"])
def forgetful(request: pytest.FixtureRequest) -> Plane:
    """One that does not hide from a watch that its version is forgotten."""
    found: Plane = request.getfixturevalue(request.param)
    return found


def connect(plane: Plane, **options: Any) -> Client:
    return Client(config.load(str(plane.kubeconfig), env={}), **options)


async def forget_history(plane: Plane) -> None:
    """Let etcd forget all versions but the present one."""
    if isinstance(plane, MemoryPlane):
        plane.server.store.forget()
        return
    connector = aiohttp.UnixConnector(path=str(plane.etcd_socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.post("http://etcd/v3/kv/range", json={"key": "AA=="}) as answer:
            revision = msgspec.json.decode(await answer.read())["header"]["revision"]
        body = {"revision": revision, "physical": True}
        async with session.post("http://etcd/v3/kv/compaction", json=body) as answer:
            assert answer.status == 200, await answer.text()


@asynccontextmanager
async def config_maps(client: Client, *names: str, **data: str) -> AsyncIterator[list[ConfigMap]]:
    for name in names:
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data}, "default")
    try:
        yield [await client.get(CONFIG_MAPS, name, "default") for name in names]
    finally:
        for name in names:
            await client.delete(CONFIG_MAPS, name, "default")


def names(items: tuple[ConfigMap, ...]) -> list[str]:
    return [item.metadata.name for item in items]


class Recorder:
    """Counts the lists, and does something before the request of that number."""

    def __init__(self, number: int = 0, act: Callable[[], Awaitable[None]] | None = None) -> None:
        self.number = number
        self.act = act
        self.requests = 0
        self.limits: list[str] = []
        self.codes: list[int] = []

    async def acquire(self) -> None:
        self.requests += 1
        if self.requests == self.number and self.act is not None:
            await self.act()

    def observe(self, request: Request, code: int, seconds: float) -> None:
        self.limits.append(dict(request.query).get("limit", ""))
        self.codes.append(code)


async def test_a_list_comes_in_pages_of_one_version(plane: Plane) -> None:
    recorder = Recorder()
    wanted = [f"page-{i}" for i in range(7)]
    async with (
        connect(plane) as writer,
        connect(plane, observer=recorder.observe) as client,
        config_maps(writer, *wanted) as made,
    ):
        listing = await client.list(CONFIG_MAPS, "default", limit=2)

        found = [item for item in listing.items if item.metadata.name in wanted]
        assert found == made
        assert recorder.limits == ["2"] * (-(-len(listing.items) // 2))
        newest = max(int(item.metadata.resource_version) for item in made)
        assert int(listing.resource_version) >= newest


async def test_endpoint_slices_without_endpoints_are_read(plane: Plane) -> None:
    body = {"metadata": {"name": "without-endpoints"}, "addressType": "IPv4"}
    async with connect(plane) as client:
        await client.create(ENDPOINT_SLICES, {**body, "endpoints": []}, "default")
        try:
            found = (await client.list(ENDPOINT_SLICES, "default")).items
            mine = [one for one in found if one.metadata.name == "without-endpoints"]
            assert [(one.endpoints or (), one.ports or ()) for one in mine] == [((), ())]
        finally:
            await client.delete(ENDPOINT_SLICES, "without-endpoints", "default")


async def test_a_list_whose_version_is_forgotten_on_the_way_begins_again(
    forgetful: Plane,
) -> None:
    async def meanwhile() -> None:
        await writer.create(CONFIG_MAPS, {"metadata": {"name": "a-late"}}, "default")
        await forget_history(forgetful)

    recorder = Recorder(number=3, act=meanwhile)
    async with (
        connect(forgetful) as writer,
        connect(forgetful, limiter=recorder, observer=recorder.observe) as client,
        config_maps(writer, "old-1", "old-2", "old-3", "old-4", "old-5"),
    ):
        listing = await client.list(CONFIG_MAPS, "default", limit=2)

        assert recorder.codes == [200, 200, 410, 200, 200, 200]
        assert names(listing.items) == ["a-late", *(f"old-{i}" for i in range(1, 6))]
        await writer.delete(CONFIG_MAPS, "a-late", "default")


class Follower:
    """Follows the config maps of the namespace default in a task of its own."""

    def __init__(self, client: Client) -> None:
        self.errors: list[Exception] = []
        self.events: asyncio.Queue[Event[ConfigMap]] = asyncio.Queue()
        self._task = asyncio.create_task(self._follow(client))

    async def _follow(self, client: Client) -> None:
        events = watch(
            client, CONFIG_MAPS, "default", backoff=lambda _: 0.1, on_error=self.errors.append
        )
        async with aclosing(events):
            async for event in events:
                self.events.put_nowait(event)

    async def next(self) -> Event[ConfigMap]:
        async with asyncio.timeout(PATIENCE):
            return await self.events.get()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@asynccontextmanager
async def following(plane: Plane) -> AsyncIterator[tuple[Client, Follower]]:
    """A follower that has listed, and a client to change things with."""
    async with connect(plane) as client, connect(plane) as watcher:
        follower = Follower(watcher)
        try:
            assert isinstance(await follower.next(), Restarted)
            yield client, follower
        finally:
            await follower.stop()


async def test_a_watch_reports_what_happens(plane: Plane) -> None:
    async with following(plane) as (client, follower):
        async with config_maps(client, "told", a="b") as (made,):
            assert await follower.next() == Applied(made)
        gone = await follower.next()

        assert isinstance(gone, Deleted)
        assert gone.object.metadata.uid == made.metadata.uid
        assert int(gone.object.metadata.resource_version) > int(made.metadata.resource_version)
        assert follower.errors == []


async def test_a_watch_goes_on_after_the_api_server_was_away(forgetful: Plane) -> None:
    async with following(forgetful) as (client, follower):
        async with config_maps(client, "before") as (before,):
            assert await follower.next() == Applied(before)

            await forgetful.restart_apiserver()
            async with config_maps(client, "after") as (after,):
                # No second list, and nothing twice.
                assert await follower.next() == Applied(after)

        assert follower.errors
        assert all(isinstance(error, KubeError) for error in follower.errors)
        assert not any(isinstance(error, Gone) for error in follower.errors)


async def test_a_watch_whose_version_is_forgotten_lists_again(forgetful: Plane) -> None:
    async with following(forgetful) as (client, follower), config_maps(client, "kept") as (kept,):
        assert await follower.next() == Applied(kept)
        # Something else moves the version on, which the watch does not hear of.
        for number in range(3):
            elsewhere = {"metadata": {"name": f"elsewhere-{number}"}}
            await client.create(CONFIG_MAPS, elsewhere, "kube-public")
        await forgetful.stop_apiserver()
        await forget_history(forgetful)
        await forgetful.start_apiserver()

        again = await follower.next()

        assert isinstance(again, Restarted)
        assert kept in again.items
        assert any(isinstance(error, Gone) for error in follower.errors)
        assert any(isinstance(error, Unreachable) for error in follower.errors)


async def test_an_object_over_a_megabyte_comes_whole(plane: Plane) -> None:
    # A ConfigMap may hold 1 MiB, and annotations besides.
    data, more = os.urandom(510_000).hex(), os.urandom(120_000).hex()
    async with following(plane) as (client, follower), config_maps(client, "big", x=data) as (big,):
        assert await follower.next() == Applied(big)
        ops = patch.annotations({}, {"more": more})

        await client.patch(CONFIG_MAPS, "big", patch.json_patch(big.metadata.uid, ops), "default")

        told = await follower.next()
        listed = await client.list(CONFIG_MAPS, "default", field_selector="metadata.name=big")
        assert isinstance(told, Applied)
        assert (told.object.data, told.object.metadata.annotations) == ({"x": data}, {"more": more})
        assert len(msgspec.json.encode(told.object)) > 1 << 20
        assert listed.items == (told.object,)
