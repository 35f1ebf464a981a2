"""Read Rancher's descriptions of services. Pure."""

import contextlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from proreus.cloudprovider.names import digest_of
from proreus.cloudprovider.ownership import Owner
from proreus.providers.rancher.balancing import owners
from proreus.providers.rancher.balancing.parts import REMOVING, Balancer, External, Rule
from proreus.providers.rancher.versions import Version

Described = dict[str, Any]


def balancer(
    service: Described, version: Version, owner: Owner | None, links: Iterable[str] = ()
) -> Balancer:
    """Read a load balancer service.

    Args:
        service: The load balancer service as Rancher describes it.
        version: The version of the API.
        owner: The owner that the marks must name to count.
        links: The ids of the services that it leads to, where its description does not say so.
    """
    launch, config = _map(service.get("launchConfig")), _map(service.get("lbConfig"))
    linked = _map(service.get("linkedServices")).values()
    is_failed = service.get("transitioning") == "error"
    text = str(service.get("transitioningMessage") or "no reason given")
    return Balancer(
        id=str(service["id"]),
        stack=str(service.get(version.stack_id) or ""),
        state=str(service.get("state") or ""),
        ports=frozenset(map(str, launch.get("ports") or ())),
        rules=frozenset(map(_rule, config.get("portRules") or ())),
        links=frozenset(map(str, linked if version.has_rules else links)),
        launch=launch,
        config=config,
        endpoints=_endpoints(service.get("publicEndpoints") or ()),
        is_marked=owner is None or owners.owner_of(service) == owner,
        failure=text if is_failed else "",
    )


def external(service: Described) -> External:
    """Read an external service."""
    return External(
        id=str(service["id"]),
        name=str(service.get("name") or ""),
        addresses=tuple(map(str, service.get("externalIpAddresses") or ())),
        state=str(service.get("state") or ""),
        owner=owners.owner_of(service),
    )


def links(maps: Iterable[Described]) -> dict[str, frozenset[str]]:
    """Return, by the id of a service, the ids of the services that it consumes."""
    found: dict[str, frozenset[str]] = {}
    for one in maps:
        if str(one.get("state")) not in REMOVING and one.get("consumedServiceId"):
            service = str(one.get("serviceId"))
            found[service] = found.get(service, frozenset()) | {str(one["consumedServiceId"])}
    return found


def led_to(
    services: Iterable[Described], maps: Mapping[str, frozenset[str]], version: Version
) -> frozenset[str]:
    """Return the ids of all services that are targets of load balancers."""
    found = (balancer(one, version, None, maps.get(str(one["id"]), ())) for one in services)
    return frozenset[str]().union(*(one.links for one in found))


def fingerprint(
    ports: Iterable[str], frontends: Iterable[tuple[int, int, str]], addresses: Iterable[str]
) -> str:
    """Digest what a load balancer is: its ports, where they lead, and its hosts' addresses."""
    return digest_of((repr((sorted(ports), sorted(frontends), sorted(addresses))),), length=16)


def shown_fingerprint(found: Balancer, externals: Mapping[str, External], version: Version) -> str:
    """Return the fingerprint of a load balancer as it is shown; "" if it is not settled."""
    known = [externals[id_] for id_ in found.links if id_ in externals]
    led_to = {rule[2] for rule in found.rules} if version.has_rules else found.links
    is_settled = (
        found.state == "active"
        and bool(found.endpoints)
        and len(known) == len(found.links)
        and led_to == found.links
        and all(one.state == "active" and len(one.addresses) == 1 for one in known)
    )
    if not is_settled:
        return ""
    rules = [(port, to, externals[id_].addresses[0]) for port, to, id_ in found.rules]
    return fingerprint(found.ports, rules, [one.addresses[0] for one in known])


def _rule(rule: Mapping[str, Any]) -> Rule:
    # One that is not TCP is none of ours, and has to be replaced.
    port = int(rule.get("sourcePort") or 0) if rule.get("protocol") == "tcp" else 0
    return port, int(rule.get("targetPort") or 0), str(rule.get("serviceId") or "")


def _endpoints(endpoints: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the addresses, each once, as a person would sort them."""
    found = set()
    for one in endpoints:
        with contextlib.suppress(ValueError):
            found.add(ipaddress.ip_address(str(one.get("ipAddress"))))
    return tuple(map(str, sorted(found, key=lambda ip: (ip.version, int(ip)))))


def _map(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
