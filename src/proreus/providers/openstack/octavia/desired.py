"""Decide which load balancer Octavia should have for each family of a Service. Pure."""

import ipaddress
from collections.abc import Iterable
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import parsed_address
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import Frontend, LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.ownership import Tenants, is_of_another_cluster, refusal
from proreus.kube.objects import IP_MODE_PROXY, LoadBalancerIngress
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.config import LoadBalancer as LoadBalancerSection
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.annotations import Health, Options
from proreus.providers.openstack.octavia.parts import (
    Balancer,
    Fields,
    Listener,
    Member,
    Monitor,
    Pool,
)

OVN: Final = "ovn"
"""The provider that can do less than others."""

_PARTS = ("member-subnet-id", "default-tls-container-ref")
"""The annotations that name objects for parts of a load balancer, not for itself."""
_EVERYONE = frozenset({"0.0.0.0/0", "::/0"})
_NOBODY = {"IPv4": "255.255.255.255/32", "IPv6": "::/128"}
"""Addresses that no client has; to Octavia an empty list means everyone."""
_DATAGRAM = {"UDP": "UDP-CONNECT", "SCTP": "SCTP-CONNECT"}


def desired_balancer(
    lb: LoadBalancer, options: Options, family: str, *, provider: str, member_subnet: str
) -> Balancer:
    """Compute the desired load balancer of a family, but for its network.

    Args:
        lb: The desired load balancer, as the framework describes it.
        options: The options that annotations and cloud-config choose.
        family: IPv4 or IPv6.
        provider: The provider (driver) of Octavia.
        member_subnet: The subnet of members, or "".
    """
    name = owners.name_of(lb.ref, "" if family == lb.families[0] else family)
    frontends = [frontend for frontend in lb.frontends if frontend.family == family]
    return Balancer(
        name=name,
        fields={
            "description": f"Kubernetes external service {lb.ref.key} from cluster"
            f" {lb.ref.cluster.name}",
        },
        placed={},
        listeners=tuple(
            _listener(lb, options, one, number, name, provider=provider, subnet=member_subnet)
            for number, one in enumerate(frontends)
        ),
    )


def sharing_problem(
    lb: LoadBalancer,
    options: Options,
    named: Described,
    used: Iterable[Described],
    tenants: Tenants,
    *,
    most: int,
) -> str:
    """Return why a Service cannot use the load balancer that it names; "" if it can.

    Args:
        lb: The desired load balancer, as the framework describes it.
        options: The options that annotations and cloud-config choose.
        named: The load balancer that it names.
        used: The load balancers that the Service uses already.
        tenants: The section [Tenants]: which objects Services may name.
        most: How many Services may use one load balancer.
    """
    there = [id_of(one) for one in used if family_of(one) == family_of(named)]
    if there:
        return (
            f"the Service uses load balancer {there[0]}: name that one, or delete the Service and"
            " create it again"
        )
    if family_of(named) not in lb.families:
        return f"its address is of {family_of(named)}, which is not a family of the Service"
    if refused := _refusal(lb, named, tenants):
        return refused
    if options.internal:
        return "an internal Service cannot share a load balancer, which may get a floating IP"
    count = owners.sharers(named)
    is_full = count >= most and owners.name_of(lb.ref) not in owners.tags_of(named)
    return f"{count} Services use it already (max-shared-lb in [LoadBalancer])" if is_full else ""


def _refusal(lb: LoadBalancer, named: Described, tenants: Tenants) -> str:
    """Return why a Service may not use a load balancer that was not made for it."""
    if refused := refusal(owners.makers(named), lb.ref, tenants, (id_of(named),)):
        return refused
    if owners.is_named_for(named, lb.ref):
        if not owners.may_be_used_by(named, lb.ref):
            return "it was made for another Service of this name"
        clue, tag = "named as if it was made for", owners.service_tag(lb.ref.uid)
    elif owners.is_named_by(named, lb.ref):
        clue, tag = "tagged as used by", owners.shared_tag(lb.ref)
    else:
        return ""
    return f"it is {clue} this Service, whose status does not show it: if it is, add the tag {tag}"


def named_places(options: Options) -> dict[str, str]:
    """Return the networks, subnets and ports that annotations name, by annotation."""
    return {name: id_ for name, id_ in options.named.items() if name not in _PARTS}


def new_parts(options: Options, observed: Balancer | None) -> dict[str, str]:
    """Return the objects that annotations name for parts and no part has yet, by annotation.

    Args:
        options: The options that annotations choose.
        observed: The observed load balancer, or None; members that are not read yet count as none.
    """
    listeners = observed.listeners if observed is not None else ()
    pools = [listener.pool for listener in listeners if listener.pool is not None]
    has = {str(listener.fields.get("default_tls_container_ref")) for listener in listeners}
    has |= {member.subnet_id for pool in pools for member in pool.members}
    return {name: id_ for name, id_ in options.named.items() if name in _PARTS and id_ not in has}


def has_guests(others: Iterable[str], cluster: ClusterIdentity) -> bool:
    """Tell whether Services of another cluster are among those that the tags in `others` mean."""
    tags = tuple(others)
    named = (owner for tag in tags for owner in owners.makers({"name": tag}))
    has_mark = bool(owners.values({"tags": tags}, MARK_CLUSTER_UID))
    return has_mark or any(is_of_another_cluster(owner, cluster) for owner in named)


