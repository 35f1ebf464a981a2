"""Complete files as operators of the official managers have them, with every documented key."""

from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from proreus.cloudprovider.config import ConfigSection, read

AWS_FILE = """\
# /etc/kubernetes/cloud.config
[Global]
Zone = eu-central-1a
Region = eu-central-1
VPC = vpc-0123456789abcdef0
SubnetID = subnet-0aaa
RouteTableID = rtb-0bbb
RoleARN = arn:aws:iam::123456789012:role/ccm
SourceARN = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"
KubernetesClusterTag = prod
KubernetesClusterID = prod
DisableSecurityGroupIngress = false
ElbSecurityGroup = sg-0ccc
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 8080
ClusterServiceSharedLoadBalancerHealthProbePath = "/healthz;ready#1"
SupportedTopologyInstanceTypePattern = "^(hpc|p4|p5)\\\\..*$"
NLBSecurityGroupMode = Managed

[ServiceOverride "1"]
    Service         = ec2
    Region          = eu-central-1
    URL             = https://ec2.example.org
    SigningRegion   = eu-central-1
    SigningMethod   = v4
    SigningName     = ec2
[serviceoverride "elb"]
    Service         = elasticloadbalancing
    Region          = eu-central-1
    URL             = https://elb.example.org    ; behind a proxy
    SigningRegion   = eu-central-1
"""


class AWSGlobal(ConfigSection, frozen=True, kw_only=True):
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
    elb_security_group: str = ""
    node_ip_families: tuple[str, ...] = ()
    cluster_service_load_balancer_health_probe_mode: str = ""
    cluster_service_shared_load_balancer_health_probe_port: int = 0
    cluster_service_shared_load_balancer_health_probe_path: str = ""
    supported_topology_instance_type_pattern: str = ""
    nlb_security_group_mode: str = ""


class ServiceOverride(ConfigSection, frozen=True, kw_only=True):
    service: str
    region: str
    url: str
    signing_region: str
    signing_method: str = ""
    signing_name: str = ""


class AWS(ConfigSection, frozen=True):
    global_: AWSGlobal = AWSGlobal()
    service_override: dict[str, ServiceOverride] = msgspec.field(default_factory=dict)


def test_a_complete_aws_file_is_read() -> None:
    config = read(AWS_FILE, AWS, source="cloud.config")
    assert config.global_ == AWSGlobal(
        zone="eu-central-1a",
        region="eu-central-1",
        vpc="vpc-0123456789abcdef0",
        subnet_id="subnet-0aaa",
        route_table_id="rtb-0bbb",
        role_arn="arn:aws:iam::123456789012:role/ccm",
        source_arn="arn:aws:eks:eu-central-1:123456789012:cluster/prod",
        kubernetes_cluster_tag="prod",
        kubernetes_cluster_id="prod",
        disable_security_group_ingress=False,
        elb_security_group="sg-0ccc",
        node_ip_families=("ipv6", "ipv4"),
        cluster_service_load_balancer_health_probe_mode="Shared",
        cluster_service_shared_load_balancer_health_probe_port=8080,
        cluster_service_shared_load_balancer_health_probe_path="/healthz;ready#1",
        supported_topology_instance_type_pattern=r"^(hpc|p4|p5)\..*$",
        nlb_security_group_mode="Managed",
    )
    assert list(config.service_override) == ["1", "elb"]
    assert config.service_override["1"].signing_name == "ec2"
    assert config.service_override["elb"].url == "https://elb.example.org"


OPENSTACK_FILE = r"""
[Global]
auth-url="https://keystone.example.org:5000/v3"
os-endpoint-type=internal
ca-file = /etc/ssl/ca.crt
username = occm
password = "pa;ss#w\"o\\rd"
region = RegionOne
tenant-id = 0123456789abcdef0123456789abcdef
tenant-name = "k8s prod"
domain-name=Default
application-credential-id = id
application-credential-secret = geheim
tls-insecure
use-clouds = false
clouds-file = /etc/openstack/clouds.yaml

[Networking]
ipv6-support-disabled = false
public-network-name = ext-net
public-network-name = ext-net-2
internal-network-name = k8s
address-sort-order = "10.0.0.0/8, 2001:db8::/32"

[LoadBalancer]
enabled = true
floating-network-id = 2d5c3ac0
floating-subnet-tags = "a,b"
lb-provider = amphora
lb-version = v2
subnet-id = 6f2c
manage-security-groups = true
create-monitor = yes
monitor-delay = 1m
monitor-timeout = 30s
monitor-max-retries = 3
internal-lb = 0
node-selector = "env=production, !gpu"
max-shared-lb = 4

[LoadBalancerClass "PublicAccess"]
floating-network-id = ext
floating-subnet = public-*
[LoadBalancerClass "InternalAccess"]
subnet-id = int

[Route]
router-id = 7a1b

[Metadata]
search-order = "configDrive,metadataService"
request-timeout = 30s

[BlockStorage]
bs-version = v3
trust-device-path = false
ignore-volume-az
"""


