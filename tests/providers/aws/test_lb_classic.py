"""Classic load balancers on AWS behind the strict layer."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Done, InvalidRequest, Pending, Unauthenticated
from proreus.cloudprovider.identity import MARK_SERVICE_UID
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.kube.objects import LoadBalancerIngress, ServicePort
from proreus.providers.aws.classic.plan import PROXY_POLICY
from proreus.providers.aws.rules import HOST_RULE, Rule, rules_of

from .lb_site import ANYWHERE, HTTP, HTTPS, NAME, UID, LBSite, placed
from .site import CLUSTER, OWNED, config_text, started
from .strict.process import StrictAWS

pytestmark = pytest.mark.long

CERTIFICATE = "arn:aws:iam::123456789012:server-certificate/one"
OTHER_UID = UID.replace("5e", "6e")
ICMP = Rule("icmp", 3, 4, ANYWHERE)
MANY = {
    "internal": "true",
    "ssl-cert": CERTIFICATE,
    "ssl-ports": "https",
    "ssl-negotiation-policy": "ELBSecurityPolicy-TLS-1-2-2017-01",
    "backend-protocol": "http",
    "proxy-protocol": "*",
    "cross-zone-load-balancing-enabled": "true",
    "connection-draining-enabled": "true",
    "connection-draining-timeout": "60",
    "connection-idle-timeout": "120",
    "access-log-enabled": "true",
    "access-log-s3-bucket-name": "logs",
    "access-log-emit-interval": "5",
    "additional-resource-tags": "team=a",
    "healthcheck-protocol": "http",
    "healthcheck-path": "/up",
    "healthcheck-interval": "20",
}


class ClassicSite:
    """What there is of classic load balancers in a site."""

    def __init__(self, site: LBSite) -> None:
        self.site = site
        self.elb = site.aws.client("elb")

    def described(self, name: str = NAME) -> dict[str, Any] | None:
        found = self.elb.describe_load_balancers()["LoadBalancerDescriptions"]
        return next((one for one in found if one["LoadBalancerName"] == name), None)

    def listeners(self) -> dict[int, dict[str, Any]]:
        found = self.described()
        assert found is not None
        return {
            one["Listener"]["LoadBalancerPort"]: {**one["Listener"], "policies": one["PolicyNames"]}
            for one in found["ListenerDescriptions"]
        }

    def attributes(self) -> dict[str, Any]:
        answer = self.elb.describe_load_balancer_attributes(LoadBalancerName=NAME)
        found: dict[str, Any] = answer["LoadBalancerAttributes"]
        return found

    def groups(self) -> dict[str, dict[str, Any]]:
        """Security groups that were made for load balancers, by name."""
        found = self.site.ec2.describe_security_groups()["SecurityGroups"]
        return {one["GroupName"]: one for one in found if one["GroupName"].startswith("k8s-")}

    def own(self) -> dict[str, Any]:
        return self.groups()[f"k8s-elb-{NAME}"]

    def rules(self, group: str = "") -> frozenset[Rule]:
        """The rules of the nodes' group, or of another."""
        given = [group or self.site.group]
        (found,) = self.site.ec2.describe_security_groups(GroupIds=given)["SecurityGroups"]
        return rules_of(found["IpPermissions"])

    def new_group(self, name: str, *, tagged: bool = False) -> str:
        made = self.site.ec2.create_security_group(
            GroupName=name, Description=name, VpcId=self.site.network.vpc
        )["GroupId"]
        if tagged:
            tags = [{"Key": key, "Value": value} for key, value in OWNED.items()]
            self.site.ec2.create_tags(Resources=[made], Tags=tags)
        return str(made)

    def let_in(self, group: str, source: str, protocol: str = "-1", port: int = -1) -> None:
        permission: dict[str, Any] = {
            "IpProtocol": protocol,
            "UserIdGroupPairs": [{"GroupId": source}],
        }
        if protocol != "-1":
            permission |= {"FromPort": port, "ToPort": port}
        self.site.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])


@asynccontextmanager
async def classic(aws: StrictAWS, extra: str = "") -> AsyncIterator[tuple[LBSite, ClassicSite]]:
    async with placed(aws, extra, kind="") as site:
        yield site, ClassicSite(site)


