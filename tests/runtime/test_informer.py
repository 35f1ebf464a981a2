"""The informer against a local HTTP server that speaks list and watch, in virtual time."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from proreus.kube.client import Client, Written
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.runtime import metrics
from proreus.runtime.informer import Informer
from proreus.testing.clock import virtual_time

Change = tuple[str, str, str]


def node(name: str, version: int, *, uid: str = "", zone: str = "") -> dict[str, Any]:
    labels = {"zone": zone} if zone else {}
    return {
        "metadata": {
            "name": name, "uid": uid or name, "resourceVersion": str(version), "labels": labels,
        }
    }  # fmt: skip


class FakeAPI:
    """Nodes behind list, watch and get. What the watch says is up to the test."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.version = 0
        self.lists = 0
        self.found: dict[str, dict[str, Any] | int] = {}
        self.gets: list[tuple[float, str]] = []
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/v1/nodes", self._list_or_watch)
        app.router.add_get("/api/v1/nodes/{name}", self._get)
        return app

    def say(self, kind: str, obj: dict[str, Any]) -> None:
        """Send a line to the watch."""
        self._lines.put_nowait(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def expire(self) -> None:
        """End the watch with 410, so that everything is listed anew."""
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        self.say("ERROR", status)

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            meta = {"resourceVersion": str(self.version)}
            return web.json_response({"metadata": meta, "items": self.listed})
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self._lines.get() or b"")

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.gets.append((asyncio.get_running_loop().time(), name))
        answer = self.found.get(name, 404)
        if isinstance(answer, int):
            return web.json_response({"code": answer, "message": "scripted"}, status=answer)
        return web.json_response(answer)


class Log:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def __call__(self, old: Node | None, new: Node | None) -> None:
        obj = new or old
        assert obj is not None
        kind = "add" if old is None else "delete" if new is None else "update"
        self.changes.append((kind, obj.metadata.name, obj.metadata.uid))


@asynccontextmanager
async def following(api: FakeAPI, **options: Any) -> AsyncIterator[Informer[Node]]:
    async with TestServer(api.app()) as server:
        url = str(server.make_url("/")).rstrip("/")
        async with Client(ClientConfig(server=url)) as client:
            informer = Informer(client, NODES, **options)
            task = asyncio.create_task(informer.run())
            await informer.wait_synced()
            try:
                yield informer
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    """Let what is on its way arrive."""
    await asyncio.sleep(0.01)


@virtual_time
async def test_an_object_that_was_replaced_is_not_kept() -> None:
    api = FakeAPI()
    api.listed = [node("a", 1), node("b", 1)]
    async with following(api) as informer:
        await settle()
        listed = informer.get("a")
        api.say("MODIFIED", node("a", 2))
        api.say("MODIFIED", node("b", 3))
        await settle()
        assert informer.get("a") is not listed
        # Only `listed` here, and the argument of getrefcount itself.
        assert sys.getrefcount(listed) <= 2


@virtual_time
async def test_the_list_then_the_changes_reach_the_cache_and_the_handlers() -> None:
    api, log = FakeAPI(), Log()
    api.listed, api.version = [node("a", 1), node("b", 2)], 5
    async with following(api) as informer:
        informer.subscribe(log)
        assert log.changes == [("add", "a", "a"), ("add", "b", "b")]
        api.say("ADDED", node("c", 6))
        api.say("MODIFIED", node("a", 7, zone="z"))
        api.say("DELETED", node("b", 8))
        await settle()
        assert log.changes[2:] == [("add", "c", "c"), ("update", "a", "a"), ("delete", "b", "b")]
        assert sorted(obj.metadata.name for obj in informer.all()) == ["a", "c"]
        held = informer.get("a")
        assert held is not None
        assert held.metadata.labels == {"zone": "z"}
        assert informer.get("b") is None
        assert informer.generation == 5


