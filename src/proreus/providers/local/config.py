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
    bgp: {}
    ip-address-pools: []            # MetalLB's, as kubectl prints them

The load balancers read `LocalConfig.address_pools`, `gateway`, `health_checks` and `draining`;
fields that only they know are added to these sections.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.selectors import Selector
from proreus.providers.local.addresses import Pool, overlaps, parse_range
from proreus.providers.local.bgp.config import BGP, problems_with_pools
from proreus.providers.local.kept import reads_namespaces
from proreus.providers.local.metallb import Manifest, pools_in, repeated

_HIGHEST_PORT: Final = 65535
_HIGHEST_TABLE: Final = 2**32 - 1
_FIRST_PROTOCOL: Final = 192
_LAST_PROTOCOL: Final = 254
_SHORTEST_HOLD: Final = timedelta(seconds=1)
_SHORTEST_PING: Final = timedelta(milliseconds=100)
_LONGEST_DEVICE: Final = 15
_LAST_FIRST_ROUTER: Final = 255 - 63
_SHORTEST_ADVERT: Final = timedelta(milliseconds=50)
_LONGEST_ADVERT: Final = timedelta(seconds=10)
_MOST_SHARED: Final = 8
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}")
_LONGEST_TABLE: Final = 32
_HIGHEST_MARK: Final = 2**32 - 1
_KUBE_PROXY_MARKS: Final = 0xC000


GATEWAY_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
"""What a gateway's name looks like: as a host name, and the name part of an annotation."""


def _not_positive(name: str, duration: timedelta) -> list[str]:
    return [] if duration > timedelta(0) else [f"{name}: must be more than 0s"]


def _not_shareable(interfaces: tuple[str, ...]) -> Iterator[str]:
    """Return why gateways cannot share addresses on these interfaces."""
    if not 0 < len(interfaces) <= _MOST_SHARED:
        yield f"interfaces: name 1 to {_MOST_SHARED} with vrrp, which runs on each of them"
    for name in interfaces:
        if not _INTERFACE.fullmatch(name):
            yield f"interfaces: {name!r} is not a name of an interface that vrrp can run on"


class Unreachable(StrEnum):
    """The state of a machine that no longer answers probes."""

    UNKNOWN = "unknown"
    STOPPED = "stopped"
    GONE = "gone"


class Probing(ConfigSection, frozen=True, kw_only=True):
    """Section `probing`: how machines of Nodes that are not Ready are asked whether they live.

    Attributes:
        ports: The TCP ports to connect to; a refusal is a sign of life, too. None: no probing.
        timeout: How long a machine may take to answer.
        threshold: How many probes in a row must fail before a machine counts as unreachable.
        unreachable: The state of an unreachable machine. With `gone` its Node is deleted after the
            framework's confirmations, with `stopped` it gets the shutdown taint.
    """

    ports: tuple[int, ...] = ()
    timeout: timedelta = timedelta(seconds=1)
    threshold: int = 3
    unreachable: Unreachable = Unreachable.STOPPED

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for port in self.ports:
            if not 1 <= port <= _HIGHEST_PORT:
                yield f"ports: {port} is not a port, give 1 to {_HIGHEST_PORT}"
        yield from _not_positive("timeout", self.timeout)
        if self.threshold < 1:
            yield "threshold: must be at least 1"


class InstancesConfig(ConfigSection, frozen=True, kw_only=True):
    """Section `instances`: where the machines are known from.

    Attributes:
        enabled: Whether Nodes are managed at all. Beside the manager of another cloud they are not:
            then the Nodes of every cloud get the traffic of load balancers.
        inventory: A YAML file, or a directory of them. "": machines are taken from the Nodes' own
            addresses.
        probing: Whether and how machines are asked whether they live.
    """

    enabled: bool = True
    inventory: str = ""
    probing: Probing = Probing()

    def problems(self) -> Iterator[str]:
        """Report settings that have no effect."""
        if not self.enabled and (self.inventory or self.probing.ports):
            yield "enabled: is false, so take out inventory and probing, or set it to true"


class RoutesConfig(ConfigSection, frozen=True, kw_only=True):
    """Section `routes`: routes to the nodes' pods in this machine's kernel.

    Attributes:
        enabled: Whether routes are managed at all.
        table: The number of the routing table; 254 is the main one.
        protocol: The protocol number that marks routes as made by this provider.
    """

    enabled: bool = True
    table: int = 254
    protocol: int = 201

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not 1 <= self.table <= _HIGHEST_TABLE or self.table == 255:  # noqa: PLR2004 - "local"
            yield ("table: give a number from 1 on that is not 255, such as 254, the main one")
        if not _FIRST_PROTOCOL <= self.protocol <= _LAST_PROTOCOL:
            yield (
                f"protocol: give a number from {_FIRST_PROTOCOL} to {_LAST_PROTOCOL} that no"
                " other routing program uses; lower ones have meanings of their own"
            )