@asynccontextmanager
async def sharing_a_group(
    aws: StrictAWS,
) -> AsyncIterator[tuple[ClassicSite, str, LoadBalancer, LoadBalancer]]:
    """A given security group, and two load balancers that are to have it and the same host."""
    site = LBSite(aws, kind="")
    seen = ClassicSite(site)
    shared = seen.new_group("shared")
    text = config_text(aws, site.network.vpc, f"ElbSecurityGroup = {shared}")
    async with started(text) as site.provider:
        ids = site.machines(1)
        yield seen, shared, site.desired(ids), site.desired(ids, uid=OTHER_UID)


def from_group(group: str, description: str = "") -> Rule:
    return Rule("-1", -1, -1, group, description)


def ids_of(found: Iterable[dict[str, str]]) -> set[str]:
    return {one["InstanceId"] for one in found}


async def test_the_default_kind_is_made_left_alone_and_deleted_with_all_parts(
    aws: StrictAWS,
) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(2)
        desired = site.desired(ids, HTTP, HTTPS)
        answer = await site.made(desired)
        found = seen.described()
        assert found is not None
        assert answer.ingress == (LoadBalancerIngress(hostname=found["DNSName"]),)
        assert answer.rejected == {}
        assert (found["Scheme"], set(found["Subnets"])) == (
            "internet-facing", set(site.network.subnets)
        )  # fmt: skip
        assert ids_of(found["Instances"]) == set(ids)
        assert found["HealthCheck"]["Target"] == "TCP:30080"
        own = seen.own()["GroupId"]
        assert found["SecurityGroups"] == [own]
        assert seen.rules(own) == {
            Rule("tcp", 80, 80, ANYWHERE), Rule("tcp", 443, 443, ANYWHERE), ICMP
        }  # fmt: skip
        assert seen.rules() == {from_group(own)}
        site.aws.calls()
        assert await site.made(desired) == answer
        assert site.writes() == []
        assert await site.delete(desired) == Done()
        assert (seen.described(), seen.groups(), seen.rules()) == (None, {}, frozenset())
        assert await site.delete(desired) == Done(found=False)


