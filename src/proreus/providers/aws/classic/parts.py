"""The values of a classic load balancer: desired, and observed in AWS."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proreus.providers.aws.listeners import ClassicHealthCheck, Listener
from proreus.providers.aws.own_groups import DesiredGroup, Group

Attributes = Mapping[str, Mapping[str, Any]]
"""Attributes by their section, as AWS has them."""


class Desired(msgspec.Struct, frozen=True):
    """The desired load balancer of one Service, as AWS should have it.

    Attributes:
        name: The name of the load balancer.
        tags: The tags of every part.
        scheme: The scheme: internal or internet-facing.
        subnets: The zones of its subnets, by the subnets' ids.
        own: The security group that is made for it; None if it gets only others.
        groups: Its other security groups.
        listeners: Its listeners.
        health: The health check of the hosts.
        targets: The ids of the hosts' instances.
        attributes: The load balancer attributes that are compared.
        proxy_protocol: Whether hosts get the client's address by the PROXY protocol.
        tls_policy: The security policy of TLS; "": AWS' own.
    """

    name: str
    tags: Mapping[str, str]
    scheme: str
    subnets: Mapping[str, str]
    own: DesiredGroup | None
    groups: tuple[str, ...]
    listeners: frozenset[Listener]
    health: ClassicHealthCheck
    targets: frozenset[str]
    attributes: Attributes
    proxy_protocol: bool = False
    tls_policy: str = ""


class Balancer(msgspec.Struct, frozen=True):
    """A classic load balancer as AWS has it.

    Attributes:
        name: Its name, which is its id, too.
        dns_name: The DNS name at which clients reach it.
        scheme: The scheme: internal or internet-facing.
        subnets: Ids of its subnets.
        zones: The zones of these subnets.
        groups: Its security groups.
        listeners: Its listeners.
        health: The health check of the hosts.
        targets: Ids of the instances that are registered.
        policies: The types of its policies by name; empty if they were not read.
        listener_policies: The names of policies by the listener's port.
        backend_policies: The names of policies by the instances' port.
        attributes: All of its attributes.
        tags: Its tags.
    """

    name: str
    dns_name: str
    scheme: str
    subnets: frozenset[str]
    zones: frozenset[str]
    groups: tuple[str, ...]
    listeners: frozenset[Listener]
    health: ClassicHealthCheck | None = None
    targets: frozenset[str] = frozenset()
    policies: Mapping[str, str] = {}
    listener_policies: Mapping[int, tuple[str, ...]] = {}
    backend_policies: Mapping[int, tuple[str, ...]] = {}
    attributes: Attributes = {}
    tags: Mapping[str, str] = {}


class Observed(msgspec.Struct, frozen=True):
    """The observed state in AWS; `refused` tells by instance id why AWS did not register it."""

    balancer: Balancer | None = None
    group: Group | None = None
    refused: Mapping[str, str] = {}
