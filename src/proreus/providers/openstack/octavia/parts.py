"""The values of a load balancer of Octavia: desired, and observed.

`fields` hold what can be changed, by Octavia's own names; what is there may have more fields than
what is desired, and only those that are desired count.
"""

from collections.abc import Mapping

import msgspec

Fields = Mapping[str, object]


class Member(msgspec.Struct, frozen=True, order=True):
    """A member of a pool; `monitor_port` is 0 where its own port is checked."""

    address: str
    port: int
    subnet_id: str = ""
    monitor_port: int = 0
    name: str = ""

    @property
    def key(self) -> tuple[str, int, str, int]:
        """The fields that count in a comparison: all but the name."""
        return self.address, self.port, self.subnet_id, self.monitor_port


class Monitor(msgspec.Struct, frozen=True):
    """A health monitor of a pool; another `type` needs another monitor."""

    type: str
    fields: Fields
    name: str = ""
    id: str = ""


class Pool(msgspec.Struct, frozen=True):
    """A pool: members, and how traffic is spread; another `protocol` needs another pool.

    `is_read` is False where members and monitor have not been asked for yet.
    """

    protocol: str
    fields: Fields
    members: tuple[Member, ...] = ()
    monitor: Monitor | None = None
    name: str = ""
    id: str = ""
    is_read: bool = True


class Listener(msgspec.Struct, frozen=True):
    """A listener: a port of a load balancer; another `protocol` needs another listener.

    `has_strange_pool` is True where it sends traffic to a pool that is not the Service's; `pool` is
    None then.
    """

    protocol: str
    port: int
    fields: Fields
    pool: Pool | None
    name: str = ""
    id: str = ""
    has_strange_pool: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """The transport and port, which no two listeners of a load balancer can share."""
        transport = self.protocol if self.protocol in {"UDP", "SCTP"} else "TCP"
        return transport, self.port


class Balancer(msgspec.Struct, frozen=True):
    """A load balancer for one family.

    Attributes:
        name: Its name.
        fields: The fields that can be changed.
        placed: The fields that never change: network, subnet, port, flavor, provider.
        listeners: Its listeners.
        stray: Pools that no listener uses, by id.
        taken: The ports of other Services' listeners, as `Listener.key`.
        others: The tags that name other Services which use it.
        hosts: A digest of the Service's pools and the ids of their members; "" in a desired one.
        id: The id that Octavia gave it; "" in a desired one.
        status: Its provisioning status in Octavia; "" in a desired one.
    """

    name: str
    fields: Fields
    placed: Fields
    listeners: tuple[Listener, ...]
    stray: tuple[str, ...] = ()
    taken: frozenset[tuple[str, int]] = frozenset()
    others: frozenset[str] = frozenset()
    hosts: str = ""
    id: str = ""
    status: str = ""
