"""Define the parts of load balancers as the Compute API has them, and compare them. Pure.

The fields are the API's, so a part is the body of the request that makes it. URLs are compared by
the resources that they name, lists by what is in them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from proreus.cloudprovider.mark_forms import LABELS
from proreus.providers.gce.names import Machine, last_part, machine_in, path_in

EXTERNAL = "EXTERNAL"
INTERNAL = "INTERNAL"
IPV4 = "IPv4"
IPV6 = "IPv6"
ANY_PROTOCOL = "L3_DEFAULT"
"""The protocol of a forwarding rule for all that has no rule of its own; it has all ports."""
SUBSET_PREFIX = "k8s2-"
"""How names of the parts of load balancers with a subset of nodes begin."""
UNSPECIFIED = "UNSPECIFIED"
"""The protocol of the backend service to which such a rule leads."""


class Kind(StrEnum):
    """A kind of resource, in a word of the API."""

    ADDRESS = "addresses"
    CHECK = "healthChecks"
    ENDPOINTS = "networkEndpointGroups"
    FIREWALL = "firewalls"
    GROUP = "instanceGroups"
    HTTP_CHECK = "httpHealthChecks"
    POOL = "targetPools"
    REGION_CHECK = "regionHealthChecks"
    RULE = "forwardingRules"
    SERVICE = "backendServices"

    @property
    def method(self) -> str:
        """The kind's word in the names of API methods."""
        return "regionBackendServices" if self is Kind.SERVICE else self.value

    @property
    def collection(self) -> str:
        """The kind's word in paths of the API."""
        return "healthChecks" if self is Kind.REGION_CHECK else self.value

    @property
    def word(self) -> str:
        """The kind's word for people."""
        return _WORDS[self]


_WORDS = {
    Kind.ADDRESS: "address",
    Kind.CHECK: "health check",
    Kind.ENDPOINTS: "group of endpoints",
    Kind.FIREWALL: "firewall rule",
    Kind.GROUP: "instance group",
    Kind.HTTP_CHECK: "HTTP health check",
    Kind.POOL: "target pool",
    Kind.REGION_CHECK: "regional health check",
    Kind.RULE: "forwarding rule",
    Kind.SERVICE: "backend service",
}


class Form(StrEnum):
    """A way to build a load balancer.

    An external one has a target pool or, where it is asked for, a backend service, as an internal
    one has: with the instance groups of all nodes, or with groups of endpoints, a subset of them.
    """

    POOL = "pool"
    EXTERNAL = "external"
    INTERNAL = "internal"
    SUBSET = "subset"

    @property
    def check(self) -> Kind:
        """The kind of its health check."""
        return _CHECKS[self]


_CHECKS = {
    Form.POOL: Kind.HTTP_CHECK,
    Form.EXTERNAL: Kind.REGION_CHECK,
    Form.INTERNAL: Kind.CHECK,
    Form.SUBSET: Kind.CHECK,
}


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    description: str = ""


class Address(_Part, frozen=True, kw_only=True):
    """A reserved address; `users` are the URLs of the objects that use it."""

    address: str = ""
    address_type: str = ""
    network_tier: str = ""
    subnetwork: str = ""
    prefix_length: int = 0
    users: tuple[str, ...] = ()


class HttpCheck(_Part, frozen=True, kw_only=True):
    """A health check of a target pool."""

    port: int = 0
    request_path: str = ""
    check_interval_sec: int = 0
    timeout_sec: int = 0
    healthy_threshold: int = 0
    unhealthy_threshold: int = 0


