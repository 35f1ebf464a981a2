"""Decide which parts the load balancer of a Service should have. Pure."""

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.desired import HEALTH_PATH, KUBE_PROXY_HEALTH_PORT
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import Host, LoadBalancer
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.annotations import Options
from proreus.providers.gce.balancing.parts import (
    EXTERNAL,
    INTERNAL,
    Allowed,
    BackendService,
    Check,
    Firewall,
    Http,
    HttpCheck,
    Pool,
    Rule,
)
from proreus.providers.gce.names import Machine, instance_path, parsed, region_of
from proreus.providers.gce.place import Place

FAMILY: Final = "IPv4"
CHECK_RANGES: Final = ("130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22")
"""Where Google checks the health of nodes from."""
NOBODY: Final = "255.255.255.255/32"
"""An address that no client has; to Google an empty list means everyone."""
MOST_PORTS: Final = 5
"""Ports of an internal forwarding rule; with more it forwards all."""
MOST_IN_GROUP: Final = 1000
"""Instances of an instance group."""

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
        rule: The forwarding rule, without its address.
        check: The health check.
        check_firewall: The firewall rule for it; None while no host has a tag.
        firewall: The firewall rule for clients, without address; None while no host has a tag.
        service: The Service, as namespace/name.
        target: Where the rule leads: the target pool of an external one, without instances, or
            the backend service of an internal one, without its groups.
        machines: The hosts.
        requested_address: What the Service asks for, or "".
        last_address: What its status shows, or "".
        is_tier_given: Whether one of another network tier must go.
        shares_check: Whether the health check is that of all nodes.
        group: The name of the instance groups of an internal one.
    """

    rule: Rule
    check: HttpCheck | Check
    check_firewall: Firewall | None
    firewall: Firewall | None
    service: str
    target: Pool | BackendService
    machines: frozenset[Machine] = frozenset()
    requested_address: str = ""
    last_address: str = ""
    is_tier_given: bool = False
    shares_check: bool = True
    group: str = ""

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
    problems = []
    protocols = sorted({one.protocol for one in lb.frontends})
    if len(protocols) > 1:
        problems.append(
            f"spec.ports has the protocols {', '.join(protocols)}: a forwarding rule has one: make"
            " a Service for each"
        )
    problems += [
        f"spec.ports: the protocol {protocol} must be TCP or UDP"
        for protocol in protocols
        if protocol not in _PROTOCOLS
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


def machines_of(hosts: Iterable[Host], place: Place) -> tuple[dict[str, Machine], dict[str, str]]:
    """Return the instances of hosts by node, and why a node cannot be a host, by node."""
    found: dict[str, Machine] = {}
    rejected: dict[str, str] = {}
    for host in hosts:
        read = parsed(host.provider_id)
        if read is None or read[0] != place.project:
            rejected[host.node] = (
                f"{host.provider_id} is no instance of the project {place.project}"
            )
        elif region_of(read[1].zone) != place.region:
            rejected[host.node] = f"{host.provider_id} is not in the region {place.region}"
        else:
            found[host.node] = read[1]
    return found, rejected


def by_zone(machines: Iterable[Machine]) -> dict[str, frozenset[Machine]]:
    """Return instances by zone, no more than a group can have."""
    found: dict[str, list[Machine]] = {}
    for one in sorted(machines):
        found.setdefault(one.zone, []).append(one)
    return {zone: frozenset(ones[:MOST_IN_GROUP]) for zone, ones in sorted(found.items())}


def tags_for(
    nodes: Mapping[str, Machine], tags: Mapping[Machine, str], given: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the network tags for firewall rules, and why a node is not let through to, by node.

    Args:
        nodes: The hosts.
        tags: The tag of each.
        given: Those of the cloud-config, which count for all.
    """
    if given:
        return tuple(given), {}
    missing = {
        node: (
            "the instance has no network tag with which its name begins: give it one, or set"
            " node-tags in [Global] of the cloud-config"
        )
        for node, machine in nodes.items()
        if not tags.get(machine)
    }
    return tuple(sorted({tags[one] for one in nodes.values() if tags.get(one)})), missing


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
    ports = sorted(one.port for one in lb.frontends)
    shared = not lb.local_traffic
    check_name = naming.shared_check(setting.cluster_id) if shared else name
    check_ = HttpCheck(
        name=check_name,
        description=naming.described(check_name),
        port=_check_port(lb),
        request_path=lb.health_check.path or HEALTH_PATH,
        **_INTERVALS,
    )
    rule = Rule(
        name=name,
        description=naming.described(lb.ref.key),
        protocol=lb.frontends[0].protocol,
        load_balancing_scheme=EXTERNAL,
        port_range=f"{ports[0]}-{ports[-1]}",
        target=place.url(place.in_region("targetPools", name)),
        network_tier=options.tier,
    )
    pool = Pool(
        name=name,
        description=naming.described(lb.ref.key),
        session_affinity=_affinity(lb),
        health_checks=(place.url(place.everywhere("httpHealthChecks", check_name)),),
    )
    described = naming.described_for_cluster(setting.cluster_id)
    firewall = _firewall(lb, setting, tags)
    return Desired(
        rule=rule,
        check=check_,
        check_firewall=_check_firewall(
            naming.external_check_firewall(name, setting.cluster_id, shared=shared),
            described if shared else firewall.description,
            check_.port,
            setting,
            tags,
        ),
        firewall=firewall if tags else None,
        service=lb.ref.key,
        target=pool,
        machines=machines,
        requested_address=lb.requested_address,
        last_address=_last_address(lb),
        is_tier_given=options.is_tier_given,
        shares_check=shared,
    )


