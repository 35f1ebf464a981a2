"""The simulated cloud's values: settings, instances, parts of load balancers, faults, calls."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec


class ApiError(Exception):
    """A refusal: HTTP status, code and message as the specification lists them."""

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        """Keep what the answer will contain."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the cloud's behaviour. Times in seconds, rates in calls a second; 0 is no quota.

    Attributes:
        region: The only region.
        latency: The least time that every call takes.
        read_rate: The quota of each credential for reads; `read_burst` tokens can be saved up.
        read_burst: Size of the bucket for reads.
        write_rate: The quota of each credential for writes.
        write_burst: Size of the bucket for writes.
        page_size: The longest page of a list.
        batch_limit: The most ids and names together in one bulk read.
        tombstone: How long a terminated instance stays visible.
        list_lag: The age of the state that lists and bulk reads show.
        read_lag: The age of the state that reads of one object by id show.
        provision_delay: How long a new load balancer is provisioning.
        unique_names: Whether no two parts of a kind may have one name.
        pool: The CIDR of addresses for load balancers, in 127.0.0.0/8. "" stands for a /24 made
            from the cloud's own port, so that clouds running side by side do not collide.
        route_limit: The most routes in the table.
        health_interval: Time between health checks; 0 means none, and every target is healthy.
    """

    region: str = "sim-1"
    latency: float = 0.0
    read_rate: float = 0.0
    read_burst: float = 1.0
    write_rate: float = 0.0
    write_burst: float = 1.0
    page_size: int = 500
    batch_limit: int = 500
    tombstone: float = 0.0
    list_lag: float = 0.0
    read_lag: float = 0.0
    provision_delay: float = 0.0
    unique_names: bool = True
    pool: str = ""
    route_limit: int = 100
    health_interval: float = 1.0


class Address(msgspec.Struct, frozen=True):
    """An address of an instance; `type` is InternalIP, ExternalIP, Hostname or InternalDNS."""

    type: str
    address: str


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. Given to the admin API, an empty id, region, uuid or addresses is filled in.

    `pod_cidrs` are the blocks of pod addresses that the cloud lets it have, `ssh_keys` the keys by
    which users may log in, each `USER:KEY`.
    """

    name: str
    id: str = ""
    region: str = ""
    zone: str = ""
    type: str = ""
    state: Literal["running", "stopped", "suspended", "terminating", "terminated"] = "running"
    system_uuid: str = ""
    addresses: tuple[Address, ...] = ()
    labels: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}
    pod_cidrs: tuple[str, ...] = ()
    ssh_keys: tuple[str, ...] = ()
    created: float = 0.0
    terminated: float = 0.0


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume. Given to the admin API, an empty id or region is filled in."""

    id: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target of a load balancer."""

    instance_id: str
    address: str


class HealthCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A health check of targets; port 0 is the listener's target port."""

    port: int = 0
    path: str = ""


class Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """The fields that all parts have; `created` in seconds since 1970."""

    id: str
    name: str
    tags: Mapping[str, str] = {}
    idempotency_token: str = ""
    version: int = 1
    created: float = 0.0


class AddressPart(Part, frozen=True, kw_only=True, tag="address"):
    """An address that was taken from the pool."""

    address: str = ""


class LoadBalancer(Part, frozen=True, kw_only=True, tag="load_balancer"):
    """A load balancer; it is active from `active_at` (seconds since 1970)."""

    address_id: str
    internal: bool = False
    affinity_seconds: int | None = None
    health_check: HealthCheck = HealthCheck()
    targets: tuple[Target, ...] = ()
    active_at: float = 0.0


class Listener(Part, frozen=True, kw_only=True, tag="listener"):
    """A port of a load balancer."""

    load_balancer_id: str
    protocol: Literal["TCP", "UDP"]
    port: int
    target_port: int
    proxy_protocol: bool = False


class Firewall(Part, frozen=True, kw_only=True, tag="firewall"):
    """A list of clients that may speak to a load balancer."""

    load_balancer_id: str
    source_ranges: tuple[str, ...] = ()


class Route(Part, frozen=True, kw_only=True, tag="route"):
    """A route of the route table."""

    destination: str
    instance_id: str


AnyPart = AddressPart | LoadBalancer | Listener | Firewall | Route


class FaultMode(StrEnum):
    """The effect of an injected failure.

    CUT_BEFORE and CUT_AFTER cut the connection before or after the effect, ERROR answers with
    `status` and THROTTLE with 429, both without effect; HANG never answers and has no effect;
    GARBAGE has the effect and answers something that is not JSON; DROP leaves a `share` of a
    list out; MISSING reports a `share` of a bulk read's findings as missing.
    """

    CUT_BEFORE = "cut_before"
    CUT_AFTER = "cut_after"
    ERROR = "error"
    THROTTLE = "throttle"
    HANG = "hang"
    GARBAGE = "garbage"
    DROP = "drop"
    MISSING = "missing"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure to inject.

    Attributes:
        mode: The kind of failure.
        operation: The operations that fail, as a shell pattern: `listeners.create`, `*.delete`,
            `*`.
        target: The id in the call's path, as a shell pattern; calls without one have "".
        skip: How many matching calls pass unharmed first.
        count: How many calls are hit; 0 for all until the faults are cleared.
        share: The share of the answer that DROP and MISSING affect, between 0 and 1.
        status: The HTTP status that ERROR answers.
        retry_after: The header `Retry-After` that THROTTLE answers, in seconds, or None for no
            header.
    """

    mode: FaultMode
    operation: str = "*"
    target: str = "*"
    skip: int = 0
    count: int = 1
    share: float = 1.0
    status: int = 500
    retry_after: float | None = None


class Call(msgspec.Struct, frozen=True):
    """A logged call; `status` 0 means that it had no answer, `time` is seconds since 1970."""

    operation: str
    caller: str
    time: float
    status: int
    read: bool
    id: str = ""
