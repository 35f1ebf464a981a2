"""The cloud-config of the provider `local`.

Every part may be left out; what stands here is the whole of it, in YAML:

    region: home
    zone: rack-1
    instances:
      inventory: /etc/proreus/machines.yaml
      probing: {ports: [22], timeout: 1s, threshold: 3, unreachable: stopped}
    routes: {enabled: true, table: 254, protocol: 201}
    pools:
      default: {addresses: [192.0.2.0/27, 2001:db8::/120], auto-assign: true}
    gateway: {enabled: true, interfaces: [eth0]}
    health-checks: {interval: 2s, timeout: 1s, threshold: 2}
    draining: 30s

The load balancers read `LocalConfig.address_pools`, `gateway`, `health_checks` and `draining`;
fields that only they know are added to these sections.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.local.addresses import Pool, overlaps, parse_range

_HIGHEST_PORT: Final = 65535
_HIGHEST_TABLE: Final = 2**32 - 1
_FIRST_PROTOCOL: Final = 192
_LAST_PROTOCOL: Final = 254


def _not_positive(name: str, duration: timedelta) -> list[str]:
    return [] if duration > timedelta(0) else [f"{name}: must be more than 0s"]


def _raise(found: list[str]) -> None:
    if found:
        raise ConfigError(tuple(found))


class Unreachable(StrEnum):
    """What a machine is taken for that no longer answers probes."""

    UNKNOWN = "unknown"
    STOPPED = "stopped"
    GONE = "gone"


class Probing(ConfigSection, frozen=True, kw_only=True):
    """Section `probing`: asking the machines of Nodes that are not Ready whether they live.

    Attributes:
        ports: TCP ports to connect to; a refusal is a sign of life, too. None: no probing.
        timeout: How long a machine may take to answer.
        threshold: How many probes in a row must fail before a machine counts as unreachable.
        unreachable: What it is then. With `gone` its Node is deleted after the framework's
            confirmations, with `stopped` it gets the shutdown taint.
    """

    ports: tuple[int, ...] = ()
    timeout: timedelta = timedelta(seconds=1)
    threshold: int = 3
    unreachable: Unreachable = Unreachable.STOPPED

    def __post_init__(self) -> None:
        """Check what types cannot.

        Raises:
            ConfigError: Every problem in one sentence.
        """
        found = [
            f"ports: {port} is no port, give 1 to {_HIGHEST_PORT}"
            for port in self.ports
            if not 1 <= port <= _HIGHEST_PORT
        ]
        found += _not_positive("timeout", self.timeout)
        if self.threshold < 1:
            found.append("threshold: must be at least 1")
        _raise(found)


class InstancesConfig(ConfigSection, frozen=True, kw_only=True):
    """Section `instances`: where the machines are known from.

    Attributes:
        inventory: A YAML file, or a directory of them. "": from the Nodes' own addresses.
        probing: Whether and how machines are asked if they live.
    """

    inventory: str = ""
    probing: Probing = Probing()


class RoutesConfig(ConfigSection, frozen=True, kw_only=True):
    """Section `routes`: ways to the nodes' pods in this machine's kernel.

    Attributes:
        enabled: Whether there is the capability at all.
        table: The number of the routing table; 254 is the main one.
        protocol: The protocol number that marks routes as made by this provider.
    """

    enabled: bool = True
    table: int = 254
    protocol: int = 201

    def __post_init__(self) -> None:
        """Check what types cannot.

        Raises:
            ConfigError: Every problem in one sentence.
        """
        found = []
        if not 1 <= self.table <= _HIGHEST_TABLE or self.table == 255:  # noqa: PLR2004 - "local"
            found.append(
                "table: give a number from 1 on that is not 255, such as 254, the main one"
            )
        if not _FIRST_PROTOCOL <= self.protocol <= _LAST_PROTOCOL:
            found.append(
                f"protocol: give a number from {_FIRST_PROTOCOL} to {_LAST_PROTOCOL} that no"
                " other routing program uses; lower ones have meanings of their own"
            )
        _raise(found)


class PoolConfig(ConfigSection, frozen=True, kw_only=True):
    """Section `pools`, by name: addresses that load balancers may have.

    Attributes:
        addresses: CIDRs (192.0.2.0/27), ranges (192.0.2.10-192.0.2.20) and single addresses.
        auto_assign: Whether Services get addresses of it that do not name the pool or address.
        avoid_buggy_ips: Whether to leave out IPv4 addresses that end in .0 or .255.
        namespaces: Whose Services may use it. None: everybody's.
    """

    addresses: tuple[str, ...]
    auto_assign: bool = True
    avoid_buggy_ips: bool = False
    namespaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what types cannot.

        Raises:
            ConfigError: Every problem in one sentence.
        """
        found = [] if self.addresses else ["addresses: give a CIDR such as 192.0.2.0/27"]
        for text in self.addresses:
            try:
                parse_range(text)
            except ValueError as error:
                found.append(f"addresses: {error}")
        _raise(found)


class Gateway(ConfigSection, frozen=True, kw_only=True):
    """Section `gateway`: this machine takes the load balancers' traffic and hands it to nodes.

    Attributes:
        enabled: Whether there are load balancers at all.
        interfaces: Where the addresses are announced (ARP and NDP). None: on every interface
            whose network holds the address.
    """

    enabled: bool = True
    interfaces: tuple[str, ...] = ()


class HealthChecks(ConfigSection, frozen=True, kw_only=True):
    """Section `health-checks`: how nodes are asked whether they serve.

    Attributes:
        interval: Between two questions to a node.
        timeout: How long it may take to answer.
        threshold: How many answers in a row must be missing or bad before it gets no traffic.
    """

    interval: timedelta = timedelta(seconds=2)
    timeout: timedelta = timedelta(seconds=1)
    threshold: int = 2

    def __post_init__(self) -> None:
        """Check what types cannot.

        Raises:
            ConfigError: Every problem in one sentence.
        """
        found = _not_positive("interval", self.interval)
        found += _not_positive("timeout", self.timeout)
        if self.threshold < 1:
            found.append("threshold: must be at least 1")
        _raise(found)


class LocalConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole file.

    Attributes:
        region: The region of machines for which the inventory names none.
        zone: Likewise the zone.
        instances: Where the machines are known from.
        routes: Ways to the nodes' pods.
        pools: Addresses for load balancers, by name; the first pool is used first.
        gateway: Where the load balancers' traffic comes in.
        health_checks: How nodes are asked whether they serve.
        draining: How long a node that is removed keeps the connections that it has.
    """

    region: str = ""
    zone: str = ""
    instances: InstancesConfig = InstancesConfig()
    routes: RoutesConfig = RoutesConfig()
    pools: Mapping[str, PoolConfig] = {}
    gateway: Gateway = Gateway()
    health_checks: HealthChecks = HealthChecks()
    draining: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        """Check what types cannot.

        Raises:
            ConfigError: Every problem in one sentence.
        """
        found = [f"pools {one}" for one in overlaps(self.address_pools)]
        if self.draining < timedelta(0):
            found.append("draining: must not be negative")
        _raise(found)

    @property
    def address_pools(self) -> tuple[Pool, ...]:
        """The pools as `pools.assign` takes them."""
        return tuple(
            Pool(
                name=name,
                ranges=tuple(parse_range(text) for text in one.addresses),
                auto_assign=one.auto_assign,
                avoid_buggy_ips=one.avoid_buggy_ips,
                namespaces=frozenset(one.namespaces),
            )
            for name, one in self.pools.items()
        )
