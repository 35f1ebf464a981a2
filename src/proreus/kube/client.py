"""Read and write typed objects of the API server: the client.

Answers are decoded straight into the partial objects of `kube.objects`. Every method raises a
`KubeError` when it fails: `StatusError` for an error answer, `Unreachable` when there was none,
for a write with `sent` if it may have taken effect.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from functools import cache
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from proreus import __version__
from proreus.kube import requests
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.connections import Gate
from proreus.kube.errors import Gone, Unreachable
from proreus.kube.patch import Patch
from proreus.kube.requests import LEASES, PAGE, Request, Resource
from proreus.kube.transport import Limiter, Observer, Transport

T = TypeVar("T")

LIST_TRIES = 3
"""How often a list is begun, since its continue token may become too old on the way."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """The identity of an object after a write: uid and resource version."""

    uid: str
    resource_version: int


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """The objects of a whole list, and the version to watch from."""

    items: tuple[T, ...]
    resource_version: str


class _PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, Generic[T], frozen=True):
    metadata: _PageMeta
    items: tuple[T, ...] | None = None


class _WrittenMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str
    resource_version: int


class _WrittenObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _WrittenMeta


_WRITTEN = msgspec.json.Decoder(_WrittenObject, strict=False)


class Client:
    """A client that reads and writes objects of one API server; made in a running event loop."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        limiter: Limiter | None = None,
        gate: Gate | None = None,
        observer: Observer | None = None,
        user_agent: str = f"proreus/{__version__}",
    ) -> None:
        """Prepare the client; it connects with its first request.

        Args:
            config: The config: where the API server is, and the credentials.
            limiter: The rate limiter that is asked before each try.
            gate: Called right before each try of a write; raises `RefusedByGate` to hold it back.
            observer: Called after each try with its result.
            user_agent: Shown in the API server's audit log and as manager of fields.
        """
        self._transport = Transport(
            config, limiter=limiter, gate=gate, observer=observer, user_agent=user_agent
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    @asynccontextmanager
    async def apart(self) -> AsyncIterator["Client"]:
        """Give a client of the same account that shares no connection with others.

        What it reads one after another goes by one connection, as long as that lives, and so to one
        API server, whatever becomes of the name or the address of that meanwhile.
        """
        async with self._transport.apart() as transport:
            other = copy(self)
            vars(other).update(_transport=transport)
            yield other

    @property
    def credentials(self) -> object:
        """What requests are sent with: one object for this client and those `apart` from it."""
        return self._transport.credentials

    async def send(self, request: Request, type_: type[T]) -> T:
        """Send a request and decode the answer.

        429 and 503 with Retry-After, which say that the request was not carried out, are tried
        again within `request.timeout`.
        """
        return _decode(request, _decoder(type_), await self._transport.exchange(request))

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Read one object."""
        request = requests.get(resource, name, namespace)
        body = await self._transport.exchange(request)
        (found,) = resource.completed(body, (_decode(request, _decoder(resource.type), body),))
        return found

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        limit: int = PAGE,
        label_selector: str = "",
        field_selector: str = "",
        each: Callable[[T], T] | None = None,
    ) -> Listing[T]:
        """Read all objects as they were at one version, in pages of `limit`.

        Namespace "" means all of them. `each` may put another object in the place of each one, as
        soon as its page is there: what is dropped then makes room for the next page.
        """
        selectors = (label_selector, field_selector)
        for _ in range(LIST_TRIES - 1):
            try:
                return await self._list(resource, namespace, limit, selectors, each)
            except Gone:
                continue
        return await self._list(resource, namespace, limit, selectors, each)

    async def create(
        self, resource: Resource[Any], body: Mapping[str, Any], namespace: str = ""
    ) -> Written:
        """Create an object."""
        return await self._write(requests.create(resource, body, namespace))

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        namespace: str = "",
        subresource: str = "",
        *,
        gate: Gate | None = None,
    ) -> Written:
        """Change an object or its subresource, unless this `gate`, too, holds it back."""
        request = requests.patch(resource, name, patch, namespace, subresource)
        return await self._write(request, gate)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        gate: Gate | None = None,
    ) -> None:
        """Delete an object, if it still has that uid and version (where given).

        Nothing is sent once this `gate`, too, holds it back.
        """
        await self._transport.exchange(
            requests.delete(resource, name, namespace, uid=uid, resource_version=resource_version),
            gate,
        )

    async def get_lease(self, namespace: str, name: str) -> dict[str, Any]:
        """Read a Lease with all its fields."""
        return await self.get(LEASES, name, namespace)

    async def create_lease(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a Lease and return it."""
        request = requests.create(LEASES, body, namespace, partial_answer=False)
        return await self.send(request, LEASES.type)

    async def replace_lease(
        self, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write a whole Lease back and return it."""
        return await self.send(requests.replace_lease(namespace, name, body), LEASES.type)

    def stream(self, request: Request) -> AsyncGenerator[bytes]:
        """Yield the whole lines of an answer as they come, of any length.

        What a cut connection leaves of a line is dropped, and `Unreachable` is raised.
        """
        return self._transport.stream(request)

    async def _list(
        self,
        resource: Resource[T],
        namespace: str,
        limit: int,
        selectors: tuple[str, str],
        each: Callable[[T], T] | None,
    ) -> Listing[T]:
        items: list[T] = []
        token = ""
        while True:
            request = requests.list_page(
                resource,
                namespace,
                limit=limit,
                continue_=token,
                label_selector=selectors[0],
                field_selector=selectors[1],
            )
            body = await self._transport.exchange(request)
            page = _decode(request, _page_decoder(resource.type), body)
            decoded = resource.completed(body, page.items or ())
            items.extend(decoded if each is None else map(each, decoded))
            token = page.metadata.continue_
            if not token:
                return Listing(tuple(items), page.metadata.resource_version)

    async def _write(self, request: Request, gate: Gate | None = None) -> Written:
        meta = _decode(request, _WRITTEN, await self._transport.exchange(request, gate)).metadata
        return Written(meta.uid, meta.resource_version)


def _decode(request: Request, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Unreachable(
            f"{request.method} {request.path}: the answer cannot be read: {exc}",
            sent=not request.read,
        ) from exc


def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    target: Any = type_
    decoder: msgspec.json.Decoder[T] = _cached_decoder(target)
    return decoder


def _page_decoder(type_: type[T]) -> msgspec.json.Decoder[_Page[T]]:
    page: Any = _Page
    decoder: msgspec.json.Decoder[_Page[T]] = _cached_decoder(page[type_])
    return decoder


@cache
def _cached_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)
