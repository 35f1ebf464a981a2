"""Read addresses of either family, whose texts have several forms."""

from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)


# Each pass over routes and hosts asks for every address of every node.
@lru_cache(maxsize=1 << 16)
def parsed_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a text is, or None."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def parsed_network(text: str) -> IPv4Network | IPv6Network | None:
    """Return the network that a text is, or None."""
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def is_address(text: str) -> bool:
    """Tell whether a text is an IP address."""
    return parsed_address(text) is not None


def family_of(text: str) -> str:
    """Return the family of an address in Kubernetes' word, "IPv4" or "IPv6"; "" if it is none."""
    found = parsed_address(text)
    return "" if found is None else f"IPv{found.version}"


def may_be_a_machines(text: str) -> bool:
    """Tell whether an address can be that of a machine which load balancers reach.

    A kubelet can claim any for its Node, such as that of a cloud's metadata, or one of loopback;
    clouds refuse those, and with them whatever else is in the request.
    """
    found = parsed_address(text)
    if found is None or "%" in text:
        return False
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found
    is_here = found.is_loopback or found.is_unspecified
    return not (is_here or found.is_link_local or found.is_multicast)


def plain_address(text: str) -> str:
    """Return an address in the one form in which it is compared; another text as it is."""
    found = parsed_address(text)
    return text if found is None else str(found)
