"""Load balancers: one balancer of the cloud for each Service."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from minimal_provider.api import Balancer, Page, Things
from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    CloudError,
    ClusterIdentity,
    Done,
    Ensured,
    HostPolicy,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    OwnedObject,
    PartChange,
    RestClient,
    per_service,
)
from proreus.kube.objects import LoadBalancerIngress


def load_balancers(api: RestClient) -> LoadBalancers:
    """The load balancers of the cloud, made and deleted one by one."""
    verbs = Verbs(api)
    return per_service(
        verbs.ensure,
        verbs.delete,
        host_policy=lambda _: HostPolicy(families=("IPv4",)),
        list_owned=verbs.list_owned,
        fingerprint=lambda wanted: digest(plan(wanted)[0]),
        preview=verbs.preview,
    )


class Verbs:
    """What Proreus asks for: observe, compare with what is desired, write what differs."""

    def __init__(self, api: RestClient) -> None:
        """Speak through `api`."""
        self._things = Things(api, "balancers", Balancer, Page[Balancer])

    async def ensure(self, wanted: LoadBalancer) -> Ensured:
        """Make or change the balancer, if it is not as desired."""
        desired, rejected = plan(wanted)
        observed = await self._things.find(desired.name)
        if observed is None:
            observed = await self._things.create(desired)
        elif diff(observed, desired, wanted.ref):
            observed = await self._things.replace(desired.name, desired)
        return Ensured((LoadBalancerIngress(ip=observed.address, ip_mode="Proxy"),), rejected)

    async def preview(self, wanted: LoadBalancer) -> Sequence[PartChange]:
        """What `ensure` would do, found by reading only."""
        desired, _ = plan(wanted)
        observed = await self._things.find(desired.name)
        if observed is None:
            return (PartChange("create", f"balancer {desired.name}"),)
        fields = diff(observed, desired, wanted.ref)
        return (PartChange("change", f"balancer {desired.name}", fields),) if fields else ()

    async def delete(self, gone: LoadBalancerRef) -> Done:
        """Delete the balancer, if there is one and it is ours."""
        observed = await self._things.find(gone.name)
        if observed is not None and is_ours(observed, gone):
            await self._things.delete(gone.name)
        return Done()

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """All balancers with the cluster's mark."""
        return [owned(one) for one in await self._things.marked(cluster)]


def plan(wanted: LoadBalancer) -> tuple[Balancer, Mapping[str, str]]:
    """The balancer that is desired, and why some hosts cannot be targets. Pure."""
    if problems := tuple(impossible(wanted)):
        raise InvalidRequest("; ".join(problems))
    addresses = {host.node: host.addresses.get("IPv4", ()) for host in wanted.hosts}
    check = wanted.health_check
    balancer = Balancer(
        name=wanted.ref.name,
        labels=dict(wanted.marks),
        forwards={str(port.port): port.node_port for port in wanted.frontends},
        targets=tuple(sorted(found[0] for found in addresses.values() if found)),
        sources=wanted.source_ranges.get("IPv4", ()),
        health=f"{check.port}{check.path}" if check.port else "",
    )
    return balancer, {node: "no IPv4 address" for node, found in addresses.items() if not found}


def impossible(wanted: LoadBalancer) -> Iterator[str]:
    """What this cloud cannot do, each with its field and the remedy. Pure."""
    for port in wanted.frontends:
        if port.protocol != "TCP" or not port.node_port:
            yield f"spec.ports: {port.port}/{port.protocol} must be TCP and have a node port"
    if wanted.affinity_seconds is not None:
        yield "spec.sessionAffinity: this cloud knows None only"
    if wanted.requested_address:
        yield "spec.loadBalancerIP: this cloud chooses the address, leave it empty"


def diff(observed: Balancer, desired: Balancer, ref: LoadBalancerRef) -> str:
    """What is to be changed, in words; "" for nothing. Pure.

    Raises:
        CloudError: The balancer is not ours.
    """
    if not is_ours(observed, ref):
        raise CloudError(f"the balancer {desired.name} was made for somebody else: remove it")
    now, then = msgspec.structs.asdict(unplaced(observed)), msgspec.structs.asdict(desired)
    return ", ".join(name for name in then if now[name] != then[name])


def unplaced(balancer: Balancer) -> Balancer:
    """The balancer without its address, which the cloud chooses. Pure."""
    return msgspec.structs.replace(balancer, address="")


def digest(balancer: Balancer) -> str:
    """A fingerprint of all that can be desired of a balancer. Pure."""
    return hashlib.sha256(msgspec.json.encode(unplaced(balancer), order="sorted")).hexdigest()


def is_ours(balancer: Balancer, ref: LoadBalancerRef) -> bool:
    """Whether it was made for this Service of this cluster, by its marks. Pure."""
    marks = (balancer.labels.get(MARK_CLUSTER_UID), balancer.labels.get(MARK_SERVICE_UID))
    return marks == (ref.cluster.uid, ref.uid)


def owned(balancer: Balancer) -> OwnedObject:
    """The balancer in a list of what the cluster owns. Pure."""
    return OwnedObject(
        kind="balancer",
        id=balancer.name,
        service=balancer.labels.get(MARK_SERVICE, ""),
        service_uid=balancer.labels.get(MARK_SERVICE_UID, ""),
        fingerprint=digest(balancer),
        addresses=(balancer.address,),
    )
