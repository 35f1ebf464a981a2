"""Read what a Service's annotations ask of its load balancer. Pure.

They come from a cluster's tenants, so every value is checked before it can reach a call, and all
that is wrong is told at once. Names and meaning are those of the official manager, whose rules for
odd values are kept: `internal` is on for anything but "false", and lists may have spaces.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from proreus.cloudprovider.annotations import AnnotationReader
from proreus.cloudprovider.errors import ImplementedElsewhere
from proreus.providers.aws.identity import TAG_LEGACY

PREFIX: Final = "service.beta.kubernetes.io/aws-load-balancer-"
"""The prefix of all annotations about load balancers."""

TRAFFIC_PORT: Final = "traffic-port"
"""The port of a health check that stands for the port to which traffic goes."""

INTERNAL: Final = "internal"
"""The scheme of a load balancer without public addresses."""
PUBLIC: Final = "internet-facing"
"""The scheme of one with public addresses."""

_OTHERS = frozenset({"external", "nlb-ip"})
_ID = {
    "eip-allocations": re.compile(r"eipalloc-[0-9a-f]+"),
    "extra-security-groups": re.compile(r"sg-[0-9a-f]+"),
    "security-groups": re.compile(r"sg-[0-9a-f]+"),
}
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS = re.compile(rf"{_OCTET}(\.{_OCTET}){{3}}")
_ARN = re.compile(r"arn:[\w-]+:(acm|iam):[\w-]*:\d*:[\w+=,.@/-]+", re.ASCII)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_POLICY = re.compile(r"[A-Za-z0-9_-]{1,200}")
_SUBNET = re.compile(r"subnet-[0-9a-f]+|[\w .:/()#,@+=&;{}!$*-]{1,255}")
_TAG = re.compile(r"[\w .:/=+@-]*")
_PATH = re.compile(r"/[!-~]{0,1023}")
_MOST_TAGS = 45
_EMIT_MINUTES = (5, 60)
_TARGET_ATTRIBUTES = {
    "preserve_client_ip.enabled": frozenset({"true", "false"}),
    "proxy_protocol_v2.enabled": frozenset({"true", "false"}),
}


class Kind(StrEnum):
    """The kind of load balancer; it is chosen when it is made, and stays."""

    CLASSIC = "classic"
    NETWORK = "nlb"


class AccessLog(msgspec.Struct, frozen=True):
    """The place of the access log, and its interval in minutes."""

    bucket: str
    prefix: str = ""
    interval: int = 60


class Health(msgspec.Struct, frozen=True):
    """The annotations about health checks; None leaves a value to the kind of load balancer.

    `port` is a number or `TRAFFIC_PORT`; `interval` and `timeout` are seconds.
    """

    protocol: str | None = None
    port: str | None = None
    path: str | None = None
    healthy: int | None = None
    unhealthy: int | None = None
    timeout: int | None = None
    interval: int | None = None


class Options(msgspec.Struct, frozen=True):
    """The options of a load balancer that annotations choose.

    Attributes:
        kind: The kind of load balancer: classic or network.
        internal: Whether it has no public address.
        proxy_protocol: Whether hosts get the client's address by the PROXY protocol.
        cross_zone: Whether each zone's part of it sends traffic to the hosts of all zones.
        draining: Seconds for which connections to a removed host may go on; None: they end at once.
        idle_timeout: Seconds after which a silent connection is closed.
        access_log: The settings of the access log; None: there is none.
        certificate: The ARN of the certificate; "": no TLS.
        tls_ports: The numbers and names of the ports with TLS; None: all.
        tls_policy: The security policy of TLS; "": AWS' own.
        backend_protocol: The protocol that hosts speak: http, https, tcp or ssl; "": by the port's.
        security_groups: The security groups to use in the place of one that is made for it.
        extra_security_groups: The security groups to use beside the one that is made for it.
        tags: The tags to add beside ours.
        allocations: The ids of elastic addresses, one for each subnet.
        private_addresses: The private addresses of an internal load balancer, one for each subnet.
        subnets: The ids or names of the subnets; none: they are found by their tags.
        target_labels: The labels that nodes must have to be hosts; "" stands for any value.
        target_attributes: Attributes of target groups.
        health: The settings of health checks.
    """

    kind: Kind = Kind.CLASSIC
    internal: bool = False
    proxy_protocol: bool = False
    cross_zone: bool = False
    draining: int | None = None
    idle_timeout: int = 60
    access_log: AccessLog | None = None
    certificate: str = ""
    tls_ports: frozenset[str] | None = None
    tls_policy: str = ""
    backend_protocol: str = ""
    security_groups: tuple[str, ...] = ()
    extra_security_groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = {}
    allocations: tuple[str, ...] = ()
    private_addresses: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    target_labels: Mapping[str, str] = {}
    target_attributes: Mapping[str, str] = {}
    health: Health = Health()

    @property
    def scheme(self) -> str:
        """The scheme of the load balancer, in AWS' word."""
        return INTERNAL if self.internal else PUBLIC

    def has_tls(self, port: int, name: str) -> bool:
        """Tell whether the load balancer ends TLS at this port."""
        if not self.certificate:
            return False
        return self.tls_ports is None or not self.tls_ports.isdisjoint({str(port), name.lower()})