async def test_every_annotation_reaches_aws_and_is_taken_back(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        desired = site.desired(ids, HTTP, HTTPS, asked=MANY)
        await site.made(desired)
        found = seen.described()
        assert found is not None
        assert found["Scheme"] == "internal"
        assert found["HealthCheck"] == {
            "Target": "HTTP:30080/up", "Interval": 20, "Timeout": 5, "HealthyThreshold": 2,
            "UnhealthyThreshold": 6,
        }  # fmt: skip
        backends = {
            one["InstancePort"]: one["PolicyNames"] for one in found["BackendServerDescriptions"]
        }
        assert backends == {30080: [PROXY_POLICY], 30443: [PROXY_POLICY]}
        listeners = seen.listeners()
        tls = listeners[443]
        assert (tls["Protocol"], tls["InstanceProtocol"], tls["SSLCertificateId"]) == (
            "HTTPS", "HTTP", CERTIFICATE
        )  # fmt: skip
        assert tls["policies"] == ["k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01"]
        assert (listeners[80]["Protocol"], listeners[80]["policies"]) == ("HTTP", [])
        attributes = seen.attributes()
        assert attributes["AccessLog"] | {"S3BucketPrefix": ""} == {
            "Enabled": True, "S3BucketName": "logs", "EmitInterval": 5, "S3BucketPrefix": ""
        }  # fmt: skip
        assert attributes["ConnectionDraining"] == {"Enabled": True, "Timeout": 60}
        assert attributes["ConnectionSettings"] == {"IdleTimeout": 120}
        assert attributes["CrossZoneLoadBalancing"] == {"Enabled": True}
        (tags,) = seen.elb.describe_tags(LoadBalancerNames=[NAME])["TagDescriptions"]
        assert {"Key": "team", "Value": "a"} in tags["Tags"]
        site.aws.calls()
        await site.made(desired)
        assert site.writes() == []
        await site.made(site.desired(ids, HTTP, HTTPS, asked={"internal": "true"}))
        found = seen.described()
        assert found is not None
        assert (found["HealthCheck"]["Target"], found["BackendServerDescriptions"]) == (
            "TCP:30080", []
        )  # fmt: skip
        assert seen.listeners()[443]["Protocol"] == "TCP"
        attributes = seen.attributes()
        assert not attributes["AccessLog"]["Enabled"]
        assert not attributes["ConnectionDraining"]["Enabled"]
        assert attributes["ConnectionSettings"] == {"IdleTimeout": 60}


async def test_local_traffic_is_checked_at_its_own_port(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        local: dict[str, Any] = {
            "external_traffic_policy": "Local",
            "health_check_node_port": 31000,
        }
        await site.made(site.desired(site.machines(1), **local))
        found = seen.described()
        assert found is not None
        assert found["HealthCheck"]["Target"] == "HTTP:31000/healthz"


async def test_a_changed_port_leaves_other_listeners_alone(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        third = ServicePort(81, "third", node_port=30081)
        await site.made(site.desired(ids, HTTP, HTTPS, third))
        moved = ServicePort(80, "http", node_port=31080)
        site.aws.calls()
        await site.made(site.desired(ids, moved, HTTPS))
        assert {one: each["InstancePort"] for one, each in seen.listeners().items()} == {
            80: 31080, 443: 30443
        }  # fmt: skip
        assert "elb.DeleteLoadBalancer" not in site.writes()
        assert {one.from_port for one in seen.rules(seen.own()["GroupId"])} == {80, 443, 3}


async def test_another_certificate_cuts_no_connection(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        await site.made(site.desired(ids, HTTPS, asked={"ssl-cert": CERTIFICATE}))
        site.aws.calls()
        other = CERTIFICATE.replace("one", "two")
        await site.made(site.desired(ids, HTTPS, asked={"ssl-cert": other}))
        assert seen.listeners()[443]["SSLCertificateId"] == other
        # What it was made from is not so while it is changed.
        assert site.writes() == [
            "elb.AddTags", "elb.SetLoadBalancerListenerSSLCertificate", "elb.AddTags"
        ]  # fmt: skip


async def test_hosts_come_and_go_and_one_that_aws_refuses_is_reported(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        first, second, gone = site.machines(3)
        await site.made(site.desired([first]))
        site.ec2.terminate_instances(InstanceIds=[gone])
        answer = await site.made(site.desired([second, gone]))
        found = seen.described()
        assert found is not None
        assert ids_of(found["Instances"]) == {second}
        assert list(answer.rejected) == [f"node-{gone}"]


async def test_what_somebody_changed_is_repaired(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        desired = site.desired(ids, HTTP, load_balancer_source_ranges=("192.0.2.0/24",))
        await site.made(desired)
        own = seen.own()["GroupId"]
        extra = Rule("tcp", 22, 22, ANYWHERE)
        site.ec2.authorize_security_group_ingress(
            GroupId=own, IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp=ANYWHERE
        )
        assert extra in seen.rules(own)
        site.ec2.revoke_security_group_ingress(
            GroupId=site.group,
            IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": own}]}],
        )
        seen.elb.deregister_instances_from_load_balancer(
            LoadBalancerName=NAME, Instances=[{"InstanceId": ids[0]}]
        )
        seen.elb.detach_load_balancer_from_subnets(
            LoadBalancerName=NAME, Subnets=site.network.subnets[:1]
        )
        seen.elb.delete_load_balancer_listeners(LoadBalancerName=NAME, LoadBalancerPorts=[80])
        seen.elb.remove_tags(LoadBalancerNames=[NAME], Tags=[{"Key": MARK_SERVICE_UID}])
        await site.made(desired)
        found = seen.described()
        assert found is not None
        assert ids_of(found["Instances"]) == set(ids)
        assert set(found["Subnets"]) == set(site.network.subnets)
        assert list(seen.listeners()) == [80]
        assert seen.rules() == {from_group(own)}
        assert seen.rules(own) == {
            Rule("tcp", 80, 80, "192.0.2.0/24"), Rule("icmp", 3, 4, "192.0.2.0/24")
        }  # fmt: skip
        (tags,) = seen.elb.describe_tags(LoadBalancerNames=[NAME])["TagDescriptions"]
        assert {"Key": MARK_SERVICE_UID, "Value": UID} in tags["Tags"]


async def test_clients_are_exchanged_where_a_group_has_no_room_for_both(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        await site.made(site.desired(ids, load_balancer_source_ranges=("192.0.2.0/24",)))
        site.aws.configure(rules_per_group=2)
        await site.made(site.desired(ids, load_balancer_source_ranges=("198.51.100.0/24",)))
        assert seen.rules(seen.own()["GroupId"]) == {
            Rule("tcp", 80, 80, "198.51.100.0/24"), Rule("icmp", 3, 4, "198.51.100.0/24")
        }  # fmt: skip
        both = ("198.51.100.0/24", "192.0.2.0/24")
        answer = await site.ensure(site.desired(ids, load_balancer_source_ranges=both))
        assert isinstance(answer, CloudError)
        assert "RulesPerSecurityGroupLimitExceeded" in str(answer)


async def test_subnets_of_a_zone_are_exchanged(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        one, two, _ = site.network.subnets
        other = site.ec2.create_subnet(
            VpcId=site.network.vpc, CidrBlock="10.0.9.0/24", AvailabilityZone="us-east-1a"
        )["Subnet"]["SubnetId"]
        await site.made(site.desired(ids, asked={"subnets": f"{one},{two}"}))
        await site.made(site.desired(ids, asked={"subnets": other}))
        found = seen.described()
        assert found is not None
        assert found["Subnets"] == [other]


async def test_a_subnet_that_a_list_lacks_stays_unless_a_second_one_lacks_it_too(
    aws: StrictAWS,
) -> None:
    async with classic(aws) as (site, seen):
        desired, (first, *others) = site.desired(site.machines(1)), site.network.subnets
        await site.made(desired)
        before = seen.described()
    async with started(config_text(aws, site.network.vpc)) as site.provider:
        aws.configure(unshown=[first])
        answer = await site.ensure(desired)
        assert isinstance(answer, Pending)
        assert first in answer.reason
        assert seen.described() == before
        aws.configure(unshown=[])
    async with started(config_text(aws, site.network.vpc)) as site.provider:
        await site.made(desired)
        assert seen.described() == before
        # It belongs to the cluster no more.
        site.ec2.delete_tags(Resources=[first], Tags=[{"Key": key} for key in OWNED])
    async with started(config_text(aws, site.network.vpc)) as site.provider:
        await site.made(desired)
    found = seen.described()
    assert found is not None
    assert set(found["Subnets"]) == set(others)


async def test_given_groups_are_used_as_they_are_and_stay(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        given, extra = seen.new_group("given", tagged=True), seen.new_group("extra")
        seen.let_in(site.group, extra)
        ids = site.machines(1)
        asked = {"security-groups": given, "extra-security-groups": extra}
        desired = site.desired(ids, asked=asked)
        await site.made(desired)
        found = seen.described()
        assert found is not None
        assert set(found["SecurityGroups"]) == {given, extra}
        assert (seen.groups(), seen.rules(given)) == ({}, frozenset())
        assert seen.rules() == {from_group(given, HOST_RULE), from_group(extra)}
        assert await site.deleted(desired) == Done()
        assert seen.rules() == {from_group(extra)}
        assert seen.rules(given) == frozenset()


async def test_a_group_that_others_use_too_still_reaches_hosts(aws: StrictAWS) -> None:
    async with sharing_a_group(aws) as (seen, shared, desired, other):
        site = seen.site
        await site.made(desired)
        await site.made(other)
        # The list lacks the other one for a moment.
        name = other.ref.name
        aws.configure(unshown=[name])
        assert isinstance(await site.delete(desired), Pending)
        aws.configure(unshown=[])
        await site.deleted(desired)
        assert seen.rules() == {from_group(shared, HOST_RULE)}
        await site.deleted(other)
        assert seen.rules() == frozenset()


async def test_a_new_one_that_a_list_lacks_still_reaches_hosts_by_the_group_of_one_that_goes(
    aws: StrictAWS,
) -> None:
    """It was made between the two looks of which the second one lacks it."""
    async with sharing_a_group(aws) as (seen, shared, desired, other):
        site = seen.site
        await site.made(desired)
        answer = await site.delete(desired)
        assert isinstance(answer, Pending)
        await site.made(other)
        aws.configure(unshown=[other.ref.name])
        await asyncio.sleep(answer.after)
        assert isinstance(await site.delete(desired), Pending)
        assert seen.rules() == {from_group(shared, HOST_RULE)}
        aws.configure(unshown=[])
        await site.deleted(desired)
        assert seen.rules() == {from_group(shared, HOST_RULE)}


async def test_the_group_of_one_that_goes_still_reaches_the_hosts_of_another(
    aws: StrictAWS,
) -> None:
    """A Service of the namespace may name it in the place of a group of its own."""
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        desired = site.desired(ids)
        await site.made(desired)
        own = seen.own()["GroupId"]
        other = site.desired(ids, uid=OTHER_UID, asked={"security-groups": own})
        await site.made(other)
        answer = await site.delete(desired)
        assert isinstance(answer, Pending)
        assert other.ref.name in answer.reason
        assert seen.described() is None
        assert seen.rules() == {from_group(own)}
        await site.deleted(other)
        await site.deleted(desired)
        assert (seen.rules(), seen.groups()) == (frozenset(), {})


@pytest.mark.parametrize("is_given", [False, True], ids=["deleted", "another is given"])
async def test_rules_of_others_stay_while_something_else_has_the_own_group(
    aws: StrictAWS, *, is_given: bool
) -> None:
    """Such as an operator's machine, which a database lets in by the group that it is in."""
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        desired = site.desired(ids)
        await site.made(desired)
        own, database = seen.own()["GroupId"], seen.new_group("database")
        seen.let_in(database, own, "tcp", 5432)
        machine = site.ec2.create_network_interface(SubnetId=site.network.subnets[0], Groups=[own])
        id_ = machine["NetworkInterface"]["NetworkInterfaceId"]
        asked = site.desired(ids, asked={"security-groups": seen.new_group("given")})
        # Such as by a clock that is wrong for a moment: that says nothing of who has the group.
        aws.fail("DescribeNetworkInterfaces", code="RequestExpired", status=400)
        answer = await (site.ensure(asked) if is_given else site.delete(desired))
        assert seen.rules(database)
        assert isinstance(answer, Unauthenticated)
        answer = await (site.ensure(asked) if is_given else site.delete(desired))
        assert seen.rules(database)
        assert isinstance(answer, Pending)
        assert id_ in answer.reason
        site.ec2.delete_network_interface(NetworkInterfaceId=id_)
        await (site.made(asked) if is_given else site.deleted(desired))
        assert not seen.rules(database)
        assert own not in {one["GroupId"] for one in seen.groups().values()}


async def test_rules_of_others_stay_though_one_list_lacks_who_has_the_own_group(
    aws: StrictAWS,
) -> None:
    async with classic(aws) as (site, seen):
        desired = site.desired(site.machines(1))
        await site.made(desired)
        own, database = seen.own()["GroupId"], seen.new_group("database")
        seen.let_in(database, own, "tcp", 5432)
        machine = site.ec2.create_network_interface(SubnetId=site.network.subnets[0], Groups=[own])
        id_ = machine["NetworkInterface"]["NetworkInterfaceId"]
        aws.configure(unshown=[id_])
        answer = await site.delete(desired)
        assert isinstance(answer, Pending)
        assert seen.rules(database)
        aws.configure(unshown=[])
        await asyncio.sleep(1.0)
        answer = await site.delete(desired)
        assert isinstance(answer, Pending)
        assert id_ in answer.reason
        assert seen.rules(database)


async def test_the_own_group_goes_when_another_is_given(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        await site.made(site.desired(ids))
        given = seen.new_group("given")
        await site.made(site.desired(ids, asked={"security-groups": given}))
        assert seen.groups() == {}
        assert seen.rules() == {from_group(given, HOST_RULE)}
        await site.made(site.desired(ids))
        assert seen.rules() == {from_group(seen.own()["GroupId"])}


async def test_the_own_group_goes_when_nothing_uses_it_any_more(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        desired = site.desired(site.machines(1))
        await site.made(desired)
        own = seen.own()["GroupId"]
        # Somebody lets the load balancer in elsewhere: its group could not be deleted so.
        other = seen.new_group("other")
        seen.let_in(other, own, "tcp", 8080)
        site.aws.configure(detach=3600.0)
        assert isinstance(await site.delete(desired), Pending)
        assert seen.rules(other)
        await asyncio.sleep(1.0)
        answer = await site.delete(desired)
        assert isinstance(answer, Pending)
        assert own in answer.reason
        assert (seen.described(), seen.rules(), seen.rules(other)) == (
            None, frozenset(), frozenset()
        )  # fmt: skip
        still = await site.delete(desired)
        assert isinstance(still, Pending)
        site.aws.configure(detach=0.0)
        assert await site.delete(desired) == Done()
        assert seen.groups() == {}


async def test_groups_of_nodes_are_left_alone_if_the_config_demands_it(aws: StrictAWS) -> None:
    async with classic(aws, "DisableSecurityGroupIngress = true") as (site, seen):
        desired = site.desired(site.machines(1))
        await site.made(desired)
        assert seen.rules() == frozenset()
        assert await site.delete(desired) == Done()
        assert seen.groups() == {}


@pytest.mark.parametrize(
    "after_effect", [pytest.param(False, id="refused"), pytest.param(True, id="answer lost")]
)
async def test_whatever_call_fails_nothing_is_made_twice_or_left_behind(
    aws: StrictAWS, *, after_effect: bool
) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        desired = site.desired(ids, HTTP, HTTPS, asked=MANY)
        site.aws.calls()
        await site.made(desired)
        making = site.writes()
        await site.delete(desired)
        deleting = site.writes()
        assert {"elb.CreateLoadBalancer", "ec2.CreateSecurityGroup"} <= set(making)
        assert {"elb.DeleteLoadBalancer", "ec2.DeleteSecurityGroup"} <= set(deleting)
        for call in dict.fromkeys(making):
            site.aws.fail(call.partition(".")[2], after_effect=after_effect)
            assert isinstance(await site.ensure(desired), CloudError), call
            await site.made(desired)
            assert len(seen.groups()) == 1
            assert sorted(seen.listeners()) == [80, 443]
            await site.delete(desired)
            assert (seen.described(), seen.groups(), seen.rules()) == (None, {}, frozenset())
        for call in dict.fromkeys(deleting):
            await site.made(desired)
            site.aws.fail(call.partition(".")[2], after_effect=after_effect)
            assert isinstance(await site.delete(desired), CloudError), call
            assert isinstance(await site.delete(desired), Done)
            assert (seen.described(), seen.groups(), seen.rules()) == (None, {}, frozenset())


async def test_what_aws_shows_late_is_not_made_twice(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        desired = site.desired(site.machines(1))
        site.aws.configure(lag=3600.0)
        # The second attempt is told that there is one of that name, and cannot find it.
        for _ in range(2):
            assert isinstance(await site.ensure(desired), CloudError)
        site.aws.configure(lag=0.0)
        await site.made(desired)
        assert len(seen.groups()) == 1
        await site.delete(desired)
        assert (seen.described(), seen.groups(), seen.rules()) == (None, {}, frozenset())


async def test_what_cannot_change_is_refused_and_left_as_it_is(aws: StrictAWS) -> None:
    async with classic(aws) as (site, _):
        ids = site.machines(1)
        await site.made(site.desired(ids))
        answer = await site.ensure(site.desired(ids, asked={"internal": "true"}))
        assert isinstance(answer, InvalidRequest)
        assert "internal" in str(answer)
        network = f"{NAME}-1.elb.us-east-1.amazonaws.com"
        for shown in ("", f"{NAME}-1.us-east-1.elb.amazonaws.com"):
            answer = await site.ensure(site.desired(ids, asked={"type": "nlb"}, shown=shown))
            assert isinstance(answer, InvalidRequest)
            assert "cannot become one of another kind" in str(answer)
        answer = await site.ensure(site.desired(ids, shown=network))
        assert isinstance(answer, InvalidRequest)


async def test_a_load_balancer_of_another_owner_is_left_alone(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        desired = site.desired(site.machines(1))
        seen.elb.create_load_balancer(
            LoadBalancerName=NAME,
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 1, "InstancePort": 1}],
            Subnets=site.network.subnets[:1],
            Tags=[{"Key": "kubernetes.io/service-name", "Value": "other/one"}],
        )
        for answer in (await site.ensure(desired), await site.delete(desired)):
            assert isinstance(answer, CloudError)
            assert "another owner" in str(answer)
        assert seen.described() is not None


async def test_all_parts_of_load_balancers_are_listed_for_the_leak_report(aws: StrictAWS) -> None:
    async with classic(aws) as (site, seen):
        ids = site.machines(1)
        await site.made(site.desired(ids))
        await site.made(site.desired(ids, asked={"type": "nlb"}, uid=OTHER_UID))
        seen.new_group("k8s-elb-of-somebody", tagged=True)
        site.elb.create_load_balancer(
            Name="other", Type="network", Subnets=site.network.subnets[:1]
        )
        owned = await site.balancers.list_owned(CLUSTER)
        assert sorted((one.kind, one.service, one.service_uid) for one in owned) == [
            ("load balancer", "shop/web", UID),
            ("load balancer", "shop/web", OTHER_UID),
            ("security group", "shop/web", UID),
            ("target group", "shop/web", OTHER_UID),
        ]
