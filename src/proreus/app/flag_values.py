"""Parse and check the texts of flags' values; the forms are Go's."""

import ipaddress
import re
from collections.abc import Callable

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"0", "f", "false"})
LAST_PORT = 65535


def duration(text: str) -> float:
    """Parse a Go duration such as "1m30s" or "0" into seconds.

    Raises:
        ValueError: The text has another form.
    """
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration such as 30s, 5m or 1h30m")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def boolean(text: str) -> bool:
    """Parse a Go bool: true, false, t, f, 1 or 0 in any case.

    Raises:
        ValueError: The text has another form.
    """
    lowered = text.lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return lowered in _TRUE


def integer(text: str) -> int:
    """Parse a whole number.

    Raises:
        ValueError: The text has another form.
    """
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def number(text: str) -> float:
    """Parse a number.

    Raises:
        ValueError: The text has another form.
    """
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def levels(text: str) -> tuple[tuple[str, int], ...]:
    """Parse a list of `pattern=N`, as klog's.

    Raises:
        ValueError: The text has another form.
    """
    found: list[tuple[str, int]] = []
    for part in names(text):
        pattern, _, level = part.partition("=")
        if not pattern or not (level.isascii() and level.isdecimal()):
            raise ValueError("must be a list of pattern=N, such as context=4,cloud_*=2")
        found.append((pattern, int(level)))
    return tuple(found)


def integers(text: str) -> tuple[int, ...]:
    """Parse a comma-separated list of whole numbers.

    Raises:
        ValueError: The text has another form.
    """
    try:
        return tuple(int(part) for part in names(text))
    except ValueError:
        raise ValueError("must be a list of whole numbers, such as 29,23") from None


def gates(text: str) -> tuple[tuple[str, bool], ...]:
    """Parse a list of `Name=true` and `Name=false`.

    Raises:
        ValueError: The text has another form.
    """
    found: list[tuple[str, bool]] = []
    for part in names(text):
        name, _, value = part.partition("=")
        if not name or value.lower() not in _TRUE | _FALSE:
            raise ValueError("must be a list of Name=true or Name=false")
        found.append((name, boolean(value)))
    return tuple(found)


def version_wanted(text: str) -> str:
    """Parse `--version`: "true", "false" or "raw", as in Kubernetes' own programs.

    Raises:
        ValueError: The text is something else. Go's programs would take a version there, and report
            that one.
    """
    if text.lower() in _TRUE | _FALSE:
        return "true" if boolean(text) else "false"
    if text != "raw":
        raise ValueError("must be true, false or raw")
    return text


def port(text: str) -> int:
    """Parse a port number; 0 means none.

    Raises:
        ValueError: The text has another form.
    """
    if not (text.isascii() and text.isdecimal() and int(text) <= LAST_PORT):
        raise ValueError(f"must be a port, 0 to {LAST_PORT}")
    return int(text)


def address(text: str) -> str:
    """Parse an IP address; "" stands for all addresses.

    Raises:
        ValueError: The text has another form.
    """
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        raise ValueError("must be an IP address") from None


def certificate(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Parse one value of `--tls-sni-cert-key`: `certificate,key[:domain,...]`.

    Raises:
        ValueError: The text has another form.
    """
    files, _, domains = text.partition(":")
    parts = names(files)
    if len(parts) != len(("certificate", "key")):
        raise ValueError("must be certificate,key or certificate,key:domain,...")
    return parts[0], parts[1], names(domains)


def duration_text(seconds: float) -> str:
    """Format a duration in its largest whole unit: 43200 is "12h"."""
    for unit in ("h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"


def at_least(minimum: float) -> Callable[[float], str]:
    """Make a check that refuses values below `minimum`."""
    return lambda value: "" if value >= minimum else f"must be at least {minimum:g}"


def above(limit: float) -> Callable[[float], str]:
    """Make a check that refuses values that are not above `limit`."""
    return lambda value: "" if value > limit else f"must be more than {limit:g}"