def kind(annotations: Mapping[str, str]) -> Kind:
    """Return the kind of load balancer that the annotations ask for.

    Raises:
        ImplementedElsewhere: The AWS Load Balancer Controller is asked for.
    """
    chosen = annotations.get(f"{PREFIX}type", "")
    if chosen in _OTHERS:
        raise ImplementedElsewhere(
            f"annotation {PREFIX}type: {chosen} is served by the AWS Load Balancer Controller"
        )
    return Kind.NETWORK if chosen == "nlb" else Kind.CLASSIC


def read(annotations: Mapping[str, str]) -> Options:
    """Read the options that the annotations ask for.

    Raises:
        ImplementedElsewhere: Another controller is asked for.
        InvalidRequest: Annotations are wrong; names each of them, and the remedy.
    """
    reader = AnnotationReader(annotations, PREFIX)
    found = Options(
        kind=kind(annotations),
        internal=reader.text("internal") not in {"", "false"},
        proxy_protocol=_proxy_protocol(reader),
        cross_zone=reader.flag("cross-zone-load-balancing-enabled"),
        draining=_draining(reader),
        idle_timeout=reader.number("connection-idle-timeout", 1, 4000, 60),
        access_log=_access_log(reader),
        certificate=reader.form("ssl-cert", _ARN, "give the ARN of a certificate of ACM or IAM"),
        tls_ports=_tls_ports(reader),
        tls_policy=reader.form("ssl-negotiation-policy", _POLICY, "give the name of a policy"),
        backend_protocol=reader.choice("backend-protocol", ("http", "https", "tcp", "ssl")),
        security_groups=_ids(reader, "security-groups"),
        extra_security_groups=_ids(reader, "extra-security-groups"),
        tags=_tags(reader),
        allocations=_ids(reader, "eip-allocations"),
        private_addresses=reader.names("private-ipv4-addresses", _ADDRESS, "give IPv4 addresses"),
        subnets=reader.names("subnets", _SUBNET, "give ids or names of subnets"),
        target_labels=reader.pairs("target-node-labels"),
        target_attributes=_target_attributes(reader),
        health=_health(reader),
    )
    _check_together(reader, found)
    reader.check()
    return found


def _proxy_protocol(reader: AnnotationReader) -> bool:
    text = reader.text("proxy-protocol")
    if text not in {"", "*"}:
        reader.wrong("proxy-protocol", "give * for all ports; single ports cannot be chosen")
    return text == "*"


def _draining(reader: AnnotationReader) -> int | None:
    seconds: int = reader.number("connection-draining-timeout", 1, 3600, 300)
    return seconds if reader.flag("connection-draining-enabled") else None


def _access_log(reader: AnnotationReader) -> AccessLog | None:
    is_on = reader.flag("access-log-enabled")
    bucket = reader.form("access-log-s3-bucket-name", _BUCKET, "give the name of an S3 bucket")
    prefix = reader.form(
        "access-log-s3-bucket-prefix",
        re.compile(r"[!-~]*"),
        "give printable characters without blanks",
    )
    interval = reader.number("access-log-emit-interval", *_EMIT_MINUTES, 60)
    if interval not in _EMIT_MINUTES:
        reader.wrong("access-log-emit-interval", "give 5 or 60, in minutes")
    if not is_on:
        return None
    if not bucket:
        reader.wrong("access-log-s3-bucket-name", "is required with access-log-enabled")
    return AccessLog(bucket, prefix, interval)


def _tls_ports(reader: AnnotationReader) -> frozenset[str] | None:
    ports = frozenset(filter(None, (one.strip() for one in reader.text("ssl-ports").split(","))))
    return None if ports <= {"*"} else frozenset(port.lower() for port in ports)


