"""The values of a load balancer of CloudStack: desired, and observed. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

Key = tuple[str, int]
"""Transport and port: what no two rules of an address share."""
UDP: Final = "udp"
REVOKED: Final = "Revoke"
"""The state of what CloudStack deletes, or could not delete."""


def transport_of(protocol: str) -> str:
    """Return the transport of a rule's protocol: tcp-proxy is TCP, too."""
    return UDP if protocol == UDP else "tcp"


class Policy(msgspec.Struct, frozen=True):
    """A stickiness policy of a load balancer rule.

    Attributes:
        id: The id that CloudStack gave it.
        seconds: How long after its last connection a client is bound to a machine; 0 if the policy
            does not go by clients' addresses.
        is_ours: Whether our marks are on it.
    """

    id: str
    seconds: int
    is_ours: bool = True


class Rule(msgspec.Struct, frozen=True):
    """A load balancer rule: one port of a public address.

    Attributes:
        name: Its name.
        protocol: tcp, tcp-proxy or udp.
        port: Where clients connect.
        node_port: Where the machines listen.
        algorithm: roundrobin or source.
        cidrs: The CIDRs from which it takes connections.
        network: The network of its machines.
        address: The id of its public address.
        members: The ids of its machines.
        id: The id that CloudStack gave it; "" in a desired rule.
        state: Its state, in CloudStack's words.
        is_marked: Whether our marks are on it.
        policies: Its stickiness policies; they are read where they may matter.
    """

    name: str
    protocol: str
    port: int
    node_port: int
    algorithm: str
    cidrs: frozenset[str]
    network: str = ""
    address: str = ""
    members: frozenset[str] = frozenset()
    id: str = ""
    state: str = ""
    is_marked: bool = True
    policies: tuple[Policy, ...] = ()

    @property
    def key(self) -> Key:
        """The transport and the port."""
        return transport_of(self.protocol), self.port

    @property
    def is_going(self) -> bool:
        """Whether its deletion has begun: CloudStack gives its port to whoever asks for it."""
        return self.state == REVOKED


class Opening(msgspec.Struct, frozen=True):
    """A rule that lets clients reach one port: of an address' firewall, or of an access list.

    Attributes:
        key: The transport and port.
        cidrs: The CIDRs that are let in.
        id: The id that CloudStack gave it.
        is_ours: Whether it may be deleted: on an access list, only if it has the Service's marks.
    """

    key: Key
    cidrs: frozenset[str]
    id: str = ""
    is_ours: bool = True


class Network(msgspec.Struct, frozen=True):
    """A network of machines.

    Attributes:
        id: The id that CloudStack gave it.
        vpc: The VPC that it is a tier of, or "".
        acl: The id of the access list that can be changed, or "".
        has_firewall: Whether its public addresses have firewalls.
        has_balancing: Whether public addresses can be balanced to its machines.
        has_stickiness: Whether rules can bind clients to machines for a time.
        zone: The id of its zone.
        claims: The tags that claim addresses for Services, by their uids.
    """

    id: str
    vpc: str = ""
    acl: str = ""
    has_firewall: bool = False
    has_balancing: bool = True
    has_stickiness: bool = False
    zone: str = ""
    claims: Mapping[str, str] = {}


class Address(msgspec.Struct, frozen=True):
    """A public address.

    Attributes:
        ip: The address.
        id: The id that CloudStack gave it; "" for an address that is free, or unknown.
        is_ours: Whether it has the marks of the Service.
        is_adopted: Whether the official manager has surely acquired it for the Service.
        is_shared: Whether rules of others use it.
    """

    ip: str
    id: str = ""
    is_ours: bool = False
    is_adopted: bool = False
    is_shared: bool = False


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancer of a Service.

    Attributes:
        rules: The rules, one for each port.
        members: The ids of the machines.
        sources: The CIDRs that are let in.
        network: The network of the machines.
        can_change_sources: Whether this CloudStack can change the sources of a rule.
        affinity_seconds: How long after its last connection a client is bound to a machine; None if
            clients are not bound, or the network cannot bind them.
        unseen: The ids of machines that stay in the rules that have them, and get into no others.
    """

    rules: tuple[Rule, ...]
    members: frozenset[str]
    sources: frozenset[str]
    network: Network
    can_change_sources: bool
    affinity_seconds: int | None = None
    unseen: frozenset[str] = frozenset()


class Observed(msgspec.Struct, frozen=True):
    """The load balancer of a Service as CloudStack shows it.

    Attributes:
        rules: The rules that are the Service's.
        address: The address that it has, or may have; None if any free one will do.
        claim: The address that is claimed for it, or "".
        openings: The openings of the address' firewall, each for one port.
        items: The items of the network's access list.
        spare: Addresses with the Service's marks that it does not use.
    """

    rules: tuple[Rule, ...] = ()
    address: Address | None = None
    claim: str = ""
    openings: tuple[Opening, ...] = ()
    items: tuple[Opening, ...] = ()
    spare: tuple[Address, ...] = ()
