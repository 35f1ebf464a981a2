"""Load balancers: one balancer of the cloud for each Service."""

from collections.abc import Iterator, Mapping

from minimal_provider.api import Balancer, Page, marked, things
from proreus.cloudprovider import (
    HostPolicy,
    InvalidRequest,
    LoadBalancer,
    LoadBalancers,
    RestClient,
    per_object,
)
from proreus.kube.objects import LoadBalancerIngress


def load_balancers(api: RestClient) -> LoadBalancers:
    """The load balancers of the cloud: each is made, changed and deleted as a whole."""
    balancers = things(api, "balancers", Balancer, Page[Balancer])
    return per_object(
        balancers,
        plan,
        kind="balancer",
        name=lambda one: one.name,
        marks=lambda one: one.labels,
        ingress=lambda one: [LoadBalancerIngress(ip=one.address, ip_mode="Proxy")],
        chosen=["address"],
        list_marked=lambda cluster: marked(balancers, cluster),
        host_policy=lambda _: HostPolicy(families=("IPv4",)),
    )


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