class PoolConfig(ConfigSection, frozen=True, kw_only=True):
    """Section `pools`, by name: addresses that load balancers may have.

    Attributes:
        addresses: CIDRs (192.0.2.0/27), ranges (192.0.2.10-192.0.2.20) and single addresses.
        auto_assign: Whether a Service that names no pool or address may get an address of this
            pool.
        avoid_buggy_ips: Whether to leave out IPv4 addresses that end in .0 or .255.
        namespaces: The namespaces whose Services may use it. None: all.
        service_selectors: The labels of the Services that may use it; a Service needs to match one
            selector. None: all Services.
        share_across_namespaces: Whether Services of several namespaces may share an address.
    """

    addresses: tuple[str, ...]
    auto_assign: bool = True
    avoid_buggy_ips: bool = False
    namespaces: tuple[str, ...] = ()
    service_selectors: tuple[Selector, ...] = ()
    share_across_namespaces: bool = False

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not self.addresses:
            yield "addresses: give a CIDR such as 192.0.2.0/27"
        for text in self.addresses:
            try:
                parse_range(text)
            except ValueError as error:
                yield f"addresses: {error}"


class Vrrp(ConfigSection, frozen=True, kw_only=True):
    """Section `vrrp`: how several gateways share the addresses, and notice when one is gone.

    Attributes:
        enabled: Whether gateways share the addresses by VRRP. Then keepalived runs on every
            gateway, beside the manager.
        name: This gateway's name; by default the name of the machine.
        gateways: The names of all gateways, the same list on each, so that a few addresses are
            spread evenly, too. A gateway that is not named only steps in.
        first_router: The first of 64 numbers of virtual routers; nothing else in the network of an
            interface may use these.
        interval: The time between two advertisements of a gateway; after three and a bit without
            one, a gateway counts as gone.
    """

    enabled: bool = False
    name: str = ""
    gateways: tuple[str, ...] = ()
    first_router: int = 128
    interval: timedelta = timedelta(milliseconds=300)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for field, name in (("name", self.name), *(("gateways", one) for one in self.gateways)):
            if name and not GATEWAY_NAME.fullmatch(name):
                yield f"{field}: {name!r} must be of letters, digits, dots and dashes, at most 63"
        if len(set(self.gateways)) < len(self.gateways):
            yield "gateways: name each one once"
        if not 1 <= self.first_router <= _LAST_FIRST_ROUTER:
            yield f"first-router: give a number from 1 to {_LAST_FIRST_ROUTER}"
        if not _SHORTEST_ADVERT <= self.interval <= _LONGEST_ADVERT:
            yield "interval: give 50ms to 10s"


class Gateway(ConfigSection, frozen=True, kw_only=True):
    """Section `gateway`: how this machine takes load balancers' traffic and hands it to nodes.

    Attributes:
        enabled: Whether Services get load balancers at all.
        interfaces: The interfaces on which addresses are announced (ARP and NDP). None: every
            interface whose network holds the address.
        hold: How long this machine answers for the addresses when its manager has ended. 0s: for
            ever, which is right for one gateway. Where another one may take over, some 15s: so
            long may both of them answer, and so long may a restart take.
        device: The name of the network device that is made, and to which the addresses are routed.
        nft_table: The name of the nftables table, of family inet, that is made.
        mark_mask: The bits of packet and connection marks that say which node has a connection,
            side by side. No other program may use them; kube-proxy has 0xc000.
        protocol: The protocol number of the routes and rules that are made; it must differ from
            that of `routes`.
        first_table: The first of the routing tables, one for each node.
        rule_priority: The priority of the rules that lead to the routing tables.
        vrrp: The settings by which several gateways share the addresses.
    """

    enabled: bool = True
    interfaces: tuple[str, ...] = ()
    hold: timedelta = timedelta(0)
    device: str = "proreus0"
    nft_table: str = "proreus"
    mark_mask: int = 0x0FF00000
    protocol: int = 202
    first_table: int = 7300
    rule_priority: int = 7300
    vrrp: Vrrp = Vrrp()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.vrrp.enabled:
            yield from _not_shareable(self.interfaces)
        if self.hold and self.hold < _SHORTEST_HOLD:
            yield "hold: give 0s, or 1s and more"
        for name, text, most in (
            ("device", self.device, _LONGEST_DEVICE),
            ("nft-table", self.nft_table, _LONGEST_TABLE),
        ):
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", text) or len(text) > most:
                yield f"{name}: {text!r} must be of letters and digits, at most {most}"
        bits = bin(self.mark_mask).strip("0b")
        if not 0 < self.mark_mask <= _HIGHEST_MARK or "0" in bits:
            yield "mark-mask: give bits side by side within 0xffffffff, such as 0x0ff00000"
        if self.mark_mask & _KUBE_PROXY_MARKS:
            yield "mark-mask: the bits 0xc000 are kube-proxy's"
        if not _FIRST_PROTOCOL <= self.protocol <= _LAST_PROTOCOL:
            yield f"protocol: give a number from {_FIRST_PROTOCOL} to {_LAST_PROTOCOL}"
        if not 256 <= self.first_table <= _HIGHEST_TABLE // 2:  # noqa: PLR2004 - main and its like
            yield "first-table: give a number from 256 on"
        if not 1 <= self.rule_priority < 32766:  # noqa: PLR2004 - the main table's
            yield "rule-priority: give a number from 1 to 32765, before the main table's"


