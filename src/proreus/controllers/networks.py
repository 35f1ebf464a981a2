"""CIDRs as values, so that they are compared by what they mean and not by how they are written."""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from proreus.kube.objects import Node

Network = IPv4Network | IPv6Network

MOST_CLUSTER_CIDRS: Final = 2


@lru_cache(maxsize=1 << 16)
def network(text: str) -> Network | None:
    """The network of a CIDR, or None if it is none. Bits of a host are dropped, as Go does."""
    if not text.partition("/")[2].isdecimal():
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=1 << 16)
def endpoint(text: str) -> str:
    """A route's target in one form: an address as `ipaddress` writes it, else as it is."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def is_within(inner: Network, outer: Network) -> bool:
    """Whether `inner` is a part of `outer`, or equal to it."""
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


def pod_cidrs(node: Node) -> tuple[str, ...]:
    """The node's pod CIDRs; `podCIDR` alone is what old allocators write."""
    return node.spec.pod_cidrs or ((node.spec.pod_cidr,) if node.spec.pod_cidr else ())


def cluster_cidrs(texts: Sequence[str]) -> tuple[tuple[Network, ...], str]:
    """The networks of `--cluster-cidr` (or of a node) and the problem with them, or "".

    One, or two of different families, as the Go framework asks; none is no problem.
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
