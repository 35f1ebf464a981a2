"""Read what annotations and cloud-config ask of a Service's load balancer. Pure.

Annotations come from a cluster's tenants, so every value is checked before it can reach a call,
and all that is wrong is told at once. They go before the class, and that before [LoadBalancer].
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from proreus.cloudprovider.annotations import AnnotationReader
from proreus.providers.nova.names import UUID
from proreus.providers.openstack.config import LoadBalancer as Settings
from proreus.providers.openstack.config import LoadBalancerClass

PREFIX: Final = "loadbalancer.openstack.org/"
"""The prefix of all annotations but one."""
INTERNAL: Final = "service.beta.kubernetes.io/openstack-internal-load-balancer"
"""No floating address."""
METHODS: Final = frozenset({"LEAST_CONNECTIONS", "ROUND_ROBIN", "SOURCE_IP", "SOURCE_IP_PORT"})
"""The methods by which connections can be spread."""

_LETTERS = "has characters that are not allowed there"
_PROXY = {"": "", "false": "", "true": "PROXY", "v1": "PROXY", "v2": "PROXYV2"}
_TIMEOUTS = {
    "timeout-client-data": ("timeout_client_data", 50000),
    "timeout-member-connect": ("timeout_member_connect", 5000),
    "timeout-member-data": ("timeout_member_data", 50000),
    "timeout-tcp-inspect": ("timeout_tcp_inspect", 0),
}
_LONGEST_TIMEOUT = 365 * 24 * 3600 * 1000
_MOST_CONNECTIONS = 1 << 31
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_TLS = re.compile(r"[!-~]{1,2048}")


class Floating(msgspec.Struct, frozen=True):
    """The source of a floating IP.

    Network, and a subnet by id, by a pattern of its name or by tags.

    `annotation` is the one that gives the pattern or the tags; "" if the cloud-config does.
    """

    network_id: str = ""
    subnet_id: str = ""
    subnet: str = ""
    subnet_tags: str = ""
    annotation: str = ""


class Health(msgspec.Struct, frozen=True):
    """The timing of a health monitor: seconds and numbers of tries."""

    delay: int
    timeout: int
    retries: int
    retries_down: int


class Options(msgspec.Struct, frozen=True):
    """The options of a load balancer that annotations and cloud-config choose.

    Attributes:
        internal: Whether it has no floating IP.
        network_id: The network in which it is made, in any subnet.
        subnet_id: The subnet in which it is made.
        member_subnet_id: The subnet in which members are reached.
        port_id: The port that somebody has made for it.
        flavor_id: The flavor in Octavia.
        availability_zone: The availability zone in Octavia.
        floating: The source of its floating IP.
        connection_limit: The most connections of each listener; -1 for no limit.
        timeouts: The timeouts of listeners, by Octavia's names, in milliseconds.
        method: The algorithm that spreads connections over members.
        proxy: The protocol that tells members the client's address: PROXY, PROXYV2 or "".
        x_forwarded_for: Whether listeners speak HTTP and tell members the client's address in a
            header.
        health: The settings of health monitors; None if members are not checked.
        tls: The certificate in Barbican for listeners that end TLS; "" for none.
        hostname: The host name that the status shows in the place of the address.
        adopted: The id of the load balancer that the Service names.
        keep: Whether its floating IP stays when the Service is deleted.
        named: The ids of objects that annotations name (not the cloud-config), by annotation
            without the prefix, and as written: [Tenants] may list them so.
    """

    internal: bool
    network_id: str
    subnet_id: str
    member_subnet_id: str
    port_id: str
    flavor_id: str
    availability_zone: str
    floating: Floating
    connection_limit: int
    timeouts: Mapping[str, int]
    method: str
    proxy: str
    x_forwarded_for: bool
    health: Health | None
    tls: str
    hostname: str
    adopted: str
    keep: bool
    named: Mapping[str, str]


class _Reader(AnnotationReader):
    """A reader of values, which collects what is wrong with them."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        super().__init__(annotations, PREFIX)
        self.named: dict[str, str] = {}

    def id(self, name: str, default: str = "") -> str:
        """Read an id as OpenStack writes it: it takes capitals for the same."""
        remedy = "must be an id such as 2e8c1f0a-0000-4000-8000-000000000000"
        return self.form(name, UUID, remedy, default).lower()

    def object(self, name: str, default: str = "") -> str:
        """Read the id of an object that may be another's."""
        return self._named(name, self.id(name, default), default.lower())

    def reference(self, name: str, default: str, valid: re.Pattern[str]) -> str:
        """Read the URL of an object that may be another's."""
        return self._named(name, self.form(name, valid, _LETTERS, default), default)

    def _named(self, name: str, value: str, default: str) -> str:
        if value != default:
            self.named[name] = self.text(name)
        return value

    def boolean(self, name: str, *, default: bool = False) -> bool:
        words = {"true": True, "false": False}
        return self.parsed(name, lambda text: words[text.lower()], "give true or false", default)


