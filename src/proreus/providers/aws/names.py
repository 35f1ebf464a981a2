"""Which machine a Node is: provider ids, node names that are ids, and Fargate."""

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from proreus.cloudprovider.load_balancers import Host
from proreus.kube.objects import Node

PREFIX = "aws://"
FARGATE = "fargate-"
"""Prefix of a Fargate pod's node name, and of the last part of its provider id."""

_ID = re.compile(r"i-(?:[0-9a-f]{17}|[0-9a-f]{8})(?![0-9a-f])")
_PROVIDER_ID = re.compile(r"aws://(?P<path>[^/]*/.*)")
_FARGATE_ADDRESS = re.compile(r"ip-(\d+-\d+-\d+-\d+)(?:\..*)?")
_REGION_LABEL = "topology.kubernetes.io/region"


class Target(msgspec.Struct, frozen=True):
    """What to look a Node up by: exactly one of these.

    Attributes:
        id: The instance's id.
        dns_name: Its private DNS name.
        fargate: The address or the private DNS name of a Fargate pod's interface.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    dns_name: str = ""
    fargate: str = ""
    problem: str = ""


def provider_id(zone: str, id_: str) -> str:
    """The provider id of an instance."""
    return f"{PREFIX}/{zone}/{id_}"


def ids_in(text: str) -> frozenset[str]:
    """The instance ids that a text of AWS names."""
    return frozenset(_ID.findall(text))


def last_part(of: str) -> str | None:
    """The id at the end of a provider id, a bare `i-…` included; None if it is not AWS'."""
    if of.startswith("i-") and "/" not in of:
        return of
    match = _PROVIDER_ID.fullmatch(of)
    return match["path"].rstrip("/").rpartition("/")[2] if match else None


def zone_of(of: str) -> str:
    """The zone in a provider id, or ""."""
    match = _PROVIDER_ID.fullmatch(of)
    parts = [part for part in match["path"].split("/") if part] if match else []
    return parts[0] if len(parts) > 1 else ""


def instance_id(of: str) -> str | None:
    """The EC2 instance that a provider id names, or None."""
    last = last_part(of)
    return last if last is not None and _ID.fullmatch(last) else None


def targets_of(hosts: Iterable[Host]) -> tuple[dict[str, str], dict[str, str]]:
    """Instance ids by node name, and why some hosts can be none, also by node name."""
    found: dict[str, str] = {}
    rejected: dict[str, str] = {}
    for host in hosts:
        id_ = instance_id(host.provider_id)
        if id_ is None:
            rejected[host.node] = f"{host.provider_id} is no instance of EC2"
        else:
            found[host.node] = id_
    return found, rejected


def target(node: Node) -> Target:
    """By the provider id if there is one, never by the name then.

    Otherwise by the name, which is an id (before the first dot) where the subnet names hosts after
    their resource, and else the private DNS name.
    """
    if node.spec.provider_id:
        last = last_part(node.spec.provider_id)
        if last is not None and _ID.fullmatch(last):
            return Target(id=last)
        if last is not None and last.startswith(FARGATE):
            return Target(fargate=fargate_host(last))
        return Target(
            problem=f"spec.providerID {node.spec.provider_id!r} is none of AWS: it must be like"
            " aws:///us-east-1a/i-0123456789abcdef0"
        )
    name = node.metadata.name
    if name.startswith(FARGATE):
        return Target(fargate=fargate_host(name))
    first = name.partition(".")[0]
    return Target(id=first) if _ID.fullmatch(first) else Target(dns_name=name)


def fargate_host(name: str) -> str:
    """The address in a Fargate name, or its private DNS name if that holds none.

    An address also finds interfaces in VPCs without DNS support, which have no names.
    """
    host = name.removeprefix(FARGATE)
    match = _FARGATE_ADDRESS.fullmatch(host)
    return match[1].replace("-", ".") if match else host


def is_address(host: str) -> bool:
    """Whether it is an IPv4 address."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def region_of(node: Node) -> str | None:
    """The region, or a zone of it, that the Node names; None if its machine is not of AWS.

    A provider id without a zone says nothing about it; then the Node's label does.
    """
    if last_part(node.spec.provider_id) is None:
        return None
    return zone_of(node.spec.provider_id) or node.metadata.labels.get(_REGION_LABEL, "")


def is_of(place: str, region: str) -> bool:
    """Whether a region, or a zone of any kind, is that region or one of its zones."""
    rest = place.removeprefix(region)
    return place.startswith(region) and not rest[:1].isdigit()
