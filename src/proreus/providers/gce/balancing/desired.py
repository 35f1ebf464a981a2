"""Decide which parts the load balancer of a Service should have. Pure."""

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.desired import HEALTH_PATH, KUBE_PROXY_HEALTH_PORT
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.annotations import Options
from proreus.providers.gce.balancing.parts import (
    ANY_PROTOCOL,
    EXTERNAL,
    INTERNAL,
    IPV4,
    UNSPECIFIED,
    Allowed,
    BackendService,
    Check,
    Firewall,
    Http,
    HttpCheck,
    Pool,
    Rule,
)
from proreus.providers.gce.names import Machine
from proreus.providers.gce.place import Place

CHECK_RANGES: Final = ("130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22")
"""Where Google checks the health of nodes from."""
NOBODY: Final = {IPV4: "255.255.255.255/32"}
"""By family an address that no client has; to Google an empty list means everyone."""
MOST_PORTS: Final = 5
"""Ports of an internal forwarding rule; with more it forwards all."""

_PROTOCOLS: Final = ("TCP", "UDP")
_INTERVALS: Final = {
    "check_interval_sec": 8,
    "timeout_sec": 1,
    "healthy_threshold": 1,
    "unhealthy_threshold": 3,
}


class Desired(msgspec.Struct, frozen=True):
    """The desired parts of a Service's load balancer.

    Attributes:
        rules: The forwarding rules without their addresses; the first carries our marks.
        check: The health check.
        check_firewalls: The firewall rules for it by family; none while no host has a tag.
        firewalls: The firewall rules for clients by family, without address; none while no host
            has a tag.
        service: The Service, as namespace/name.
        target: Where the rules lead: the target pool of an external one, without instances, or
            the backend service of an internal one, without its groups.
        machines: The hosts.
        requested_address: What the Service asks for, or "".
        last_address: What its status shows, or "".
        is_tier_given: Whether one of another network tier must go.
        shares_check: Whether the health check is that of all nodes.
        group: The name of the instance groups of an internal one.
    """

    rules: tuple[Rule, ...]
    check: HttpCheck | Check
    check_firewalls: Mapping[str, Firewall]
    firewalls: Mapping[str, Firewall]
    service: str
    target: Pool | BackendService
    machines: frozenset[Machine] = frozenset()
    requested_address: str = ""
    last_address: str = ""
    is_tier_given: bool = False
    shares_check: bool = True
    group: str = ""

    @property
    def name(self) -> str:
        """The name of the load balancer, which its first forwarding rule has."""
        return self.rules[0].name

    @property
    def has_own_external_check(self) -> bool:
        """Whether an external load balancer has a health check of its own, made at its address."""
        return not self.shares_check and not self.internal

    @property
    def pool(self) -> Pool | None:
        """The target pool of an external load balancer."""
        return self.target if isinstance(self.target, Pool) else None

    @property
    def backend(self) -> BackendService | None:
        """The backend service of an internal load balancer."""
        return self.target if isinstance(self.target, BackendService) else None

    @property
    def internal(self) -> bool:
        """Whether the load balancer is reached from inside the network only."""
        return self.backend is not None


class Setting(msgspec.Struct, frozen=True):
    """The facts that decide the desired parts of a load balancer, besides its Service.

    Attributes:
        place: Where the cluster is.
        cluster_id: The cluster's id in names.
        subnetwork: The path of the subnetwork for addresses, or "".
        check_ranges: Where health checks come from.
    """

    place: Place
    cluster_id: str
    subnetwork: str = ""
    check_ranges: tuple[str, ...] = CHECK_RANGES


def check(lb: LoadBalancer) -> None:
    """Refuse what these load balancers cannot do.

    Raises:
        InvalidRequest: Names every such field.
    """
    problems = [
        f"spec.ports: the protocol {protocol} must be TCP or UDP"
        for protocol in sorted({one.protocol for one in lb.frontends} - set(_PROTOCOLS))
    ]
    if lb.requested_address:
        try:
            ipaddress.IPv4Address(lb.requested_address)
        except ValueError:
            problems.append(
                f"spec.loadBalancerIP: {lb.requested_address!r} must be an IPv4 address"
            )
    if problems:
        raise InvalidRequest("; ".join(problems))


