"""The cloud's HTTP API: its config, its values, and the client that calls it."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    Answer,
    ClusterIdentity,
    ConfigSection,
    Context,
    ErrorBody,
    Request,
    RestClient,
    bearer,
    json_body,
    pages,
)

T = TypeVar("T")


class Config(ConfigSection, frozen=True, kw_only=True):
    """The cloud-config: where the cloud is, and how many seconds to wait for an answer."""

    endpoint: str
    token: str
    timeout: float = 10.0


class Server(msgspec.Struct, frozen=True):
    """A machine, as the cloud shows it."""

    id: str
    name: str
    status: str
    type: str
    zone: str
    address: str


class Balancer(msgspec.Struct, frozen=True):
    """A balancer; `forwards` maps its ports to those of the targets."""

    name: str
    labels: dict[str, str]
    forwards: dict[str, int]
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    health: str
    address: str = ""


class CloudRoute(msgspec.Struct, frozen=True):
    """A route to a server; it does not work if there is no such server."""

    name: str
    labels: dict[str, str]
    destination: str
    server: str
    works: bool = True


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A list, or a page of it; `next` is "" on the last one."""

    items: tuple[T, ...]
    next: str


class Failure(msgspec.Struct, frozen=True):
    """The body of an error."""

    error: str


def client(config: Config, context: Context) -> RestClient:
    """The client for the cloud: make it in `start`, and close it in the end."""
    return RestClient(
        context,
        config.endpoint,
        headers=bearer(config.token),
        read_error=read_error,
        timeout=config.timeout,
    )


def read_error(answer: Answer) -> ErrorBody | None:
    """What the cloud says in an error; None or a CloudError if these are not its words. Pure."""
    text = answer.json(Failure).error
    if answer.status == HTTPStatus.NOT_FOUND and text != "not found":
        return None
    return ErrorBody(message=text)


class Things(Generic[T]):
    """All balancers, or all routes, of the cloud."""

    def __init__(self, api: RestClient, name: str, form: type[T], page: type[Page[T]]) -> None:
        """Speak through `api`; `name` is what the cloud calls them."""
        self._api, self._name, self._form, self._page = api, name, form, page

    async def find(self, name: str) -> T | None:
        """The one of that name, if there is one."""
        return await self._api.find(self._request("GET", name), self._form)

    async def create(self, thing: T) -> T:
        """Make one."""
        return await self._api.call(self._request("POST", body=thing), self._form)

    async def replace(self, name: str, thing: T) -> T:
        """Change the one of that name."""
        return await self._api.call(self._request("PUT", name, body=thing), self._form)

    async def delete(self, name: str) -> None:
        """Delete the one of that name, if it is still there."""
        await self._api.find(self._request("DELETE", name), dict[str, str])

    async def marked(self, cluster: ClusterIdentity) -> list[T]:
        """All that carry the cluster's mark, page by page."""
        query = {"label": f"{MARK_CLUSTER_UID}={cluster.uid}"}
        request = Request(f"{self._name}.list", "GET", self._name, query)

        async def page(after: str) -> tuple[Sequence[T], str]:
            found = await self._api.call(request.with_query(after=after), self._page)
            return found.items, found.next

        return await pages(request.name, page)

    def _request(self, method: str, name: str = "", *, body: T | None = None) -> Request:
        url = f"{self._name}/{quote(name, safe='')}" if name else self._name
        sent = None if body is None else json_body(body)
        return Request(f"{self._name}.{method.lower()}", method, url, body=sent)
