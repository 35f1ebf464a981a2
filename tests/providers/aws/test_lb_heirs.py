"""A rule for clients that several load balancers need goes with the last of them."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proreus.cloudprovider import PartChange
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import ServicePort
from proreus.providers.aws.heirs import users

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .lb_site import ANYWHERE, HTTP, NAME, LBSite, placed
from .site import config_text, context, started
from .strict.process import StrictAWS

OTHER = ClusterIdentity("prod", "0b5e3a1c-0000-4000-8000-000000000002")
UID = "5e000000-0000-4000-8000-0000000000b2"
THEIRS = default_load_balancer_name(UID)
RULE = ("tcp", 30080, ANYWHERE)
OWN = {("tcp", 30080, "192.168.0.0/16"), ("tcp", 30080, "172.16.0.0/12")}
"""The rules of two load balancers at one node port that let in others."""


@asynccontextmanager
async def another_cluster(site: LBSite) -> AsyncIterator[LBSite]:
    """A cluster whose nodes are in the same VPC; the group is tagged for both."""
    pairs = [{"Key": f"kubernetes.io/cluster/{OTHER.name}", "Value": "shared"}]
    site.ec2.create_tags(Resources=[site.group, *site.network.subnets], Tags=pairs)
    text = config_text(site.aws, site.network.vpc)
    text = text.replace("KubernetesClusterID = test", f"KubernetesClusterID = {OTHER.name}")
    async with started(text, context(cluster=OTHER)) as provider:
        other = copy.copy(site)
        other.provider, other.cluster = provider, OTHER
        yield other


def theirs(site: LBSite, group: str) -> list[str]:
    tags = {f"kubernetes.io/cluster/{OTHER.name}": "owned"}
    return site.network.run(2, tags=tags, SecurityGroupIds=[group])


def ranges(*sources: str) -> dict[str, Any]:
    return {"load_balancer_source_ranges": sources}


def described(site: LBSite) -> str:
    """The description of the rule for clients."""
    (group,) = site.ec2.describe_security_groups(GroupIds=[site.group])["SecurityGroups"]
    (found,) = (
        source["Description"]
        for one in group["IpPermissions"]
        for source in one["IpRanges"]
        if (one["IpProtocol"], one["FromPort"], source["CidrIp"]) == RULE
    )
    return str(found)


def networks(site: LBSite) -> list[str]:
    """The addresses of the subnets of load balancers."""
    found = site.ec2.describe_subnets(SubnetIds=site.network.subnets)["Subnets"]
    return [one["CidrBlock"] for one in found]


async def test_the_rule_that_two_clusters_need_goes_with_the_last_load_balancer(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site, another_cluster(site) as other:
        first = site.desired(site.machines(2))
        second = other.desired(theirs(site, site.group), uid=UID)
        await site.made(first)
        await other.made(second)
        before = site.rules()
        assert described(site).endswith(f"={NAME}")
        await site.deleted(first)
        assert site.rules() == before
        assert described(site).endswith(f"={THEIRS}")
        await other.deleted(second)
        assert site.rules() == set()


async def test_so_does_one_for_clients_of_a_subnet_from_which_health_checks_come(
    aws: StrictAWS,
) -> None:
    """To AWS it is one rule for both; it was described as that of the health checks."""
    async with placed(aws) as site, another_cluster(site) as other:
        sources = ranges(*networks(site)[:1])
        first = site.desired(site.machines(2), **sources)
        second = other.desired(theirs(site, site.group), uid=UID, **sources)
        await site.made(first)
        await other.made(second)
        before = site.rules()
        await site.deleted(first)
        assert site.rules() == before
        await other.deleted(second)
        assert site.rules() == set()


async def test_a_node_port_that_another_service_has_now_stays_open(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(2)
        await site.made(site.desired(ids))
        await site.made(site.desired(ids, uid=UID, name="shop"))
        moved = site.desired(ids, ServicePort(80, "http", node_port=30081))
        lines = await site.previewed(moved)
        detail = f"tcp 30080 from {ANYWHERE}, described as kubernetes.io/rule/nlb/client={THEIRS}"
        assert PartChange("change", f"rule of security group {site.group}", detail) in lines
        await site.made(moved)
        assert described(site).endswith(f"={THEIRS}")
        assert {RULE, ("tcp", 30081, ANYWHERE)} <= site.rules()


@pytest.mark.parametrize("sources", [("192.168.0.0/16",), (ANYWHERE, "192.168.0.0/16")])
async def test_a_service_of_this_cluster_gets_no_rule_for_sources_that_it_lets_not_in(
    aws: StrictAWS, sources: tuple[str, ...]
) -> None:
    services = Objects()
    async with placed(aws, services=services) as site:
        ids = site.machines(2)
        await site.made(site.desired(ids))
        second = site.desired(ids, uid=UID, name="shop", **ranges(*sources))
        services.by_key["shop/shop"] = second.service
        await site.made(second)
        await site.made(site.desired(ids, ServicePort(80, "http", node_port=30081)))
        assert (RULE in site.rules()) is (ANYWHERE in sources)
        assert ("tcp", 30080, "192.168.0.0/16") in site.rules()


async def test_sources_that_are_let_in_no_more_are_not_handed_back_for_ever(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site, another_cluster(site) as other:
        ids = site.machines(2)
        await site.made(site.desired(ids))
        second = other.desired(theirs(site, site.group), uid=UID, **ranges("192.168.0.0/16"))
        await other.made(second)
        first = site.desired(ids, **ranges("172.16.0.0/12"))
        for _ in range(2):
            await site.made(first)
            await other.made(second)
        assert RULE not in site.rules()
        assert site.rules() >= OWN


async def test_a_rule_by_which_alone_another_load_balancer_lets_clients_in_is_handed_over(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site, another_cluster(site) as other:
        ids = site.machines(2)
        await site.made(site.desired(ids))
        others = theirs(site, site.group)
        await other.made(other.desired(others, uid=UID))
        first = site.desired(ids, **ranges("172.16.0.0/12"))
        await site.made(first)
        assert described(site).endswith(f"={THEIRS}")
        await other.made(other.desired(others, uid=UID, **ranges("192.168.0.0/16")))
        assert RULE not in site.rules()
        assert site.rules() >= OWN


async def test_a_rule_goes_to_one_that_has_others_from_a_load_balancer_that_leaves_the_port(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site, another_cluster(site) as other:
        first = site.desired(site.machines(2))
        await site.made(first)
        sources = ranges(ANYWHERE, "192.168.0.0/16")
        await other.made(other.desired(theirs(site, site.group), uid=UID, **sources))
        await site.deleted(first)
        assert described(site).endswith(f"={THEIRS}")


@pytest.mark.parametrize("case", ["other group", "other port", "other protocol"])
async def test_a_rule_that_no_other_load_balancer_needs_goes(aws: StrictAWS, case: str) -> None:
    async with placed(aws) as site, another_cluster(site) as other:
        first = site.desired(site.machines(2))
        group = site.group
        port = {
            "other group": HTTP,
            "other port": ServicePort(80, "http", node_port=30081),
            "other protocol": ServicePort(80, "http", protocol="UDP", node_port=30080),
        }[case]
        if case == "other group":
            made = site.ec2.create_security_group(
                GroupName="others", Description="others", VpcId=site.network.vpc
            )
            group = made["GroupId"]
            pairs = [{"Key": f"kubernetes.io/cluster/{OTHER.name}", "Value": "owned"}]
            site.ec2.create_tags(Resources=[group], Tags=pairs)
        await site.made(first)
        await other.made(other.desired(theirs(site, group), port, uid=UID))
        await site.deleted(first)
        assert RULE not in site.rules()


def test_only_network_load_balancers_of_services_in_the_vpc_use_a_port() -> None:
    arn = "arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer"
    one = {
        "TargetGroupArn": "arn:1",
        "VpcId": "vpc-1",
        "TargetType": "instance",
        "Protocol": "TCP_UDP",
        "Port": 30080,
        "LoadBalancerArns": [f"{arn}/net/{NAME}/0a"],
    }
    ports = frozenset({("tcp", 30080), ("udp", 30080)})
    others = [
        {**one, "VpcId": "vpc-2"},
        {**one, "TargetType": "ip"},
        {**one, "LoadBalancerArns": []},
        {**one, "LoadBalancerArns": [f"{arn}/app/{NAME}/0a"]},
        {**one, "LoadBalancerArns": [f"{arn}/net/by-hand/0a"]},
        {**one, "LoadBalancerArns": [f"{arn}/net/api/0a"]},
    ]
    assert list(users([one, *others], "vpc-1")) == [(NAME, ports, "arn:1")]