@virtual_time
async def test_nothing_is_synced_before_the_first_list() -> None:
    async with Client(ClientConfig(server="http://127.0.0.1:1")) as client:
        informer = Informer(client, NODES)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(300)
        assert not informer.synced
        assert not task.done()
        errors = metrics.REGISTRY.get_sample_value(
            "proreus_informer_errors_total", {"resource": "nodes", "kind": "watch"}
        )
        assert errors
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@virtual_time
async def test_a_new_list_reports_only_what_is_different() -> None:
    api, log = FakeAPI(), Log()
    api.listed, api.version = [node("same", 1), node("gone", 2), node("changed", 3)], 5
    async with following(api) as informer:
        informer.subscribe(log)
        del log.changes[:]
        api.listed, api.version = [node("same", 1), node("changed", 8), node("new", 9)], 10
        api.expire()
        await asyncio.sleep(5)
        assert api.lists == 2
        assert sorted(log.changes) == [
            ("add", "new", "new"), ("delete", "gone", "gone"), ("update", "changed", "changed"),
        ]  # fmt: skip


@pytest.mark.parametrize("relist", [False, True])
@virtual_time
async def test_an_object_made_anew_under_its_name_is_a_delete_and_an_add(relist: bool) -> None:  # noqa: FBT001 - a parameter of the test
    api, log = FakeAPI(), Log()
    api.listed, api.version = [node("a", 1, uid="old")], 5
    async with following(api) as informer:
        informer.subscribe(log)
        again = node("a", 9, uid="new")
        if relist:
            api.listed, api.version = [again], 10
            api.expire()
            await asyncio.sleep(5)
        else:
            api.say("MODIFIED", again)
            await settle()
        assert log.changes == [("add", "a", "old"), ("delete", "a", "old"), ("add", "a", "new")]


@virtual_time
async def test_who_has_left_is_called_no_more() -> None:
    api, stays, leaves = FakeAPI(), Log(), Log()
    api.listed, api.version = [node("a", 1)], 5
    async with following(api) as informer:
        for each in (stays, leaves):
            informer.subscribe(each)
        informer.unsubscribe([leaves])
        assert informer.handlers == (stays,)
        api.say("ADDED", node("b", 6))
        await settle()
    assert stays.changes == [("add", "a", "a"), ("add", "b", "b")]
    assert leaves.changes == [("add", "a", "a")]


@virtual_time
async def test_a_handler_that_raises_does_not_stop_the_others() -> None:
    def broken(old: Node | None, new: Node | None) -> None:
        raise RuntimeError("bug")

    def faults() -> float:
        labels = {"resource": "nodes", "kind": "handler"}
        return metrics.REGISTRY.get_sample_value("proreus_informer_errors_total", labels) or 0.0

    api, log = FakeAPI(), Log()
    before = faults()
    async with following(api) as informer:
        informer.subscribe(broken)
        informer.subscribe(log)
        api.say("ADDED", node("a", 6))
        api.say("ADDED", node("b", 7))
        await settle()
        assert [name for _, name, _ in log.changes] == ["a", "b"]
        assert faults() == before + 2


@virtual_time
async def test_an_index_follows_its_objects() -> None:
    api = FakeAPI()
    api.listed, api.version = [node("a", 1, zone="x"), node("b", 2, zone="x")], 5

    def zones(obj: Node) -> list[str]:
        return list(obj.metadata.labels.values())

    def names(zone: str) -> list[str]:
        return sorted(obj.metadata.name for obj in informer.by("zone", zone))

    async with following(api, indexes={"zone": zones}) as informer:
        assert names("x") == ["a", "b"]
        api.say("MODIFIED", node("a", 6, zone="y"))
        await settle()
        assert (names("x"), names("y")) == (["b"], ["a"])
        api.say("DELETED", node("b", 7, zone="other"))
        await settle()
        assert (names("x"), names("other")) == ([], [])
        with pytest.raises(KeyError):
            informer.by("nonsense", "x")


@virtual_time
async def test_a_write_is_seen_once_the_watch_has_reached_its_version() -> None:
    api = FakeAPI()
    api.listed, api.version = [node("a", 1)], 5
    async with following(api) as informer:
        written = Written("a", 20)
        assert informer.seen("a", Written("a", 5))
        assert not informer.seen("a", written)
        waiting = asyncio.create_task(informer.wait_seen("a", written))
        api.say("MODIFIED", node("a", 19))
        await settle()
        assert not waiting.done()
        api.say("MODIFIED", node("a", 20))
        await waiting
        assert informer.seen("a", written)
        assert not api.gets


