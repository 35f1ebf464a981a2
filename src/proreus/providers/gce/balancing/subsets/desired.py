"""Decide which parts the load balancer of a Service with a subset of the nodes should have. Pure.

They are those of the controller that officially makes these (`pkg/l4/resources/l4.go` of
ingress-gce), by IPv4: a group of endpoints in each zone in the place of the instance groups of all
nodes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.desired import HEALTH_PATH
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.providers.gce.balancing.annotations import Options
from proreus.providers.gce.balancing.desired import (
    Desired,
    Setting,
    Subset,
    affinity,
    canonical,
    check,
    check_port,
    subnetwork_of,
)
from proreus.providers.gce.balancing.firewalls import for_checks, for_clients
from proreus.providers.gce.balancing.parts import (
    IPV4,
    BackendService,
    Check,
    Draining,
    Endpoints,
    Firewall,
    Form,
    Http,
    Kind,
    Rule,
)
from proreus.providers.gce.balancing.rules import backend_protocol, of_backend
from proreus.providers.gce.balancing.subsets.names import (
    SubsetNames,
    described,
    described_as_shared,
    described_group,
    names_of,
)
from proreus.providers.gce.names import Machine

DRAINING: Final = Draining(30)
"""How long connections of TCP may go on."""
_INTERVALS: Final = {
    True: {"check_interval_sec": 8, "unhealthy_threshold": 3},
    False: {"check_interval_sec": 3, "unhealthy_threshold": 2},
}
"""How often nodes are asked, by whether the health check is shared."""
_WORDS: Final = {"TCP": "tcp", "UDP": "udp"}


def subset_parts(
    lb: LoadBalancer,
    options: Options,
    setting: Setting,
    machines: Collection[Machine],
    tags: Sequence[str],
) -> Desired:
    """Compute the parts of the load balancer of a Service with a subset of the nodes.

    Raises:
        InvalidRequest: Google cannot do what the Service asks.
    """
    _check_place(lb, setting)
    lb = msgspec.structs.replace(lb, families=(IPV4,))
    subnetwork = subnetwork_of(options, setting)
    check(lb, options, Form.SUBSET, subnetwork)
    names, place, shared = names_of(lb.ref), setting.place, not lb.local_traffic
    check_name = names.shared_check if shared else names.own
    check_firewall = names.shared_check_firewall if shared else names.own_check_firewall
    description, protocol = described(lb.ref.key), backend_protocol(lb)
    (rule,) = of_backend(
        lb,
        options,
        Form.INTERNAL,
        backend_service=place.url(place.in_region("backendServices", names.own)),
        network=setting.network,
        subnetwork=place.url(subnetwork),
    )
    return Desired(
        form=Form.SUBSET,
        rules=(_named(rule, names, description),),
        check=_health_check(lb, check_name, shared=shared),
        check_firewalls=for_checks(
            {IPV4: check_firewall},
            {IPV4: setting.check_ranges},
            described_as_shared() if shared else description,
            check_port(lb),
            network=setting.network,
            tags=tuple(tags),
        ),
        service=lb.ref.key,
        target=BackendService(
            name=names.own,
            description=description,
            protocol=protocol,
            session_affinity=affinity(lb),
            load_balancing_scheme=rule.load_balancing_scheme,
            health_checks=(place.url(place.everywhere("healthChecks", check_name)),),
            connection_draining=DRAINING if protocol == "TCP" else None,
        ),
        firewalls=_client_firewalls(lb, setting, names.own, tuple(tags)),
        machines=frozenset(machines),
        cluster_uid=lb.ref.cluster.uid,
        requested_address=canonical(lb.requested_address),
        last_addresses=tuple(point.ip for point in lb.ref.last_ingress if point.ip),
        shares_check=shared,
        group=names.own,
        subset=Subset(names, _group(lb.ref, setting)),
    )


def _health_check(lb: LoadBalancer, name: str, *, shared: bool) -> Check:
    return Check(
        name=name,
        description=described_as_shared("ILB") if shared else described(lb.ref.key),
        type="HTTP",
        http_health_check=Http(check_port(lb), lb.health_check.path or HEALTH_PATH),
        timeout_sec=1,
        healthy_threshold=1,
        **_INTERVALS[shared],
    )


def _check_place(lb: LoadBalancer, setting: Setting) -> None:
    problems = []
    if IPV4 not in lb.families:
        problems.append("spec.ipFamilies: a subset of the nodes has IPv4 only: add IPv4")
    if not setting.subnetwork:
        problems.append(
            "subnetwork-name in [Global] of the cloud-config: name the subnetwork of the nodes,"
            " which groups of endpoints need"
        )
    if problems:
        raise InvalidRequest("; ".join(problems))


def _named(rule: Rule, names: SubsetNames, description: str) -> Rule:
    """Return the forwarding rule with the name for its protocol."""
    name = names.rules[_WORDS.get(rule.protocol, "l3")]
    return msgspec.structs.replace(rule, name=name, description=description)


def _client_firewalls(
    lb: LoadBalancer, setting: Setting, name: str, tags: tuple[str, ...]
) -> Mapping[str, Firewall]:
    made = for_clients(lb, (IPV4,), setting.network, tags)
    return {
        family: msgspec.structs.replace(one, name=name, description=described(lb.ref.key))
        for family, one in made.items()
    }


def _group(ref: LoadBalancerRef, setting: Setting) -> Endpoints:
    """Return what a zone's group is made from; interfaces in its subnetwork can be in it."""
    return Endpoints(
        "",
        description=described_group(ref),
        network=setting.network,
        subnetwork=setting.place.url(setting.subnetwork),
    )


def subset_keys(names: SubsetNames) -> list[tuple[Kind, str]]:
    """Return what a load balancer with a subset may consist of, shared parts and groups aside."""
    return [
        *((Kind.RULE, name) for name in names.rules.values()),
        *((Kind.ADDRESS, names.own), (Kind.FIREWALL, names.own), (Kind.CHECK, names.own)),
        *((Kind.SERVICE, names.own), (Kind.FIREWALL, names.own_check_firewall)),
    ]


def needed_of_subset(desired: Desired, names: SubsetNames) -> list[tuple[Kind, str]]:
    """Return what has to be read before a plan is made, groups aside.

    The firewall rule for the own health check is left out if there is to be none: `unexpected`
    adds it where there is such a check.
    """
    keys = [key for key in subset_keys(names) if key[0] is not Kind.RULE]
    spared = (Kind.FIREWALL, names.own_check_firewall)
    return [
        *((Kind.RULE, one.name) for one in desired.rules),
        *(key for key in keys if key != spared),
        (Kind.CHECK, desired.check.name),
        *((Kind.FIREWALL, one.name) for one in desired.check_firewalls.values()),
    ]
