"""Read which machine a Node is: by provider ids, node names that are ids, and Fargate names."""

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from proreus.cloudprovider.load_balancers import Host
from proreus.cloudprovider.lookups import foreign_id
from proreus.kube.objects import Node

PREFIX = "aws://"
FARGATE = "fargate-"
"""Prefix of a Fargate pod's node name, and of the last part of its provider id."""

_REGION = r"[a-z]{2,}(-[a-z]+)+-[0-9]+"
NETWORK_HOST = re.compile(rf"(internal-)?(?P<name>[0-9A-Za-z-]{{1,32}})-[^.-]+\.elb\.{_REGION}\..+")
"""The host names of network load balancers; each partition of AWS has a domain of its own."""
CLASSIC_HOST = re.compile(rf".*\.{_REGION}\.elb\..+")
"""The host names of classic load balancers."""

# The rest of a Service's UID: what is called so by hand needs no rules of ours.
_NETWORK_ARN = re.compile(r"arn:.*:loadbalancer/net/(?P<name>a[0-9a-f]{31})/[^/]+")
_ID = re.compile(r"i-(?:[0-9a-f]{17}|[0-9a-f]{8})(?![0-9a-f])")
_PROVIDER_ID = re.compile(r"aws://(?P<path>[^/]*/.*)")
_FARGATE_ADDRESS = re.compile(r"ip-(\d+-\d+-\d+-\d+)(?:\..*)?")
_REGION_LABEL = "topology.kubernetes.io/region"


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's machine is looked up: exactly one of these.

    Attributes:
        id: The instance's id.
        dns_name: The instance's private DNS name.
        fargate: The address or the private DNS name of a Fargate pod's interface.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    dns_name: str = ""
    fargate: str = ""
    problem: str = ""


def provider_id(zone: str, id_: str) -> str:
    """Return the provider id of an instance."""
    return f"{PREFIX}/{zone}/{id_}"


def service_balancer(arn: str) -> str:
    """Return the name of a Service's network load balancer by its ARN; "" if it is another."""
    match = _NETWORK_ARN.fullmatch(arn)
    return match["name"] if match else ""


def ids_in(text: str) -> frozenset[str]:
    """Return the instance ids in a text of AWS."""
    return frozenset(_ID.findall(text))


def last_part(text: str) -> str | None:
    """Return the id at the end of a provider id, or a bare `i-…`; None if it is not of AWS."""
    if text.startswith("i-") and "/" not in text:
        return text
    match = _PROVIDER_ID.fullmatch(text)
    return match["path"].rstrip("/").rpartition("/")[2] if match else None


def zone_of(text: str) -> str:
    """Return the zone in a provider id, or ""."""
    match = _PROVIDER_ID.fullmatch(text)
    parts = [part for part in match["path"].split("/") if part] if match else []
    return parts[0] if len(parts) > 1 else ""


def instance_id(text: str) -> str | None:
    """Return the id of the EC2 instance that a provider id names, or None."""
    last = last_part(text)
    return last if last is not None and _ID.fullmatch(last) else None


def targets_of(hosts: Iterable[Host]) -> tuple[dict[str, str], dict[str, str]]:
    """Return instance ids by node name, and by node name why a host has none."""
    found: dict[str, str] = {}
    rejected: dict[str, str] = {}
    for host in hosts:
        id_ = instance_id(host.provider_id)
        if id_ is None:
            rejected[host.node] = (
                f"spec.providerID {host.provider_id} names no instance of EC2, so this node cannot"
                " be a target"
            )
        else:
            found[host.node] = id_
    return found, rejected


def target(node: Node) -> Target:
    """Return the key by which a Node's machine is looked up: the provider id, or else the name.

    Otherwise by the name, which is an id (before the first dot) where the subnet names hosts after
    their resource, and else the private DNS name.
    """
    if node.spec.provider_id:
        last = last_part(node.spec.provider_id)
        if last is not None and _ID.fullmatch(last):
            return Target(id=last)
        if last is not None and last.startswith(FARGATE):
            return Target(fargate=fargate_host(last))
        example = "aws:///us-east-1a/i-0123456789abcdef0"
        return Target(problem=foreign_id(node.spec.provider_id, "AWS", example))
    name = node.metadata.name
    if name.startswith(FARGATE):
        return Target(fargate=fargate_host(name))
    first = name.partition(".")[0]
    return Target(id=first) if _ID.fullmatch(first) else Target(dns_name=name)


def fargate_host(name: str) -> str:
    """Return the address in a Fargate name, or its private DNS name if that holds none.

    An address also finds interfaces in VPCs without DNS support, which have no names.
    """
    host = name.removeprefix(FARGATE)
    match = _FARGATE_ADDRESS.fullmatch(host)
    return match[1].replace("-", ".") if match else host


def is_address(host: str) -> bool:
    """Tell whether a host is an IPv4 address."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def region_of(node: Node) -> str | None:
    """Return the region, or a zone of it, that a Node names; None if its machine is not of AWS.

    Where a provider id names no zone, the region is that of the Node's label.
    """
    if last_part(node.spec.provider_id) is None:
        return None
    return zone_of(node.spec.provider_id) or node.metadata.labels.get(_REGION_LABEL, "")


def is_of(place: str, region: str) -> bool:
    """Tell whether a place is a region or one of its zones, of any kind."""
    rest = place.removeprefix(region)
    return place.startswith(region) and not rest[:1].isdigit()
