"""Network load balancers on AWS behind the strict layer."""

import ipaddress
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Done, InvalidRequest, Pending
from proreus.kube.objects import LoadBalancerIngress, ServicePort
from proreus.providers.aws.rules import Rule, rules_of

from ..surroundings import Events, Objects  # noqa: TID252 - pytest imports tests by path
from .lb_site import ANYWHERE, HTTP, HTTPS, NAME, UID, LBSite, placed
from .site import config_text, context, started
from .strict.process import StrictAWS

pytestmark = pytest.mark.long


async def test_a_load_balancer_is_made_left_alone_and_deleted_with_all_parts(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site:
        ids = site.machines(2)
        desired = site.desired(ids, HTTP, HTTPS)
        answer = await site.made(desired)
        described = site.described()
        assert described is not None
        assert answer.ingress == (LoadBalancerIngress(hostname=described["DNSName"]),)
        assert answer.rejected == {}
        assert described["Scheme"] == "internet-facing"
        assert len(described["AvailabilityZones"]) == 3
        assert {one["Port"]: one["ids"] for one in site.groups().values()} == {
            30080: set(ids),
            30443: set(ids),
        }
        assert site.rules() == {
            ("tcp", 30080, ANYWHERE), ("tcp", 30443, ANYWHERE), ("icmp", 3, ANYWHERE)
        }  # fmt: skip
        site.aws.calls()
        assert await site.made(desired) == answer
        assert site.writes() == []
        assert await site.delete(desired) == Done()
        assert (site.described(), site.groups(), site.rules()) == (None, {}, set())
        assert await site.delete(desired) == Done(found=False)


async def test_hosts_come_and_go_and_one_that_aws_refuses_is_reported(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        first, second, stopped = site.machines(3)
        await site.made(site.desired([first]))
        site.ec2.stop_instances(InstanceIds=[stopped])
        answer = await site.made(site.desired([second, stopped]))
        (group,) = site.groups().values()
        assert group["ids"] == {second}
        assert list(answer.rejected) == [f"node-{stopped}"]


async def test_a_host_of_another_cloud_is_reported(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        desired = site.desired(site.machines(1))
        other = desired.hosts[0].__class__("other", "gce://p/z/other")
        answer = await site.made(
            desired.__class__(**{
                **{name: getattr(desired, name) for name in desired.__struct_fields__},
                "hosts": (*desired.hosts, other),
            })
        )  # fmt: skip
        assert answer.rejected == {
            "other": "spec.providerID gce://p/z/other names no instance of EC2, so this node cannot be a target"
        }


async def test_a_changed_node_port_leaves_other_listeners_alone(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        await site.made(site.desired(ids, HTTP, HTTPS))
        before = site.listeners()
        moved = ServicePort(80, "http", node_port=31080)
        await site.made(site.desired(ids, moved, HTTPS))
        after = site.listeners()
        assert after[443] == before[443]
        assert after[80]["ListenerArn"] == before[80]["ListenerArn"]
        assert {one["Port"] for one in site.groups().values()} == {31080, 30443}
        assert site.rules() >= {("tcp", 31080, ANYWHERE)}
        assert ("tcp", 30080, ANYWHERE) not in site.rules()


async def test_a_port_changes_its_protocol(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        await site.made(site.desired(ids, HTTP))
        udp = ServicePort(80, "http", "UDP", node_port=30080)
        await site.made(site.desired(ids, udp))
        assert site.listeners()[80]["Protocol"] == "UDP"
        both = (HTTP, ServicePort(80, "udp", "UDP", node_port=30080))
        await site.made(site.desired(ids, *both))
        assert site.listeners()[80]["Protocol"] == "TCP_UDP"
        assert {one["Protocol"] for one in site.groups().values()} == {"TCP_UDP"}
        assert site.rules() >= {("tcp", 30080, ANYWHERE), ("udp", 30080, ANYWHERE)}


async def test_source_ranges_and_attributes_follow_the_service(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        await site.made(site.desired(ids))
        asked = {
            "cross-zone-load-balancing-enabled": "true",
            "target-group-attributes": "preserve_client_ip.enabled=false",
            "proxy-protocol": "*",
            "additional-resource-tags": "team=a",
        }
        ranges = ("192.0.2.0/24",)
        await site.made(site.desired(ids, asked=asked, load_balancer_source_ranges=ranges))
        assert site.rules() == {
            ("tcp", 30080, "192.0.2.0/24"),
            ("icmp", 3, "192.0.2.0/24"),
            *(("tcp", 30080, f"10.0.{n}.0/24") for n in range(3)),
        }
        found = site.described()
        assert found is not None
        attributes = site.elb.describe_load_balancer_attributes(
            LoadBalancerArn=found["LoadBalancerArn"]
        )["Attributes"]
        assert {"Key": "load_balancing.cross_zone.enabled", "Value": "true"} in attributes
        (group,) = site.groups().values()
        of_group = site.elb.describe_target_group_attributes(
            TargetGroupArn=group["TargetGroupArn"]
        )["Attributes"]
        assert {"Key": "preserve_client_ip.enabled", "Value": "false"} in of_group
        assert {"Key": "proxy_protocol_v2.enabled", "Value": "true"} in of_group
        (tags,) = site.elb.describe_tags(ResourceArns=[found["LoadBalancerArn"]])["TagDescriptions"]
        assert {"Key": "team", "Value": "a"} in tags["Tags"]


async def test_what_an_attempt_left_behind_is_taken_up_and_deleted(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        desired = site.desired(site.machines(1))
        site.aws.fail("CreateListener", times=1)
        assert isinstance(await site.ensure(desired), CloudError)
        assert len(site.groups()) == 1
        await site.made(desired)
        assert len(site.groups()) == 1
        site.aws.fail("DeleteTargetGroup", times=1)
        assert isinstance(await site.delete(desired), CloudError)
        assert await site.delete(desired) == Done()
        assert (site.described(), site.groups(), site.rules()) == (None, {}, set())


async def test_what_is_left_over_of_a_former_service_takes_no_target_group_of_the_next(
    aws: StrictAWS,
) -> None:
    """`--delete-leaks-after` deletes it while a Service of the same name gets its parts."""
    async with placed(aws) as site:
        desired = site.desired(site.machines(1))
        site.aws.fail("CreateListener", times=1)
        assert isinstance(await site.ensure(desired), CloudError)
        (name,) = site.groups()
        former = site.desired([], uid=desired.ref.uid.replace("5e", "6e"))
        assert former.ref.key == desired.ref.key
        assert await site.delete(former) == Done(found=False)
        assert list(site.groups()) == [name]
        await site.made(desired)
        assert await site.deleted(desired) == Done()
        assert site.groups() == {}


@pytest.mark.parametrize(
    "operation", ["CreateLoadBalancer", "CreateTargetGroup", "CreateListener", "RegisterTargets"]
)
async def test_a_lost_answer_makes_no_second_part(aws: StrictAWS, operation: str) -> None:
    async with placed(aws) as site:
        desired = site.desired(site.machines(1))
        site.aws.fail(operation, times=1, after_effect=True)
        assert isinstance(await site.ensure(desired), CloudError)
        await site.made(desired)
        assert len(site.elb.describe_load_balancers()["LoadBalancers"]) == 1
        assert len(site.groups()) == 1
        assert list(site.listeners()) == [80]


async def test_rules_of_others_in_the_nodes_group_stay(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        own = {
            "IpProtocol": "tcp",
            "FromPort": 22,
            "ToPort": 22,
            "IpRanges": [{"CidrIp": ANYWHERE}],
        }
        site.ec2.authorize_security_group_ingress(GroupId=site.group, IpPermissions=[own])
        desired = site.desired(site.machines(1))
        await site.made(desired)
        await site.delete(desired)
        assert site.rules() == {("tcp", 22, ANYWHERE)}


def untagged(site: LBSite) -> None:
    """Let the group of the nodes be one without the cluster's tag."""
    tags = site.ec2.describe_security_groups(GroupIds=[site.group])["SecurityGroups"][0]["Tags"]
    site.ec2.delete_tags(Resources=[site.group], Tags=[{"Key": one["Key"]} for one in tags])


async def test_rules_in_a_group_without_the_clusters_tag_go_with_the_load_balancer(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site:
        untagged(site)
        ids = site.machines(1)
        other = site.desired(ids, ServicePort(81, node_port=30081), uid=UID.replace("5e", "6e"))
        desired = site.desired(ids)
        await site.made(desired)
        await site.made(other)
        assert ("tcp", 30080, ANYWHERE) in site.rules()
        site.aws.calls()
        await site.delete(desired)
        assert site.aws.calls().count("ec2.DescribeSecurityGroups") <= 3
        assert site.rules() == {("tcp", 30081, ANYWHERE), ("icmp", 3, ANYWHERE)}
        site.ec2.terminate_instances(InstanceIds=ids)
        await site.delete(other)
        assert site.rules() == set()


async def test_rules_leave_a_group_without_the_clusters_tag_when_no_host_is_in_it(
    aws: StrictAWS,
) -> None:
    async with placed(aws) as site:
        untagged(site)
        await site.made(site.desired(site.machines(1)))
        answer = site.ec2.create_security_group(
            GroupName="newer", Description="-", VpcId=site.network.vpc
        )
        newer = site.network.run(1, SecurityGroupIds=[answer["GroupId"]])
        await site.made(site.desired(newer))
        assert site.rules() == set()


async def test_two_services_share_the_rule_of_path_mtu_discovery(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        other = site.desired(ids, ServicePort(81, node_port=30081), uid=UID.replace("5e", "6e"))
        desired = site.desired(ids)
        await site.made(desired)
        await site.made(other)
        await site.delete(desired)
        assert site.rules() == {("tcp", 30081, ANYWHERE), ("icmp", 3, ANYWHERE)}
        await site.delete(other)
        assert site.rules() == set()


async def test_two_services_share_the_rule_of_health_checks_at_one_port(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        checked = {"healthcheck-port": "10256"}
        other = site.desired(
            ids, ServicePort(81, node_port=30081), uid=UID.replace("5e", "6e"), asked=checked
        )
        desired = site.desired(ids, asked=checked)
        await site.made(desired)
        await site.made(other)
        needed = {("tcp", 10256, f"10.0.{n}.0/24") for n in range(3)}
        assert needed <= site.rules()
        await site.delete(desired)
        assert needed <= site.rules()
        await site.delete(other)
        assert site.rules() == set()


async def test_health_checks_of_one_whose_clients_an_operators_rule_lets_in_go_on(
    aws: StrictAWS,
) -> None:
    """To AWS that rule is the same as ours, so none says that this load balancer has clients."""
    inside = "10.0.0.0/8"
    async with placed(aws) as site:
        ids = site.machines(1)
        operators = {
            "IpProtocol": "tcp",
            "FromPort": 30081,
            "ToPort": 30081,
            "IpRanges": [{"CidrIp": inside}],
        }
        site.ec2.authorize_security_group_ingress(GroupId=site.group, IpPermissions=[operators])
        other = site.desired(
            ids,
            ServicePort(81, node_port=30081),
            uid=UID.replace("5e", "6e"),
            load_balancer_source_ranges=(inside,),
        )
        desired = site.desired(ids)
        await site.made(other)
        needed = site.rules()
        assert ("icmp", 3, inside) in needed
        assert {("tcp", 30081, f"10.0.{n}.0/24") for n in range(3)} <= needed
        await site.made(desired)
        assert isinstance(await site.deleted(desired), Done)
        assert site.rules() == needed
        await site.deleted(other)
        assert site.rules() == {("tcp", 30081, inside)}


@pytest.mark.parametrize("is_listed", [True, False])
async def test_path_mtu_discovery_of_one_whose_clients_an_operators_rule_lets_in_goes_on(
    aws: StrictAWS, *, is_listed: bool
) -> None:
    """Nothing but that the load balancer lives says so, and a list may lack it."""
    services = Objects()
    async with placed(aws, services=services) as site:
        ids, uid = site.machines(1), UID.replace("5e", "6e")
        port = ServicePort(81, node_port=30081)
        anywhere = {
            "IpProtocol": "tcp",
            "FromPort": 30081,
            "ToPort": 30081,
            "IpRanges": [{"CidrIp": ANYWHERE}],
        }
        site.ec2.authorize_security_group_ingress(GroupId=site.group, IpPermissions=[anywhere])
        made = await site.made(site.desired(ids, port, uid=uid))
        shown = site.desired(ids, port, uid=uid, shown=made.ingress[0].hostname)
        services.by_key = {"shop/other": shown.service}
        needed = site.rules()
        assert ("icmp", 3, ANYWHERE) in needed
        desired = site.desired(ids)
        await site.made(desired)
        if not is_listed:
            aws.configure(unshown=[shown.ref.name])
        await site.deleted(desired)
        assert site.rules() == needed


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "edited"])
async def test_clients_of_one_whom_a_rule_of_anothers_health_checks_lets_in_stay(
    aws: StrictAWS, *, is_deleted: bool, is_listed: bool
) -> None:
    """Whoever chooses the node port of another Service for his checks may have come first."""
    services = Objects()
    async with placed(aws, services=services) as site:
        ids, uid = site.machines(1), UID.replace("5e", "6e")
        inside = tuple(f"10.0.{n}.0/24" for n in range(3))
        port = ServicePort(81, node_port=30081)
        other = site.desired(ids, port, load_balancer_source_ranges=inside, uid=uid)
        services.by_key = {"shop/other": other.service}
        await site.made(site.desired(ids, asked={"healthcheck-port": "30081"}))
        host = (await site.made(other)).ingress[0].hostname
        shown = site.desired(ids, port, load_balancer_source_ranges=inside, uid=uid, shown=host)
        services.by_key = {"shop/other": shown.service}
        needed = {("tcp", 30081, one) for one in inside} | {("icmp", 3, one) for one in inside}
        assert needed <= site.rules()
        if not is_listed:
            aws.configure(unshown=[other.ref.name])
        desired = site.desired(ids)
        if not is_deleted:
            await site.made(desired)
            assert needed <= site.rules()
        await site.deleted(desired)
        assert site.rules() == needed
        services.by_key = {}
        await site.deleted(other)
        assert site.rules() == set()


async def test_groups_of_nodes_are_left_alone_if_the_config_demands_it(aws: StrictAWS) -> None:
    async with placed(aws, "DisableSecurityGroupIngress = true") as site:
        await site.made(site.desired(site.machines(1)))
        assert site.rules() == set()


async def test_what_cannot_change_is_refused_and_left_as_it_is(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        await site.made(site.desired(ids))
        answer = await site.ensure(site.desired(ids, asked={"internal": "true"}))
        assert isinstance(answer, InvalidRequest)
        assert "internal" in str(answer)
        for place in ("us-east-1.elb.amazonaws.com", "eusc-de-east-1.elb.amazonaws.eu"):
            answer = await site.ensure(site.desired(ids, shown=f"{NAME}-1.{place}"))
            assert isinstance(answer, InvalidRequest)
            assert "cannot become one of another kind" in str(answer)


async def test_elastic_addresses_are_one_for_each_subnet(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        made = [site.ec2.allocate_address(Domain="vpc")["AllocationId"] for _ in range(3)]
        few = await site.ensure(site.desired(ids, asked={"eip-allocations": ",".join(made[:2])}))
        assert isinstance(few, InvalidRequest)
        assert "give one for each of the 3 subnets" in str(few)
        await site.made(site.desired(ids, asked={"eip-allocations": ",".join(made)}))
        found = site.described()
        assert found is not None
        addresses = [one["LoadBalancerAddresses"] for one in found["AvailabilityZones"]]
        assert sorted(one["AllocationId"] for (one,) in addresses) == sorted(made)


MANAGED = "NLBSecurityGroupMode = Managed"
"""In [Global]: a security group is made for each load balancer."""
DNS = ServicePort(53, "dns", "UDP", node_port=30053)


def own_groups(site: LBSite) -> dict[str, frozenset[Rule]]:
    """The rules of security groups that were made for load balancers, by id."""
    found = site.ec2.describe_security_groups()["SecurityGroups"]
    return {
        one["GroupId"]: rules_of(one["IpPermissions"])
        for one in found
        if one["GroupName"].startswith("k8s-shop-web-")
    }


def attached(site: LBSite) -> list[str]:
    found = site.described()
    assert found is not None
    return list(found.get("SecurityGroups") or ())


async def test_a_managed_group_follows_the_service_and_goes_with_it(aws: StrictAWS) -> None:
    async with placed(aws, MANAGED) as site:
        ids = site.machines(1)
        await site.made(site.desired(ids, HTTP, DNS))
        ((own, rules),) = own_groups(site).items()
        assert attached(site) == [own]
        assert rules == {
            Rule("tcp", 80, 80, ANYWHERE), Rule("udp", 53, 53, ANYWHERE),
            Rule("icmp", 3, 4, ANYWHERE),
        }  # fmt: skip
        desired = site.desired(ids, HTTP, load_balancer_source_ranges=("192.0.2.0/24",))
        await site.made(desired)
        assert own_groups(site) == {
            own: {Rule("tcp", 80, 80, "192.0.2.0/24"), Rule("icmp", 3, 4, "192.0.2.0/24")}
        }
        site.aws.calls()
        await site.made(desired)
        assert site.writes() == []
        site.aws.configure(detach=3600.0)
        answer = await site.delete(desired)
        assert isinstance(answer, Pending)
        assert own in answer.reason
        site.aws.configure(detach=0.0)
        assert await site.delete(desired) == Done()
        assert (site.described(), site.groups(), own_groups(site)) == (None, {}, {})


async def test_a_managed_group_makes_room_for_a_given_one(aws: StrictAWS) -> None:
    async with placed(aws, MANAGED) as site:
        ids = site.machines(1)
        await site.made(site.desired(ids))
        await site.made(site.desired(ids, asked={"security-groups": site.group}))
        assert attached(site) == [site.group]
        assert own_groups(site) == {}
        await site.made(site.desired(ids))
        assert attached(site) == list(own_groups(site))


async def test_turning_managed_groups_on_or_off_changes_only_new_load_balancers(
    aws: StrictAWS,
) -> None:
    site = LBSite(aws)
    ids = site.machines(1)
    plain, managed = (config_text(aws, site.network.vpc, extra) for extra in ("", MANAGED))
    async with started(plain) as site.provider:
        desired = site.desired(ids)
        await site.made(desired)
    async with started(managed) as site.provider:
        await site.made(desired)
        assert (attached(site), own_groups(site)) == ([], {})
        await site.delete(desired)
        await site.made(desired)
    async with started(plain) as site.provider:
        await site.made(site.desired(ids, HTTPS))
        ((own, rules),) = own_groups(site).items()
        assert attached(site) == [own]
        assert rules >= {Rule("tcp", 443, 443, ANYWHERE)}
        assert await site.delete(desired) == Done()
    assert own_groups(site) == {}


async def test_groups_that_are_given_too_late_are_reported_and_the_rest_is_done(
    aws: StrictAWS,
) -> None:
    site = LBSite(aws)
    events = Events()
    first, second = site.machines(2)
    text = config_text(aws, site.network.vpc)
    async with started(text, context(events=events)) as site.provider:
        await site.made(site.desired([first]))
        await site.made(site.desired([first, second], asked={"security-groups": site.group}))
    assert attached(site) == []
    assert [one["ids"] for one in site.groups().values()] == [{first, second}]
    assert {reason for reason, _ in events.seen} == {"AnnotationIgnored"}


async def test_a_health_check_that_somebody_changed_is_repaired(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        desired = site.desired(site.machines(1))
        await site.made(desired)
        ((name, group),) = site.groups().items()
        fields = ("HealthCheckProtocol", "HealthCheckPort", "HealthCheckIntervalSeconds")
        before = [group[one] for one in fields]
        site.elb.modify_target_group(
            TargetGroupArn=group["TargetGroupArn"],
            HealthCheckProtocol="HTTP",
            HealthCheckPort="81",
            HealthCheckIntervalSeconds=10,
        )
        await site.made(desired)
        assert [site.groups()[name][one] for one in fields] == before
        asked = {"healthcheck-timeout": "5"}
        await site.made(site.desired(site.machines(1), asked=asked))
        assert site.groups()[name]["HealthCheckTimeoutSeconds"] == 5


def give_ipv6(site: LBSite) -> None:
    """Let the VPC and its subnets have IPv6."""
    ec2, vpc = site.ec2, site.network.vpc
    ec2.associate_vpc_cidr_block(VpcId=vpc, AmazonProvidedIpv6CidrBlock=True)
    (found,) = ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"]
    (association,) = found["Ipv6CidrBlockAssociationSet"]
    network = ipaddress.ip_network(association["Ipv6CidrBlock"])
    for subnet, block in zip(site.network.subnets, network.subnets(new_prefix=64), strict=False):
        ec2.associate_subnet_cidr_block(SubnetId=subnet, Ipv6CidrBlock=str(block))


async def test_dual_stack_is_refused_without_ipv6_and_made_with_it(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        ids = site.machines(1)
        both: dict[str, Any] = {
            "ip_families": ("IPv4", "IPv6"),
            "ip_family_policy": "PreferDualStack",
        }
        answer = await site.ensure(site.desired(ids, **both))
        assert isinstance(answer, InvalidRequest)
        assert "IPv6 needs subnets with an IPv6 range" in str(answer)
    site = LBSite(aws)
    give_ipv6(site)
    ids = site.machines(1)
    async with started(config_text(aws, site.network.vpc)) as site.provider:
        await site.made(site.desired(ids, HTTP, DNS))
        desired = site.desired(ids, HTTP, DNS, **both)
        await site.made(desired)
        found = site.described()
        assert found is not None
        assert (found["IpAddressType"], found["EnablePrefixForIpv6SourceNat"]) == (
            "dualstack", "on"
        )  # fmt: skip
        assert sorted(site.listeners()) == [53, 80]
        (group,) = site.ec2.describe_security_groups(GroupIds=[site.group])["SecurityGroups"]
        sources = {rule.source for rule in rules_of(group["IpPermissions"])}
        assert sources >= {ANYWHERE, "::/0"}
        site.aws.calls()
        await site.made(desired)
        assert site.writes() == []
        await site.delete(desired)
        await site.made(desired)
        assert sorted(site.listeners()) == [53, 80]


async def test_hosts_of_ipv6_alone_are_reached_by_it(aws: StrictAWS) -> None:
    site = LBSite(aws)
    give_ipv6(site)
    ids = site.machines(1)
    async with started(config_text(aws, site.network.vpc)) as site.provider:
        await site.made(site.desired(ids, ip_families=("IPv6",)))
        found = site.described()
        assert found is not None
        assert found["IpAddressType"] == "dualstack"
        assert [one["IpAddressType"] for one in site.groups().values()] == ["ipv6"]
