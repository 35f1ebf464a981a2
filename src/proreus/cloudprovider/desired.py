"""Compute the desired load balancer of a Service from objects of Kubernetes alone.

Pure: the same objects give the same result, in the same order, so that an unchanged cluster
compares equal and costs no cloud call.

Which nodes are hosts follows KEP-3458 (the stable node set): readiness, cordoning and other
taints do not count, the balancer's own health check judges those.
"""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network

from proreus.cloudprovider.addresses import family_of, may_be_a_machines
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity, marks
from proreus.cloudprovider.load_balancers import (
    Endpoints,
    EndpointTarget,
    Frontend,
    HealthCheck,
    Host,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
)
from proreus.cloudprovider.names import default_load_balancer_name, without_zone
from proreus.kube.objects import (
    ANNOTATION_SOURCE_RANGES,
    LABEL_EXCLUDE_LB,
    TAINT_AUTOSCALER,
    EndpointSlice,
    Node,
    Service,
    has_local_traffic,
    has_taint,
)

LABEL_SERVICE_NAME = "kubernetes.io/service-name"
"""The label with the Service that an EndpointSlice belongs to."""
KUBE_PROXY_HEALTH_PORT = 10256
HEALTH_PATH = "/healthz"
DEFAULT_AFFINITY_SECONDS = 10800

_EVERYWHERE = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
_FAMILY = {4: "IPv4", 6: "IPv6"}
_GO_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_PREFERENCE = ("InternalIP", "ExternalIP")


def hosts(nodes: Iterable[Node], policy: HostPolicy, families: tuple[str, ...]) -> tuple[Host, ...]:
    """Return the nodes that receive traffic, sorted by name, with their addresses of `families`.

    Left out are nodes that are being deleted, that the autoscaler is about to delete, that carry
    the exclude label with any value but a false one, that the policy's selector does not match,
    and those without a provider id. A host may lack an address of a family.
    """
    chosen = (node for node in nodes if is_host(node, policy.selector))
    return tuple(
        Host(
            node=node.metadata.name,
            provider_id=node.spec.provider_id,
            addresses=_addresses(node, families),
        )
        for node in sorted(chosen, key=lambda node: node.metadata.name)
    )


def is_host(node: Node, selector: Mapping[str, str | None]) -> bool:
    """Tell whether the node receives traffic, as `hosts` says."""
    labels = node.metadata.labels
    return (
        not is_left_out(node)
        and node.spec.provider_id != ""
        and all(
            label in labels and value in {None, labels[label]} for label, value in selector.items()
        )
    )


def is_left_out(node: Node) -> bool:
    """Tell whether the node is to get no traffic: it is excluded by its label, or about to go."""
    return (
        node.metadata.deletion_timestamp is not None
        or node.metadata.labels.get(LABEL_EXCLUDE_LB, "false") not in _GO_FALSE
        or has_taint(node, TAINT_AUTOSCALER)
    )


def desired_load_balancer(
    service: Service,
    nodes: Iterable[Node],
    policy: HostPolicy,
    cluster: ClusterIdentity,
    endpoints: Iterable[EndpointSlice] = (),
    *,
    select: Callable[[Iterable[Node], HostPolicy, tuple[str, ...]], tuple[Host, ...]] = hosts,
) -> LoadBalancer:
    """Compute what the load balancer of a Service should be like.

    Args:
        service: A Service of type LoadBalancer.
        nodes: Every node of the cluster; those that cannot be hosts are left out.
        policy: The provider's `host_policy` for this Service.
        cluster: The cluster whose marks the cloud objects get.
        endpoints: EndpointSlices; only this Service's are read, and only if the policy asks.
        select: Selects the hosts as `hosts` does; for many Services, a function that remembers.

    Raises:
        InvalidRequest: The Service asks for something impossible. Names every such field.
    """
    problems: list[str] = []
    families = _families(service, policy, problems)
    ranges = source_ranges(service, families, problems)
    if not service.spec.ports:
        problems.append("spec.ports is empty: a load balancer needs at least one port")
    if problems:
        raise InvalidRequest("; ".join(problems))
    meta = service.metadata
    return LoadBalancer(
        ref=load_balancer_ref(service, cluster),
        service=service,
        marks=marks(cluster, f"{meta.namespace}/{meta.name}", meta.uid),
        frontends=_frontends(service, families),
        hosts=select(nodes, policy, families),
        health_check=_health_check(service),
        source_ranges=ranges,
        families=families,
        endpoints=_targets(service, endpoints, policy.endpoints, families),
        affinity_seconds=_affinity_seconds(service),
        local_traffic=has_local_traffic(service),
        requested_address=service.spec.load_balancer_ip,
    )


