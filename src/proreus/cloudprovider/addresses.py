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

    A kubelet can claim any for its Node, such as that of a cloud's metadata; clouds refuse those,
    and with them whatever else is in the request. One of loopback may be a simulated machine's.
    """
    found = _unmapped(text)
    if found is None or "%" in text:
        return False
    return not (found.is_link_local or found.is_multicast or found.is_unspecified)


def is_loopback(text: str) -> bool:
    """Tell whether an address is of loopback, in whatever form."""
    found = _unmapped(text)
    return found is not None and found.is_loopback


def _unmapped(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address; of one of IPv4 in the form of IPv6 that of IPv4."""
    found = parsed_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def plain_address(text: str) -> str:
    """Return an address in the one form in which it is compared; another text as it is."""
    found = parsed_address(text)
    return text if found is None else str(found)
