"""Read what annotations ask of a Service's load balancer. Pure."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.annotations import AnnotationReader

PREFIX: Final = "service.beta.kubernetes.io/cloudstack-load-balancer-"
"""The prefix of all annotations of this provider."""
ASSOCIATED: Final = f"{PREFIX}ip-associated-by-controller"
"""Written beside an address that the Service names and that was acquired for it."""
EVERYONE: Final = frozenset({"0.0.0.0/0"})
NOBODY: Final = frozenset({"255.255.255.255/32"})
"""An address that no client has; to CloudStack an empty list means everyone."""

_SOURCES: Final = "source-cidrs"
_HOST = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?")


class Options(msgspec.Struct, frozen=True):
    """The options of a load balancer that annotations choose.

    Attributes:
        proxy: Whether TCP connections begin with a header of the PROXY protocol.
        hostname: The host name for the Service's status, in the place of the address, or "".
        sources: The CIDRs from which the rules themselves take connections; None where no
            annotation gives any.
    """

    proxy: bool = False
    hostname: str = ""
    sources: frozenset[str] | None = None


def read_options(annotations: Mapping[str, str]) -> Options:
    """Read the annotations of a Service.

    Raises:
        InvalidRequest: Annotations are wrong; names each of them, and the remedy.
    """
    read = AnnotationReader(annotations, PREFIX)
    found = Options(
        proxy=read.flag("proxy-protocol"),
        hostname=read.form("hostname", _HOST, "give a host name such as lb.example.org"),
        sources=_sources(annotations, read),
    )
    read.check()
    return found


def _sources(annotations: Mapping[str, str], read: AnnotationReader) -> frozenset[str] | None:
    """Read the CIDRs; an annotation that is there and empty lets nobody in."""
    if annotations.get(f"{PREFIX}{_SOURCES}") is None:
        return None
    try:
        parts = [part.strip() for part in read.text(_SOURCES).split(",") if part.strip()]
        found = frozenset(str(ipaddress.IPv4Network(part, strict=False)) for part in parts)
    except ValueError:
        read.wrong(_SOURCES, "give CIDRs such as 192.0.2.0/24, separated by commas")
        return None
    return found or NOBODY
