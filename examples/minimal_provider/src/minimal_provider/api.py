"""Calls the cloud's HTTP API: its config, its values, and the client."""

from http import HTTPStatus
from typing import Generic, TypeVar

import msgspec

from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    Answer,
    ClusterIdentity,
    Collection,
    ConfigSection,
    Context,
    ErrorBody,
    RestClient,
    bearer,
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
    """Make the client for the cloud: in `start`, which closes it in the end."""
    return RestClient(
        context,
        config.endpoint,
        headers=bearer(config.token),
        read_error=read_error,
        timeout=config.timeout,
    )


def read_error(answer: Answer) -> ErrorBody | None:
    """Return what an error says; None or a CloudError if it is not the cloud's own. Pure."""
    text = answer.json(Failure).error
    if answer.status == HTTPStatus.NOT_FOUND and text != "not found":
        return None
    return ErrorBody(message=text)


def things(api: RestClient, url: str, form: type[T], page: type[Page[T]]) -> Collection[T]:
    """Return the client for all balancers, or all routes, of the cloud."""
    return Collection(api, url, form, page, lambda found: (found.items, found.next), marker="after")


async def marked(objects: Collection[T], cluster: ClusterIdentity) -> list[T]:
    """Return the objects that carry the cluster's mark."""
    return await objects.list(label=f"{MARK_CLUSTER_UID}={cluster.uid}")
