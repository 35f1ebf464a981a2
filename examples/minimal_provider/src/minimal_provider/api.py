"""The cloud's HTTP API: its config, its values, and the client that calls it."""

from http import HTTPStatus

import msgspec

from proreus.cloudprovider import Answer, ConfigSection, Context, ErrorBody, RestClient, bearer


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


class Servers(msgspec.Struct, frozen=True):
    """The answer to a search."""

    servers: tuple[Server, ...]


class Balancer(msgspec.Struct, frozen=True):
    """A balancer; `forwards` maps its ports to those of the targets."""

    name: str
    labels: dict[str, str]
    forwards: dict[str, int]
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    health: str
    address: str = ""


class Balancers(msgspec.Struct, frozen=True):
    """A page of a list; `next` is "" on the last one."""

    balancers: tuple[Balancer, ...]
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