@virtual_time
async def test_a_later_change_of_another_object_shows_that_the_watch_has_passed_the_write() -> None:
    api = FakeAPI()
    api.listed, api.version = [node("a", 1), node("b", 2)], 5
    async with following(api) as informer:
        waiting = asyncio.create_task(informer.wait_seen("gone", Written("gone", 20)))
        api.say("MODIFIED", node("b", 21))
        await waiting
        assert not api.gets


@virtual_time
async def test_versions_compare_as_numbers() -> None:
    api = FakeAPI()
    api.listed, api.version = [node("a", 9)], 9
    async with following(api) as informer:
        assert not informer.seen("a", Written("a", 10))
        api.say("MODIFIED", node("a", 100))
        await settle()
        assert informer.seen("a", Written("a", 99))


@virtual_time
async def test_a_watch_that_lags_is_overtaken_by_one_get() -> None:
    api, log = FakeAPI(), Log()
    api.listed, api.version = [node("a", 1)], 5
    api.found["a"] = node("a", 22, zone="new")
    async with following(api) as informer:
        informer.subscribe(log)
        began = asyncio.get_running_loop().time()
        await informer.wait_seen("a", Written("a", 20))
        assert api.gets == [(began + 10, "a")]
        assert informer.seen("a", Written("a", 22))
        # Another object's write is not settled by that.
        assert not informer.seen("b", Written("b", 20))
        held = informer.get("a")
        assert held is not None
        assert held.metadata.labels == {"zone": "new"}
        # The watch catches up: what it says is old until it has passed the GET's version.
        api.say("MODIFIED", node("a", 20, zone="old"))
        api.say("MODIFIED", node("a", 22, zone="new"))
        await settle()
        held = informer.get("a")
        assert held is not None
        assert held.metadata.labels == {"zone": "new"}
        api.say("MODIFIED", node("a", 23, zone="newest"))
        await settle()
        held = informer.get("a")
        assert held is not None
        assert held.metadata.labels == {"zone": "newest"}
        assert [kind for kind, _, _ in log.changes] == ["add", "update", "update"]


@virtual_time
async def test_an_object_that_a_get_finds_gone_is_not_brought_back_by_a_late_watch() -> None:
    api, log = FakeAPI(), Log()
    api.listed, api.version = [node("a", 1)], 5
    async with following(api) as informer:
        informer.subscribe(log)
        await informer.wait_seen("a", Written("a", 20))
        assert informer.get("a") is None
        api.say("MODIFIED", node("a", 20))
        api.say("DELETED", node("a", 21))
        await settle()
        assert informer.get("a") is None
        assert [kind for kind, _, _ in log.changes] == ["add", "delete"]
        api.say("ADDED", node("a", 30, uid="new"))
        await settle()
        assert log.changes[-1] == ("add", "a", "new")


@virtual_time
async def test_an_object_that_leaves_the_selector_by_the_write_goes_when_the_watch_reports_it() -> (
    None
):
    api = FakeAPI()
    api.listed, api.version = [node("a", 1)], 5
    api.found["a"] = node("a", 20)
    async with following(api, field_selector="spec.unschedulable=false") as informer:
        await informer.wait_seen("a", Written("a", 20))
        assert informer.get("a") is not None
        api.say("DELETED", node("a", 20))
        await settle()
        assert informer.get("a") is None


@virtual_time
async def test_while_the_get_fails_too_both_are_tried_again() -> None:
    api = FakeAPI()
    api.listed, api.version = [node("a", 1)], 5
    api.found["a"] = 500
    async with following(api) as informer:
        began = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(informer.wait_seen("a", Written("a", 20), timeout=5.0))
        await asyncio.sleep(13)
        assert [at - began for at, _ in api.gets] == [5, 10]
        assert not waiting.done()
        api.say("MODIFIED", node("a", 20))
        await waiting
        assert asyncio.get_running_loop().time() == pytest.approx(began + 13)


@virtual_time
async def test_after_a_crash_the_cache_goes_on_from_what_it_holds() -> None:
    api, log = FakeAPI(), Log()
    api.listed, api.version = [node("a", 1), node("b", 2)], 5
    async with following(api) as informer:
        informer.subscribe(log)
        api.listed, api.version = [node("b", 2), node("c", 7)], 8
        second = asyncio.create_task(informer.run())
        await settle()
        assert log.changes[2:] == [("delete", "a", "a"), ("add", "c", "c")]
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
