"""Decide which proxy stands between us and the API server.

The rules of the variables are those of Go (golang.org/x/net/http/httpproxy), so that a Pod's
environment means the same to us as to its neighbours.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_SCHEMES = ("http", "https")
_PORTS = {"http": "80", "https": "443"}


def checked_proxy(url: str, where: str, problems: list[str]) -> str:
    """Check a proxy's URL; the problem hides it, as it may hold a password."""
    try:
        parts = urlsplit(url)
        good = parts.hostname and parts.port != 0 and not any(char.isspace() for char in url)
    except ValueError:
        good = False
    else:
        if parts.scheme.startswith("socks"):
            problems.append(f"{where}: {parts.scheme} is not supported, give an HTTP proxy")
            return url
        good = good and parts.scheme in _SCHEMES
    if not good:
        problems.append(f"{where}: is not a URL such as http://proxy:3128")
    return url


def from_environment(server: str, env: Mapping[str, str], problems: list[str]) -> str:
    """Return the proxy that the environment gives for the server, "" if none."""
    try:
        parts = urlsplit(server)
        port = str(parts.port or _PORTS.get(parts.scheme, ""))
    except ValueError:
        return ""  # that the server is no URL has been said where it was read
    name = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    proxy = env.get(name) or env.get(name.lower(), "")
    host = parts.hostname or ""
    if not proxy or _is_local(host):
        return ""
    if is_exempt(host, port, env.get("NO_PROXY") or env.get("no_proxy", "")):
        return ""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    return checked_proxy(proxy, f"${name}", problems)


def is_exempt(host: str, port: str, no_proxy: str) -> bool:
    """Tell whether a value of $NO_PROXY exempts the host.

    Its entries are separated by commas: `*`, an address, a range (CIDR), or a name, which stands
    for its subdomains too, and with a dot before it, or `*.`, for these only. All but ranges may
    have a port.
    """
    host = host.lower()
    address = _address(host)
    return any(
        _matches(entry.strip().lower(), host, address, port) for entry in no_proxy.split(",")
    )


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _matches(entry: str, host: str, address: _Address | None, port: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _in_range(address, entry)
    name, only_port = _split_port(entry)
    if not name or (only_port and only_port != port):
        return False
    if (named := _address(name)) is not None or address is not None:
        return named == address
    if name.startswith("*."):
        name = name[1:]
    return host.endswith(name) if name.startswith(".") else f".{host}".endswith(f".{name}")


def _in_range(address: _Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, str]:
    """Split `name:port` or `[address]:port`; the port may be missing."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
