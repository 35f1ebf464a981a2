"""Read what annotations ask of a Service's load balancers. Pure.

Rackspace's provider inside Kubernetes had no load balancers, so these names are ours.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.annotations import AnnotationReader
from proreus.providers.rackspace.balancing.parts import (
    PUBLIC,
    SERVICENET,
    TCP_PROTOCOLS,
    UDP_PROTOCOLS,
    transport_of,
)

PREFIX: Final = "rackspace.com/load-balancer-"
"""The prefix of all annotations of this provider."""
ALGORITHMS: Final = (
    "LEAST_CONNECTIONS",
    "RANDOM",
    "ROUND_ROBIN",
    "WEIGHTED_LEAST_CONNECTIONS",
    "WEIGHTED_ROUND_ROBIN",
)
PERSISTENCE: Final[Mapping[str, str]] = {
    "none": "",
    "source-ip": "SOURCE_IP",
    "http-cookie": "HTTP_COOKIE",
    "ssl-id": "SSL_ID",
}
_PROTOCOL: Final = re.compile(r"(?:(?P<port>\d{1,5})=)?(?P<protocol>[A-Za-z0-9_]+)")
_PATH: Final = re.compile(r"/[!-~]{0,127}")
_KNOWN: Final[Mapping[str, str]] = {one.upper(): one for one in TCP_PROTOCOLS | UDP_PROTOCOLS}


class Options(msgspec.Struct, frozen=True):
    """The options of load balancers that annotations choose; None where nothing is said.

    Attributes:
        type: The type of the addresses: PUBLIC or SERVICENET.
        algorithm: The algorithm that spreads connections over nodes.
        protocols: Protocols of Cloud Load Balancers, by transport, or by transport and port.
        timeout: Seconds that a node may take to answer.
        persistence: The kind of session persistence: by what a client stays with a node.
        max_connections: The most connections of one client; 0: no limit.
        monitor: The type of the health monitor: connect, http, https or none.
        path: The path that an HTTP monitor asks for.
        delay: Seconds between two checks.
        wait: Seconds that a check may take.
        attempts: Failed checks until a node gets no traffic.
    """

    type: str = PUBLIC
    algorithm: str = "ROUND_ROBIN"
    protocols: Mapping[tuple[str, int], str] = {}
    timeout: int = 30
    persistence: str | None = None
    max_connections: int = 0
    monitor: str | None = None
    path: str = "/"
    delay: int | None = None
    wait: int | None = None
    attempts: int | None = None

    def protocol(self, transport: str, port: int) -> str:
        """Return the protocol for a port: its own, or that of all ports of its transport."""
        of_transport = self.protocols.get((transport, 0), transport.upper())
        return self.protocols.get((transport, port), of_transport)


def read_options(annotations: Mapping[str, str]) -> Options:
    """Read the annotations of a Service.

    Raises:
        InvalidRequest: Annotations are wrong; names each of them, and the remedy.
    """
    read = AnnotationReader(annotations, PREFIX)
    found = Options(
        type=_word(read, "type", (PUBLIC, SERVICENET), PUBLIC),
        algorithm=_word(read, "algorithm", ALGORITHMS, "ROUND_ROBIN"),
        protocols=_protocols(read),
        timeout=read.number("timeout", 30, 120, 30),
        persistence=_persistence(read),
        max_connections=read.number("max-connections", 0, 100_000, 0),
        monitor=read.choice("health-monitor", ("connect", "http", "https", "none")) or None,
        path=read.form("health-monitor-path", _PATH, "give a path such as /healthz", "/"),
        delay=read.number("health-monitor-delay", 1, 3600),
        wait=read.number("health-monitor-timeout", 1, 300),
        attempts=read.number("health-monitor-attempts", 1, 10),
    )
    read.check()
    return found


def _word(read: AnnotationReader, name: str, words: tuple[str, ...], default: str) -> str:
    """Return an annotation that is one of the cloud's words, in any case."""
    remedy = f"give one of {', '.join(words)}"
    by_upper = {word: word for word in words}
    return read.parsed(name, lambda text: by_upper[text.upper()], remedy, default)


def _persistence(read: AnnotationReader) -> str | None:
    chosen = read.choice("session-persistence", PERSISTENCE)
    return PERSISTENCE[chosen] if chosen else None


def _protocols(read: AnnotationReader) -> Mapping[tuple[str, int], str]:
    """Read `HTTP`, or `80=HTTP,443=HTTPS,53=DNS_UDP`."""
    remedy = "give a protocol of Cloud Load Balancers, or port=protocol, separated by commas"
    found: dict[tuple[str, int], Any] = {}
    for part in read.names("protocol", _PROTOCOL, remedy):
        match = _PROTOCOL.fullmatch(part)
        protocol = _KNOWN.get(match["protocol"].upper()) if match is not None else None
        if match is None or protocol is None:
            read.wrong("protocol", f"{remedy}: one of {', '.join(sorted(_KNOWN.values()))}")
            return {}
        found[transport_of(protocol), int(match["port"] or 0)] = protocol
    return found
