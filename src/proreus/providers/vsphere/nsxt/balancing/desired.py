"""Decide which load balancer of NSX-T a Service should have. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.kube.objects import KubeObject, Service
from proreus.providers.vsphere.nsxt.balancing import owners
from proreus.providers.vsphere.nsxt.balancing.parts import (
    HTTP_MONITOR,
    NEW,
    TCP_MONITOR,
    Desired,
    Observed,
    Port,
    family_of,
)
from proreus.providers.vsphere.nsxt.config import DEFAULT, LoadBalancerClass, LoadBalancerSection
from proreus.providers.vsphere.nsxt.operations import ALLOCATIONS

ANNOTATION: Final = "loadbalancer.vmware.io/class"
"""The annotation with the class, as of the official manager."""
_TCP, _UDP = "TCP", "UDP"
_EVERYONE: Final = frozenset({"0.0.0.0/0", "::/0"})
_MOST_RANGES: Final = 4000
"""The most addresses of a group's expression (NSX-T Policy API, type `IPAddressExpression`)."""


class Material(msgspec.Struct, frozen=True):
    """The objects of NSX-T that a load balancer class uses.

    Attributes:
        pool: The id of the IP pool.
        profiles: The paths of the application profiles, by TCP and UDP.
    """

    pool: str
    profiles: Mapping[str, str]


def class_of(service: Service, known: Mapping[str, LoadBalancerClass]) -> LoadBalancerClass:
    """Return the class of a Service.

    Raises:
        InvalidRequest: The annotation names a class that does not exist.
    """
    name = service.metadata.annotations.get(ANNOTATION, "").strip() or DEFAULT
    if name not in known:
        raise InvalidRequest(
            f"annotation {ANNOTATION}: there is no such class in the cloud-config: give one of"
            f" {', '.join(sorted(known))}, or remove it"
        )
    return known[name]


def family(service: Service) -> str:
    """Return the IP family of a Service's address: the first one that it names."""
    return service.spec.ip_families[0] if service.spec.ip_families else "IPv4"


def members(lb: LoadBalancer) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the hosts by their addresses, and why other nodes are rejected, by their names."""
    wanted = family(lb.service)
    found: dict[str, str] = {}
    rejected: dict[str, str] = {}
    for host in lb.hosts:
        addresses = host.addresses.get(wanted, ())
        if addresses:
            found[addresses[0]] = host.node
        else:
            rejected[host.node] = f"it has no {wanted} address"
    return found, rejected


def ranges(lb: LoadBalancer) -> tuple[str, ...]:
    """Return from where clients may come; none for everywhere."""
    found = lb.source_ranges.get(family(lb.service), ())
    return () if _EVERYONE & set(found) else tuple(sorted(found))


def desired_balancer(
    lb: LoadBalancer,
    chosen: LoadBalancerClass,
    material: Material,
    section: LoadBalancerSection,
    seed: str,
) -> Desired:
    """Compute the desired load balancer of a Service.

    Args:
        lb: The desired load balancer, as the framework describes it.
        chosen: The class of load balancers that the Service names.
        material: The objects of NSX-T that the class uses.
        section: The section [LoadBalancer].
        seed: The text that the ids of new parts are made of.
    """
    ports = tuple(
        Port(
            one.protocol,
            one.port,
            one.node_port,
            material.profiles[one.protocol],
            _check(lb, one.protocol, one.node_port),
        )
        for one in lb.frontends
        if one.family == family(lb.service)
    )
    return Desired(
        ref=lb.ref,
        tags=owners.service_tags(lb.ref, section.owner, section.additional_tags),
        class_name=chosen.name,
        pool_id=material.pool,
        ports=ports,
        members=members(lb)[0],
        family=family(lb.service),
        snat=not section.snat_disabled,
        affinity=lb.affinity_seconds,
        ranges=ranges(lb),
        requested=lb.requested_address,
        gateway=section.tier1_gateway_path,
        size=section.size or "SMALL",
        seed=seed,
    )


def _check(lb: LoadBalancer, protocol: str, node_port: int) -> Mapping[str, Any] | None:
    """Return the fields of a port's monitor; None for none.

    Officially the TCP port itself is tried. Where only nodes with pods may get traffic, the health
    check's port of the Service tells which these are, for UDP as well.
    """
    if lb.local_traffic and lb.health_check.port:
        return {
            "resource_type": HTTP_MONITOR,
            "monitor_port": lb.health_check.port,
            "request_url": lb.health_check.path,
        }
    if protocol == _TCP:
        return {"resource_type": TCP_MONITOR, "monitor_port": node_port}
    return None


def check(lb: LoadBalancer) -> None:
    """Refuse what no load balancer of NSX-T can be.

    Raises:
        InvalidRequest: Fields are wrong; names each of them.
    """
    if problems := list(_wrong(lb)):
        raise InvalidRequest("; ".join(problems))


def _wrong(lb: LoadBalancer) -> Iterator[str]:
    unknown = sorted({one.protocol for one in lb.frontends} - {_TCP, _UDP})
    if unknown:
        yield f"spec.ports: NSX-T balances TCP and UDP only, not {', '.join(unknown)}"
    without = sorted(one.port for one in lb.frontends if not one.node_port)
    if without:
        yield (
            f"spec.ports: {', '.join(map(str, without))} has no node port: remove"
            " allocateLoadBalancerNodePorts"
        )
    wanted = family(lb.service)
    sources = lb.source_ranges.get(wanted, ())
    if not sources:
        yield (
            f"spec.loadBalancerSourceRanges: has no {wanted} range, so nobody could be let in: add"
            " one"
        )
    if len(sources) > _MOST_RANGES:
        yield f"spec.loadBalancerSourceRanges: must be at most {_MOST_RANGES}"
    if lb.requested_address and not _is_of(lb.requested_address, wanted):
        yield f"spec.loadBalancerIP: must be an {wanted} address of the class's IP pool"


def check_address(desired: Desired, observed: Observed) -> None:
    """Refuse an address of another family than the Service's.

    Raises:
        InvalidRequest: The pool of its class has other addresses.
    """
    found = (observed.address, *(one.address for one in observed.of(ALLOCATIONS)))
    given = next((one for one in found if one not in {"", NEW}), "")
    if given and not _is_of(given, desired.family):
        raise InvalidRequest(
            f"spec.ipFamilies: the IP pool of the class {desired.class_name!r} has given {given},"
            f" which is no {desired.family} address: name another class with the annotation"
            f" {ANNOTATION}, or another family"
        )


def check_requested(lb: LoadBalancer, services: Iterable[KubeObject], observed: Observed) -> None:
    """Refuse an address that another namespace's Service has by its status, or another cluster's.

    Its allocation may be missing: deleted by hand, and to be made anew once NSX-T lets go of it.

    Raises:
        InvalidRequest: Another one has the address; names it.
    """
    asked = lb.requested_address
    if others := owners.others_with(asked, lb.ref, services, observed.others):
        raise InvalidRequest(
            f"spec.loadBalancerIP: {asked} belongs to {others[0]}: give another address, or none"
        )


def _is_of(address: str, wanted: str) -> bool:
    try:
        return family_of(address) == wanted
    except ValueError:
        return False