def desired_parts(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    machines: Collection[Machine],
    tags: Sequence[str],
) -> Desired:
    """Compute the parts of a Service's load balancer.

    Raises:
        InvalidRequest: Google cannot do what the Service asks.
    """
    check(lb)
    make = _internal if options.internal else _external
    return make(lb, options, setting, frozenset(machines), tuple(tags))


def _external(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    machines: frozenset[Machine],
    tags: tuple[str, ...],
) -> Desired:
    place, name = setting.place, lb.ref.name
    shared = not lb.local_traffic
    check_name = naming.shared_check(setting.cluster_id) if shared else name
    check_ = HttpCheck(
        name=check_name,
        description=naming.described(check_name),
        port=_check_port(lb),
        request_path=lb.health_check.path or HEALTH_PATH,
        **_INTERVALS,
    )
    pool = Pool(
        name=name,
        description=naming.described(lb.ref.key),
        session_affinity=_affinity(lb),
        health_checks=(place.url(place.everywhere("httpHealthChecks", check_name)),),
    )
    described = naming.described_for_cluster(setting.cluster_id)
    return Desired(
        rules=_pool_rules(lb, options, place),
        check=check_,
        check_firewalls=_check_firewalls(
            naming.external_check_firewall(name, setting.cluster_id, shared=shared),
            described if shared else naming.described_with_address(lb.ref.key, ""),
            check_.port,
            setting,
            tags,
        ),
        firewalls=_firewalls(lb, setting, tags),
        service=lb.ref.key,
        target=pool,
        machines=machines,
        requested_address=lb.requested_address,
        last_address=_last_address(lb),
        is_tier_given=options.is_tier_given,
        shares_check=shared,
    )


def _pool_rules(lb: LoadBalancer, options: Options, place: Place) -> tuple[Rule, ...]:
    """Return the forwarding rules of a target pool: one for each protocol, with the same address.

    One range of ports has them all; the firewall rule lets only the Service's own through.
    """
    rules: list[Rule] = []
    for protocol, ports in sorted(_ports(lb).items()):
        name = naming.udp_rule(lb.ref.name) if rules else lb.ref.name
        rules.append(
            Rule(
                name=name,
                description=naming.described(lb.ref.key),
                protocol=protocol,
                load_balancing_scheme=EXTERNAL,
                port_range=f"{min(ports)}-{max(ports)}",
                target=place.url(place.in_region("targetPools", lb.ref.name)),
                network_tier=options.tier,
            )
        )
    return tuple(rules)


def _internal(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    machines: frozenset[Machine],
    tags: tuple[str, ...],
) -> Desired:
    place, name, cluster_id = setting.place, lb.ref.name, setting.cluster_id
    shared = not lb.local_traffic
    protocol = _backend_protocol(lb)
    shares_backend = options.shares_backend and shared
    backend_name = name
    if shares_backend:
        has_affinity = lb.affinity_seconds is not None
        backend_name = naming.shared_service(cluster_id, protocol, affinity=has_affinity)
    check_name = naming.shared_check(cluster_id) if shared else name
    port = _check_port(lb)
    rule = _with_ports(
        Rule(
            name=name,
            description=naming.described(lb.ref.key),
            load_balancing_scheme=INTERNAL,
            backend_service=place.url(place.in_region("backendServices", backend_name)),
            network=place.url(place.network),
            subnetwork=_subnetwork_url(options, setting),
            allow_global_access=options.global_access,
        ),
        lb,
    )
    return Desired(
        rules=(rule,),
        check=Check(
            name=check_name,
            description="" if shared else naming.described(lb.ref.key),
            type="HTTP",
            http_health_check=Http(port, lb.health_check.path or HEALTH_PATH),
            **_INTERVALS,
        ),
        check_firewalls=_check_firewalls(
            naming.internal_check_firewall(name, cluster_id, shared=shared), "", port, setting, tags
        ),
        firewalls=_firewalls(lb, setting, tags),
        service=lb.ref.key,
        target=BackendService(
            name=backend_name,
            description="" if shares_backend else naming.described(lb.ref.key),
            protocol=protocol,
            session_affinity=_affinity(lb),
            load_balancing_scheme=INTERNAL,
            health_checks=(place.url(place.everywhere("healthChecks", check_name)),),
        ),
        machines=machines,
        requested_address=lb.requested_address,
        last_address=_last_address(lb),
        shares_check=shared,
        group=naming.instance_group(cluster_id),
    )