def _internal(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    machines: frozenset[Machine],
    tags: tuple[str, ...],
) -> Desired:
    place, name, cluster_id = setting.place, lb.ref.name, setting.cluster_id
    shared = not lb.local_traffic
    protocol = lb.frontends[0].protocol
    ports = tuple(str(one.port) for one in lb.frontends)
    shares_backend = options.shares_backend and shared
    backend_name = name
    if shares_backend:
        has_affinity = lb.affinity_seconds is not None
        backend_name = naming.shared_service(cluster_id, protocol, affinity=has_affinity)
    check_name = naming.shared_check(cluster_id) if shared else name
    port = _check_port(lb)
    return Desired(
        rule=Rule(
            name=name,
            description=naming.described(lb.ref.key),
            protocol=protocol,
            load_balancing_scheme=INTERNAL,
            ports=ports if len(ports) <= MOST_PORTS else (),
            all_ports=len(ports) > MOST_PORTS,
            backend_service=place.url(place.in_region("backendServices", backend_name)),
            network=place.url(place.network),
            subnetwork=_subnetwork_url(options, setting),
            allow_global_access=options.global_access,
        ),
        check=Check(
            name=check_name,
            description="" if shared else naming.described(lb.ref.key),
            type="HTTP",
            http_health_check=Http(port, lb.health_check.path or HEALTH_PATH),
            **_INTERVALS,
        ),
        check_firewall=_check_firewall(
            naming.internal_check_firewall(name, cluster_id, shared=shared), "", port, setting, tags
        ),
        firewall=_firewall(lb, setting, tags) if tags else None,
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


def instance_urls(machines: Iterable[Machine], place: Place) -> tuple[str, ...]:
    """Return the URLs of instances."""
    return tuple(place.url(instance_path(place.project, one)) for one in sorted(machines))


def port_ranges(ports: Iterable[int]) -> tuple[str, ...]:
    """Return ports as ranges, such as `80` and `8080-8082`, of which a firewall rule has few."""
    found: list[list[int]] = []
    for port in sorted(set(ports)):
        if found and found[-1][1] == port - 1:
            found[-1][1] = port
        else:
            found.append([port, port])
    return tuple(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _firewall(lb: LoadBalancer, setting: Setting, tags: tuple[str, ...]) -> Firewall:
    ports = port_ranges(one.port for one in lb.frontends)
    return Firewall(
        name=naming.firewall(lb.ref.name),
        description=naming.described_with_address(lb.ref.key, ""),
        network=setting.place.url(setting.place.network),
        source_ranges=tuple(sorted(lb.source_ranges.get(FAMILY, ()))) or (NOBODY,),
        target_tags=tags,
        allowed=(Allowed(lb.frontends[0].protocol.lower(), ports),),
    )


def _check_firewall(
    name: str, description: str, port: int, setting: Setting, tags: tuple[str, ...]
) -> Firewall | None:
    if not tags:
        return None
    return Firewall(
        name=name,
        description=description,
        network=setting.place.url(setting.place.network),
        source_ranges=tuple(sorted(setting.check_ranges)),
        target_tags=tags,
        allowed=(Allowed("tcp", (str(port),)),),
    )


def _check_port(lb: LoadBalancer) -> int:
    """Return the port of health checks: the Service's own, or kube-proxy's."""
    if lb.local_traffic and lb.health_check.port:
        return lb.health_check.port
    return KUBE_PROXY_HEALTH_PORT


def _affinity(lb: LoadBalancer) -> str:
    return "NONE" if lb.affinity_seconds is None else "CLIENT_IP"
