"""Load balancers: one balancer of the cloud for each Service."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from minimal_provider.api import Balancer, Balancers
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
    Request,
    RestClient,
    json_body,
    pages,
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
    )


class Verbs:
    """What Proreus asks for: observe, compare with the wish, write what differs."""

    def __init__(self, api: RestClient) -> None:
        """Speak through `api`."""
        self._api = api

    async def ensure(self, wanted: LoadBalancer) -> Ensured:
        """Make or change the balancer, if it is not as wished."""
        wish, rejected = plan(wanted)
        actual = await self._find(wanted.ref)
        if actual is None:
            actual = await self._write("POST", "balancers", wish)
        elif not is_ours(actual, wanted.ref):
            raise CloudError(f"the balancer {actual.name} was not made for this Service: remove it")
        elif msgspec.structs.replace(actual, address="") != wish:
            actual = await self._write("PUT", path(wanted.ref), wish)
        return Ensured((LoadBalancerIngress(ip=actual.address, ip_mode="Proxy"),), rejected)

    async def delete(self, gone: LoadBalancerRef) -> Done:
        """Delete the balancer, if there is one and it is ours."""
        actual = await self._find(gone)
        if actual is not None and is_ours(actual, gone):
            request = Request("balancers.delete", "DELETE", path(gone))
            await self._api.find(request, dict[str, str])
        return Done()

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """All balancers with the cluster's mark, page by page."""
        query = {"label": f"{MARK_CLUSTER_UID}={cluster.uid}"}
        request = Request("balancers.list", "GET", "balancers", query)

        async def page(after: str) -> tuple[Sequence[Balancer], str]:
            found = await self._api.call(request.with_query(after=after), Balancers)
            return found.balancers, found.next

        return [owned(balancer) for balancer in await pages(request.name, page)]

    async def _find(self, ref: LoadBalancerRef) -> Balancer | None:
        return await self._api.find(Request("balancers.get", "GET", path(ref)), Balancer)

    async def _write(self, method: str, url: str, wish: Balancer) -> Balancer:
        request = Request(f"balancers.{method.lower()}", method, url, body=json_body(wish))
        return await self._api.call(request, Balancer)


def plan(wanted: LoadBalancer) -> tuple[Balancer, Mapping[str, str]]:
    """The balancer that is wished for, and why some hosts cannot be targets. Pure."""
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


def path(ref: LoadBalancerRef) -> str:
    """Where the Service's balancer is, if there is one. Pure."""
    return f"balancers/{quote(ref.name, safe='')}"


def is_ours(balancer: Balancer, ref: LoadBalancerRef) -> bool:
    """Whether it was made for this Service of this cluster; its name proves nothing. Pure."""
    marks = (balancer.labels.get(MARK_CLUSTER_UID), balancer.labels.get(MARK_SERVICE_UID))
    return marks == (ref.cluster.uid, ref.uid)


def owned(balancer: Balancer) -> OwnedObject:
    """The balancer in a list of what the cluster owns. Pure."""
    labels = balancer.labels
    service, uid = labels.get(MARK_SERVICE, ""), labels.get(MARK_SERVICE_UID, "")
    return OwnedObject("balancer", balancer.name, service=service, service_uid=uid)
