"""Follow all objects of a resource: list once, then watch, for ever.

What happens next is decided by `step`, which is pure:

    must list ──Listed──► must watch from a version ──Heard, Ended, Failed──► the same, moved on
        ▲                                                       │
        └──────────────── Failed: the version is too old ───────┘
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from proreus.kube import requests
from proreus.kube.client import Client
from proreus.kube.errors import Gone, KubeError, Unreachable, from_status
from proreus.kube.objects import ObjectMeta
from proreus.kube.requests import Resource

SHORTEST_WATCH = 300
LONGEST_WATCH = 600
"""Seconds that the API server is asked to keep a watch open: at random between these, so that the
watches of many clients do not end together."""


class HasMetadata(Protocol):
    """Any Kubernetes object."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""


T = TypeVar("T", bound=HasMetadata)

Check = Callable[[Client], Awaitable[None]]
"""Raises a KubeError if what the API server tells this client must not be believed now."""


async def unchecked(_: Client) -> None:
    """Believe the API server."""


async def get_checked(
    client: Client, resource: Resource[T], name: str, namespace: str, check: Check
) -> T:
    """Read one object past the caches, by a connection for which the check has passed.

    Args:
        client: The client, of whose account the connection is.
        resource: The kind of the object.
        name: The object's name.
        namespace: Its namespace; "" for an object without one.
        check: Awaited before the object is read, so that its absence is believed no sooner either.

    Raises:
        KubeError: The check does not pass, or the object cannot be read.
    """
    async with client.apart() as one:
        await check(one)
        return await one.get(resource, name, namespace)


class Restarted(msgspec.Struct, Generic[T], frozen=True):
    """The event that there is a new list of all objects; what is not in it is gone."""

    items: tuple[T, ...]
    resource_version: str


class Applied(msgspec.Struct, Generic[T], frozen=True):
    """The event that an object is new or has changed."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """The event that an object is gone, with its last state and the version of its deletion."""

    object: T


Event = Restarted[T] | Applied[T] | Deleted[T]


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """The signal that a list is complete."""

    items: tuple[T, ...]
    resource_version: str


class Heard(msgspec.Struct, Generic[T], frozen=True):
    """The signal that the watch gave a line; `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T


class Ended(msgspec.Struct, frozen=True):
    """The signal that the watch ended as it should."""


class Failed(msgspec.Struct, frozen=True):
    """The signal that list or watch failed. `restart`: the version cannot be used any more."""

    error: KubeError
    restart: bool = False


class WatchState(msgspec.Struct, frozen=True):
    """The state of a watch: its version, and whether it must list first.

    `version` is the one to watch from, "" if it must list; `failures` counts those since a line
    was heard last; `heard` says whether the watch under way has given a line.
    """

    version: str = ""
    failures: int = 0
    heard: bool = False


def step(
    state: WatchState, signal: Listed[T] | Heard[T] | Ended | Failed
) -> tuple[WatchState, Event[T] | None]:
    """Return the state after a signal, and the event that the signal means.

    A watch that ends without a line counts as a failure, so that a server which ends each at once
    is not asked in a tight loop. A list alone does not end a row of failures either: else one
    that is always too old at once would be repeated so.
    """
    match signal:
        case Listed(items, version):
            return WatchState(version, state.failures), Restarted(items, version)
        case Heard(type_, obj):
            moved = WatchState(obj.metadata.resource_version, heard=True)
            if type_ == "BOOKMARK":
                return moved, None
            return moved, Deleted(obj) if type_ == "DELETED" else Applied(obj)
        case Ended():
            return WatchState(state.version, state.failures + (not state.heard)), None
        case Failed(_, restart):
            return WatchState("" if restart else state.version, state.failures + 1), None


async def watch(
    client: Client,
    resource: Resource[T],
    namespace: str = "",
    *,
    field_selector: str = "",
    each: Callable[[T], T] | None = None,
    check: Check = unchecked,
    begins: Callable[[], None] = lambda: None,
    backoff: Callable[[int], float],
    on_error: Callable[[Exception], None],
    chance: Callable[[], float] = random.random,
) -> AsyncGenerator[Event[T]]:
    """Yield what happens to the objects of a resource, for ever, beginning with `Restarted`.

    Args:
        client: The client that sends the requests.
        resource: The resource to follow.
        namespace: The namespace; "" means all.
        field_selector: The selector of objects by fields.
        each: As for `Client.list`.
        check: Awaited after a list, and before a watch, on its connection; may raise a failure.
        begins: Called right before each list.
        backoff: The seconds to wait after so many failures in a row, counted from 0.
        on_error: Called with each failure; the watch goes on from where it was, or lists again.
        chance: Returns a number from 0 to 1, for the length of a watch.
    """
    state, decoder = WatchState(), _decoder(resource)
    while True:
        if state.failures:
            await asyncio.sleep(backoff(state.failures - 1))
        try:
            async with client.apart() as one:
                if not state.version:
                    begins()
                    new = await _listed(one, resource, namespace, field_selector, each, check=check)
                    state, event = step(state, new)
                    if event is not None:
                        yield event
                    del new, event  # The objects must not live as long as this watch.
                else:
                    await check(one)
                request = requests.watch(
                    resource, namespace, resource_version=state.version,
                    timeout_seconds=_length(chance()), field_selector=field_selector,
                )  # fmt: skip
                async with aclosing(one.stream(request)) as lines:
                    async for line in lines:
                        signal = decode_line(line, decoder, resource)
                        state, event = step(state, signal)
                        if event is not None:
                            yield event
                        if isinstance(signal, Failed):
                            on_error(signal.error)
                            break
                    else:
                        state, _ = step(state, Ended())
        except KubeError as exc:
            on_error(exc)
            state, _ = step(state, Failed(exc, restart=isinstance(exc, Gone)))


async def _listed(
    client: Client,
    resource: Resource[T],
    namespace: str,
    field_selector: str,
    each: Callable[[T], T] | None,
    *,
    check: Check,
) -> Listed[T]:
    listing = await client.list(resource, namespace, each=each, field_selector=field_selector)
    await check(client)
    return Listed(listing.items, listing.resource_version)


def decode_line(
    line: bytes, decoder: msgspec.json.Decoder[Heard[T]], resource: Resource[T]
) -> Heard[T] | Failed:
    """Decode one line of a watch into a signal.

    After an ERROR event, 410 or not, the API server cannot go on from the version asked for; nor
    can we after an object that does not decode, which the next list may have newer.
    """
    try:
        signal = decoder.decode(line)
        if signal.type != "ERROR":
            (completed,) = resource.completed(line, (signal.object,))
            return signal if completed is signal.object else Heard(signal.type, completed)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        # The Status in an ERROR event does not look like one of our objects.
        if not _is_error(line):
            unreadable = Unreachable(f"a watch event cannot be read: {exc}", sent=False)
            return Failed(unreadable, restart=True)
    status = _ERROR.decode(line).object
    return Failed(from_status(0, bytes(status), {}), restart=True)


def _is_error(line: bytes) -> bool:
    try:
        return _ERROR.decode(line).type == "ERROR"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class _Error(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_ERROR = msgspec.json.Decoder(_Error)


def _decoder(resource: Resource[T]) -> msgspec.json.Decoder[Heard[T]]:
    event: Any = Heard
    return msgspec.json.Decoder(event[resource.type])


def _length(chance: float) -> int:
    return round(SHORTEST_WATCH + chance * (LONGEST_WATCH - SHORTEST_WATCH))
