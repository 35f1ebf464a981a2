"""Makes, changes and deletes load balancers: one balancer of the cloud for each Service."""

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
    """Make the capability: each load balancer is made, changed and deleted as a whole."""
    balancers = things(api, "balancers", Balancer, Page[Balancer])
    return per_object(
        balancers,
        plan,
        kind="balancer",
        name=lambda balancer: balancer.name,
        marks=lambda balancer: balancer.labels,
        ingress=lambda balancer: [LoadBalancerIngress(ip=balancer.address, ip_mode="Proxy")],
        chosen=["address"],
        list_marked=lambda cluster: marked(balancers, cluster),
        host_policy=lambda _: HostPolicy(families=("IPv4",)),
    )


def plan(desired: LoadBalancer) -> tuple[Balancer, Mapping[str, str]]:
    """Return the desired balancer, and by node why some hosts cannot be targets. Pure."""
    if problems := tuple(impossible(desired)):
        raise InvalidRequest("; ".join(problems))
    addresses = {host.node: host.addresses.get("IPv4", ()) for host in desired.hosts}
    check = desired.health_check
    balancer = Balancer(
        name=desired.ref.name,
        labels=dict(desired.marks),
        forwards={str(port.port): port.node_port for port in desired.frontends},
        targets=tuple(sorted(found[0] for found in addresses.values() if found)),
        sources=desired.source_ranges.get("IPv4", ()),
        health=f"{check.port}{check.path}" if check.port else "",
    )
    return balancer, {node: "no IPv4 address" for node, found in addresses.items() if not found}


def impossible(desired: LoadBalancer) -> Iterator[str]:
    """Return what this cloud cannot do, each with its field and the remedy. Pure."""
    for port in desired.frontends:
        if port.protocol != "TCP" or not port.node_port:
            yield f"spec.ports: {port.port}/{port.protocol} must be TCP and have a node port"
    if desired.affinity_seconds is not None:
        yield "spec.sessionAffinity: this cloud has no affinity, give None"
    if desired.requested_address:
        yield "spec.loadBalancerIP: this cloud chooses the address, leave it empty"