def load_balancer_ref(service: Service, cluster: ClusterIdentity) -> LoadBalancerRef:
    """Return the reference to the Service's load balancer, good for deletion too."""
    meta = service.metadata
    return LoadBalancerRef(
        cluster=cluster,
        namespace=meta.namespace,
        service_name=meta.name,
        uid=meta.uid,
        name=default_load_balancer_name(meta.uid),
        last_ingress=service.status.load_balancer.ingress,
        service=service,
    )


def _addresses(node: Node, families: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for type_ in _PREFERENCE:
        for address in node.status.addresses:
            is_meant = address.type == type_ and may_be_a_machines(address.address)
            family = family_of(address.address) if is_meant else ""
            if family in families and address.address not in found.setdefault(family, []):
                found[family].append(address.address)
    return {family: tuple(found[family]) for family in families if family in found}


def _families(service: Service, policy: HostPolicy, problems: list[str]) -> tuple[str, ...]:
    requested = service.spec.ip_families or ("IPv4",)
    families = tuple(family for family in requested if family in policy.families)
    if not families:
        problems.append(
            f"spec.ipFamilies is {', '.join(requested)}, but this load balancer can only have "
            f"{', '.join(policy.families) or 'none'}: change spec.ipFamilies"
        )
    return families


def _frontends(service: Service, families: tuple[str, ...]) -> tuple[Frontend, ...]:
    return tuple(
        Frontend(
            protocol=port.protocol,
            port=port.port,
            node_port=port.node_port,
            family=family,
            name=port.name,
            app_protocol=port.app_protocol,
        )
        for family in families
        for port in service.spec.ports
    )


def source_ranges(
    service: Service, families: tuple[str, ...], problems: list[str]
) -> dict[str, tuple[str, ...]]:
    """Return the CIDRs of a Service's clients by family; what is wrong is added to `problems`."""
    field, ranges = _stated_ranges(service)
    if not ranges:
        return {family: (_EVERYWHERE[family],) for family in families}
    found: dict[str, list[str]] = {family: [] for family in families}
    for text in ranges:
        try:
            network = ip_network(without_zone(text), strict=False)
        except ValueError:
            problems.append(f"{field}: {text!r} is not a CIDR such as 192.0.2.0/24")
            continue
        known = found.get(_FAMILY[network.version], [])
        if str(network) not in known:
            known.append(str(network))
    return {family: tuple(known) for family, known in found.items()}


def _stated_ranges(service: Service) -> tuple[str, tuple[str, ...]]:
    if service.spec.load_balancer_source_ranges:
        stated = tuple(text.strip() for text in service.spec.load_balancer_source_ranges)
        return "spec.loadBalancerSourceRanges", stated
    text = service.metadata.annotations.get(ANNOTATION_SOURCE_RANGES, "").strip()
    stated = tuple(part.strip() for part in text.split(",")) if text else ()
    return f"annotation {ANNOTATION_SOURCE_RANGES}", stated


def _health_check(service: Service) -> HealthCheck:
    if not has_local_traffic(service):
        # kube-proxy answers 503 on a node that is going away (KEP-3836): connections drain.
        return HealthCheck(port=KUBE_PROXY_HEALTH_PORT, path=HEALTH_PATH)
    if service.spec.health_check_node_port:
        return HealthCheck(port=service.spec.health_check_node_port, path=HEALTH_PATH)
    # Local without its port: the node port itself answers only where a pod is.
    return HealthCheck()


def _affinity_seconds(service: Service) -> int | None:
    if service.spec.session_affinity != "ClientIP":
        return None
    config = service.spec.session_affinity_config
    seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
    return DEFAULT_AFFINITY_SECONDS if seconds is None else seconds


def _targets(
    service: Service,
    slices: Iterable[EndpointSlice],
    needed: Endpoints,
    families: tuple[str, ...],
) -> tuple[EndpointTarget, ...]:
    """Return the ready endpoints as targets of the load balancer.

    So pods that come and go on the same node change nothing for a cloud that asks for nodes only.
    """
    if needed is Endpoints.NONE:
        return ()
    found = {
        (slice_.address_type, endpoint.node_name or "", address)
        for slice_ in slices
        if _is_of(slice_, service) and slice_.address_type in families
        for endpoint in slice_.endpoints or ()
        if endpoint.conditions.ready is not False
        for address in (endpoint.addresses if needed is Endpoints.PODS else ("",))
    }
    if needed is Endpoints.NODES:
        found = {target for target in found if target[1]}
    return tuple(
        EndpointTarget(address=address, node=node, family=family)
        for family, node, address in sorted(found)
    )


def _is_of(slice_: EndpointSlice, service: Service) -> bool:
    meta = slice_.metadata
    return (
        meta.namespace == service.metadata.namespace
        and meta.labels.get(LABEL_SERVICE_NAME) == service.metadata.name
    )
