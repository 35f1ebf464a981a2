"""The cloud-config: the official file unmodified, ours beside it, everything wrong at once."""

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.aws.config import AWSConfig, Family, HealthProbeMode, SecurityGroupMode
from proreus.providers.aws.identity import ClusterTags, cluster_of

OFFICIAL = """
[Global]
Zone = eu-central-1b
VPC = vpc-1
SubnetID = subnet-1
RouteTableID = rtb-1
RoleARN = arn:aws:iam::123456789012:role/ccm
SourceARN = arn:aws:eks:eu-central-1:123456789012:cluster/c
KubernetesClusterTag = blue
KubernetesClusterID = blue
DisableSecurityGroupIngress = true
DisableStrictZoneCheck
ElbSecurityGroup = sg-1
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 8080
ClusterServiceSharedLoadBalancerHealthProbePath = /alive
SupportedTopologyInstanceTypePattern = ^m5
NLBSecurityGroupMode = Managed
[ServiceOverride "1"]
Service = EC2
Region = eu-central-1
URL = https://ec2.example.org
SigningRegion = eu-central-9
SigningMethod = v4
SigningName = other
[ServiceOverride "2"]
Service = Elastic Load Balancing
Region = eu-central-1
URL = https://elb.example.org
"""


def config(text: str) -> AWSConfig:
    return read(text, AWSConfig, source="cloud.conf")


def test_the_official_file_is_read_unmodified() -> None:
    found = config(OFFICIAL)
    settings = found.global_
    assert (settings.configured_region, settings.cluster_id) == ("eu-central-1", "blue")
    assert (settings.source_account, settings.is_elsewhere) == ("123456789012", True)
    assert settings.node_ip_families == (Family.IPV6, Family.IPV4)
    assert (
        settings.cluster_service_load_balancer_health_probe_mode,
        settings.cluster_service_shared_load_balancer_health_probe_port,
        settings.cluster_service_shared_load_balancer_health_probe_path,
        settings.nlb_security_group_mode,
        settings.supported_topology_instance_type_pattern,
        settings.disable_security_group_ingress,
        settings.disable_strict_zone_check,
    ) == (HealthProbeMode.SHARED, 8080, "/alive", SecurityGroupMode.MANAGED, "^m5", True, True)
    ec2 = found.override("ec2", "eu-central-1")
    assert ec2 is not None
    assert (ec2.url, ec2.signing_name) == ("https://ec2.example.org", "other")
    assert found.override("ec2", "eu-central-2") is None
    for service in ("elb", "elbv2"):
        balancers = found.override(service, "eu-central-1")
        assert balancers is not None
        assert balancers.url == "https://elb.example.org"


def test_regions_are_of_awss_form_unless_that_is_turned_off() -> None:
    for text in ("Zone = nowhere", "Region = eucalyptus"):
        with pytest.raises(ConfigError, match=r"give an? "):
            config(f"[Global]\n{text}")
    free = "[Global]\nRegion = eucalyptus\nZone = one\nDisableStrictZoneCheck = true"
    assert config(free).global_.configured_region == "eucalyptus"


def test_an_empty_file_leaves_everything_to_this_machine() -> None:
    settings = config("").global_
    assert (settings.configured_region, settings.cluster_id) == ("", "")
    assert settings.node_ip_families == (Family.IPV4,)
    assert not settings.is_elsewhere


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        config(
            """
[Global]
Zone = nowhere
Region = us-east-1
SourceARN = arn:x
KubernetesClusterTag = a
KubernetesClusterID = b
NodeIPFamilies = ipv4
NodeIPFamilies = ipv4
ClusterServiceSharedLoadBalancerHealthProbePort = 0
ClusterServiceSharedLoadBalancerHealthProbePath = alive
SupportedTopologyInstanceTypePattern = (
[ServiceOverride "1"]
Region = r
URL = ftp://x
SigningMethod = v2
[Tagging]
Tags = nonsense
Tags = aws:x=y
[Client]
Timeout = 0s
"""
        )
    said = str(refused.value)
    for name in (
        "Zone, Region:", "SourceARN: has no effect", "SourceARN: names no account",
        "KubernetesClusterTag, KubernetesClusterID", "NodeIPFamilies",
        "HealthProbePort: must be", "HealthProbePath: must", "is not a regular expression",
        '[ServiceOverride "1"]: Service: is required', "URL: give", "SigningMethod",
        "Tags: give key=value", "Tags: keys that begin with aws:", "Timeout: must",
    ):  # fmt: skip
        assert name in said


def test_two_overrides_of_one_service_and_region_are_refused() -> None:
    twice = OFFICIAL + OFFICIAL[OFFICIAL.index("[ServiceOverride") :].replace('"1"', '"3"')
    with pytest.raises(ConfigError, match='"3"'):
        config(twice.replace('[ServiceOverride "2"]', '[ServiceOverride "4"]', 1))


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ({}, ClusterTags("")),
        ({"Name": "x"}, ClusterTags("")),
        ({"kubernetes.io/cluster/a": "owned"}, ClusterTags("a")),
        ({"kubernetes.io/cluster/a": "shared", "KubernetesCluster": "a"}, ClusterTags("a", True)),  # noqa: FBT003
        ({"KubernetesCluster": "a"}, ClusterTags("a", True)),  # noqa: FBT003
    ],
)
def test_tags_of_this_machine_name_the_cluster(tags: dict[str, str], found: ClusterTags) -> None:
    assert cluster_of(tags) == found


@pytest.mark.parametrize(
    "tags",
    [
        {"kubernetes.io/cluster/a": "owned", "kubernetes.io/cluster/b": "owned"},
        {"kubernetes.io/cluster/a": "owned", "KubernetesCluster": "b"},
    ],
)
def test_tags_of_two_clusters_name_none(tags: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="a, b"):
        cluster_of(tags)


@pytest.mark.parametrize(
    ("tags", "has", "owns"),
    [
        ({}, False, False),
        ({"kubernetes.io/cluster/a": "owned"}, True, True),
        ({"kubernetes.io/cluster/a": "shared"}, True, False),
        ({"kubernetes.io/cluster/a": "shared", "KubernetesCluster": "a"}, True, False),
        ({"KubernetesCluster": "a"}, True, True),
        ({"KubernetesCluster": "b"}, False, False),
        ({"kubernetes.io/cluster/b": "owned"}, False, False),
    ],
)
def test_only_what_is_owned_is_ours_to_delete(tags: dict[str, str], has: bool, owns: bool) -> None:  # noqa: FBT001
    cluster = ClusterTags("a")
    assert (cluster.has(tags), cluster.owns(tags)) == (has, owns)


def test_without_a_cluster_id_nothing_is_ours_to_delete() -> None:
    assert ClusterTags("").has({})
    assert not ClusterTags("").owns({"kubernetes.io/cluster/": "owned"})


def test_new_objects_carry_the_tag_that_the_cluster_goes_by() -> None:
    official = {"kubernetes.io/cluster/a": "owned"}
    assert ClusterTags("a").new({"x": "y"}) == {"x": "y", **official}
    legacy = ClusterTags("a", is_legacy=True)
    assert legacy.new({}) == {**official, "KubernetesCluster": "a"}
