"""The cloud's HTTP API: its config, its values, and the one way to call it."""

from typing import TypeVar

import aiohttp
import msgspec

from proreus.cloudprovider import (
    CallTimeout,
    CloudError,
    ConfigSection,
    Context,
    Throttled,
    Unauthenticated,
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


class Nothing(msgspec.Struct, frozen=True):
    """The answer to a call that succeeds without a body."""


class Refusal(msgspec.Struct, frozen=True):
    """The body of an error."""

    error: str


class Api:
    """A session with the cloud. Every request goes through `context.call`."""

    def __init__(self, config: Config, context: Context) -> None:
        """Open the session."""
        self._context = context
        self._url = config.endpoint.rstrip("/")
        self._timeout = config.timeout
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {config.token}"})

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def call(
        self, operation: str, path: str, type_: type[T], body: msgspec.Struct | None = None
    ) -> T | None:
        """Make one call, such as "GET servers"; None if the cloud has no such object."""
        method, _, noun = operation.partition(" ")
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}

        async def send() -> T | None:
            request = self._session.request(method, self._url + path, data=data, headers=headers)
            try:
                async with request as response:
                    raw, after = await response.read(), response.headers.get("Retry-After", "")
                    return decoded(operation, response.status, raw, after, type_)
            except aiohttp.ClientError as error:
                raise CloudError(f"{operation}: no answer: {error}") from error
            except TimeoutError as error:
                raise CallTimeout(f"{operation}: no answer in time") from error

        is_read = method == "GET"
        return await self._context.call(noun, method, send, read=is_read, deadline=self._timeout)


def decoded(what: str, status: int, raw: bytes, after: str, type_: type[T]) -> T | None:
    """What an answer says; `after` is its Retry-After header. Pure."""
    try:
        if status < 400:  # noqa: PLR2004 - below are the good ones
            return msgspec.json.decode(raw or b"{}", type=type_)
        said = msgspec.json.decode(raw, type=Refusal).error
    except msgspec.MsgspecError as error:
        said = f"not an answer of this cloud: {error}"
    if status == 429:  # noqa: PLR2004 - too many requests
        raise Throttled(f"{what}: {said}", after=float(after) if after.isdecimal() else None)
    if status in {401, 403}:
        raise Unauthenticated(f"{what}: {said}")
    if status == 404 and said == "not found":  # noqa: PLR2004 - the cloud's own words only
        return None
    raise CloudError(f"{what}: {status} {said}")
