"""Decide which parts the load balancer of a Service should have. Pure."""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.desired import HEALTH_PATH, KUBE_PROXY_HEALTH_PORT
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.annotations import STANDARD, Options
from proreus.providers.gce.balancing.firewalls import (
    CHECK_RANGES,
    CHECK_RANGES_V6,
    for_checks,
    for_clients,
)
from proreus.providers.gce.balancing.parts import (
    IPV4,
    IPV6,
    BackendService,
    Check,
    Endpoints,
    Firewall,
    Form,
    Http,
    HttpCheck,
    Kind,
    Pool,
    Rule,
)
from proreus.providers.gce.balancing.rules import (
    backend_protocol,
    of_backend,
    of_pool,
    ports_of,
    rule_name,
)
from proreus.providers.gce.balancing.subsets.names import SubsetNames
from proreus.providers.gce.names import Machine
from proreus.providers.gce.place import Place

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
        form: The form of the load balancer: which kinds of parts it is built of.
        rules: The forwarding rules without their addresses; the first carries our marks.
        check: The health check.
        check_firewalls: The firewall rules for the health check, by family; none while no host has
            a network tag.
        service: The Service, as namespace/name.
        target: The target of the rules: a target pool without instances, or a backend service
            without groups.
        firewalls: The firewall rules for clients by family, without address; none while no host has
            a network tag.
        machines: The hosts.
        strange: Those of them that Nodes may name by mistake, or by a lie.
        requested_address: The address that the Service asks for, or "".
        last_addresses: The addresses that the Service's status shows.
        is_tier_given: Whether a load balancer of another network tier must be replaced.
        shares_check: Whether the health check is that of all nodes.
        group: The name of the groups of a backend service.
        subset: The inputs of a subset of the nodes, if the load balancer has one.
        cluster_uid: The UID of the cluster.
        pods: The names of nodes by their pod CIDRs.
    """

    form: Form
    rules: tuple[Rule, ...]
    check: HttpCheck | Check
    check_firewalls: Mapping[str, Firewall]
    service: str
    target: Pool | BackendService
    firewalls: Mapping[str, Firewall] = {}
    machines: frozenset[Machine] = frozenset()
    strange: frozenset[Machine] = frozenset()
    requested_address: str = ""
    last_addresses: tuple[str, ...] = ()
    is_tier_given: bool = False
    shares_check: bool = True
    group: str = ""
    subset: "Subset | None" = None
    cluster_uid: str = ""
    pods: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """The name of the load balancer, which its first forwarding rule has."""
        return self.rules[0].name

    @property
    def has_own_external_check(self) -> bool:
        """Whether Google checks a target pool by itself: at its address, where clients connect."""
        return not self.shares_check and self.form is Form.POOL

    @property
    def pool(self) -> Pool | None:
        """The target pool."""
        return self.target if isinstance(self.target, Pool) else None

    @property
    def backend(self) -> BackendService | None:
        """The backend service."""
        return self.target if isinstance(self.target, BackendService) else None

    @property
    def internal(self) -> bool:
        """Whether the load balancer is reached from inside the network only."""
        return self.form in {Form.INTERNAL, Form.SUBSET}

    @property
    def own(self) -> str:
        """The name of its own backend service and health check."""
        return self.name if self.subset is None else self.subset.names.own

    @property
    def own_check_firewalls(self) -> tuple[str, ...]:
        """The names of the firewall rules for its own health check, whether they exist or not."""
        if self.subset is not None:
            return (self.subset.names.own_check_firewall,)
        return tuple(name for rule in self.rules for name in naming.own_check_firewalls(rule.name))

    @property
    def group_kind(self) -> Kind:
        """The kind of the groups of a backend service."""
        return Kind.GROUP if self.subset is None else Kind.ENDPOINTS

    def held(self, rule: Rule) -> str:
        """Return the name under which an address is held while its rule is made anew."""
        return rule.name if self.subset is None else self.subset.names.own

    def first_of(self, family: str) -> Rule | None:
        """Return the first forwarding rule of a family, whose name its address is held under."""
        return next((one for one in self.rules if one.family == family), None)

    def requested_of(self, family: str) -> str:
        """Return the address of a family that the Service asks for, or ""."""
        is_of = family_of(self.requested_address) == family
        return self.requested_address if is_of else ""


class Subset(msgspec.Struct, frozen=True):
    """The names of a load balancer with a subset of the nodes, and how its groups are made."""

    names: SubsetNames
    group: Endpoints


class Setting(msgspec.Struct, frozen=True):
    """The facts that decide the desired parts of a load balancer, besides its Service.

    Attributes:
        place: Where the cluster is.
        cluster_id: The cluster's id that names contain.
        subnetwork: The path of the subnetwork for addresses, or "".
        check_ranges: The IPv4 ranges from which health checks come.
    """

    place: Place
    cluster_id: str
    subnetwork: str = ""
    check_ranges: tuple[str, ...] = CHECK_RANGES

    @property
    def network(self) -> str:
        """The URL of the network."""
        return self.place.url(self.place.network)


def check(lb: LoadBalancer, options: Options, form: Form, subnetwork: str) -> None:
    """Refuse what these load balancers cannot do.

    Raises:
        InvalidRequest: The Service asks for something impossible; names every field that does.
    """
    problems = [
        f"spec.ports: the protocol {protocol} must be TCP or UDP"
        for protocol in ports_of(lb)
        if protocol not in _PROTOCOLS
    ]
    if lb.requested_address and family_of(lb.requested_address) not in lb.families:
        families = " or ".join(lb.families)
        problems.append(
            f"spec.loadBalancerIP: {lb.requested_address!r} must be an address of {families}"
        )
    if IPV6 in lb.families and not subnetwork:
        problems.append(
            "spec.ipFamilies: IPv6 needs a subnetwork: give subnetwork-name in [Global] of the"
            " cloud-config, or the annotation networking.gke.io/internal-load-balancer-subnet"
        )
    if IPV6 in lb.families and form is Form.EXTERNAL and options.tier == STANDARD:
        problems.append(
            "the annotation cloud.google.com/network-tier: the tier Standard has no IPv6: change"
            " spec.ipFamilies, or give Premium"
        )
    if problems:
        raise InvalidRequest("; ".join(problems))


def canonical(address: str) -> str:
    """Return an address as Google writes it."""
    return str(ipaddress.ip_address(address)) if address else ""


def without_ipv6(lb: LoadBalancer) -> LoadBalancer:
    """Return what a target pool can serve of a load balancer: IPv4.

    Raises:
        InvalidRequest: The Service has no IPv4 address.
    """
    if IPV4 not in lb.families:
        raise InvalidRequest(
            "spec.ipFamilies: a target pool has IPv4 only: add IPv4, or ask for a backend service"
            " by the annotation cloud.google.com/l4-rbs"
        )
    return msgspec.structs.replace(lb, families=(IPV4,))


def desired_parts(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    machines: Collection[Machine],
    tags: Sequence[str],
    *,
    form: Form,
) -> Desired:
    """Compute the parts of a Service's load balancer.

    Raises:
        InvalidRequest: Google cannot do what the Service asks.
    """
    if form is Form.POOL:
        lb = without_ipv6(lb)
    subnetwork = subnetwork_of(options, setting)
    check(lb, options, form, subnetwork)
    if form is Form.POOL:
        made = _with_pool(lb, options, setting, tuple(tags))
    else:
        made = _with_backend(lb, options, setting, tuple(tags), form=form, subnetwork=subnetwork)
    return msgspec.structs.replace(
        made,
        firewalls=for_clients(lb, lb.families, setting.network, tuple(tags)),
        machines=frozenset(machines),
        cluster_uid=lb.ref.cluster.uid,
        requested_address=canonical(lb.requested_address),
        last_addresses=tuple(point.ip for point in lb.ref.last_ingress if point.ip),
        is_tier_given=options.is_tier_given,
    )


def _with_pool(
    lb: LoadBalancer, options: Options, setting: Setting, tags: tuple[str, ...]
) -> Desired:
    place, name = setting.place, lb.ref.name
    shared = not lb.local_traffic
    check_name = naming.shared_check(setting.cluster_id) if shared else name
    check_ = HttpCheck(
        name=check_name,
        description=naming.described(check_name),
        port=check_port(lb),
        request_path=lb.health_check.path or HEALTH_PATH,
        **_INTERVALS,
    )
    described = naming.described_for_cluster(setting.cluster_id)
    return Desired(
        form=Form.POOL,
        rules=of_pool(lb, options, place),
        check=check_,
        check_firewalls=for_checks(
            {IPV4: naming.external_check_firewall(name, setting.cluster_id, shared=shared)},
            {IPV4: setting.check_ranges},
            described if shared else naming.described_with_address(lb.ref.key, ""),
            check_.port,
            network=setting.network,
            tags=tags,
        ),
        service=lb.ref.key,
        target=Pool(
            name=name,
            description=naming.described(lb.ref.key),
            session_affinity=affinity(lb),
            health_checks=(place.url(place.everywhere("httpHealthChecks", check_name)),),
        ),
        shares_check=shared,
    )


def _with_backend(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    tags: tuple[str, ...],
    *,
    form: Form,
    subnetwork: str,
) -> Desired:
    place, name, cluster_id = setting.place, lb.ref.name, setting.cluster_id
    shared = not lb.local_traffic
    protocol = backend_protocol(lb)
    shares_backend = options.shares_backend and shared and form is Form.INTERNAL
    backend_name = name
    if shares_backend:
        has_affinity = lb.affinity_seconds is not None
        backend_name = naming.shared_service(cluster_id, protocol, affinity=has_affinity)
    check_name = naming.shared_check(cluster_id) if shared else name
    check_path = place.everywhere("healthChecks", check_name)
    if form is Form.EXTERNAL:
        check_path = place.in_region("healthChecks", check_name)
    port = check_port(lb)
    rules = of_backend(
        lb,
        options,
        form,
        backend_service=place.url(place.in_region("backendServices", backend_name)),
        network=setting.network,
        subnetwork=place.url(subnetwork) if subnetwork else "",
    )
    return Desired(
        form=form,
        rules=rules,
        check=Check(
            name=check_name,
            description="" if shared else naming.described(lb.ref.key),
            type="HTTP",
            http_health_check=Http(port, lb.health_check.path or HEALTH_PATH),
            **_INTERVALS,
        ),
        check_firewalls=for_checks(
            _check_firewall_names(lb, form, cluster_id, shared=shared),
            {IPV4: setting.check_ranges, IPV6: CHECK_RANGES_V6[form]},
            "",
            port,
            network=setting.network,
            tags=tags,
        ),
        service=lb.ref.key,
        target=BackendService(
            name=backend_name,
            description="" if shares_backend else naming.described(lb.ref.key),
            protocol=protocol,
            session_affinity=affinity(lb),
            load_balancing_scheme=rules[0].load_balancing_scheme,
            health_checks=(place.url(check_path),),
        ),
        shares_check=shared,
        group=naming.instance_group(cluster_id),
    )


def _check_firewall_names(
    lb: LoadBalancer, form: Form, cluster_id: str, *, shared: bool
) -> Mapping[str, str]:
    """Return the names of the firewall rules for health checks, by family."""
    if shared:
        return {
            family: naming.shared_check_firewall(form, cluster_id, family) for family in lb.families
        }
    return {
        family: naming.internal_check_firewall(rule_name(lb, family), cluster_id, shared=False)
        for family in lb.families
    }


def subnetwork_of(options: Options, setting: Setting) -> str:
    """Return the path of the subnetwork for the address, or ""."""
    if not options.subnet:
        return setting.subnetwork
    place = setting.place
    region = f"projects/{place.network_project}/regions/{place.region}"
    return f"{region}/subnetworks/{options.subnet}"


def check_port(lb: LoadBalancer) -> int:
    """Return the port of health checks: the Service's own, or kube-proxy's."""
    if lb.local_traffic and lb.health_check.port:
        return lb.health_check.port
    return KUBE_PROXY_HEALTH_PORT


def affinity(lb: LoadBalancer) -> str:
    """Return the affinity of sessions, in Google's word."""
    return "NONE" if lb.affinity_seconds is None else "CLIENT_IP"
