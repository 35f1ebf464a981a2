"""The values of load balancers of Rackspace: desired, and observed. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

PUBLIC: Final = "PUBLIC"
SERVICENET: Final = "SERVICENET"
ENABLED: Final = "ENABLED"
ACTIVE: Final = "ACTIVE"
GOING: Final = "PENDING_DELETE"
GONE: Final = "DELETED"
FAILED: Final = frozenset({"ERROR", "SUSPENDED"})
"""States that only Rackspace's support ends."""
MOST_ITEMS: Final = 100
"""Items of an access list."""
STATUS_REGEX: Final = "^[23][0-9][0-9]$"
"""The HTTP statuses of a node that can serve."""

TCP_PROTOCOLS: Final = frozenset(
    {
        "DNS_TCP", "FTP", "HTTP", "HTTPS", "IMAPS", "IMAPv2", "IMAPv3", "IMAPv4", "LDAP", "LDAPS",
        "MYSQL", "POP3", "POP3S", "SFTP", "SMTP", "TCP", "TCP_CLIENT_FIRST", "TCP_STREAM",
    }
)  # fmt: skip
UDP_PROTOCOLS: Final = frozenset({"DNS_UDP", "UDP", "UDP_STREAM"})
"""The protocols of Cloud Load Balancers, by transport."""
_TOGETHER: Final = (
    (frozenset({"DNS_TCP"}), frozenset({"DNS_UDP"})),
    (frozenset({"TCP", "TCP_CLIENT_FIRST"}), frozenset({"UDP", "UDP_STREAM"})),
)

Key = tuple[str, int]
"""Transport and port: what no two load balancers of a Service share."""


def transport_of(protocol: str) -> str:
    """Return the transport of a protocol of Cloud Load Balancers."""
    return "udp" if protocol in UDP_PROTOCOLS else "tcp"


def can_share(one: str, other: str) -> bool:
    """Tell whether two protocols can have the same port of one address."""
    return any(
        (one in first and other in second) or (one in second and other in first)
        for first, second in _TOGETHER
    )


class Member(msgspec.Struct, frozen=True, order=True):
    """A node of a load balancer: where it sends connections to."""

    address: str
    port: int
    condition: str = ENABLED


class Item(msgspec.Struct, frozen=True, order=True):
    """An item of an access list: a network, and ALLOW or DENY; ALLOW goes before DENY."""

    address: str
    type: str


class Monitor(msgspec.Struct, frozen=True):
    """A health monitor; path and statuses are for HTTP only."""

    type: str
    delay: int
    timeout: int
    attempts: int
    path: str = ""
    status_regex: str = ""


class Settings(msgspec.Struct, frozen=True):
    """The settings of one Cloud Load Balancer, desired or observed.

    Attributes:
        name: Its name.
        protocol: The protocol, one of those of Cloud Load Balancers.
        port: Where clients connect.
        algorithm: The algorithm that spreads connections over nodes.
        timeout: Seconds that a node may take to answer.
        members: Its nodes.
        access: Its access list; empty lets everyone in.
        monitor: The health monitor of its nodes; None: nodes are judged only by the connections
            themselves.
        persistence: The kind of session persistence, or "".
        max_connections: The most connections of one client; 0: no limit.
    """

    name: str
    protocol: str
    port: int
    algorithm: str
    timeout: int
    members: frozenset[Member] = frozenset()
    access: frozenset[Item] = frozenset()
    monitor: Monitor | None = None
    persistence: str = ""
    max_connections: int = 0

    @property
    def key(self) -> Key:
        """The transport and the port."""
        return transport_of(self.protocol), self.port


class Vip(msgspec.Struct, frozen=True):
    """A virtual IP, which several load balancers may share."""

    id: int
    address: str
    type: str
    version: str


class Existing(msgspec.Struct, frozen=True):
    """A Cloud Load Balancer as Rackspace shows it.

    Attributes:
        id: The id that Rackspace gave it.
        status: Its status, in Rackspace's words; it takes changes only while it is ACTIVE.
        vips: Its virtual IPs.
        settings: The settings that can be compared.
        marks: Its metadata, with the marks.
        member_ids: The ids of its nodes, by address and port.
        item_ids: The ids of its access list's items, by address.
        mark_ids: The ids of its metadata's items, by key.
    """

    id: int
    status: str
    vips: tuple[Vip, ...]
    settings: Settings
    marks: Mapping[str, str] = {}
    member_ids: Mapping[tuple[str, int], int] = {}
    item_ids: Mapping[str, int] = {}
    mark_ids: Mapping[str, int] = {}

    @property
    def vip_ids(self) -> frozenset[int]:
        """The ids of its virtual IPs."""
        return frozenset(one.id for one in self.vips)


class Place(msgspec.Struct, frozen=True):
    """The addresses that a Service's load balancers should have.

    Attributes:
        type: PUBLIC or SERVICENET.
        versions: IPV4, IPV6 or both.
        shared: The ids of the virtual IPs that the Service names by `spec.loadBalancerIP`; empty
            where Rackspace chooses.
    """

    type: str
    versions: frozenset[str]
    shared: frozenset[int] = frozenset()

    def fits(self, one: Existing) -> bool:
        """Tell whether a load balancer has such addresses."""
        if self.shared:
            return one.vip_ids == self.shared
        versions = {vip.version for vip in one.vips}
        return versions == self.versions and {vip.type for vip in one.vips} == {self.type}


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancers of a Service.

    Attributes:
        balancers: The load balancers, one for each port.
        place: Their addresses.
        marks: Metadata that says whose they are.
        max_nodes: The most nodes that a load balancer may have.
    """

    balancers: tuple[Settings, ...]
    place: Place
    marks: Mapping[str, str]
    max_nodes: int


class Observed(msgspec.Struct, frozen=True):
    """The load balancers of a Service as Rackspace shows them, by id; deleted ones are left out."""

    existing: tuple[Existing, ...] = ()
