"""Load balancers of the simulated cloud: observe, plan (`plan.py`), apply."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import (
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    OwnedObject,
)
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    Pending,
)
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.steps import converge
from proreus.kube.objects import LoadBalancerIngress, PortStatus, Service
from proreus.providers.simulated import preview
from proreus.providers.simulated.api import Api
from proreus.providers.simulated.parts import Address, Balancer, Part, RoutePart
from proreus.providers.simulated.plan import (
    FAMILY,
    Actual,
    AddTargets,
    Change,
    Create,
    Delete,
    RemoveTargets,
    Step,
    check,
    delete_steps,
    fingerprint,
    owned,
    plan,
    targets,
    unlisted,
    wished_fingerprint,
)

PORT_ERROR = "simulated/ListenerFailed"
_ASK_AGAIN = 1.0


class SimulatedLoadBalancers:
    """Implements `cloudprovider.LoadBalancers`. Two Services never share a part."""

    def __init__(self, api: Api, region: str) -> None:
        """Speak through `api`; hosts are instances of `region`."""
        self._api = api
        self._region = region

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """The Service's UID."""
        return lb.uid

    def host_policy(self, service: Service) -> HostPolicy:
        """All nodes; IPv4 only, for the cloud's pool is in 127.0.0.0/8."""
        del service
        return HostPolicy(families=(FAMILY,))

    def fingerprint(self, wanted: LoadBalancer) -> str:
        """What `list_owned` shows for the load balancer if it is as wished."""
        return wished_fingerprint(wanted, self._region)

    async def ensure(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """One read, then the writes that are needed: none if all is as wished."""
        said = await asyncio.gather(*(attempt(self._ensure(one)) for one in wanted))
        return {one.ref.uid: answer for one, answer in zip(wanted, said, strict=True)}

    async def preview(
        self, wanted: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """One read, and what `ensure` would write then."""
        said = await asyncio.gather(*(attempt(self._preview(one)) for one in wanted))
        return {one.ref.uid: answer for one, answer in zip(wanted, said, strict=True)}

    async def _preview(self, wanted: LoadBalancer) -> Sequence[PartChange]:
        check(wanted)
        actual = owned(wanted.ref, await self._api.parts(name_prefix=wanted.ref.name))
        return preview.changes(wanted, actual, self._region)

    async def update_hosts(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """The same as `ensure`, which writes only what differs."""
        return await self.ensure(wanted)

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Delete what carries the Service's marks, found by name (never stale) and by tags."""
        said = await asyncio.gather(*(attempt(self._delete(one)) for one in gone))
        return {one.uid: answer for one, answer in zip(gone, said, strict=True)}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Every part with this cluster's mark, each load balancer with its fingerprint."""
        found = await self._api.parts(tag=f"{MARK_CLUSTER_UID}={cluster.uid}")
        parts = [part for part in found if not isinstance(part, RoutePart)]
        by_service: dict[str, dict[str, Part]] = {}
        for part in parts:
            uid = part.tags.get(MARK_SERVICE_UID, "")
            by_service.setdefault(uid, {})[part.id] = part
        return [
            OwnedObject(
                kind=str(part.__struct_config__.tag),
                id=part.id,
                service=part.tags.get(MARK_SERVICE, ""),
                service_uid=part.tags.get(MARK_SERVICE_UID, ""),
                **_shown(part, by_service[part.tags.get(MARK_SERVICE_UID, "")]),
            )
            for part in parts
        ]

    async def _ensure(self, wanted: LoadBalancer) -> EnsureAnswer:
        check(wanted)
        actual = owned(wanted.ref, await self._api.parts(name_prefix=wanted.ref.name))
        actual = await converge(actual, lambda now: plan(wanted, now, self._region), self._take)
        return conclude(wanted, actual, self._region)

    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        marks = (
            f"{MARK_CLUSTER_UID}={gone.cluster.uid}",
            f"{MARK_SERVICE_UID}={gone.uid}",
        )
        by_name, by_mark = await asyncio.gather(
            self._api.parts(name_prefix=gone.name), self._api.parts(tag=marks)
        )
        actual = owned(gone, [*by_mark, *by_name])
        await converge(actual, delete_steps, self._take)
        if unseen := unlisted(actual):
            return Pending(_ASK_AGAIN, f"the cloud did not list {', '.join(sorted(unseen))}")
        return Done(found=bool(actual.parts))

    async def _create(self, collection: str, body: Mapping[str, Any]) -> Part:
        try:
            return await self._api.create(collection, body)
        except Refused as error:
            if body.get("address") and error.code in {"BadRequest", "Conflict"}:
                # An address that is taken may be free later; one that is none never is.
                kind = InvalidRequest if error.code == "BadRequest" else CloudError
                raise kind(f"spec.loadBalancerIP: {error}") from error
            raise

    async def _take(self, _: Actual, step: Step) -> Callable[[Actual], Actual]:
        """Take one step; answers how the actual state is different then."""
        match step:
            case Create(collection, body):
                made = await self._create(collection, body)
                return lambda now: _with(now, made, made=True)
            case Change(part, changes):
                changed = await self._api.update(part, changes)
                return lambda now: _with(now, changed)
            case Delete(part):
                await self._api.delete(part)
            case AddTargets(balancer, add):
                answer = await self._api.change_targets(balancer.id, "add", {"targets": add})
                refused = {one.instance_id: one.reason for one in answer.rejected}
                taken = tuple(one for one in add if one.instance_id not in refused)
                return lambda now: _refusing(
                    preview.pretend(now, AddTargets(balancer, taken)), refused
                )
            case RemoveTargets(balancer, ids):
                await self._api.change_targets(balancer.id, "remove", {"instance_ids": ids})
        return lambda now: preview.pretend(now, step)


def conclude(wanted: LoadBalancer, actual: Actual, region: str) -> EnsureAnswer:
    """What to say about a load balancer that needs no further step. Pure."""
    balancer, address = actual.balancers[0], actual.addresses[0]
    if balancer.state != "active":
        return Pending(_ASK_AGAIN, f"load balancer {balancer.id} is {balancer.state}")
    errors = {(one.protocol, one.port): one.error for one in actual.listeners if one.error}
    if errors and len(errors) == len(actual.listeners):
        return CloudError("; ".join(errors.values()))
    if any(one.state == "pending" for one in actual.listeners):
        return Pending(_ASK_AGAIN, "listeners are not ready yet", (_ingress(address, wanted),))
    wished, rejected = targets(wanted, region)
    refused = {
        node: actual.refused[target.instance_id]
        for node, target in wished.items()
        if target.instance_id in actual.refused
    }
    return Ensured((_ingress(address, wanted, errors),), {**rejected, **refused})


def _shown(part: Part, of_service: dict[str, Part]) -> dict[str, Any]:
    """What `list_owned` shows of a load balancer beyond its marks; nothing of other parts."""
    if not isinstance(part, Balancer):
        return {}
    actual = Actual(of_service)
    addresses = tuple(one.address for one in actual.addresses)
    return {"fingerprint": fingerprint(actual), "addresses": addresses}


def _ingress(
    address: Address, wanted: LoadBalancer, errors: Mapping[tuple[str, int], str] = {}
) -> LoadBalancerIngress:
    """The ingress point; its ports are listed only if one has an error."""
    ports = tuple(
        PortStatus(
            one.port, one.protocol, PORT_ERROR if (one.protocol, one.port) in errors else None
        )
        for one in wanted.frontends
    )
    # The cloud hands over connections of its own, and PROXY lines that kube-proxy cannot make.
    return LoadBalancerIngress(ip=address.address, ip_mode="Proxy", ports=ports if errors else ())


def _with(actual: Actual, part: Part, *, made: bool = False) -> Actual:
    return msgspec.structs.replace(
        actual,
        parts={**actual.parts, part.id: part},
        made=actual.made | {part.id} if made else actual.made,
    )


def _refusing(actual: Actual, refused: Mapping[str, str]) -> Actual:
    return msgspec.structs.replace(actual, refused={**actual.refused, **refused})
