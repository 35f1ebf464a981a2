"""Decide which listeners and health checks a load balancer has, for both kinds. Pure.

The rules are the official manager's, so that a load balancer of its is as desired for us, too. What
it refuses and AWS can do is done: TCP and UDP at one port of a network load balancer.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import Frontend, LoadBalancer
from proreus.providers.aws.annotations import PREFIX, TRAFFIC_PORT, Health, Kind, Options
from proreus.providers.aws.config import Global, HealthProbeMode

_ENDS_TLS: Final = {"http": "HTTPS", "https": "HTTPS", "tcp": "SSL", "ssl": "SSL"}
"""The protocol of a classic load balancer's listener with a certificate, by that of hosts."""
_PROTOCOLS: Final = {Kind.CLASSIC: ("TCP",), Kind.NETWORK: ("TCP", "UDP")}
_PRESERVE: Final = "preserve_client_ip.enabled"
_HTTP: Final = ("HTTP", "HTTPS")


class Listener(msgspec.Struct, frozen=True, order=True):
    """A listener of a classic load balancer; `certificate` is an ARN or ""."""

    port: int
    protocol: str
    instance_port: int
    instance_protocol: str
    certificate: str = ""


class ClassicHealthCheck(msgspec.Struct, frozen=True):
    """The one health check of a classic load balancer.

    `target` is such as `TCP:30080` or `HTTP:30080/up`; `timeout` and `interval` are seconds.
    """

    target: str
    healthy: int = 2
    unhealthy: int = 6
    timeout: int = 5
    interval: int = 10


class HealthCheck(msgspec.Struct, frozen=True):
    """The health check of a target group.

    `port` may be `TRAFFIC_PORT`, `path` is "" with TCP. `interval` and `timeout` are seconds; a
    timeout of 0 is AWS' own.
    """

    protocol: str = "TCP"
    port: str = TRAFFIC_PORT
    path: str = ""
    healthy: int = 3
    unhealthy: int = 3
    interval: int = 30
    timeout: int = 0


class PortMapping(msgspec.Struct, frozen=True):
    """A listener of a network load balancer and its target group.

    Attributes:
        port: The port on which the load balancer listens.
        protocol: The protocol of the listener: TCP, UDP, TCP_UDP or TLS.
        target_port: The node port.
        target_protocol: The protocol of the target group: TCP, UDP, TCP_UDP or TLS.
        health: The health check of the hosts.
        certificate: The ARN of the certificate, for TLS.
        policy: The security policy of TLS; "" is AWS' own.
    """

    port: int
    protocol: str
    target_port: int
    target_protocol: str
    health: HealthCheck
    certificate: str = ""
    policy: str = ""


def check(lb: LoadBalancer, options: Options) -> None:
    """Refuse what this kind of load balancer cannot do.

    Raises:
        InvalidRequest: The Service asks for something impossible; names every field that does.
    """
    if problems := tuple(_problems(lb, options)):
        raise InvalidRequest("; ".join(problems))


def _problems(lb: LoadBalancer, options: Options) -> Iterator[str]:
    known = _PROTOCOLS[options.kind]
    for frontend in lb.frontends:
        place = f"spec.ports {frontend.port}/{frontend.protocol}"
        if frontend.protocol not in known:
            hint = "" if options.kind is Kind.NETWORK else f"; UDP needs {PREFIX}type: nlb"
            yield f"{place}: the load balancer forwards only {' and '.join(known)}{hint}"
        elif not frontend.node_port:
            yield f"{place}: it has no node port: set spec.allocateLoadBalancerNodePorts to true"
    has_udp = any(frontend.protocol == "UDP" for frontend in lb.frontends)
    if has_udp and options.target_attributes.get(_PRESERVE) == "false":
        yield f"annotation {PREFIX}target-group-attributes: with UDP, {_PRESERVE} can only be true"
    if lb.affinity_seconds is not None:
        yield "spec.sessionAffinity: load balancers of AWS support None only"
    if lb.requested_address:
        yield (
            "spec.loadBalancerIP: AWS chooses the address; leave it empty, or give "
            f"{PREFIX}eip-allocations"
        )


def classic_listeners(lb: LoadBalancer, options: Options) -> frozenset[Listener]:
    """Return the listeners of a classic load balancer."""
    return frozenset(_classic_listener(frontend, options) for frontend in lb.frontends)


