"""Calls the simulated cloud's HTTP API: one method for each sort of call."""

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


def read_error(answer: Answer) -> ErrorBody:
    """Parse the body of an error of the cloud."""
    said = answer.json(_ErrorAnswer).error
    return ErrorBody(said.code, said.message)


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

    async def change_pod_cidrs(self, id_: str, verb: str, cidrs: Sequence[str]) -> Machine:
        """Assign ("assign") or release ("release") blocks of pod addresses of an instance."""
        path = f"instances/{id_}/pod_cidrs:{verb}"
        body = json_body({"pod_cidrs": cidrs})
        request = Request(f"instances.{verb}_pod_cidrs", "POST", path, body=body)
        return await self._rest.call(request, Machine)

    async def parts(self, **filters: str | Sequence[str]) -> list[Part]:
        """List all parts that the filters kind, name_prefix and tag let through, page by page."""
        request = Request("resources.list", "GET", "resources", filters)

        async def page(token: str) -> tuple[Sequence[Part], str]:
            found = await self._rest.call(request.with_query(page_token=token), _Page)
            return found.resources, found.next_page_token

        return await pages(request.name, page)

    async def create(self, collection: str, body: Mapping[str, Any]) -> Part:
        """Make a part."""
        request = Request(f"{collection}.create", "POST", collection, body=json_body(body))
        return await self._rest.call(request, _PART)

    async def update(self, part: Part, changes: Mapping[str, Any]) -> Part:
        """Change a part that still has the version that was read."""
        body = json_body({"version": part.version, **changes})
        path = f"{part.collection}/{part.id}"
        return await self._rest.call(
            Request(f"{part.collection}.update", "PATCH", path, body=body), _PART
        )

    async def delete(self, part: Part) -> None:
        """Delete a part; one that is gone is no error."""
        path = f"{part.collection}/{part.id}"
        await self._rest.find(Request(f"{part.collection}.delete", "DELETE", path), dict[str, Any])

    async def change_targets(self, id_: str, verb: str, body: Mapping[str, Any]) -> TargetsChanged:
        """Add ("add") or remove ("remove") targets of a load balancer."""
        path = f"load_balancers/{id_}/targets:{verb}"
        request = Request(f"load_balancers.{verb}_targets", "POST", path, body=json_body(body))
        return await self._rest.call(request, TargetsChanged)
