"""The simulated cloud's HTTP API: its values, its errors and one method per sort of call."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import msgspec

from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled, Unauthenticated
from proreus.providers.simulated.config import Global
from proreus.providers.simulated.parts import Part

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

_Answer = TypeVar("_Answer")
_FIRST_ERROR = 400


class Refused(CloudError):
    """The cloud answered with an error that is neither throttling nor authentication.

    `status` is the HTTP status, `code` the cloud's own word.
    """

    def __init__(self, message: str, *, status: int, code: str) -> None:
        """Keep status and code."""
        super().__init__(message)
        self.status = status
        self.code = code


class MachineAddress(msgspec.Struct, frozen=True):
    """An address of an instance."""

    type: str
    address: str


class Machine(msgspec.Struct, frozen=True):
    """An instance as the cloud shows it."""

    id: str
    name: str
    region: str
    zone: str
    type: str
    state: str
    system_uuid: str
    addresses: tuple[MachineAddress, ...]
    labels: Mapping[str, str]
    pod_cidrs: tuple[str, ...] = ()


class Machines(msgspec.Struct, frozen=True):
    """The answer to a bulk read."""

    instances: tuple[Machine, ...] = ()
    missing_ids: tuple[str, ...] = ()
    missing_names: tuple[str, ...] = ()


class Rejection(msgspec.Struct, frozen=True):
    """A target that was not added."""

    instance_id: str
    reason: str


class TargetsChanged(msgspec.Struct, frozen=True):
    """The answer to a change of targets."""

    load_balancer: Part
    rejected: tuple[Rejection, ...] = ()


class _Page(msgspec.Struct, frozen=True):
    resources: tuple[Part, ...]
    next_page_token: str


class _Error(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: _Error = _Error()


_MACHINE = msgspec.json.Decoder(Machine)
_MACHINES = msgspec.json.Decoder(Machines)
_TARGETS_CHANGED = msgspec.json.Decoder(TargetsChanged)
_PAGE = msgspec.json.Decoder(_Page)
_PART: msgspec.json.Decoder[Part] = msgspec.json.Decoder(Part)
_NOTHING = msgspec.json.Decoder(dict[str, Any])


class Api:
    """A session with the cloud. Every request goes through `context.call`."""

    def __init__(self, settings: Global, token: str, context: "Context") -> None:
        """Open the session."""
        self._context = context
        self._endpoint = settings.endpoint.rstrip("/")
        self._deadline = settings.timeout
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(
                total=settings.timeout, sock_connect=settings.connect_timeout
            ),
            connector=aiohttp.TCPConnector(limit=0),
        )

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def batch_get(self, ids: Sequence[str], names: Sequence[str]) -> Machines:
        """Instances by ids and by names, in one call."""
        body = {"ids": ids, "names": names}
        return await self._call(
            "instances.batch_get", "POST", "instances:batchGet", _MACHINES, body=body, read=True
        )

    async def change_pod_cidrs(self, id_: str, verb: str, cidrs: Sequence[str]) -> Machine:
        """Assign ("assign") or release ("release") blocks of pod addresses of an instance."""
        return await self._call(
            f"instances.{verb}_pod_cidrs",
            "POST",
            f"instances/{id_}/pod_cidrs:{verb}",
            _MACHINE,
            body={"pod_cidrs": cidrs},
        )

    async def parts(self, **filters: str | Sequence[str]) -> list[Part]:
        """All parts that the filters kind, name_prefix and tag let through, page by page."""
        found: list[Part] = []
        query = [
            (name, value)
            for name, given in filters.items()
            for value in ([given] if isinstance(given, str) else given)
        ]
        token = ""
        while True:
            page = await self._call(
                "resources.list",
                "GET",
                "resources",
                _PAGE,
                query=[*query, ("page_token", token)],
                read=True,
            )
            found.extend(page.resources)
            token = page.next_page_token
            if not token:
                return found

    async def create(self, collection: str, body: Mapping[str, Any]) -> Part:
        """Make a part."""
        return await self._call(f"{collection}.create", "POST", collection, _PART, body=body)

    async def update(self, part: Part, changes: Mapping[str, Any]) -> Part:
        """Change a part that is still at the version seen."""
        path = f"{part.collection}/{part.id}"
        body = {"version": part.version, **changes}
        return await self._call(f"{part.collection}.update", "PATCH", path, _PART, body=body)

    async def delete(self, part: Part) -> None:
        """Delete a part; one that is gone is no error."""
        path = f"{part.collection}/{part.id}"
        try:
            await self._call(f"{part.collection}.delete", "DELETE", path, _NOTHING)
        except Refused as error:
            if error.code != "NotFound":
                raise

    async def change_targets(self, id_: str, verb: str, body: Mapping[str, Any]) -> TargetsChanged:
        """Add ("add") or remove ("remove") targets of a load balancer."""
        return await self._call(
            f"load_balancers.{verb}_targets",
            "POST",
            f"load_balancers/{id_}/targets:{verb}",
            _TARGETS_CHANGED,
            body=body,
        )

    async def _call(
        self,
        operation: str,
        method: str,
        path: str,
        answer: msgspec.json.Decoder[_Answer],
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
        read: bool = False,
    ) -> _Answer:
        service, _, verb = operation.partition(".")

        async def send() -> _Answer:
            raw = await self._send(method, path, query, body)
            try:
                return answer.decode(raw)
            except msgspec.MsgspecError as error:
                raise CloudError(f"{method} {path}: unreadable answer: {error}") from error

        return await self._context.call(service, verb, send, read=read, deadline=self._deadline)

    async def _send(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: Mapping[str, Any] | None,
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._session.request(
                method, f"{self._endpoint}/v1/{path}", params=query, data=data
            ) as response:
                raw = await response.read()
                status, after = response.status, response.headers.get("Retry-After", "")
        except TimeoutError as error:
            raise CallTimeout(f"{method} {path}: no answer in time") from error
        except aiohttp.ClientError as error:
            raise CloudError(f"{method} {path}: no answer: {error}") from error
        if status >= _FIRST_ERROR:
            raise error_of(f"{method} {path}", status, raw, after)
        return raw


def error_of(what: str, status: int, raw: bytes, after: str) -> CloudError:
    """The error that an answer stands for; `after` is its Retry-After header or ""."""
    try:
        said = msgspec.json.decode(raw, type=_ErrorAnswer).error
    except msgspec.MsgspecError:
        said = _Error()
    message = f"{what}: {status} {said.code}: {said.message}"
    if status == 429:  # noqa: PLR2004 - Too Many Requests
        return Throttled(message, after=float(after) if after.isdecimal() else None)
    if status in {401, 403}:
        return Unauthenticated(message)
    return Refused(message, status=status, code=said.code)
