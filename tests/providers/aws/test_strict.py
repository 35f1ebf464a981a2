"""The strict layer itself: it answers as AWS' documentation says, where moto does not."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .site import Network
from .strict.process import StrictAWS

GONE = "i-0123456789abcdef0"


@contextlib.contextmanager
def refused(code: str, text: str = "") -> Iterator[None]:
    with pytest.raises(ClientError) as error:
        yield
    said = error.value.response["Error"]
    assert (said["Code"], text in said["Message"]) == (code, True), said


def until_equal(read: Any, wanted: Any) -> None:
    """Patient: what changes with time does so at last."""
    end = time.monotonic() + 60
    while read() != wanted and time.monotonic() < end:
        time.sleep(0.1)
    assert read() == wanted


def test_pages_and_limits_of_instances(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(7)
    ec2 = network.ec2
    pages = ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    assert [sum(len(r["Instances"]) for r in page["Reservations"]) for page in pages] == [5, 2]
    with refused("InvalidParameterCombination"):
        ec2.describe_instances(InstanceIds=ids[:1], MaxResults=5)
    with refused("InvalidParameterValue"):
        ec2.describe_instances(MaxResults=4)
    with refused("FilterLimitExceeded"):
        values = [f"ip-10-0-0-{n}" for n in range(201)]
        ec2.describe_instances(Filters=[{"Name": "private-dns-name", "Values": values}])
    with refused("InvalidInstanceID.NotFound", f"'{GONE}, i-0123456789abcdef1'"):
        ec2.describe_instances(InstanceIds=[GONE, ids[0], "i-0123456789abcdef1"])
    twice = ec2.describe_instances(InstanceIds=[ids[0], ids[0]])["Reservations"]
    assert [one["InstanceId"] for each in twice for one in each["Instances"]] == ids[:1]
    with refused("InvalidInstanceID.Malformed", "i-x"):
        ec2.describe_instances(InstanceIds=["i-x"])
    with refused("InvalidParameterValue"):
        ec2.describe_instance_topology(InstanceIds=[f"i-{n:017x}" for n in range(101)])


def test_a_dry_run_changes_nothing(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    with refused("DryRunOperation"):
        network.ec2.terminate_instances(InstanceIds=[id_], DryRun=True)
    assert network.describe(id_)["State"]["Name"] == "running"


def test_what_is_new_is_seen_late_and_what_is_terminated_has_no_network(aws: StrictAWS) -> None:
    network = Network(aws)
    aws.configure(lag=3600.0)
    (id_,) = network.run()
    with refused("InvalidInstanceID.NotFound"):
        network.describe(id_)
    aws.configure(lag=0.0)
    network.ec2.terminate_instances(InstanceIds=[id_])
    seen = network.describe(id_)
    assert (seen["State"]["Name"], seen["NetworkInterfaces"]) == ("terminated", [])
    assert (seen["PrivateDnsName"], "PrivateIpAddress" in seen) == ("", False)


def test_tags_have_limits_and_need_their_resource(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    tag = [{"Key": "a", "Value": "b"}]
    with refused("InvalidInstanceID.NotFound", GONE):
        network.ec2.create_tags(Resources=[id_, GONE], Tags=tag)
    assert "a" not in {one["Key"] for one in network.describe(id_)["Tags"]}
    with refused("InvalidVolume.NotFound"):
        network.ec2.create_tags(Resources=["vol-0123456789abcdef0"], Tags=tag)
    with refused("TagLimitExceeded"):
        many = [{"Key": f"k{n}", "Value": ""} for n in range(50)]
        network.ec2.create_tags(Resources=[id_], Tags=many)


def test_routes_have_limits_and_need_a_living_target(aws: StrictAWS) -> None:
    network = Network(aws)
    ec2 = network.ec2
    one, gone = network.run(2)
    (two,) = network.run(
        NetworkInterfaces=[
            {"DeviceIndex": index, "SubnetId": network.subnets[0]} for index in (0, 1)
        ]
    )
    ec2.terminate_instances(InstanceIds=[gone])
    made = ec2.create_route_table(VpcId=network.vpc)["RouteTable"]["RouteTableId"]

    def create(destination: str, id_: str) -> None:
        kind = "DestinationIpv6CidrBlock" if ":" in destination else "DestinationCidrBlock"
        ec2.create_route(RouteTableId=made, InstanceId=id_, **{kind: destination})

    create("10.244.1.0/24", one)
    create("fd00:1::/64", one)
    for same in ("10.244.1.7/24", "fd00:1::1/64"):
        with refused("RouteAlreadyExists"):
            create(same, one)
    with refused("InvalidInstanceID.NotFound"):
        create("10.244.2.0/24", gone)
    with refused("InvalidInstanceID", "multiple interfaces"):
        create("10.244.2.0/24", two)
    with refused("InvalidInstanceID", "multiple interfaces"):
        ec2.modify_instance_attribute(InstanceId=two, SourceDestCheck={"Value": False})
    with refused("InvalidParameterValue", "Use CreateRoute"):
        ec2.replace_route(RouteTableId=made, DestinationCidrBlock="10.244.2.0/24", InstanceId=one)
    aws.configure(routes_per_table=2)
    with refused("RouteLimitExceeded"):
        create("10.244.2.0/24", one)


def group(network: Network, name: str) -> str:
    made = network.ec2.create_security_group(GroupName=name, Description="x", VpcId=network.vpc)
    return str(made["GroupId"])


def test_a_security_group_in_use_cannot_be_deleted(aws: StrictAWS) -> None:
    network = Network(aws)
    ec2, elb = network.ec2, aws.client("elb")
    used, user = group(network, "used"), group(network, "user")
    rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": used}]}]
    ec2.authorize_security_group_ingress(GroupId=user, IpPermissions=rule)
    with refused("DependencyViolation"):
        ec2.delete_security_group(GroupId=used)
    ec2.revoke_security_group_ingress(GroupId=user, IpPermissions=rule)
    classic(elb, network, SecurityGroups=[used])
    with refused("DependencyViolation"):
        ec2.delete_security_group(GroupId=used)
    aws.configure(detach=3600.0)
    elb.delete_load_balancer(LoadBalancerName="a")
    with refused("DependencyViolation", "being deleted"):
        ec2.delete_security_group(GroupId=used)
    aws.reset()


def test_a_security_group_has_so_many_rules(aws: StrictAWS) -> None:
    network = Network(aws)
    made = group(network, "full")
    ranges = [{"CidrIp": f"10.0.{n}.0/24"} for n in range(61)]
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "IpRanges": ranges}
    with refused("RulesPerSecurityGroupLimitExceeded"):
        network.ec2.authorize_security_group_ingress(GroupId=made, IpPermissions=[rule])


LISTENER = {
    "Protocol": "SSL",
    "LoadBalancerPort": 443,
    "InstanceProtocol": "TCP",
    "InstancePort": 30443,
    "SSLCertificateId": "arn:aws:iam::123456789012:server-certificate/x",
}


def classic(elb: Any, network: Network, **changes: Any) -> str:
    given = {
        "LoadBalancerName": "a",
        "Listeners": [LISTENER],
        "Subnets": network.subnets[:2],
        **changes,
    }
    return str(elb.create_load_balancer(**given)["DNSName"])


def test_a_classic_load_balancer_is_made_once_and_previewed_in_full(aws: StrictAWS) -> None:
    network = Network(aws)
    elb = aws.client("elb")
    made = group(network, "front")
    first = classic(elb, network, SecurityGroups=[made], Scheme="internal")
    assert classic(elb, network, SecurityGroups=[made], Scheme="internal") == first
    assert first.startswith("internal-a-")
    with refused("DuplicateLoadBalancerName"):
        classic(elb, network, SecurityGroups=[made])
    with refused("SubnetNotFound"):
        classic(elb, network, LoadBalancerName="b", Subnets=["subnet-0123456789abcdef0"])
    (seen,) = elb.describe_load_balancers(LoadBalancerNames=["a"])["LoadBalancerDescriptions"]
    listener = seen["ListenerDescriptions"][0]["Listener"]
    assert (listener["Protocol"], listener["InstanceProtocol"]) == ("SSL", "TCP")
    assert seen["SourceSecurityGroup"]["GroupName"] == "front"
    assert seen["HealthCheck"]["Target"] == "TCP:30443"
    with refused("DuplicateListener"):
        other = LISTENER | {"InstancePort": 1}
        elb.create_load_balancer_listeners(LoadBalancerName="a", Listeners=[other])
    elb.create_load_balancer_listeners(LoadBalancerName="a", Listeners=[LISTENER])
    proxy = {"LoadBalancerName": "a", "PolicyName": "proxy"}
    proxy |= {"PolicyTypeName": "ProxyProtocolPolicyType"}
    attribute = {"AttributeName": "ProxyProtocol", "AttributeValue": "true"}
    for _ in range(2):
        elb.create_load_balancer_policy(**proxy, PolicyAttributes=[attribute])
    with refused("DuplicatePolicyName"):
        off = attribute | {"AttributeValue": "false"}
        elb.create_load_balancer_policy(**proxy, PolicyAttributes=[off])
    elb.set_load_balancer_policies_for_backend_server(
        LoadBalancerName="a", InstancePort=30443, PolicyNames=["proxy"]
    )
    (seen,) = elb.describe_load_balancers(LoadBalancerNames=["a"])["LoadBalancerDescriptions"]
    assert seen["BackendServerDescriptions"] == [{"InstancePort": 30443, "PolicyNames": ["proxy"]}]


def test_instances_of_a_classic_load_balancer_are_checked(aws: StrictAWS) -> None:
    network = Network(aws)
    elb = aws.client("elb")
    classic(elb, network)
    ids = network.run(2)
    aws.configure(health=3600.0)
    given = [{"InstanceId": id_} for id_ in ids]
    with refused("InvalidInstance", GONE):
        elb.register_instances_with_load_balancer(
            LoadBalancerName="a", Instances=[*given, {"InstanceId": GONE}]
        )
    answer = elb.register_instances_with_load_balancer(LoadBalancerName="a", Instances=given)
    assert answer["Instances"] == given

    def states() -> list[str]:
        found = elb.describe_instance_health(LoadBalancerName="a")["InstanceStates"]
        return [one["State"] for one in found]

    assert states() == ["OutOfService"] * 2
    aws.configure(health=0.0, unhealthy=[ids[1]])
    assert states() == ["InService", "OutOfService"]
    answer = elb.deregister_instances_from_load_balancer(LoadBalancerName="a", Instances=given[:1])
    assert answer["Instances"] == given[1:]


def test_an_additional_attribute_is_there_once(aws: StrictAWS) -> None:
    network = Network(aws)
    elb = aws.client("elb")
    classic(elb, network)
    for value in ("a", "b"):
        elb.modify_load_balancer_attributes(
            LoadBalancerName="a",
            LoadBalancerAttributes={"AdditionalAttributes": [{"Key": "x", "Value": value}]},
        )
    found = elb.describe_load_balancer_attributes(LoadBalancerName="a")["LoadBalancerAttributes"]
    assert found["AdditionalAttributes"] == [{"Key": "x", "Value": "b"}]


def test_listeners_of_a_classic_load_balancer_are_changed_one_by_one(aws: StrictAWS) -> None:
    network = Network(aws)
    elb = aws.client("elb")
    plain = [{"Protocol": "TCP", "LoadBalancerPort": port, "InstancePort": 1} for port in (1, 2)]
    classic(elb, network, Listeners=[LISTENER, *plain])
    of = {"LoadBalancerName": "a"}
    certificate = {"SSLCertificateId": "arn:aws:iam::123456789012:server-certificate/other"}
    with refused("InvalidConfigurationRequest"):
        elb.set_load_balancer_listener_ssl_certificate(**of, LoadBalancerPort=1, **certificate)
    with refused("ListenerNotFound"):
        elb.set_load_balancer_listener_ssl_certificate(**of, LoadBalancerPort=9, **certificate)
    elb.set_load_balancer_listener_ssl_certificate(**of, LoadBalancerPort=443, **certificate)
    names = ["one", "two"]
    for name in names:
        elb.create_load_balancer_policy(
            **of,
            PolicyName=name,
            PolicyTypeName="SSLNegotiationPolicyType",
            PolicyAttributes=[
                {"AttributeName": "Reference-Security-Policy", "AttributeValue": "ELBSecurity"}
            ],
        )
    with refused("InvalidConfigurationRequest"):
        elb.set_load_balancer_policies_of_listener(**of, LoadBalancerPort=443, PolicyNames=names)
    with refused("PolicyNotFound"):
        elb.set_load_balancer_policies_of_listener(**of, LoadBalancerPort=443, PolicyNames=["x"])
    elb.set_load_balancer_policies_of_listener(**of, LoadBalancerPort=443, PolicyNames=["two"])
    elb.delete_load_balancer_listeners(**of, LoadBalancerPorts=[1, 2])
    (seen,) = elb.describe_load_balancers()["LoadBalancerDescriptions"]
    (listener,) = seen["ListenerDescriptions"]
    assert listener["PolicyNames"] == ["two"]
    assert listener["Listener"]["SSLCertificateId"] == certificate["SSLCertificateId"]


def test_a_classic_load_balancer_has_one_subnet_in_a_zone(aws: StrictAWS) -> None:
    network = Network(aws)
    elb = aws.client("elb")
    classic(elb, network, Subnets=network.subnets[:1])
    twin = network.ec2.create_subnet(
        VpcId=network.vpc, CidrBlock="10.0.9.0/24", AvailabilityZone="us-east-1a"
    )["Subnet"]["SubnetId"]
    with refused("InvalidConfigurationRequest"):
        elb.attach_load_balancer_to_subnets(LoadBalancerName="a", Subnets=[twin])
    elb.attach_load_balancer_to_subnets(LoadBalancerName="a", Subnets=network.subnets[1:2])
    (seen,) = elb.describe_load_balancers()["LoadBalancerDescriptions"]
    assert seen["AvailabilityZones"] == ["us-east-1a", "us-east-1b"]


def test_what_is_asked_of_a_missing_classic_load_balancer(aws: StrictAWS) -> None:
    elb = aws.client("elb")
    elb.delete_load_balancer(LoadBalancerName="none")
    groups = {"LoadBalancerName": "none", "SecurityGroups": ["sg-1"]}
    tags = {"LoadBalancerNames": ["none"], "Tags": [{"Key": "a", "Value": "b"}]}
    for ask, given in (
        (elb.describe_load_balancers, {"LoadBalancerNames": ["none"]}),
        (elb.describe_instance_health, {"LoadBalancerName": "none"}),
        (elb.describe_load_balancer_attributes, {"LoadBalancerName": "none"}),
        (elb.add_tags, tags),
        (elb.apply_security_groups_to_load_balancer, groups),
    ):
        with refused("LoadBalancerNotFound"):
            ask(**given)


def balancer(v2: Any, network: Network, **changes: Any) -> Any:
    given = {"Name": "n", "Type": "network", "Subnets": network.subnets[:2], **changes}
    return v2.create_load_balancer(**given)["LoadBalancers"][0]


def target_group(v2: Any, network: Network, name: str = "t", **changes: Any) -> str:
    given = {"Name": name, "Protocol": "TCP", "Port": 80, "VpcId": network.vpc, **changes}
    return str(v2.create_target_group(**given)["TargetGroups"][0]["TargetGroupArn"])


def listen(v2: Any, arn: str, target: str, port: int = 80, protocol: str = "TCP") -> str:
    made = v2.create_listener(
        LoadBalancerArn=arn,
        Port=port,
        Protocol=protocol,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": target}],
    )
    return str(made["Listeners"][0]["ListenerArn"])


def test_a_network_load_balancer_is_made_once_and_previewed_in_full(aws: StrictAWS) -> None:
    network = Network(aws)
    v2 = aws.client("elbv2")
    aws.configure(provisioning=3600.0)
    made = balancer(v2, network)
    assert ":loadbalancer/net/n/" in made["LoadBalancerArn"]
    assert balancer(v2, network)["LoadBalancerArn"] == made["LoadBalancerArn"]
    with refused("DuplicateLoadBalancerName"):
        balancer(v2, network, Scheme="internal")
    with refused("LoadBalancerNotFound"):
        v2.describe_load_balancers(Names=["n", "none"])
    assert made["State"]["Code"] == "provisioning"
    aws.configure(provisioning=0.0)
    (seen,) = v2.describe_load_balancers(LoadBalancerArns=[made["LoadBalancerArn"]])[
        "LoadBalancers"
    ]
    assert (seen["State"]["Code"], seen["Scheme"]) == ("active", "internet-facing")
    with refused("InvalidConfigurationRequest"):
        v2.set_security_groups(
            LoadBalancerArn=made["LoadBalancerArn"], SecurityGroups=[group(network, "late")]
        )
    eip = network.ec2.allocate_address(Domain="vpc")["AllocationId"]
    mapping = {"SubnetId": network.subnets[0], "AllocationId": eip}
    mapped = v2.create_load_balancer(Name="m", Type="network", SubnetMappings=[mapping])
    (zone,) = mapped["LoadBalancers"][0]["AvailabilityZones"]
    assert zone["LoadBalancerAddresses"] == [{"AllocationId": eip}]
    with refused("ValidationError"):
        v2.describe_tags(ResourceArns=[f"{made['LoadBalancerArn']}{n}" for n in range(21)])


def test_listeners_and_target_groups_must_fit(aws: StrictAWS) -> None:
    network = Network(aws)
    v2 = aws.client("elbv2")
    arn = balancer(v2, network)["LoadBalancerArn"]
    other = balancer(v2, network, Name="o")["LoadBalancerArn"]
    tcp, udp = target_group(v2, network), target_group(v2, network, "u", Protocol="UDP")
    assert target_group(v2, network) == tcp
    told = v2.describe_target_group_attributes(TargetGroupArn=tcp)["Attributes"]
    assert {"Key": "proxy_protocol_v2.enabled", "Value": "false"} in told
    with refused("DuplicateTargetGroupName"):
        target_group(v2, network, Port=81)
    first = listen(v2, arn, tcp)
    assert ":listener/net/n/" in first
    assert listen(v2, arn, tcp) == first
    (listener,) = v2.describe_listeners(ListenerArns=[first])["Listeners"]
    assert "SslPolicy" not in listener
    with refused("DuplicateListener"):
        listen(v2, arn, udp, protocol="UDP")
    with refused("IncompatibleProtocols"):
        listen(v2, arn, tcp, port=53, protocol="UDP")
    with refused("TargetGroupAssociationLimit"):
        listen(v2, other, tcp)
    with refused("ResourceInUse"):
        v2.delete_target_group(TargetGroupArn=tcp)
    (used,) = v2.describe_target_groups(TargetGroupArns=[tcp])["TargetGroups"]
    assert used["LoadBalancerArns"] == [arn]
    v2.delete_load_balancer(LoadBalancerArn=arn)
    v2.delete_load_balancer(LoadBalancerArn=arn)
    (unused,) = v2.describe_target_groups(TargetGroupArns=[tcp])["TargetGroups"]
    assert unused["LoadBalancerArns"] == []
    v2.delete_target_group(TargetGroupArn=tcp)


def test_targets_become_healthy_in_time(aws: StrictAWS) -> None:
    network = Network(aws)
    v2 = aws.client("elbv2")
    aws.configure(health=3600.0)
    arn = balancer(v2, network)["LoadBalancerArn"]
    target = target_group(v2, network)
    ids = network.run(2)
    with refused("InvalidTarget", GONE):
        v2.register_targets(TargetGroupArn=target, Targets=[{"Id": ids[0]}, {"Id": GONE}])
    v2.register_targets(TargetGroupArn=target, Targets=[{"Id": id_} for id_ in ids])

    def states() -> list[str]:
        found = v2.describe_target_health(TargetGroupArn=target)["TargetHealthDescriptions"]
        return [one["TargetHealth"]["State"] for one in found]

    assert states() == ["unused"] * 2
    listen(v2, arn, target)
    assert states() == ["initial"] * 2
    aws.configure(health=0.5, unhealthy=[ids[1]])
    until_equal(states, ["healthy", "unhealthy"])
    network.ec2.stop_instances(InstanceIds=[ids[0]])
    assert states()[0] == "unused"


def test_a_quota_that_is_used_up_refuses_and_fills_again(aws: StrictAWS) -> None:
    ec2, elb = aws.client("ec2"), aws.client("elb")
    aws.throttle(
        {"operation": "DescribeVpcs", "rate": 0.001, "burst": 1},
        {"operation": "DescribeLoadBalancers", "rate": 0.001, "burst": 1},
    )
    ec2.describe_vpcs()
    with refused("RequestLimitExceeded"):
        ec2.describe_vpcs()
    ec2.describe_subnets()
    elb.describe_load_balancers()
    with refused("Throttling"):
        elb.describe_load_balancers()
    aws.throttle({"operation": "DescribeVpcs", "rate": 1000, "burst": 1})
    ec2.describe_vpcs()
    aws.fail("CreateVpc", after_effect=True)
    before = len(ec2.describe_vpcs()["Vpcs"])
    with refused("InternalError"):
        ec2.create_vpc(CidrBlock="10.9.0.0/16")
    assert len(ec2.describe_vpcs()["Vpcs"]) == before + 1