def read_options(
    annotations: Mapping[str, str],
    settings: Settings,
    classes: Mapping[str, LoadBalancerClass],
) -> Options:
    """Read the options from annotations, with defaults from the cloud-config.

    Raises:
        InvalidRequest: Annotations are wrong; names every problem.
    """
    read = _Reader(annotations)
    class_name = read.text("class")
    if class_name and class_name not in classes:
        known = ", ".join(sorted(classes)) or "none"
        read.wrong("class", f"the cloud-config has {known}")
    of_class = classes.get(class_name, LoadBalancerClass())
    network_id = read.object("network-id", of_class.network_id or settings.network_id)
    found = Options(
        # Whoever runs the cluster may forbid what tenants would like to have.
        internal=read.boolean(INTERNAL) or settings.internal_lb,
        network_id=network_id,
        subnet_id=read.object("subnet-id", of_class.subnet_id or settings.subnet_id),
        member_subnet_id=read.object(
            "member-subnet-id", of_class.member_subnet_id or settings.member_subnet_id
        ),
        port_id=read.object("port-id"),
        flavor_id=read.id("flavor-id", settings.flavor_id),
        availability_zone=read.text("availability-zone", settings.availability_zone),
        floating=_floating(read, settings, of_class),
        connection_limit=read.number("connection-limit", -1, _MOST_CONNECTIONS, -1),
        timeouts={
            field: read.number(name, 0, _LONGEST_TIMEOUT, default)
            for name, (field, default) in _TIMEOUTS.items()
        },
        method=read.choice("lb-method", METHODS, settings.lb_method),
        proxy=_PROXY[read.choice("proxy-protocol", _PROXY)],
        x_forwarded_for=read.boolean("x-forwarded-for"),
        health=_health(read, settings),
        tls=read.reference("default-tls-container-ref", settings.default_tls_container_ref, _TLS),
        hostname=read.form("hostname", _HOST, _LETTERS),
        adopted=read.id("load-balancer-id"),
        keep=read.boolean("keep-floatingip"),
        named=read.named,
    )
    if found.proxy and (found.x_forwarded_for or found.tls):
        read.wrong("proxy-protocol", "cannot be with x-forwarded-for or TLS")
    read.check()
    return found


def selector(annotations: Mapping[str, str], default: str) -> dict[str, str | None]:
    """Parse a choice of hosts: `key=value` or `key`, separated by commas."""
    text = annotations.get(f"{PREFIX}node-selector", "").strip() or default
    parts = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() if equals else None for key, equals, value in parts}


def _floating(read: _Reader, settings: Settings, of_class: LoadBalancerClass) -> Floating:
    """Read the source of a floating IP; an annotation replaces all of the cloud-config's."""
    network = read.object(
        "floating-network-id", of_class.floating_network_id or settings.floating_network_id
    )
    name, tags = read.text("floating-subnet"), read.text("floating-subnet-tags")
    own = Floating(
        network,
        read.id("floating-subnet-id"),
        name,
        tags,
        "floating-subnet" if name else "floating-subnet-tags" if tags else "",
    )
    known = {of_class.floating_subnet_id.lower(), settings.floating_subnet_id.lower()}
    if own.subnet_id not in {"", *known}:
        read.named["floating-subnet-id"] = read.text("floating-subnet-id")
    if own.subnet.lstrip("!").startswith("~"):
        # A tenant could give one that never ends.
        read.wrong("floating-subnet", "regular expressions are for the cloud-config only")
    if own.subnet_id or own.subnet or own.subnet_tags:
        return own
    for one in (of_class, settings):
        if one.floating_subnet_id or one.floating_subnet or one.floating_subnet_tags:
            return Floating(
                network, one.floating_subnet_id, one.floating_subnet, one.floating_subnet_tags
            )
    return own


def _health(read: _Reader, settings: Settings) -> Health | None:
    found = Health(
        delay=read.number("health-monitor-delay", 1, 86400, _seconds(settings.monitor_delay)),
        timeout=read.number("health-monitor-timeout", 1, 86400, _seconds(settings.monitor_timeout)),
        retries=read.number("health-monitor-max-retries", 1, 10, settings.monitor_max_retries),
        retries_down=read.number(
            "health-monitor-max-retries-down", 1, 10, settings.monitor_max_retries_down
        ),
    )
    is_on = read.boolean("enable-health-monitor", default=settings.create_monitor)
    if is_on and found.delay < found.timeout:
        read.wrong("health-monitor-delay", "must not be less than the timeout")
    return found if is_on else None


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())
