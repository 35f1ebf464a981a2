"""Call the simulated cloud's HTTP API, with a pure function for each request that changes it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import ErrorBody
from proreus.cloudprovider.requests import Answer, Request, json_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.simulated.config import Global
from proreus.providers.simulated.parts import Part

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context


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


class Volume(msgspec.Struct, frozen=True):
    """A volume as the cloud shows it."""

    id: str
    region: str
    zones: tuple[str, ...]


class Volumes(msgspec.Struct, frozen=True):
    """The answer to a bulk read of volumes."""

    volumes: tuple[Volume, ...] = ()
    missing_ids: tuple[str, ...] = ()


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
    code: str
    message: str = ""


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: _Error


_PART: msgspec.json.Decoder[Part] = msgspec.json.Decoder(Part)
_TARGETS = "/targets:"


def create(collection: str, body: Mapping[str, Any]) -> Request:
    """Return the request that makes a part. Pure."""
    return Request(f"{collection}.create", "POST", collection, body=json_body(body))


def update(part: Part, changes: Mapping[str, Any]) -> Request:
    """Return the request that changes a part which still has the version that was read. Pure."""
    body = json_body({"version": part.version, **changes})
    return Request(f"{part.collection}.update", "PATCH", f"{part.collection}/{part.id}", body=body)


def delete(part: Part) -> Request:
    """Return the request that deletes a part. Pure."""
    return Request(f"{part.collection}.delete", "DELETE", f"{part.collection}/{part.id}")


def change_targets(id_: str, verb: str, body: Mapping[str, Any]) -> Request:
    """Return the request that adds ("add") or removes ("remove") targets. Pure."""
    path = f"load_balancers/{id_}{_TARGETS}{verb}"
    return Request(f"load_balancers.{verb}_targets", "POST", path, body=json_body(body))


def read_error(answer: Answer) -> ErrorBody:
    """Parse the body of an error of the cloud."""
    error = answer.json(_ErrorAnswer).error
    return ErrorBody(error.code, error.message)


class Api:
    """A session with the simulated cloud."""

    def __init__(self, settings: Global, token: str, context: "Context") -> None:
        """Keep the settings; open nothing yet."""
        self._rest = RestClient(
            context,
            f"{settings.endpoint.rstrip('/')}/v1",
            headers={"Authorization": f"Bearer {token}"},
            read_error=read_error,
            timeout=settings.timeout,
            connect_timeout=settings.connect_timeout,
        )

    async def close(self) -> None:
        """Close the session."""
        await self._rest.close()

    async def batch_get(self, ids: Sequence[str], names: Sequence[str]) -> Machines:
        """Read instances by ids and by names, in one call."""
        body = json_body({"ids": ids, "names": names})
        request = Request("instances.batch_get", "POST", "instances:batchGet", body=body, read=True)
        return await self._rest.call(request, Machines)

    async def batch_get_volumes(self, ids: Sequence[str]) -> Volumes:
        """Read volumes by ids, in one call."""
        body = json_body({"ids": ids})
        request = Request("volumes.batch_get", "POST", "volumes:batchGet", body=body, read=True)
        return await self._rest.call(request, Volumes)

    async def change_pod_cidrs(self, id_: str, verb: str, cidrs: Sequence[str]) -> Machine:
        """Assign ("assign") or release ("release") blocks of pod addresses of an instance."""
        path = f"instances/{id_}/pod_cidrs:{verb}"
        body = json_body({"pod_cidrs": cidrs})
        request = Request(f"instances.{verb}_pod_cidrs", "POST", path, body=body)
        return await self._rest.call(request, Machine)

    async def add_ssh_key(self, user: str, public_key: str) -> None:
        """Let a user log in with a key on all instances that there are now."""
        body = json_body({"user": user, "public_key": public_key})
        request = Request("instances.add_ssh_key", "POST", "instances:addSSHKey", body=body)
        await self._rest.call(request, dict[str, Any])

    async def parts(self, **filters: str | Sequence[str]) -> list[Part]:
        """List all parts that the filters kind, name_prefix and tag let through, page by page."""
        request = Request("resources.list", "GET", "resources", filters)

        async def page(token: str) -> tuple[Sequence[Part], str]:
            found = await self._rest.call(request.with_query(page_token=token), _Page)
            return found.resources, found.next_page_token

        return await pages(request.name, page)

    async def take(self, request: Request) -> Part | TargetsChanged | None:
        """Send a request that changes an object; return the object as it is then.

        Return None after a deletion; a part that was gone already is no error.
        """
        if request.method == "DELETE":
            await self._rest.find(request, dict[str, Any])
            return None
        if _TARGETS in request.url:
            return await self._rest.call(request, TargetsChanged)
        return await self._rest.call(request, _PART)
