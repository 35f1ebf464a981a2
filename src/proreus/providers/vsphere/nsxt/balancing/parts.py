"""The values of a load balancer of NSX-T: desired, and observed. Pure."""

import ipaddress
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    GROUPS,
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
    SERVICES,
    Document,
    Place,
)

TITLES: Final = {
    SERVICES: "load balancer service",
    SERVERS: "virtual server",
    POOLS: "server pool",
    MONITORS: "monitor",
    PERSISTENCE: "persistence profile",
    GROUPS: "group",
    ALLOCATIONS: "IP allocation",
}
"""The kinds of parts in words."""
TCP_MONITOR: Final = "LBTcpMonitorProfile"
HTTP_MONITOR: Final = "LBHttpMonitorProfile"
NEW: Final = "new"
"""The address of an allocation in a preview, which NSX-T has not chosen yet."""
PORT: Final = "port"
CLASS: Final = "lbclass"
IP_POOL: Final = "ippoolid"
"""Scopes of the official manager's tags."""

_IDS: Final = uuid.UUID("5b0ee2b4-3c55-4d0c-a6a5-5f8a0a1f6c11")


def tags_of(document: Document) -> dict[str, str]:
    """Return the tags of an object by their scopes; of several of one scope the first."""
    found: dict[str, str] = {}
    for one in document.get("tags") or ():
        found.setdefault(str(one.get("scope") or ""), str(one.get("tag") or ""))
    return found


class Part(msgspec.Struct, frozen=True):
    """A part of a load balancer: an object of the policy API.

    Attributes:
        place: The place of the part in the policy API.
        id: Its id.
        document: The part as NSX-T describes it.
        is_marked: Whether our marks on it name the Service.
        address: The address, if the part is an allocation that has got one; else "".
        failure: The reason why the part, an allocation, gets no address; else "".
    """

    place: Place
    id: str
    document: Document = {}
    is_marked: bool = True
    address: str = ""
    failure: str = ""

    @property
    def kind(self) -> str:
        """The kind of the part."""
        return self.place.kind

    @property
    def path(self) -> str:
        """The path by which other objects refer to the part."""
        return f"{self.place.path}/{self.id}"

    @property
    def key(self) -> str:
        """The port that the part is for, such as "TCP/80", or ""."""
        return tags_of(self.document).get(PORT, "")

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return f"{TITLES[self.kind]} {self.key or self.id}"


class Port(msgspec.Struct, frozen=True):
    """A port of a Service.

    Attributes:
        protocol: TCP or UDP.
        port: Where clients connect.
        node_port: Where the hosts listen.
        profile: The path of the application profile.
        check: The fields that a monitor's document must have; None for no monitor.
    """

    protocol: str
    port: int
    node_port: int
    profile: str
    check: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """The official manager's tag of the port."""
        return f"{self.protocol}/{self.port}"


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancer of a Service.

    Attributes:
        ref: The Service.
        tags: The tags of every part.
        class_name: The class that the Service names.
        pool_id: The id of the IP pool from which a new address is taken.
        ports: Its ports.
        members: The hosts' addresses, with their names.
        family: The family of its address, IPv4 or IPv6.
        snat: Whether hosts see the load balancer's address in the place of the clients'.
        affinity: Seconds for which a client stays with a host; None if clients may go to any host.
        ranges: The ranges from which clients may come; none for everywhere.
        requested: The address that the Service names, or "".
        gateway: The path of the tier-1 gateway on which a load balancer service is made, or "".
        size: The size of a load balancer service that is made.
        seed: The text that the ids of new parts are made of, which differs from that of any earlier
            try.
    """

    ref: LoadBalancerRef
    tags: Mapping[str, str]
    class_name: str
    pool_id: str
    ports: tuple[Port, ...]
    members: Mapping[str, str]
    family: str = "IPv4"
    snat: bool = True
    affinity: int | None = None
    ranges: tuple[str, ...] = ()
    requested: str = ""
    gateway: str = ""
    size: str = "SMALL"
    seed: str = ""

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all ports."""
        return frozenset(one.key for one in self.ports)

    def new_id(self, kind: str, key: str = "") -> str:
        """Return the id of a new part: a UUID, as the official manager's are.

        Each try has another id: the id of a deleted object stays taken for minutes.
        """
        return _uuid(self.ref.uid, self.seed, kind, key)


def group_id(ref: LoadBalancerRef) -> str:
    """Return the id of a Service's group, which is read by it: there may be thousands of others.

    So the group stays until the Service is deleted: the id of a deleted object stays taken for
    minutes.
    """
    return _uuid(ref.cluster.uid, ref.uid, GROUPS)


def _uuid(*words: str) -> str:
    return str(uuid.uuid5(_IDS, " ".join(words)))


class Service(msgspec.Struct, frozen=True):
    """The load balancer service that virtual servers are on.

    Attributes:
        part: The load balancer service as a part.
        is_ours: Whether it was made for the cluster, and is deleted with the last virtual server.
        users: How many virtual servers of others are on it.
    """

    part: Part
    is_ours: bool = False
    users: int = 0


class Observed(msgspec.Struct, frozen=True):
    """The observed state in NSX-T: the parts that exist for a Service.

    Attributes:
        service: The load balancer service, or None.
        parts: All other parts of the Service's load balancer.
        others: The virtual servers and allocations of others, as far as their addresses are surely
            of the same network: of the same IP pools, or on the load balancer service.
    """

    service: Service | None = None
    parts: tuple[Part, ...] = ()
    others: tuple[Document, ...] = ()

    def of(self, kind: str) -> tuple[Part, ...]:
        """Return the parts of a kind."""
        return tuple(one for one in self.parts if one.kind == kind)

    @property
    def address(self) -> str:
        """The address of the virtual servers; "" if there are none."""
        found = sorted(self.of(SERVERS), key=lambda one: (not one.is_marked, one.id))
        return next((str(one.document.get("ip_address") or "") for one in found), "")

    @property
    def taken(self) -> frozenset[str]:
        """The addresses that others have."""
        fields = ("ip_address", "allocation_ip", "allocated_ip")
        found = (str(one.get(field) or "") for one in self.others for field in fields)
        return frozenset(plain_address(one) for one in found if one)


def members_of(document: Document) -> Sequence[Mapping[str, Any]]:
    """Return the members of a pool."""
    return document.get("members") or ()


def family_of(address: str) -> str:
    """Return the family of an address, IPv4 or IPv6.

    Raises:
        ValueError: The text is no IP address.
    """
    return f"IPv{ipaddress.ip_address(address).version}"