class HealthChecks(ConfigSection, frozen=True, kw_only=True):
    """Section `health-checks`: how nodes are asked whether they serve.

    Attributes:
        interval: The time between two checks of a node.
        timeout: How long a node may take to answer.
        threshold: How many answers in a row must be missing or bad before the node gets no traffic.
        ping: The time between two pings of a node. A node that used to answer pings and misses two
            is checked at once, and then one more missing answer is enough. 0s: no pings.
    """

    interval: timedelta = timedelta(seconds=2)
    timeout: timedelta = timedelta(seconds=1)
    threshold: int = 2
    ping: timedelta = timedelta(milliseconds=300)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        yield from _not_positive("interval", self.interval)
        yield from _not_positive("timeout", self.timeout)
        if self.threshold < 1:
            yield "threshold: must be at least 1"
        if self.ping and self.ping < _SHORTEST_PING:
            yield "ping: give 0s, or 100ms and more"


class LocalConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole cloud-config of the provider `local`.

    Attributes:
        region: The region of machines for which the inventory names none.
        zone: The zone of machines for which the inventory names none.
        instances: The settings that say where the machines are known from.
        routes: The routes to the nodes' pods.
        pools: Addresses for load balancers, by name; the first pool is used first.
        ip_address_pools: MetalLB's pools, as kubectl prints them; they are used after `pools`.
        gateway: The settings of the gateway through which load balancers' traffic comes in.
        health_checks: The health checks: how nodes are asked whether they serve.
        draining: How long a removed node keeps the connections that it has.
        bgp: The routers to which nodes announce addresses, in the place of a gateway.
    """

    region: str = ""
    zone: str = ""
    instances: InstancesConfig = InstancesConfig()
    routes: RoutesConfig = RoutesConfig()
    pools: Mapping[str, PoolConfig] = {}
    ip_address_pools: tuple[Manifest, ...] = ()
    gateway: Gateway = Gateway()
    health_checks: HealthChecks = HealthChecks()
    draining: timedelta = timedelta(seconds=30)
    bgp: BGP = BGP()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        pools = self.address_pools
        for name in repeated([one.name for one in pools]):
            yield f"ip-address-pools: {name} is the name of two pools: give one of them another"
        yield from (f"pools {one}" for one in overlaps(pools))
        if self.routes.protocol == self.gateway.protocol:
            yield "gateway protocol, routes protocol: give them different numbers"
        if self.draining < timedelta(0):
            yield "draining: must not be negative"
        if self.bgp.peers and self.gateway.enabled:
            yield "gateway enabled: set it to false, with bgp the nodes announce the addresses"
        if self.bgp.peers and not pools:
            yield "pools: give one, whose addresses bgp announces"
        yield from (f"bgp {one}" for one in problems_with_pools(self.bgp, pools))

    @property
    def address_pools(self) -> tuple[Pool, ...]:
        """All pools, wherever they are written, as `pools.assign` takes them."""
        own = tuple(
            Pool(
                name=name,
                ranges=tuple(parse_range(text) for text in one.addresses),
                auto_assign=one.auto_assign,
                avoid_buggy_ips=one.avoid_buggy_ips,
                namespaces=frozenset(one.namespaces),
                service_selectors=one.service_selectors,
                share_across_namespaces=one.share_across_namespaces,
            )
            for name, one in self.pools.items()
        )
        return own + pools_in(self.ip_address_pools)

    @property
    def reads_namespaces(self) -> bool:
        """Whether pools are kept for namespaces by labels other than the name."""
        pools = self.address_pools if self.gateway.enabled or self.bgp.peers else ()
        return any(reads_namespaces(one) for one in pools)
