"""The operations of the simulated cloud's API: one function each, and the table of them all."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from proreus.testing.simulated.cloud import Cloud
from proreus.testing.simulated.model import AnyPart, ApiError, Instance, LoadBalancer, Target
from proreus.testing.simulated.parts import KINDS


class ApiRequest(msgspec.Struct, frozen=True):
    """A request of the API: the id in its path, its query as pairs, its body."""

    id: str
    query: tuple[tuple[str, str], ...]
    body: Mapping[str, Any]

    def first(self, name: str) -> str:
        """Return the first value of a query parameter, or ""."""
        return next((value for key, value in self.query if key == name), "")

    def every(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return [value for key, value in self.query if key == name]


class Answer(msgspec.Struct, frozen=True):
    """The body of an answer and its status."""

    body: dict[str, Any]
    status: int = 200


class _BatchGet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class _VolumeIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ids: tuple[str, ...]


class _AddTargets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    targets: tuple[Target, ...]


class _RemoveTargets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    instance_ids: tuple[str, ...]


class _PodCIDRs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pod_cidrs: tuple[str, ...]


class _SSHKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: str
    public_key: str


_Body = TypeVar("_Body", _BatchGet, _VolumeIds, _AddTargets, _RemoveTargets, _PodCIDRs, _SSHKey)
Run = Callable[[Cloud, ApiRequest], Awaitable[Answer]]


class Operation(msgspec.Struct, frozen=True):
    """An operation of the API; `path` in aiohttp's form."""

    name: str
    method: str
    path: str
    read: bool
    run: Run


def show_instance(instance: Instance) -> dict[str, Any]:
    """Return an instance in the form of an answer."""
    shown: dict[str, Any] = msgspec.to_builtins(instance)
    del shown["created"], shown["terminated"]
    return shown


async def _list_instances(cloud: Cloud, request: ApiRequest) -> Answer:
    found = cloud.machines.all(lag=cloud.settings().list_lag)
    page, token = cloud.page(found, request.first("page_size"), request.first("page_token"))
    return Answer({"instances": [show_instance(i) for i in page], "next_page_token": token})


async def _get_instance(cloud: Cloud, request: ApiRequest) -> Answer:
    return Answer(show_instance(cloud.machines.get(request.id)))


async def _batch_get(cloud: Cloud, request: ApiRequest) -> Answer:
    body = _decode(request, _BatchGet)
    found, missing_ids, missing_names = cloud.machines.batch_get(body.ids, body.names)
    instances = [show_instance(one) for one in found]
    return Answer(
        {"instances": instances, "missing_ids": missing_ids, "missing_names": missing_names}
    )


async def _batch_get_volumes(cloud: Cloud, request: ApiRequest) -> Answer:
    found, missing = cloud.disks.batch_get(_decode(request, _VolumeIds).ids)
    return Answer({"volumes": msgspec.to_builtins(found), "missing_ids": missing})


async def _assign_pod_cidrs(cloud: Cloud, request: ApiRequest) -> Answer:
    cidrs = _decode(request, _PodCIDRs).pod_cidrs
    return Answer(show_instance(cloud.machines.assign(request.id, cidrs)))


async def _release_pod_cidrs(cloud: Cloud, request: ApiRequest) -> Answer:
    cidrs = _decode(request, _PodCIDRs).pod_cidrs
    return Answer(show_instance(cloud.machines.release(request.id, cidrs)))


async def _add_ssh_key(cloud: Cloud, request: ApiRequest) -> Answer:
    body = _decode(request, _SSHKey)
    if not body.user or not body.public_key:
        raise ApiError(400, "BadRequest", "give user and public_key")
    added = cloud.machines.add_ssh_key(body.user, body.public_key)
    return Answer({"added": [one.id for one in added]})


async def _list_resources(cloud: Cloud, request: ApiRequest) -> Answer:
    found = cloud.list_parts(
        request.first("kind"), request.first("name_prefix"), request.every("tag")
    )
    page, token = cloud.page(found, request.first("page_size"), request.first("page_token"))
    return Answer({"resources": [cloud.view(p) for p in page], "next_page_token": token})


