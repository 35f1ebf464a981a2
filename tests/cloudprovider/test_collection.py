"""Objects of one kind in a REST API, on a server that keeps them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from proreus.cloudprovider import Collection, Refused

from .served import client, served

PAGE = 2


class Thing(msgspec.Struct, frozen=True):
    name: str
    color: str = "red"


class Page(msgspec.Struct):
    items: list[Thing]
    after: str


class Cloud:
    """Keeps things by name, and the requests that it gets."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.requests: list[str] = []
        self.links = False

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(f"{request.method} {request.raw_path}")
        _, _, name = request.match_info["path"].partition("/")
        if not name and request.method == "GET":
            return self._page(request)
        if request.method in {"POST", "PUT"}:
            assert request.content_type == "application/json"
            thing = msgspec.json.decode(await request.read(), type=Thing)
            name = self.things.setdefault(name or thing.name, thing).name
            self.things[name] = thing
        if name not in self.things:
            return web.json_response({"code": "NotFound"}, status=404)
        if request.method == "DELETE":
            del self.things[name]
            return web.Response(status=204)
        return web.Response(body=msgspec.json.encode(self.things[name]))

    def _page(self, request: web.Request) -> web.Response:
        after, color = request.query.get("after", ""), request.query.get("color", "")
        names = sorted(name for name, one in self.things.items() if color in {"", one.color})
        names = [name for name in names if name > after]
        at = names[PAGE - 1] if len(names) > PAGE else ""
        if at and self.links:
            at = str(request.url.update_query(after=at))
        page = Page([self.things[name] for name in names[:PAGE]], at)
        return web.Response(body=msgspec.json.encode(page))


@asynccontextmanager
async def collection(cloud: Cloud, marker: str = "after") -> AsyncIterator[Collection[Thing]]:
    async with served(cloud.answer) as url, client(url) as rest:
        yield Collection(
            rest, "things", Thing, Page, lambda page: (page.items, page.after), marker=marker
        )


async def test_an_object_is_made_read_replaced_and_deleted_by_its_name() -> None:
    cloud = Cloud()
    async with collection(cloud) as things:
        assert await things.find("a/b") is None
        assert await things.create(Thing("a/b")) == Thing("a/b")
        assert await things.find("a/b") == Thing("a/b")
        assert await things.replace("a/b", Thing("a/b", "blue")) == Thing("a/b", "blue")
        assert cloud.things == {"a/b": Thing("a/b", "blue")}
        for _ in range(2):  # one that is gone already is no error
            await things.delete("a/b")
    assert cloud.things == {}
    one = "/things/a%2Fb"
    methods = ("GET", "POST", "GET", "PUT", "DELETE", "DELETE")
    assert cloud.requests == [f"{m} {'/things' if m == 'POST' else one}" for m in methods]


@pytest.mark.parametrize("links", [False, True])
async def test_a_list_has_what_the_query_selects_on_all_pages(*, links: bool) -> None:
    cloud = Cloud()
    cloud.links = links
    cloud.things = {name: Thing(name) for name in "abcde"} | {"z": Thing("z", "blue")}
    async with collection(cloud, "" if links else "after") as things:
        assert [one.name for one in await things.list(color="red")] == list("abcde")
        assert len(cloud.requests) == 3
        assert [one.name for one in await things.list()] == list("abcdez")


async def test_an_absence_in_other_words_is_an_error() -> None:
    async def proxy(_: web.Request) -> web.Response:
        return web.Response(status=404, text="<html>")

    async with served(proxy) as url, client(url) as rest:
        things = Collection(rest, "things", Thing, Page, lambda page: (page.items, page.after))
        for call in (things.find("a"), things.delete("a"), things.list()):
            with pytest.raises(Refused):
                await call
