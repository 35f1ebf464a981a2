"""Define the values of a network load balancer: desired, and observed in AWS."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from proreus.providers.aws.listeners import HealthCheck, PortMapping
from proreus.providers.aws.own_groups import DesiredGroup, Group

DUALSTACK = "dualstack"
"""The address type of a load balancer with IPv4 and IPv6 addresses."""


class Placed(msgspec.Struct, frozen=True):
    """A subnet of the load balancer, with the address that it is given there, if any."""

    subnet: str
    zone: str
    allocation: str = ""
    private_address: str = ""


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancer of one Service, as AWS should have it.

    Attributes:
        name: The name of the load balancer.
        cluster: The cluster's id, which is part of the names of target groups.
        service: The Service's namespace and name, which are part of the names of target groups.
        tags: The tags of every part.
        scheme: The scheme: internal or internet-facing.
        address_type: The type of its addresses: ipv4 or `DUALSTACK`.
        source_nat: Whether it takes an IPv6 prefix of each subnet from which it sends UDP to hosts.
        target_type: The family of the hosts' addresses: ipv4 or ipv6.
        vpc: The id of the VPC in which it is.
        placed: The subnets in which it is.
        own: The security group that is made for it; None if it gets only given ones.
        groups: The given security groups. A load balancer that is made without any stays without.
        mappings: Its listeners, each with its target group.
        targets: The ids of the hosts' instances.
        attributes: The load balancer attributes that are compared.
        target_attributes: The target group attributes that are compared.
    """

    name: str
    cluster: str
    service: tuple[str, str]
    tags: Mapping[str, str]
    scheme: str
    address_type: str
    source_nat: bool
    target_type: str
    vpc: str
    placed: tuple[Placed, ...]
    own: DesiredGroup | None
    groups: tuple[str, ...]
    mappings: tuple[PortMapping, ...]
    targets: frozenset[str]
    attributes: Mapping[str, str]
    target_attributes: Mapping[str, str]


class Balancer(msgspec.Struct, frozen=True):
    """A network load balancer as AWS has it; `zones` are its subnets by zone.

    `source_nat` is whether it has an IPv6 prefix of each subnet.
    """

    arn: str
    name: str
    dns_name: str
    scheme: str
    state: str
    address_type: str
    zones: Mapping[str, str]
    source_nat: bool = False
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}

    @property
    def title(self) -> str:
        """The name of the part in `proreus plan`."""
        return f"load balancer {self.name}"


class Listener(msgspec.Struct, frozen=True):
    """A listener; it forwards to one target group."""

    arn: str
    port: int
    protocol: str
    target_group: str
    certificate: str = ""
    policy: str = ""

    @property
    def title(self) -> str:
        """The name of the part in `proreus plan`."""
        return f"listener {self.port}"


class TargetGroup(msgspec.Struct, frozen=True):
    """A target group; `targets` are ids of instances, without those that are going."""

    arn: str
    name: str
    health: HealthCheck
    targets: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}

    @property
    def title(self) -> str:
        """The name of the part in `proreus plan`."""
        return f"target group {self.name}"


Part = Balancer | Listener | TargetGroup
_P = TypeVar("_P", bound=Balancer | TargetGroup)


class Observed(msgspec.Struct, frozen=True):
    """The observed state in AWS. Target groups: those of the listeners, and others of the Service.

    `group` is the security group that was made for it; `refused` says by instance id why it could
    not be a target.
    """

    balancer: Balancer | None = None
    listeners: tuple[Listener, ...] = ()
    target_groups: tuple[TargetGroup, ...] = ()
    group: Group | None = None
    refused: Mapping[str, str] = {}

    def having(self, part: Part) -> "Observed":
        """Return the observed state with a part made or replaced. Pure."""
        if isinstance(part, Balancer):
            return msgspec.structs.replace(self, balancer=part)
        others = self._others(part)
        if isinstance(part, Listener):
            return msgspec.structs.replace(others, listeners=(*others.listeners, part))
        return msgspec.structs.replace(others, target_groups=(*others.target_groups, part))

    def changed(self, part: _P, fields: Callable[[_P], Mapping[str, Any]]) -> "Observed":
        """Return the observed state with other values in fields of a part. Pure."""

        def update(now: Any) -> Any:
            is_part = now is not None and now.arn == part.arn
            return msgspec.structs.replace(now, **fields(now)) if is_part else now

        groups = tuple(map(update, self.target_groups))
        return msgspec.structs.replace(self, balancer=update(self.balancer), target_groups=groups)

    def without(self, part: Part) -> "Observed":
        """Return the observed state without a part; listeners go with a load balancer. Pure."""
        if isinstance(part, Balancer):
            return msgspec.structs.replace(self, balancer=None, listeners=())
        return self._others(part)

    def _others(self, part: Part) -> "Observed":
        return msgspec.structs.replace(
            self,
            listeners=tuple(kept for kept in self.listeners if kept.arn != part.arn),
            target_groups=tuple(kept for kept in self.target_groups if kept.arn != part.arn),
        )
