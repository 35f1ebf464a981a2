"""Parse CIDRs into values, so that equal networks compare equal however they are written."""

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from proreus.kube.objects import Node

Network = IPv4Network | IPv6Network

MOST_CLUSTER_CIDRS: Final = 2


@lru_cache(maxsize=1 << 16)
def network(text: str) -> Network | None:
    """Parse a CIDR, dropping host bits as Go does; None if `text` is no CIDR."""
    if not text.partition("/")[2].isdecimal():
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_within(inner: Network, outer: Network) -> bool:
    """Tell whether `inner` is a part of `outer`, or equal to it."""
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


def is_in_any(inner: Network, outers: Iterable[Network]) -> bool:
    """Tell whether `inner` is within one of `outers`, such as the cluster CIDRs."""
    return any(is_within(inner, outer) for outer in outers)


def overlap(one: Network, other: Network) -> bool:
    """Tell whether two networks share an address; those of two families never do."""
    return one.version == other.version and one.overlaps(other)


def pod_cidrs(node: Node) -> tuple[str, ...]:
    """Return the node's pod CIDRs; old allocators write only `podCIDR`."""
    return node.spec.pod_cidrs or ((node.spec.pod_cidr,) if node.spec.pod_cidr else ())


def cluster_cidrs(texts: Sequence[str]) -> tuple[tuple[Network, ...], str]:
    """Return the networks of `--cluster-cidr` (or of a node) and their problem, or "".

    The flag may give one network, or two of different families, as the Go framework demands; none
    is no problem.
    """
    found = [network(text) for text in texts]
    wrong = [text for text, one in zip(texts, found, strict=True) if one is None]
    if wrong:
        return (), f"{', '.join(map(repr, wrong))}: give a CIDR such as 10.244.0.0/16"
    networks = tuple(one for one in found if one is not None)
    families = {one.version for one in networks}
    if len(networks) > MOST_CLUSTER_CIDRS or len(families) < len(networks):
        return (), "give one CIDR, or two of different families (IPv4 and IPv6)"
    return networks, ""