class OpenStackGlobal(ConfigSection, frozen=True, kw_only=True):
    ignore_unknown: ClassVar[bool] = True

    auth_url: str
    os_endpoint_type: str = ""
    ca_file: str = ""
    username: str = ""
    password: str = ""
    region: str = ""
    tenant_id: str = ""
    tenant_name: str = ""
    domain_name: str = ""
    application_credential_id: str = ""
    application_credential_secret: str = ""
    tls_insecure: bool = False
    use_clouds: bool = False
    clouds_file: str = ""


class Networking(ConfigSection, frozen=True, kw_only=True):
    ipv6_support_disabled: bool = False
    public_network_name: tuple[str, ...] = ()
    internal_network_name: tuple[str, ...] = ()
    address_sort_order: str = ""


class OpenStackLoadBalancer(ConfigSection, frozen=True, kw_only=True):
    enabled: bool = True
    floating_network_id: str = ""
    floating_subnet_tags: str = ""
    lb_provider: str = ""
    lb_version: str = ""
    subnet_id: str = ""
    manage_security_groups: bool = False
    create_monitor: bool = False
    monitor_delay: timedelta = timedelta(seconds=5)
    monitor_timeout: timedelta = timedelta(seconds=3)
    monitor_max_retries: int = 1
    internal_lb: bool = True
    node_selector: str = ""
    max_shared_lb: int = 2


class LoadBalancerClass(ConfigSection, frozen=True, kw_only=True):
    floating_network_id: str = ""
    floating_subnet: str = ""
    subnet_id: str = ""


class Route(ConfigSection, frozen=True):
    router_id: str = ""


class Metadata(ConfigSection, frozen=True):
    search_order: str = ""
    request_timeout: timedelta = timedelta()


class OpenStack(ConfigSection, frozen=True):
    global_: OpenStackGlobal
    networking: Networking = Networking()
    load_balancer: OpenStackLoadBalancer = OpenStackLoadBalancer()
    load_balancer_class: dict[str, LoadBalancerClass] = msgspec.field(default_factory=dict)
    route: Route = Route()
    metadata: Metadata = Metadata()
    block_storage: dict[str, Any] = msgspec.field(default_factory=dict)


def test_a_complete_openstack_file_is_read() -> None:
    config = read(OPENSTACK_FILE, OpenStack, source="cloud.conf")
    assert config == OpenStack(
        global_=OpenStackGlobal(
            auth_url="https://keystone.example.org:5000/v3",
            os_endpoint_type="internal",
            ca_file="/etc/ssl/ca.crt",
            username="occm",
            password='pa;ss#w"o\\rd',
            region="RegionOne",
            tenant_id="0123456789abcdef0123456789abcdef",
            tenant_name="k8s prod",
            domain_name="Default",
            application_credential_id="id",
            application_credential_secret="geheim",
            tls_insecure=True,
            clouds_file="/etc/openstack/clouds.yaml",
        ),
        networking=Networking(
            public_network_name=("ext-net", "ext-net-2"),
            internal_network_name=("k8s",),
            address_sort_order="10.0.0.0/8, 2001:db8::/32",
        ),
        load_balancer=OpenStackLoadBalancer(
            floating_network_id="2d5c3ac0",
            floating_subnet_tags="a,b",
            lb_provider="amphora",
            lb_version="v2",
            subnet_id="6f2c",
            manage_security_groups=True,
            create_monitor=True,
            monitor_delay=timedelta(minutes=1),
            monitor_timeout=timedelta(seconds=30),
            monitor_max_retries=3,
            internal_lb=False,
            node_selector="env=production, !gpu",
            max_shared_lb=4,
        ),
        load_balancer_class={
            "PublicAccess": LoadBalancerClass(
                floating_network_id="ext", floating_subnet="public-*"
            ),
            "InternalAccess": LoadBalancerClass(subnet_id="int"),
        },
        route=Route("7a1b"),
        metadata=Metadata("configDrive,metadataService", timedelta(seconds=30)),
        block_storage={"bs-version": "v3", "trust-device-path": "false", "ignore-volume-az": None},
    )
