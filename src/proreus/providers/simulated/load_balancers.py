"""The capability `LoadBalancers` of the provider `simulated`: observe, plan, apply."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import (
    MARK_CLUSTER_UID,
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
from proreus.cloudprovider.mark_forms import owned_object
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.kube.objects import IP_MODE_PROXY, LoadBalancerIngress, PortStatus, Service
from proreus.providers.simulated.api import Api, TargetsChanged
from proreus.providers.simulated.parts import Address, Balancer, Observed, Part, RoutePart
from proreus.providers.simulated.plan import (
    FAMILY,
    check,
    delete_steps,
    desired_fingerprint,
    fingerprint,
    owned,
    plan,
    targets,
    unlisted,
)
from proreus.providers.simulated.steps import Step

PORT_ERROR = "simulated/ListenerFailed"
_ASK_AGAIN = 1.0
_NEW_ADDRESS = "addresses.create"


class SimulatedLoadBalancers:
    """The capability `LoadBalancers` of the provider `simulated`."""

    def __init__(self, api: Api, region: str) -> None:
        """Keep the client of the cloud; hosts are instances of `region`."""
        self._api = api
        self._region = region

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return the Service's UID, since no two Services share a part."""
        return lb.uid

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes, in IPv4 only: the cloud's pool is in 127.0.0.0/8."""
        del service
        return HostPolicy(families=(FAMILY,))

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if the load balancer is as desired."""
        return desired_fingerprint(desired, self._region)

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Read once, then write what differs: nothing if all is as desired."""
        answers = await asyncio.gather(*(attempt(self._ensure, lb) for lb in desired))
        return {lb.ref.uid: answer for lb, answer in zip(desired, answers, strict=True)}

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Read once, and return what `ensure` would write."""
        answers = await asyncio.gather(*(attempt(self._preview, lb) for lb in desired))
        return {lb.ref.uid: answer for lb, answer in zip(desired, answers, strict=True)}

    async def _preview(self, desired: LoadBalancer) -> Sequence[PartChange]:
        check(desired)
        observed = owned(desired.ref, await self._api.parts(name_prefix=desired.ref.name))
        lines, _ = preview_plan(observed, lambda observed: plan(desired, observed, self._region))
        return lines

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Do as `ensure`, which writes only what differs."""
        return await self.ensure(desired)

    async def delete(self, refs: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Delete what carries the Service's marks, found by name (never stale) and by tags."""
        answers = await asyncio.gather(*(attempt(self._delete, lb) for lb in refs))
        return {lb.uid: answer for lb, answer in zip(refs, answers, strict=True)}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List parts with this cluster's mark, each load balancer with its fingerprint."""
        found = await self._api.parts(tag=f"{MARK_CLUSTER_UID}={cluster.uid}")
        parts = [part for part in found if not isinstance(part, RoutePart)]
        by_service: dict[str, dict[str, Part]] = {}
        for part in parts:
            uid = part.tags.get(MARK_SERVICE_UID, "")
            by_service.setdefault(uid, {})[part.id] = part
        return [
            msgspec.structs.replace(
                owned_object(str(part.__struct_config__.tag), part.id, part.tags),
                **_shown(part, by_service[part.tags.get(MARK_SERVICE_UID, "")]),
            )
            for part in parts
        ]

    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        check(desired)
        observed = owned(desired.ref, await self._api.parts(name_prefix=desired.ref.name))
        observed = await converge(
            observed, lambda observed: plan(desired, observed, self._region), self._take
        )
        return conclude(desired, observed, self._region)

    async def _delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        marks = (
            f"{MARK_CLUSTER_UID}={ref.cluster.uid}",
            f"{MARK_SERVICE_UID}={ref.uid}",
        )
        by_name, by_mark = await asyncio.gather(
            self._api.parts(name_prefix=ref.name), self._api.parts(tag=marks)
        )
        observed = owned(ref, [*by_mark, *by_name])
        await converge(observed, delete_steps, self._take)
        if unseen := unlisted(observed):
            return Pending(
                _ASK_AGAIN,
                "the cloud did not list these parts, which others refer to: "
                f"{', '.join(sorted(unseen))}",
            )
        return Done(found=bool(observed.parts))

    async def _take(self, _: Observed, step: Step) -> Callable[[Observed], Observed]:
        """Take one step; return how it changes what was observed."""
        try:
            answer = await self._api.take(step.call)
        except Refused as error:
            if step.call.name != _NEW_ADDRESS or error.code not in {"BadRequest", "Conflict"}:
                raise
            # An address that is taken may be free later; one that is none never is.
            kind = InvalidRequest if error.code == "BadRequest" else CloudError
            raise kind(f"spec.loadBalancerIP: {error}") from error
        if isinstance(answer, TargetsChanged):
            refused = {target.instance_id: target.reason for target in answer.rejected}
            return lambda before: step.after(before).refusing(refused)
        if answer is None:
            return step.after
        return lambda before: before.having(answer)


def conclude(desired: LoadBalancer, observed: Observed, region: str) -> EnsureAnswer:
    """Return the answer about a load balancer that needs no further step. Pure."""
    balancer, address = observed.balancers[0], observed.addresses[0]
    if balancer.state != "active":
        return Pending(_ASK_AGAIN, f"load balancer {balancer.id} is {balancer.state}")
    errors = {
        (listener.protocol, listener.port): listener.error
        for listener in observed.listeners
        if listener.error
    }
    if errors and len(errors) == len(observed.listeners):
        return CloudError("; ".join(errors.values()))
    if any(listener.state == "pending" for listener in observed.listeners):
        return Pending(_ASK_AGAIN, "listeners are not ready yet", (_ingress(address, desired),))
    desired_targets, rejected = targets(desired, region)
    refused = {
        node: observed.refused[target.instance_id]
        for node, target in desired_targets.items()
        if target.instance_id in observed.refused
    }
    return Ensured((_ingress(address, desired, errors),), {**rejected, **refused})


def _shown(part: Part, of_service: dict[str, Part]) -> dict[str, Any]:
    """Return the addresses and the fingerprint that `list_owned` shows of a load balancer."""
    if not isinstance(part, Balancer):
        return {}
    observed = Observed(of_service)
    addresses = tuple(address.address for address in observed.addresses)
    return {"fingerprint": fingerprint(observed), "addresses": addresses}


def _ingress(
    address: Address, desired: LoadBalancer, errors: Mapping[tuple[str, int], str] = {}
) -> LoadBalancerIngress:
    """Return the ingress point; its ports are listed only if one has an error."""
    ports = tuple(
        PortStatus(
            frontend.port,
            frontend.protocol,
            PORT_ERROR if (frontend.protocol, frontend.port) in errors else None,
        )
        for frontend in desired.frontends
    )
    # The cloud hands over connections of its own, and PROXY lines that kube-proxy cannot make.
    return LoadBalancerIngress(
        ip=address.address, ip_mode=IP_MODE_PROXY, ports=ports if errors else ()
    )
