"""The cloud-config of the provider `aws`: the official file, and sections of Proreus."""

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.config_values import camel_case
from proreus.cloudprovider.ownership import Tenants

TOPOLOGY_TYPES = r"^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\.[0-9a-z]*)$"
"""Instance types of which EC2 tells the network topology, unless the config says otherwise."""
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+")
_SERVICES = {
    "ec2": "ec2",
    "elasticloadbalancing": "elb",
    "elasticloadbalancingv2": "elbv2",
    "elb": "elb",
    "elbv2": "elbv2",
    "sts": "sts",
}
_official = camel_case("ARN", "ID", "IP", "NLB", "URL", "VPC")
_MOST_TAGS = 50
_LONGEST_KEY = 128
_LONGEST_VALUE = 256


class Family(StrEnum):
    """An IP family of node addresses."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"


class HealthProbeMode(StrEnum):
    """The target of the health checks of `externalTrafficPolicy: Cluster`."""

    SHARED = "Shared"
    SERVICE_NODE_PORT = "ServiceNodePort"


class SecurityGroupMode(StrEnum):
    """Whether security groups are made for network load balancers."""

    NONE = ""
    MANAGED = "Managed"


class Resource(StrEnum):
    """A kind of resource that can be tagged."""

    INSTANCE = "instance"
    VOLUME = "volume"


class Global(
    ConfigSection,
    frozen=True,
    kw_only=True,
    rename=_official,
):
    """Section [Global] of the cloud-config, with the official names.

    Attributes:
        zone: The availability zone; it tells the region where `region` is left out.
        region: The region; by default that of this machine.
        vpc: The cluster's VPC; by default that of this machine.
        subnet_id: A subnet of the VPC, for load balancers where no subnet is tagged.
        route_table_id: The route table of pod routes; by default the one with the cluster's tag.
        role_arn: A role to assume for every call.
        source_arn: The ARN on whose behalf the role is assumed (`aws:SourceArn` in its trust
            policy).
        kubernetes_cluster_tag: The cluster's id in the legacy tag `KubernetesCluster`.
        kubernetes_cluster_id: The cluster's id in the tag `kubernetes.io/cluster/<id>`.
        disable_security_group_ingress: Whether to leave the security groups of nodes alone.
        disable_strict_zone_check: Whether to accept regions and zones of any form, for clouds like
            AWS.
        elb_security_group: One security group for all classic load balancers.
        node_ip_families: Families of node addresses, in the order of preference.
        cluster_service_load_balancer_health_probe_mode: The mode of health checks: what they ask.
        cluster_service_shared_load_balancer_health_probe_port: Port of kube-proxy's health check.
        cluster_service_shared_load_balancer_health_probe_path: Path of kube-proxy's health check.
        supported_topology_instance_type_pattern: Instance types of which EC2 tells the topology.
        nlb_security_group_mode: `Managed`: make security groups for network load balancers.
    """

    zone: str = ""
    region: str = ""
    vpc: str = ""
    subnet_id: str = ""
    route_table_id: str = ""
    role_arn: str = ""
    source_arn: str = ""
    kubernetes_cluster_tag: str = ""
    kubernetes_cluster_id: str = ""
    disable_security_group_ingress: bool = False
    disable_strict_zone_check: bool = False
    elb_security_group: str = ""
    node_ip_families: tuple[Family, ...] = (Family.IPV4,)
    cluster_service_load_balancer_health_probe_mode: HealthProbeMode = (
        HealthProbeMode.SERVICE_NODE_PORT
    )
    cluster_service_shared_load_balancer_health_probe_port: int = 10256
    cluster_service_shared_load_balancer_health_probe_path: str = "/healthz"
    supported_topology_instance_type_pattern: str = TOPOLOGY_TYPES
    nlb_security_group_mode: SecurityGroupMode = SecurityGroupMode.NONE

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        yield from self._wrong_places()
        yield from self._wrong_health_checks()
        legacy, id_ = self.kubernetes_cluster_tag, self.kubernetes_cluster_id
        if legacy and id_ and legacy != id_:
            yield "KubernetesClusterTag, KubernetesClusterID: differ; give one of the two"
        if len(set(self.node_ip_families)) < max(1, len(self.node_ip_families)):
            yield "NodeIPFamilies: give ipv4, ipv6 or both, each once"
        try:
            re.compile(self.supported_topology_instance_type_pattern)
        except re.error as error:
            yield f"SupportedTopologyInstanceTypePattern: is not a regular expression: {error}"

    def _wrong_places(self) -> Iterator[str]:
        if self.zone and not self.configured_region:
            yield "Zone: give an availability zone such as us-east-1a, or Region as well"
        is_free = self.disable_strict_zone_check
        if self.region and not is_free and not _REGION.fullmatch(self.region):
            yield "Region: give a region such as us-east-1, or DisableStrictZoneCheck = true"
        if self.region and self.zone and not is_free and not self.zone.startswith(self.region):
            yield "Zone, Region: the zone is in another region; leave one of the two out"
        if self.source_arn and not self.role_arn:
            yield "SourceARN: has no effect without RoleARN; give both or none"
        if self.source_arn and not self.source_account:
            yield "SourceARN: names no account; give arn:aws:<service>:<region>:<account>:…"

    def _wrong_health_checks(self) -> Iterator[str]:
        if not 0 < self.cluster_service_shared_load_balancer_health_probe_port < 1 << 16:
            yield "ClusterServiceSharedLoadBalancerHealthProbePort: must be 1 to 65535"
        if not self.cluster_service_shared_load_balancer_health_probe_path.startswith("/"):
            yield "ClusterServiceSharedLoadBalancerHealthProbePath: must begin with /"

    @property
    def configured_region(self) -> str:
        """The region that the config names, itself or by the zone; "" if it names none."""
        found = _REGION.match(self.zone)
        return self.region or (found.group() if found else "")

    @property
    def source_account(self) -> str:
        """The account in `source_arn`, or ""."""
        parts = self.source_arn.split(":")
        return parts[4] if len(parts) > 5 and parts[0] == "arn" else ""  # noqa: PLR2004 - ARN

    @property
    def cluster_id(self) -> str:
        """The cluster's id, or "" if this machine's tags are to tell it."""
        return self.kubernetes_cluster_id or self.kubernetes_cluster_tag

    @property
    def is_elsewhere(self) -> bool:
        """Whether the config says so much that this machine need not be one of the cluster's.

        The official manager's rule: VPC with SubnetID or RoleARN, and the cluster's id.
        """
        return bool(self.vpc and (self.subnet_id or self.role_arn) and self.cluster_id)


class ServiceOverride(
    ConfigSection,
    frozen=True,
    kw_only=True,
    rename=_official,
):
    """Section [ServiceOverride "n"]: another endpoint of one service in one region.

    Attributes:
        service: ec2, elasticloadbalancing (both kinds of load balancers) or sts; others are
            accepted and not used.
        region: The region for which the endpoint is used.
        url: The endpoint.
        signing_region: The region in signatures; by default `region`.
        signing_method: The signing method: v4 or nothing, since only signatures of version 4 are
            made.
        signing_name: The service in signatures; by default its own name.
    """

    service: str = ""
    region: str = ""
    url: str = ""
    signing_region: str = ""
    signing_method: str = ""
    signing_name: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for name, value in (("Service", self.service), ("Region", self.region)):
            if not value.strip():
                yield f"{name}: is required"
        if not self.url.strip().startswith(("http://", "https://")):
            yield "URL: give a URL such as https://ec2.example.org"
        if self.signing_method.strip().lower() not in {"", "v4"}:
            yield "SigningMethod: only v4 is supported; leave it out"

    def serves(self, service: str, region: str) -> bool:
        """Tell whether the section is about `service` (ec2, elb, elbv2, sts) in `region`."""
        is_both = self.known_service == "elb" and service == "elbv2"
        return self.region.strip() == region and (self.known_service == service or is_both)

    @property
    def known_service(self) -> str:
        """The service (ec2, elb, elbv2 or sts) that `service` means, or "" for others."""
        return _SERVICES.get(re.sub(r"[\s-]", "", self.service).lower(), "")


class Tagging(ConfigSection, frozen=True, kw_only=True, rename=_official):
    """Section [Tagging], of Proreus.

    Tags for the machines of nodes, as the official controller sets.

    Attributes:
        tags: The tags, `key=value`, repeated; none turns tagging off.
        resources: The objects that are tagged: instance, volume (volumes attached to nodes'
            instances).
    """

    tags: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = (Resource.INSTANCE,)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        keys = [tag.partition("=")[0].strip() for tag in self.tags]
        for tag in self.tags:
            key, equals, value = tag.partition("=")
            if not key.strip() or not equals:
                yield "Tags: give key=value, one per line"
            elif key.strip().lower().startswith("aws:"):
                yield "Tags: keys that begin with aws: are reserved"
            elif len(key) > _LONGEST_KEY or len(value) > _LONGEST_VALUE:
                yield "Tags: a key has at most 128 characters, a value at most 256"
        if len(set(keys)) < len(keys):
            yield "Tags: a key is given twice"
        if len(keys) > _MOST_TAGS:
            yield "Tags: a resource has at most 50 tags"

    @property
    def desired_tags(self) -> dict[str, str]:
        """The tags by key."""
        pairs = (tag.partition("=") for tag in self.tags)
        return {key.strip(): value.strip() for key, _, value in pairs}


class Client(
    ConfigSection,
    frozen=True,
    kw_only=True,
    rename=_official,
):
    """Section [Client], of Proreus: how long calls may take.

    Attributes:
        connect_timeout: How long to wait for a connection.
        timeout: How long to wait for an answer, once connected.
    """

    connect_timeout: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=25)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if min(self.connect_timeout, self.timeout) <= timedelta():
            yield "ConnectTimeout, Timeout: must be more than 0s"

    @property
    def deadline(self) -> float:
        """The seconds after which a call is given up: its thread has ended by then."""
        return (self.connect_timeout + self.timeout).total_seconds()


class AWSConfig(
    ConfigSection,
    frozen=True,
    kw_only=True,
    rename=_official,
):
    """The whole cloud-config. What it leaves out, this machine's metadata tell."""

    global_: Global = Global()
    service_override: dict[str, ServiceOverride] = msgspec.field(default_factory=dict)
    tagging: Tagging = Tagging()
    client: Client = Client()
    tenants: Tenants = Tenants()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        seen: dict[tuple[str, str], str] = {}
        for name, one in self.service_override.items():
            first = seen.setdefault((one.service.strip().lower(), one.region.strip()), name)
            if first != name:
                yield (
                    f'[ServiceOverride "{name}"]: the same Service and Region as in'
                    f' [ServiceOverride "{first}"]: remove one'
                )

    def override(self, service: str, region: str) -> ServiceOverride | None:
        """Return the section about `service` (ec2, elb, elbv2 or sts) in `region`, if any.

        One that names `elbv2` itself goes before one for both kinds of load balancers.
        """
        found = [one for one in self.service_override.values() if one.serves(service, region)]
        exact = [one for one in found if one.known_service == service]
        return next(iter([*exact, *found]), None)