class Http(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The HTTP request of a health check."""

    port: int = 0
    request_path: str = ""


class Check(_Part, frozen=True, kw_only=True):
    """A health check of a backend service."""

    type: str = ""
    http_health_check: Http = Http()
    check_interval_sec: int = 0
    timeout_sec: int = 0
    healthy_threshold: int = 0
    unhealthy_threshold: int = 0


class Allowed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The protocol and ports that a firewall rule lets through."""

    protocol: str = msgspec.field(default="", name="IPProtocol")
    ports: tuple[str, ...] = ()


class Firewall(_Part, frozen=True, kw_only=True):
    """A firewall rule."""

    network: str = ""
    source_ranges: tuple[str, ...] = ()
    destination_ranges: tuple[str, ...] = ()
    target_tags: tuple[str, ...] = ()
    allowed: tuple[Allowed, ...] = ()


class Pool(_Part, frozen=True, kw_only=True):
    """A target pool."""

    instances: tuple[str, ...] = ()
    session_affinity: str = ""
    health_checks: tuple[str, ...] = ()

    @property
    def machines(self) -> frozenset[Machine]:
        """The instances."""
        return frozenset(filter(None, map(machine_in, self.instances)))


class Backend(msgspec.Struct, frozen=True):
    """An instance group, or a group of endpoints, in a backend service."""

    group: str


class Draining(msgspec.Struct, frozen=True, rename="camel"):
    """The time that connections have to end when their host leaves."""

    draining_timeout_sec: int = 0


class BackendService(_Part, frozen=True, kw_only=True):
    """A backend service of a load balancer."""

    protocol: str = ""
    session_affinity: str = ""
    load_balancing_scheme: str = ""
    health_checks: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    connection_draining: Draining | None = None
    fingerprint: str = ""


class Rule(_Part, frozen=True, kw_only=True):
    """A forwarding rule; `labels` are set by a call of their own."""

    address: str = msgspec.field(default="", name="IPAddress")
    protocol: str = msgspec.field(default="", name="IPProtocol")
    load_balancing_scheme: str = ""
    port_range: str = ""
    target: str = ""
    ip_version: str = ""
    network_tier: str = ""
    ports: tuple[str, ...] = ()
    all_ports: bool = False
    backend_service: str = ""
    network: str = ""
    subnetwork: str = ""
    allow_global_access: bool = False
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    label_fingerprint: str = ""

    @property
    def family(self) -> str:
        """The family of the rule's address."""
        return IPV6 if self.ip_version == "IPV6" else IPV4

    @property
    def ip(self) -> str:
        """The rule's address, which for IPv6 is the first of a range."""
        return self.address.partition("/")[0]

    @property
    def marks(self) -> dict[str, str]:
        """Our marks on the rule."""
        return LABELS.read(self.labels)

    @property
    def form(self) -> Form:
        """The form of the load balancer to which the rule belongs."""
        if self.load_balancing_scheme == INTERNAL:
            return Form.SUBSET if self.name.startswith(SUBSET_PREFIX) else Form.INTERNAL
        return Form.EXTERNAL if self.backend_service else Form.POOL

    @property
    def is_elsewhere(self) -> bool:
        """Whether the controller of backend services has made it: it gives them other names."""
        return self.form is Form.EXTERNAL and last_part(self.backend_service) != self.name


class Group(msgspec.Struct, frozen=True):
    """An instance group with its members, known by its zone."""

    name: str
    machines: frozenset[Machine] = frozenset()


class Endpoints(Group, frozen=True):
    """A zonal group of network endpoints with its members, known by its zone.

    An endpoint is an instance's interface in the subnetwork (type GCE_VM_IP). The fields after the
    members are for making it.
    """

    description: str = ""
    network: str = ""
    subnetwork: str = ""


Part = Address | HttpCheck | Check | Firewall | Pool | BackendService | Rule | Group

FORMS: Mapping[Kind, type[Any]] = {
    Kind.ADDRESS: Address,
    Kind.CHECK: Check,
    Kind.FIREWALL: Firewall,
    Kind.HTTP_CHECK: HttpCheck,
    Kind.POOL: Pool,
    Kind.REGION_CHECK: Check,
    Kind.RULE: Rule,
    Kind.SERVICE: BackendService,
}
"""The type to which each kind is decoded."""


def differing(desired: Part, observed: Part) -> tuple[str, ...]:
    """Return the fields in which a part is not as desired.

    The thresholds and intervals of a health check may be larger: somebody has made it slower on
    purpose, which the official manager leaves, too.
    """
    found = []
    for field in desired.__struct_fields__:
        if field in {"fingerprint", "ip_version", "labels", "label_fingerprint", "users"}:
            continue
        want, have = getattr(desired, field), getattr(observed, field)
        if field in _AT_LEAST and have >= want:
            continue
        if isinstance(have, Draining) and (want is None or have.draining_timeout_sec):
            continue  # somebody has set another time, which the official controller leaves, too
        if _comparable(want) != _comparable(have):
            found.append(field)
    return tuple(found)


_AT_LEAST = frozenset(
    {"check_interval_sec", "timeout_sec", "healthy_threshold", "unhealthy_threshold"}
)


def merged(desired: Part, observed: Part) -> Part:
    """Return the part to write: as desired, but with intervals and thresholds at least as large."""
    if isinstance(desired, HttpCheck | Check) and isinstance(observed, HttpCheck | Check):
        most = {
            field: max(getattr(desired, field), getattr(observed, field)) for field in _AT_LEAST
        }
        return msgspec.structs.replace(desired, **most)
    if isinstance(desired, BackendService) and isinstance(observed, BackendService):
        return _service_to_write(desired, observed)
    return desired


def _service_to_write(desired: BackendService, observed: BackendService) -> BackendService:
    draining, there = desired.connection_draining, observed.connection_draining
    if draining is not None and there is not None and there.draining_timeout_sec:
        draining = there
    return msgspec.structs.replace(
        desired, fingerprint=observed.fingerprint, connection_draining=draining
    )


def _comparable(value: Any) -> Any:
    if isinstance(value, str):
        return path_in(value) or value
    if isinstance(value, tuple):
        return frozenset(_comparable(one) for one in value)
    if isinstance(value, Backend):
        return path_in(value.group)
    if isinstance(value, Allowed):
        return value.protocol.lower(), frozenset(value.ports)
    return value
