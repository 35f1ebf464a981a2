"""Read addresses of either family, whose texts have several forms."""

from ipaddress import IPv4Address, IPv6Address, ip_address


def parsed_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a text is, or None."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def plain_address(text: str) -> str:
    """Return an address in the one form in which it is compared; another text as it is."""
    found = parsed_address(text)
    return text if found is None else str(found)
