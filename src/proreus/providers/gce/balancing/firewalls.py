"""Decide who is let through to the hosts of a load balancer: clients and health checks. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.parts import IPV4, IPV6, Allowed, Firewall, Form, Part
from proreus.providers.gce.balancing.rules import ports_of, rule_name

CHECK_RANGES: Final = ("130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22")
"""Where Google checks the health of nodes from, by IPv4."""
CHECK_RANGES_V6: Final = {
    Form.INTERNAL: ("2600:2d00:1:b029::/64",),
    Form.EXTERNAL: ("2600:1901:8001::/48",),
}
"""The same by IPv6, as Google's page of the ranges of health checks has it."""
NOBODY: Final = {IPV4: "255.255.255.255/32", IPV6: "100::/128"}
"""By family an address that no client has; to Google an empty list means everyone."""


def for_clients(
    lb: LoadBalancer, families: Iterable[str], network: str, tags: tuple[str, ...]
) -> Mapping[str, Firewall]:
    """Return the firewall rules for clients by family, without address; none without tags."""
    allowed = tuple(
        Allowed(protocol.lower(), port_ranges(ports)) for protocol, ports in ports_of(lb).items()
    )
    return {
        family: Firewall(
            name=naming.firewall(rule_name(lb, family)),
            description=naming.described_with_address(lb.ref.key, ""),
            network=network,
            source_ranges=tuple(sorted(lb.source_ranges.get(family, ()))) or (NOBODY[family],),
            target_tags=tags,
            allowed=allowed,
        )
        for family in (families if tags else ())
    }


def for_checks(
    names: Mapping[str, str],
    ranges: Mapping[str, tuple[str, ...]],
    description: str,
    port: int,
    *,
    network: str,
    tags: tuple[str, ...],
) -> Mapping[str, Firewall]:
    """Return the firewall rules for health checks by family; none without tags."""
    return {
        family: Firewall(
            name=name,
            description=description,
            network=network,
            source_ranges=tuple(sorted(ranges[family])),
            target_tags=tags,
            allowed=(Allowed("tcp", (str(port),)),),
        )
        for family, name in (names.items() if tags else ())
    }


def with_tags(firewall: Firewall, there: Part | None) -> Firewall:
    """Return a shared firewall rule with the tags that it has: nodes of other clouds may need them.

    It lets nobody through but Google's health checks.
    """
    known = there.target_tags if isinstance(there, Firewall) else ()
    tags = tuple(sorted({*firewall.target_tags, *known}))
    return msgspec.structs.replace(firewall, target_tags=tags)


def port_ranges(ports: Iterable[int]) -> tuple[str, ...]:
    """Return ports as ranges, such as `80` and `8080-8082`, of which a firewall rule has few."""
    found: list[list[int]] = []
    for port in sorted(set(ports)):
        if found and found[-1][1] == port - 1:
            found[-1][1] = port
        else:
            found.append([port, port])
    return tuple(str(low) if low == high else f"{low}-{high}" for low, high in found)
