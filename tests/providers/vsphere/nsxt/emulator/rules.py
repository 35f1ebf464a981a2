"""Refuse bodies that are of the right form, and that the vendor's documents rule out."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from .errors import refused
from .limits import SCALE

Json = dict[str, Any]
Objects = Mapping[str, Json]


def check(objects: Objects, one: Json, old: Json | None) -> None:
    """Refuse an object that may not be among the others.

    Raises:
        NsxError: It may not.
    """
    found = {
        "LBService": _service,
        "LBVirtualServer": _virtual_server,
        "IpAddressPoolStaticSubnet": _subnet,
        "IpAddressAllocation": _allocation,
        "StaticRoutes": _route,
    }.get(one["resource_type"])
    problems = list(found(objects, one, old)) if found else []
    if problems:
        raise refused(" ".join(problems))


def _service(objects: Objects, one: Json, old: Json | None) -> Iterator[str]:
    """A load balancer service is on a tier-1 gateway, which has one at most."""
    gateway = one.get("connectivity_path")
    if not gateway:
        return
    if not gateway.startswith("/infra/tier-1s/"):
        yield f"The connectivity path {gateway} of {one['path']} is no tier-1 gateway."
    for other in _of(objects, "LBService"):
        if other["path"] != one["path"] and other.get("connectivity_path") == gateway:
            yield f"The tier-1 gateway {gateway} has the load balancer service {other['path']}."


def _virtual_server(objects: Objects, one: Json, old: Json | None) -> Iterator[str]:
    """Its address, ports and protocol are its own; a service has as many as its size allows."""
    for other in _of(objects, "LBVirtualServer"):
        if other["path"] != one["path"] and _collide(objects, one, other):
            yield f"The virtual server {other['path']} has the same address, port and protocol."
    profile = one.get("lb_persistence_profile_path")
    if profile and objects[profile]["resource_type"] == "LBGenericPersistenceProfile":
        yield f"The persistence profile {profile} cannot be attached to a virtual server."
    service = one.get("lb_service_path")
    if service and not objects[service]["relax_scale_validation"]:
        others = [
            other for other in _of(objects, "LBVirtualServer")
            if other.get("lb_service_path") == service and other["path"] != one["path"]
        ]  # fmt: skip
        most = SCALE.get(objects[service]["size"])
        if most is not None and len(others) >= most:
            yield f"The load balancer service {service} has {most} virtual servers, the most for its size."


def _collide(objects: Objects, one: Json, other: Json) -> bool:
    return (
        one["ip_address"] == other["ip_address"]
        and _protocol(objects, one) == _protocol(objects, other)
        and bool(set(_ports(one)) & set(_ports(other)))
    )


def _protocol(objects: Objects, one: Json) -> str:
    profile = objects[one["application_profile_path"]]["resource_type"]
    return "UDP" if profile == "LBFastUdpProfile" else "TCP"


def _ports(one: Json) -> Iterator[int]:
    for text in one["ports"]:
        first, _, last = text.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _subnet(objects: Objects, one: Json, old: Json | None) -> Iterator[str]:
    """The ranges of a subnet of an IP pool are in its network."""
    try:
        network = ipaddress.ip_network(one["cidr"])
    except ValueError as error:
        yield f"The CIDR of {one['path']} is none: {error}."
        return
    for part in one["allocation_ranges"]:
        first, last = ipaddress.ip_address(part["start"]), ipaddress.ip_address(part["end"])
        if first not in network or last not in network or int(first) > int(last):
            yield f"The range {first}-{last} is not in {network}."


def _allocation(objects: Objects, one: Json, old: Json | None) -> Iterator[str]:
    """The address that is asked for does not change."""
    if old is not None and old.get("allocation_ip") != one.get("allocation_ip"):
        yield f"The allocation_ip of {one['path']} cannot be changed."


def _route(objects: Objects, one: Json, old: Json | None) -> Iterator[str]:
    """A static route has next hops of its own family, and a tier-1 gateway one for a network."""
    network = ipaddress.ip_network(one["network"])
    for hop in one["next_hops"]:
        address = hop.get("ip_address")
        if address and ipaddress.ip_address(address).version != network.version:
            yield f"The next hop {address} is of another family than {network}."
        if not address and not hop.get("scope"):
            yield f"A next hop of {one['path']} has neither ip_address nor scope."


def _of(objects: Objects, kind: str) -> Iterator[Json]:
    return (one for one in objects.values() if one["resource_type"] == kind)