async def _list_targets(cloud: Cloud, request: ApiRequest) -> Answer:
    part = cloud.parts.get(LoadBalancer, request.id)
    targets = cloud.dataplane.targets(part) if isinstance(part, LoadBalancer) else []
    return Answer({"targets": targets})


async def _add_targets(cloud: Cloud, request: ApiRequest) -> Answer:
    part, rejected = cloud.parts.add_targets(request.id, _decode(request, _AddTargets).targets)
    await cloud.changed(part)
    reasons = [{"instance_id": id_, "reason": reason} for id_, reason in rejected.items()]
    return Answer({"load_balancer": cloud.view(part), "rejected": reasons})


async def _remove_targets(cloud: Cloud, request: ApiRequest) -> Answer:
    part = cloud.parts.remove_targets(request.id, _decode(request, _RemoveTargets).instance_ids)
    await cloud.changed(part)
    return Answer({"load_balancer": cloud.view(part)})


def _of_kind(collection: str, kind: type[AnyPart]) -> tuple[Operation, ...]:
    async def create(cloud: Cloud, request: ApiRequest) -> Answer:
        part, new = cloud.parts.create(kind, request.body)
        await cloud.changed(part)
        return Answer(cloud.view(part), 201 if new else 200)

    async def get(cloud: Cloud, request: ApiRequest) -> Answer:
        return Answer(cloud.view(cloud.parts.get(kind, request.id)))

    async def update(cloud: Cloud, request: ApiRequest) -> Answer:
        part = cloud.parts.change(kind, request.id, request.body)
        await cloud.changed(part)
        return Answer(cloud.view(part))

    async def delete(cloud: Cloud, request: ApiRequest) -> Answer:
        await cloud.changed(cloud.parts.delete(kind, request.id))
        return Answer({})

    one = f"/v1/{collection}/{{id}}"
    return (
        Operation(f"{collection}.create", "POST", f"/v1/{collection}", read=False, run=create),
        Operation(f"{collection}.get", "GET", one, read=True, run=get),
        Operation(f"{collection}.update", "PATCH", one, read=False, run=update),
        Operation(f"{collection}.delete", "DELETE", one, read=False, run=delete),
    )


def _decode(request: ApiRequest, type_: type[_Body]) -> _Body:
    try:
        return msgspec.convert(request.body, type_)
    except msgspec.ValidationError as error:
        raise ApiError(400, "BadRequest", str(error)) from error


_LB = "/v1/load_balancers/{id}"
_INSTANCE = "/v1/instances/{id}"
OPERATIONS: tuple[Operation, ...] = (
    Operation("instances.list", "GET", "/v1/instances", read=True, run=_list_instances),
    Operation("instances.get", "GET", _INSTANCE, read=True, run=_get_instance),
    Operation(
        "instances.assign_pod_cidrs",
        "POST",
        f"{_INSTANCE}/pod_cidrs:assign",
        read=False,
        run=_assign_pod_cidrs,
    ),
    Operation(
        "instances.release_pod_cidrs",
        "POST",
        f"{_INSTANCE}/pod_cidrs:release",
        read=False,
        run=_release_pod_cidrs,
    ),
    Operation(
        "instances.add_ssh_key",
        "POST",
        "/v1/instances:addSSHKey",
        read=False,
        run=_add_ssh_key,
    ),
    Operation("instances.batch_get", "POST", "/v1/instances:batchGet", read=True, run=_batch_get),
    Operation(
        "volumes.batch_get", "POST", "/v1/volumes:batchGet", read=True, run=_batch_get_volumes
    ),
    Operation("resources.list", "GET", "/v1/resources", read=True, run=_list_resources),
    Operation("load_balancers.list_targets", "GET", f"{_LB}/targets", read=True, run=_list_targets),
    Operation(
        "load_balancers.add_targets", "POST", f"{_LB}/targets:add", read=False, run=_add_targets
    ),
    Operation(
        "load_balancers.remove_targets",
        "POST",
        f"{_LB}/targets:remove",
        read=False,
        run=_remove_targets,
    ),
    *(one for collection, kind in KINDS.items() for one in _of_kind(collection, kind)),
)
