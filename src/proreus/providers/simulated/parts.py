"""The parts of load balancers, and routes, as the simulated cloud shows them."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    id: str
    name: str
    tags: Mapping[str, str] = {}
    version: int
    created: float


class Address(_Part, frozen=True, kw_only=True, tag="address"):
    """An address of the cloud's pool."""

    collection: ClassVar[str] = "addresses"
    address: str


class HealthCheck(msgspec.Struct, frozen=True):
    """A GET of `path` on `port`, or a TCP connect; port 0 is the listener's target port."""

    port: int = 0
    path: str = ""


class Target(msgspec.Struct, frozen=True, order=True):
    """An instance to which a load balancer sends traffic."""

    instance_id: str
    address: str


class Balancer(_Part, frozen=True, kw_only=True, tag="load_balancer"):
    """A load balancer; `state` is provisioning or active."""

    collection: ClassVar[str] = "load_balancers"
    address_id: str
    state: str
    internal: bool = False
    affinity_seconds: int | None = None
    health_check: HealthCheck = HealthCheck()
    targets: tuple[Target, ...] = ()


class Listener(_Part, frozen=True, kw_only=True, tag="listener"):
    """A port of a load balancer; `state` is pending, active or error."""

    collection: ClassVar[str] = "listeners"
    load_balancer_id: str
    protocol: str
    port: int
    target_port: int
    proxy_protocol: bool = False
    state: str = "pending"
    error: str = ""


class Firewall(_Part, frozen=True, kw_only=True, tag="firewall"):
    """The source ranges that a load balancer lets in."""

    collection: ClassVar[str] = "firewalls"
    load_balancer_id: str
    source_ranges: tuple[str, ...] = ()


class RoutePart(_Part, frozen=True, kw_only=True, tag="route"):
    """A route; `state` is active or blackhole."""

    collection: ClassVar[str] = "routes"
    destination: str
    instance_id: str
    state: str = "active"


Part = Address | Balancer | Listener | Firewall | RoutePart


class Observed(msgspec.Struct, frozen=True):
    """The parts of one load balancer that the cloud has, by id.

    `made` are the ids of parts made in this run, `refused` says by instance id why it could not
    be a target.
    """

    parts: Mapping[str, Part] = {}
    made: frozenset[str] = frozenset()
    refused: Mapping[str, str] = {}

    @property
    def addresses(self) -> list[Address]:
        """The observed addresses, the oldest first."""
        return sorted((p for p in self.parts.values() if isinstance(p, Address)), key=age)

    @property
    def balancers(self) -> list[Balancer]:
        """The load balancers, the oldest first."""
        return sorted((p for p in self.parts.values() if isinstance(p, Balancer)), key=age)

    @property
    def listeners(self) -> list[Listener]:
        """The observed listeners, the oldest first."""
        return sorted((p for p in self.parts.values() if isinstance(p, Listener)), key=age)

    @property
    def firewalls(self) -> list[Firewall]:
        """The observed firewalls, the oldest first."""
        return sorted((p for p in self.parts.values() if isinstance(p, Firewall)), key=age)

    def having(self, part: Part) -> "Observed":
        """Return the observed state with a part made or changed."""
        made = self.made | ({part.id} - self.parts.keys())
        return msgspec.structs.replace(self, parts={**self.parts, part.id: part}, made=made)

    def without(self, part: Part) -> "Observed":
        """Return the observed state without a part."""
        parts = {id_: kept for id_, kept in self.parts.items() if id_ != part.id}
        return msgspec.structs.replace(self, parts=parts)

    def refusing(self, refused: Mapping[str, str]) -> "Observed":
        """Return the observed state after instances were refused as targets, with the reasons."""
        kept = {
            part.id: msgspec.structs.replace(
                part, targets=tuple(t for t in part.targets if t.instance_id not in refused)
            )
            for part in self.balancers
        }
        return Observed({**self.parts, **kept}, self.made, {**self.refused, **refused})


def age(part: Part) -> tuple[float, str]:
    """Return the key by which parts are sorted, the oldest first."""
    return part.created, part.id
