"""A part of a cache, shown as if it were all there is."""

from collections.abc import Callable, Iterable, ValuesView

from proreus.kube.client import Written
from proreus.kube.objects import Node
from proreus.runtime.informer import Handler
from proreus.runtime.view import View
from proreus.testing.objects import changed, node

EAST, WEST = node("n", "cloud://east"), node("n", "cloud://west")


class Objects:
    """A cache to which the test gives objects."""

    def __init__(self) -> None:
        self._objects: dict[str, Node] = {}
        self._handlers: list[Handler[Node]] = []
        self.waited: list[str] = []

    @property
    def handlers(self) -> tuple[Handler[Node], ...]:
        return tuple(self._handlers)

    def put(self, name: str, new: Node | None) -> None:
        old = self._objects.pop(name, None)
        if new is not None:
            self._objects[name] = new
        for handler in self.handlers:
            handler(old, new)

    def subscribe(self, handler: Handler[Node]) -> None:
        self._handlers.append(handler)
        for obj in tuple(self._objects.values()):
            handler(None, obj)

    def unsubscribe(self, handlers: Iterable[object]) -> None:
        raise AssertionError("a view stays")

    def get(self, key: str) -> Node | None:
        return self._objects.get(key)

    def all(self) -> ValuesView[Node]:
        return self._objects.values()

    def everything(self) -> Iterable[Node]:
        return self._objects.values()

    def by(self, index: str, value: str) -> tuple[Node, ...]:
        assert (index, value) == ("index", "value")
        return tuple(self._objects.values())

    async def wait_synced(self) -> None:
        self.waited.append("synced")

    async def wait_seen(self, key: str, written: Written, /) -> None:
        self.waited.append(f"{key} {written.resource_version}")


def is_east(obj: Node) -> Node | None:
    return obj if obj.spec.provider_id.endswith("east") else None


def heard(view: View[Node]) -> list[tuple[Node | None, Node | None]]:
    changes: list[tuple[Node | None, Node | None]] = []
    view.subscribe(lambda old, new: changes.append((old, new)))
    return changes


def test_what_it_lets_through_is_there_and_nothing_else() -> None:
    cache = Objects()
    cache.put("a", changed(EAST, name="a"))
    view = View(cache, is_east, "nodes")
    cache.put("b", changed(WEST, name="b"))
    assert [one.metadata.name for one in view.all()] == ["a"]
    assert view.get("b") is None
    assert [one.metadata.name for one in view.by("index", "value")] == ["a"]
    assert [one.metadata.name for one in view.everything()] == ["a", "b"]


def test_an_object_comes_goes_and_changes_by_what_is_seen_of_it() -> None:
    cache = Objects()
    view = View(cache, is_east, "nodes")
    changes = heard(view)
    later = changed(EAST, labels={"a": "b"})
    for new in (WEST, EAST, later, WEST, None):
        cache.put("n", new)
    assert changes == [(None, EAST), (EAST, later), (later, None)]


def test_a_new_way_to_look_is_told_as_changes() -> None:
    shown: list[Callable[[Node], Node | None]] = [lambda _: None]
    cache = Objects()
    cache.put("n", EAST)

    def look(obj: Node) -> Node | None:
        return shown[0](obj)

    view = View(cache, look, "nodes")
    changes = heard(view)
    shown[0] = is_east
    view.recheck()
    view.recheck()
    assert changes == [(None, EAST)]


def test_who_subscribes_later_hears_of_what_is_there_and_who_unsubscribes_of_nothing() -> None:
    cache = Objects()
    view = View(cache, is_east, "nodes")
    cache.put("n", EAST)
    changes = heard(view)
    assert changes == [(None, EAST)]
    view.unsubscribe(view.handlers)
    cache.put("n", None)
    assert changes == [(None, EAST)]


def test_a_handler_that_raises_does_not_keep_others_from_hearing() -> None:
    def raising(old: Node | None, new: Node | None) -> None:
        raise ValueError("a fault")

    cache = Objects()
    view = View(cache, is_east, "nodes")
    view.subscribe(raising)
    changes = heard(view)
    cache.put("n", EAST)
    assert changes == [(None, EAST)]


async def test_it_waits_for_what_the_cache_waits_for() -> None:
    cache = Objects()
    view = View(cache, is_east, "nodes")
    await view.wait_synced()
    await view.wait_seen("n", Written(uid="u", resource_version=7))
    assert cache.waited == ["synced", "n 7"]