def _ports(lb: LoadBalancer) -> dict[str, list[int]]:
    """Return the ports by protocol, each in the order of the Service."""
    found: dict[str, list[int]] = {}
    for one in lb.frontends:
        if one.port not in (ports := found.setdefault(one.protocol, [])):
            ports.append(one.port)
    return found


def _backend_protocol(lb: LoadBalancer) -> str:
    """Return the protocol of the backend service, which has one, or takes any."""
    protocols = list(_ports(lb))
    return protocols[0] if len(protocols) == 1 else UNSPECIFIED


def _with_ports(rule: Rule, lb: LoadBalancer) -> Rule:
    """Return the forwarding rule of a backend service with protocol and ports.

    Two internal rules can have one address only if that was reserved for sharing before it was
    used, so all protocols go by one rule, which then has all ports.
    """
    ports = _ports(lb)
    if len(ports) > 1:
        return msgspec.structs.replace(rule, protocol=ANY_PROTOCOL, all_ports=True)
    ((protocol, numbers),) = ports.items()
    if len(numbers) > MOST_PORTS:
        return msgspec.structs.replace(rule, protocol=protocol, all_ports=True)
    return msgspec.structs.replace(rule, protocol=protocol, ports=tuple(map(str, numbers)))


def _last_address(lb: LoadBalancer) -> str:
    return next((point.ip for point in lb.ref.last_ingress if point.ip), "")


def _subnetwork_url(options: Options, setting: Setting) -> str:
    """Return the URL of the subnetwork for the address, or ""."""
    place = setting.place
    path = setting.subnetwork
    if options.subnet:
        region = f"projects/{place.network_project}/regions/{place.region}"
        path = f"{region}/subnetworks/{options.subnet}"
    return place.url(path) if path else ""


def port_ranges(ports: Iterable[int]) -> tuple[str, ...]:
    """Return ports as ranges, such as `80` and `8080-8082`, of which a firewall rule has few."""
    found: list[list[int]] = []
    for port in sorted(set(ports)):
        if found and found[-1][1] == port - 1:
            found[-1][1] = port
        else:
            found.append([port, port])
    return tuple(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _firewalls(lb: LoadBalancer, setting: Setting, tags: tuple[str, ...]) -> Mapping[str, Firewall]:
    if not tags:
        return {}
    allowed = tuple(
        Allowed(protocol.lower(), port_ranges(ports))
        for protocol, ports in sorted(_ports(lb).items())
    )
    return {
        family: Firewall(
            name=naming.firewall(lb.ref.name),
            description=naming.described_with_address(lb.ref.key, ""),
            network=setting.place.url(setting.place.network),
            source_ranges=tuple(sorted(lb.source_ranges.get(family, ()))) or (NOBODY[family],),
            target_tags=tags,
            allowed=allowed,
        )
        for family in lb.families
    }


def _check_firewalls(
    name: str, description: str, port: int, setting: Setting, tags: tuple[str, ...]
) -> Mapping[str, Firewall]:
    if not tags:
        return {}
    return {
        IPV4: Firewall(
            name=name,
            description=description,
            network=setting.place.url(setting.place.network),
            source_ranges=tuple(sorted(setting.check_ranges)),
            target_tags=tags,
            allowed=(Allowed("tcp", (str(port),)),),
        )
    }


def _check_port(lb: LoadBalancer) -> int:
    """Return the port of health checks: the Service's own, or kube-proxy's."""
    if lb.local_traffic and lb.health_check.port:
        return lb.health_check.port
    return KUBE_PROXY_HEALTH_PORT


def _affinity(lb: LoadBalancer) -> str:
    return "NONE" if lb.affinity_seconds is None else "CLIENT_IP"