def is_alone(described: Described, others: Iterable[str], cluster: ClusterIdentity) -> bool:
    """Tell whether a load balancer was made for the cluster, and no other one's Services use it."""
    return owners.is_made_in(described, cluster) and not has_guests(others, cluster)


def ingress_of(
    options: Options, settings: LoadBalancerSection, address: str, *, is_ours: bool
) -> LoadBalancerIngress:
    """Return what the status shows of an address.

    Nodes must not lead to pods what others have on a load balancer that is not the cluster's alone:
    made by hand, whatever marks an operator has put on it, or for another cluster, or shared by it.
    """
    if options.hostname:
        return LoadBalancerIngress(hostname=options.hostname)
    if options.proxy and settings.enable_ingress_hostname:
        name = address.replace(":", "-")
        return LoadBalancerIngress(hostname=f"{name}.{settings.ingress_hostname_suffix}")
    is_proxy = options.proxy or not is_ours
    return LoadBalancerIngress(ip=address, ip_mode=IP_MODE_PROXY if is_proxy else None)


def family_of(described: Described) -> str:
    """Return the family of a load balancer's address."""
    return version_of(str(described["vip_address"]))


def of_family(ref: LoadBalancerRef, family: str) -> LoadBalancerRef:
    """Return a Service as if it had one family; a host name may stand for either."""
    points = (one for one in ref.last_ingress if not one.ip or version_of(one.ip) == family)
    return msgspec.structs.replace(ref, uid=f"{ref.uid}/{family}", last_ingress=tuple(points))


def requested_address(lb: LoadBalancer) -> str:
    """Return the address that a Service asks for; "" for none.

    Raises:
        InvalidRequest: It is none: nothing tells whose it is, and a database may still find one.
    """
    if (asked := lb.requested_address) and parsed_address(asked) is None:
        raise InvalidRequest(f"spec.loadBalancerIP: {asked!r} is no IP address")
    return asked


def version_of(address: str) -> str:
    """Return the family of an address: "IPv4" or "IPv6"."""
    return f"IPv{ipaddress.ip_address(address).version}"


def _listener(
    lb: LoadBalancer,
    options: Options,
    frontend: Frontend,
    number: int,
    name: str,
    *,
    provider: str,
    subnet: str,
) -> Listener:
    is_stream = frontend.protocol not in _DATAGRAM
    protocol = frontend.protocol
    if is_stream and options.tls:
        protocol = "TERMINATED_HTTPS"
    elif is_stream and options.x_forwarded_for:
        protocol = "HTTP"
    ranges = frozenset(lb.source_ranges.get(frontend.family, ()))
    fields: dict[str, object] = {"connection_limit": options.connection_limit}
    allowed = sorted(ranges) or [_NOBODY[frontend.family]]
    fields["allowed_cidrs"] = None if ranges & _EVERYONE else allowed
    if is_stream and provider != OVN:
        fields |= options.timeouts
        if protocol != "TCP":
            headers = {"X-Forwarded-For": "true"} if options.x_forwarded_for else {}
            fields["insert_headers"] = headers
        if options.tls:
            fields["default_tls_container_ref"] = options.tls
    return Listener(
        protocol=protocol,
        port=frontend.port,
        fields=fields,
        pool=_pool(lb, options, frontend, f"{number}_{name}", provider=provider, subnet=subnet),
        name=f"listener_{number}_{name}"[: owners.LONGEST],
    )


def _pool(
    lb: LoadBalancer, options: Options, frontend: Frontend, name: str, *, provider: str, subnet: str
) -> Pool:
    is_stream = frontend.protocol not in _DATAGRAM
    protocol = frontend.protocol
    if is_stream and (options.tls or options.x_forwarded_for):
        protocol = "HTTP"
    elif is_stream and options.proxy:
        protocol = options.proxy
    affinity: Fields | None = None
    if lb.affinity_seconds is not None:
        affinity = {"type": "SOURCE_IP"}
    check = lb.health_check.port if lb.local_traffic and provider != OVN else 0
    return Pool(
        protocol=protocol,
        fields={
            "lb_algorithm": "SOURCE_IP_PORT" if provider == OVN else options.method,
            "session_persistence": affinity,
        },
        members=tuple(
            Member(
                address=address,
                port=frontend.node_port,
                subnet_id=subnet,
                monitor_port=check if options.health else 0,
                name=node,
            )
            for address, node in _nodes(lb, frontend.family).items()
            if frontend.node_port
        ),
        monitor=_monitor(options.health, frontend, f"monitor_{name}", check, lb.health_check.path),
        name=f"pool_{name}"[: owners.LONGEST],
    )


def _nodes(lb: LoadBalancer, family: str) -> dict[str, str]:
    """Return the hosts' names by address: Octavia refuses one twice, and kubelets claim any."""
    found: dict[str, str] = {}
    for host in lb.hosts:
        if addresses := host.addresses.get(family):
            found.setdefault(addresses[0], host.node)
    return found


def _monitor(
    health: Health | None, frontend: Frontend, name: str, port: int, path: str
) -> Monitor | None:
    """Compute the health monitor: for pods on the node where that matters, else for the node."""
    if health is None:
        return None
    fields: dict[str, object] = {
        "delay": health.delay,
        "timeout": health.timeout,
        "max_retries": health.retries,
        "max_retries_down": health.retries_down,
    }
    kind = _DATAGRAM.get(frontend.protocol, "TCP")
    if port:
        kind = "HTTP"
        fields |= {"url_path": path, "http_method": "GET", "expected_codes": "200"}
    return Monitor(kind, fields, name[: owners.LONGEST])