def _classic_listener(frontend: Frontend, options: Options) -> Listener:
    port, node_port = frontend.port, frontend.node_port
    backend = options.backend_protocol
    if options.has_tls(port, frontend.name):
        protocol = _ENDS_TLS[backend or "tcp"]
        return Listener(port, protocol, node_port, (backend or "tcp").upper(), options.certificate)
    # Without TLS of ours, only http is told from bytes: it adds X-Forwarded-For.
    protocol = "HTTP" if backend == "http" else "TCP"
    return Listener(port, protocol, node_port, protocol)


def classic_health_check(
    lb: LoadBalancer, options: Options, settings: Global
) -> ClassicHealthCheck:
    """Return the one health check of a classic load balancer, by its first port."""
    health, first = options.health, lb.frontends[0]
    # Never more than TCP unless told: what speaks HTTP need not answer 200 to a GET of /.
    protocol = "SSL" if options.backend_protocol in {"ssl", "https"} else "TCP"
    port, path = first.node_port, ""
    if lb.local_traffic and lb.health_check.port:
        protocol, path = "HTTP", lb.health_check.path
        port = port if health.port == TRAFFIC_PORT else lb.health_check.port
    elif _is_shared(settings):
        protocol = "HTTP"
        port = settings.cluster_service_shared_load_balancer_health_probe_port
        path = settings.cluster_service_shared_load_balancer_health_probe_path
    protocol = health.protocol or protocol
    if health.port not in {None, TRAFFIC_PORT}:
        port = int(health.port or 0)
    path = health.path or path or "/"
    default = ClassicHealthCheck(f"{protocol}:{port}{path if protocol in _HTTP else ''}")
    return msgspec.structs.replace(
        default, **_given(health, "healthy", "unhealthy", "timeout", "interval")
    )


def _is_shared(settings: Global) -> bool:
    return settings.cluster_service_load_balancer_health_probe_mode is HealthProbeMode.SHARED


def _given(health: Health, *fields: str) -> dict[str, int]:
    return {field: getattr(health, field) for field in fields if getattr(health, field) is not None}


def port_mappings(lb: LoadBalancer, options: Options, settings: Global) -> tuple[PortMapping, ...]:
    """Return the listeners and target groups of a network load balancer, by port.

    TCP and UDP at the same port with the same node port become one of TCP_UDP.

    Raises:
        InvalidRequest: TCP and UDP at the same port cannot be one listener.
    """
    by_port: dict[int, list[Frontend]] = {}
    for frontend in lb.frontends:
        by_port.setdefault(frontend.port, []).append(frontend)
    health = health_check(lb, options, settings)
    return tuple(_mapping(by_port[port], options, health) for port in sorted(by_port))


def _mapping(frontends: list[Frontend], options: Options, health: HealthCheck) -> PortMapping:
    first = frontends[0]
    protocols = {frontend.protocol for frontend in frontends}
    mixed = {"TCP", "UDP"} <= protocols
    place = f"spec.ports {first.port}"
    if mixed and len({frontend.node_port for frontend in frontends}) > 1:
        raise InvalidRequest(f"{place}: TCP and UDP need the same nodePort to share a port")
    is_tls = "TCP" in protocols and options.has_tls(first.port, first.name)
    if mixed and is_tls:
        raise InvalidRequest(f"{place}: TLS and UDP cannot share a port; see {PREFIX}ssl-ports")
    protocol = "TCP_UDP" if mixed else first.protocol
    mapping = PortMapping(first.port, protocol, first.node_port, protocol, health)
    if not is_tls:
        return mapping
    return msgspec.structs.replace(
        mapping,
        protocol="TLS",
        target_protocol="TLS" if options.backend_protocol == "ssl" else "TCP",
        certificate=options.certificate,
        policy=options.tls_policy,
    )


def health_check(lb: LoadBalancer, options: Options, settings: Global) -> HealthCheck:
    """Return the health check for the hosts of a network load balancer."""
    default = HealthCheck()
    if lb.local_traffic and lb.health_check.port:
        # Quick, since a node without a pod drops what it gets.
        own = lb.health_check
        default = HealthCheck("HTTP", str(own.port), own.path, healthy=2, unhealthy=2, interval=10)
    elif _is_shared(settings):
        default = HealthCheck(
            "HTTP",
            str(settings.cluster_service_shared_load_balancer_health_probe_port),
            settings.cluster_service_shared_load_balancer_health_probe_path,
        )
    health = options.health
    protocol = health.protocol or default.protocol
    return msgspec.structs.replace(
        default,
        protocol=protocol,
        port=health.port or default.port,
        path=(health.path or default.path or "/") if protocol in _HTTP else "",
        **_given(health, "healthy", "unhealthy", "interval", "timeout"),
    )
