"""Decide which forwarding rules a load balancer should have. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.annotations import Options
from proreus.providers.gce.balancing.parts import (
    ANY_PROTOCOL,
    EXTERNAL,
    INTERNAL,
    IPV6,
    UNSPECIFIED,
    Form,
    Rule,
)
from proreus.providers.gce.place import Place

MOST_PORTS: Final = 5
"""Ports of a forwarding rule of a backend service; with more it forwards all, or a range."""


def ports_of(lb: LoadBalancer) -> Mapping[str, list[int]]:
    """Return the ports by protocol, in the order of protocols, each in that of the Service."""
    found: dict[str, list[int]] = {}
    for one in sorted(lb.frontends, key=lambda one: one.protocol):
        if one.port not in (ports := found.setdefault(one.protocol, [])):
            ports.append(one.port)
    return found


def backend_protocol(lb: LoadBalancer) -> str:
    """Return the protocol of the backend service, which has one, or takes any."""
    protocols = list(ports_of(lb))
    return protocols[0] if len(protocols) == 1 else UNSPECIFIED


def rule_name(lb: LoadBalancer, family: str) -> str:
    """Return the name of the first forwarding rule of a family.

    The Service's first family can never change, so the rule of that one is called as officially.
    """
    return lb.ref.name if family == lb.families[0] else naming.of_family(lb.ref.name, family)


def of_pool(lb: LoadBalancer, options: Options, place: Place) -> tuple[Rule, ...]:
    """Return the forwarding rules of a target pool: one for each protocol, with the same address.

    One range of ports spans all ports; the firewall rule lets only the Service's own through.
    """
    rules: list[Rule] = []
    for protocol, ports in ports_of(lb).items():
        rules.append(
            Rule(
                name=naming.udp_rule(lb.ref.name) if rules else lb.ref.name,
                description=naming.described(lb.ref.key),
                protocol=protocol,
                load_balancing_scheme=EXTERNAL,
                port_range=_range(ports),
                target=place.url(place.in_region("targetPools", lb.ref.name)),
                network_tier=options.tier,
            )
        )
    return tuple(rules)


def of_backend(
    lb: LoadBalancer,
    options: Options,
    form: Form,
    *,
    backend_service: str,
    network: str,
    subnetwork: str,
) -> tuple[Rule, ...]:
    """Return the forwarding rules of a backend service: one for each family of addresses."""
    is_internal = form is Form.INTERNAL
    base = _with_ports(
        Rule(
            name=lb.ref.name,
            description=naming.described(lb.ref.key),
            load_balancing_scheme=INTERNAL if is_internal else EXTERNAL,
            backend_service=backend_service,
            network=network if is_internal else "",
            network_tier="" if is_internal else options.tier,
            allow_global_access=is_internal and options.global_access,
        ),
        lb,
    )
    return tuple(
        msgspec.structs.replace(
            base,
            name=rule_name(lb, family),
            ip_version="IPV6" if family == IPV6 else "",
            subnetwork=subnetwork if is_internal or family == IPV6 else "",
        )
        for family in lb.families
    )


def _with_ports(rule: Rule, lb: LoadBalancer) -> Rule:
    """Return the forwarding rule of a backend service with protocol and ports.

    Two internal rules can have one address only if that was reserved for sharing before it was
    used, so all protocols go by one rule, which then has all ports.
    """
    ports = ports_of(lb)
    if len(ports) > 1:
        return msgspec.structs.replace(rule, protocol=ANY_PROTOCOL, all_ports=True)
    ((protocol, numbers),) = ports.items()
    if len(numbers) <= MOST_PORTS:
        return msgspec.structs.replace(rule, protocol=protocol, ports=tuple(map(str, numbers)))
    if rule.load_balancing_scheme == INTERNAL:
        return msgspec.structs.replace(rule, protocol=protocol, all_ports=True)
    return msgspec.structs.replace(rule, protocol=protocol, port_range=_range(numbers))


def _range(ports: list[int]) -> str:
    return f"{min(ports)}-{max(ports)}"