def _ids(reader: AnnotationReader, name: str) -> tuple[str, ...]:
    form = _ID[name]
    return reader.names(name, form, f"give ids such as {form.pattern.partition('-')[0]}-0a1b2c3d")


def _tags(reader: AnnotationReader) -> dict[str, str]:
    name = "additional-resource-tags"
    found = reader.pairs(name)
    for key, value in found.items():
        if _is_reserved(key):
            reader.wrong(
                name,
                f"keys that begin with aws:, eks:, kubernetes.io/ or proreus/, {TAG_LEGACY} and"
                " those of k8s.aws, eks.amazonaws.com and karpenter.sh are reserved",
            )
        elif len(key) > 128 or len(value) > 256 or not _TAG.fullmatch(key + value):  # noqa: PLR2004 - AWS' limits
            reader.wrong(name, "a key has at most 128 characters, a value 256, of A-Z 0-9 _.:/=+@-")
    if len(found) > _MOST_TAGS:
        reader.wrong(name, f"give at most {_MOST_TAGS}")
    return found


def _is_reserved(key: str) -> bool:
    """Tell whether a tag says whose a load balancer or its security group is.

    EKS Auto Mode, too, knows its own by `eks:eks-cluster-name`, also in another cluster.
    """
    starts = key.startswith(("eks:", "kubernetes.io/", "proreus/"))
    starts = starts or key.lower().startswith("aws:")
    return starts or is_of_controller(key) or key == TAG_LEGACY


def is_of_controller(key: str) -> bool:
    """Tell whether another controller knows its objects by a tag. Pure.

    By those of `elbv2.k8s.aws`, `service.k8s.aws` and others of that domain the AWS Load Balancer
    Controller takes a load balancer for another Service's or Ingress', and shows it there; so does
    EKS Auto Mode by those of `service.eks.amazonaws.com`. What is a Gateway's has those of
    `gateway.k8s.aws.alb` or `gateway.k8s.aws.nlb`. To all security groups with
    `karpenter.sh/discovery` Karpenter adds its new machines.
    """
    domain = f".{key.partition('/')[0]}"
    gateways = (".k8s.aws.alb", ".k8s.aws.nlb")
    return domain.endswith((".k8s.aws", *gateways, ".eks.amazonaws.com", ".karpenter.sh"))


def _target_attributes(reader: AnnotationReader) -> dict[str, str]:
    name = "target-group-attributes"
    found = reader.pairs(name)
    for key, value in found.items():
        if key not in _TARGET_ATTRIBUTES:
            reader.wrong(name, f"give only {', '.join(_TARGET_ATTRIBUTES)}")
        elif value not in _TARGET_ATTRIBUTES[key]:
            reader.wrong(name, f"give {key}=true or {key}=false")
    return found


def _health(reader: AnnotationReader) -> Health:
    port = reader.text("healthcheck-port")
    if port and port != TRAFFIC_PORT:
        port = str(reader.number("healthcheck-port", 1, 65535, TRAFFIC_PORT))
    protocol = reader.choice("healthcheck-protocol", ("tcp", "ssl", "http", "https"))
    return Health(
        protocol=protocol.upper() or None,
        port=port or None,
        path=reader.form("healthcheck-path", _PATH, "give a path that begins with /") or None,
        healthy=reader.number("healthcheck-healthy-threshold", 2, 10),
        unhealthy=reader.number("healthcheck-unhealthy-threshold", 2, 10),
        timeout=reader.number("healthcheck-timeout", 2, 120),
        interval=reader.number("healthcheck-interval", 5, 300),
    )


def _check_together(reader: AnnotationReader, found: Options) -> None:
    """Report annotations that are wrong only beside others."""
    health = found.health
    if health.timeout and health.interval and health.timeout >= health.interval:
        reader.wrong("healthcheck-timeout", "must be shorter than the interval")
    if found.kind is Kind.CLASSIC:
        for name, value in (
            ("eip-allocations", found.allocations),
            ("private-ipv4-addresses", found.private_addresses),
            ("target-group-attributes", found.target_attributes),
        ):
            if value:
                reader.wrong(name, f"needs {PREFIX}type: nlb")
        return
    if found.extra_security_groups:
        reader.wrong("extra-security-groups", "give security-groups with type: nlb")
    if health.protocol == "SSL":
        reader.wrong("healthcheck-protocol", "give tcp, http or https with type: nlb")
    if found.allocations and found.internal:
        reader.wrong("eip-allocations", "an internal load balancer has no public addresses")
    if found.private_addresses and not found.internal:
        reader.wrong("private-ipv4-addresses", f"needs {PREFIX}internal: true")
