"""The load balancer that a Service wishes, one for each family. Pure."""

import ipaddress
from collections.abc import Iterable
from typing import Final

from proreus.cloudprovider.load_balancers import Frontend, LoadBalancer
from proreus.cloudprovider.ownership import Tenants, refusal
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.annotations import Health, Says
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


def wish(
    of: LoadBalancer, says: Says, family: str, *, provider: str, member_subnet: str
) -> Balancer:
    """What is wished, but for where it stands.

    Args:
        of: The framework's wish.
        says: What annotations and cloud-config ask.
        family: IPv4 or IPv6.
        provider: Octavia's provider.
        member_subnet: The subnet of members, or "".
    """
    name = owners.name_of(of.ref, "" if family == of.families[0] else family)
    frontends = [one for one in of.frontends if one.family == family]
    return Balancer(
        name=name,
        fields={
            "description": f"Kubernetes external service {of.ref.key} from cluster"
            f" {of.ref.cluster.name}",
        },
        placed={},
        listeners=tuple(
            _listener(of, says, one, number, name, provider=provider, subnet=member_subnet)
            for number, one in enumerate(frontends)
        ),
    )


def problem(
    of: LoadBalancer,
    says: Says,
    named: Described,
    used: Iterable[Described],
    tenants: Tenants,
    *,
    most: int,
) -> str:
    """What keeps a Service from using the load balancer that it names; "" if nothing does.

    Args:
        of: The framework's wish.
        says: What annotations and cloud-config ask.
        named: The load balancer.
        used: Those that it uses.
        tenants: What Services may name.
        most: How many Services may use one.
    """
    there = [id_of(one) for one in used if family_of(one) == family_of(named)]
    if there:
        return (
            f"the Service uses load balancer {there[0]}; give that, or delete the Service and make"
            " it anew"
        )
    if family_of(named) not in of.families:
        return f"its address is of {family_of(named)}, which is no family of the Service"
    if refused := _refusal(of, named, tenants):
        return refused
    if says.internal:
        return "an internal Service cannot share a load balancer, which may get a floating IP"
    count = owners.sharers(named)
    is_full = count >= most and owners.name_of(of.ref) not in owners.tags_of(named)
    return f"{count} Services use it already (max-shared-lb in [LoadBalancer])" if is_full else ""


def _refusal(of: LoadBalancer, named: Described, tenants: Tenants) -> str:
    """Why a Service may not use a load balancer that was not made for it, whatever it wishes."""
    if refused := refusal(owners.makers(named), of.ref, tenants, (id_of(named),)):
        return refused
    if owners.is_named_for(named, of.ref):
        if not owners.may_be_used_by(named, of.ref):
            return "it was made for another Service of this name"
        says, tag = "its name says that it was made for", owners.service_tag(of.ref.uid)
    elif owners.is_named_by(named, of.ref):
        says, tag = "a tag with its name says that it is used by", owners.shared_tag(of.ref)
    else:
        return ""
    return f"only {says} this Service, whose status does not show it: if that is so, tag it {tag}"


def places(says: Says) -> dict[str, str]:
    """The networks, subnets and ports that annotations name for a load balancer, by these."""
    return {name: id_ for name, id_ in says.named.items() if name not in _PARTS}


def new_parts(says: Says, actual: Balancer | None) -> dict[str, str]:
    """What annotations name for parts of a load balancer and none of its parts has yet, by these.

    Args:
        says: What annotations ask.
        actual: What there is, or None; members that are not read yet are none.
    """
    listeners = actual.listeners if actual is not None else ()
    pools = [one.pool for one in listeners if one.pool is not None]
    has = {str(one.fields.get("default_tls_container_ref")) for one in listeners}
    has |= {member.subnet_id for pool in pools for member in pool.members}
    return {name: id_ for name, id_ in says.named.items() if name in _PARTS and id_ not in has}


def family_of(described: Described) -> str:
    """The family of a load balancer's address."""
    return version_of(str(described["vip_address"]))


def version_of(address: str) -> str:
    """The family of an address."""
    return f"IPv{ipaddress.ip_address(address).version}"


def _listener(
    of: LoadBalancer,
    says: Says,
    frontend: Frontend,
    number: int,
    name: str,
    *,
    provider: str,
    subnet: str,
) -> Listener:
    is_stream = frontend.protocol not in _DATAGRAM
    protocol = frontend.protocol
    if is_stream and says.tls:
        protocol = "TERMINATED_HTTPS"
    elif is_stream and says.x_forwarded_for:
        protocol = "HTTP"
    ranges = frozenset(of.source_ranges.get(frontend.family, ()))
    fields: dict[str, object] = {"connection_limit": says.connection_limit}
    allowed = sorted(ranges) or [_NOBODY[frontend.family]]
    fields["allowed_cidrs"] = None if ranges & _EVERYONE else allowed
    if is_stream and provider != OVN:
        fields |= says.timeouts
        if protocol != "TCP":
            headers = {"X-Forwarded-For": "true"} if says.x_forwarded_for else {}
            fields["insert_headers"] = headers
        if says.tls:
            fields["default_tls_container_ref"] = says.tls
    return Listener(
        protocol=protocol,
        port=frontend.port,
        fields=fields,
        pool=_pool(of, says, frontend, f"{number}_{name}", provider=provider, subnet=subnet),
        name=f"listener_{number}_{name}"[: owners.LONGEST],
    )


def _pool(
    of: LoadBalancer, says: Says, frontend: Frontend, name: str, *, provider: str, subnet: str
) -> Pool:
    is_stream = frontend.protocol not in _DATAGRAM
    protocol = frontend.protocol
    if is_stream and (says.tls or says.x_forwarded_for):
        protocol = "HTTP"
    elif is_stream and says.proxy:
        protocol = says.proxy
    affinity: Fields | None = None
    if of.affinity_seconds is not None:
        affinity = {"type": "SOURCE_IP"}
    check = of.health_check.port if of.local_traffic and provider != OVN else 0
    return Pool(
        protocol=protocol,
        fields={
            "lb_algorithm": "SOURCE_IP_PORT" if provider == OVN else says.method,
            "session_persistence": affinity,
        },
        members=tuple(
            Member(
                address=host.addresses[frontend.family][0],
                port=frontend.node_port,
                subnet_id=subnet,
                monitor_port=check if says.health else 0,
                name=host.node,
            )
            for host in of.hosts
            if host.addresses.get(frontend.family) and frontend.node_port
        ),
        monitor=_monitor(says.health, frontend, f"monitor_{name}", check, of.health_check.path),
        name=f"pool_{name}"[: owners.LONGEST],
    )


def _monitor(
    health: Health | None, frontend: Frontend, name: str, port: int, path: str
) -> Monitor | None:
    """Nodes are asked whether they have a pod where that matters, and else whether they answer."""
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
