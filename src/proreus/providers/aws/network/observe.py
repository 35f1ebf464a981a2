"""Read a network load balancer with its listeners and target groups."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.annotations import TRAFFIC_PORT
from proreus.providers.aws.identity import tags_of
from proreus.providers.aws.listeners import HealthCheck
from proreus.providers.aws.network.parts import Balancer, Listener, Observed, TargetGroup
from proreus.providers.aws.network.steps import NETWORK

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_GOING: Final = "Target.DeregistrationInProgress"
_MOST_ARNS: Final = 20
_HTTP: Final = ("HTTP", "HTTPS")

Described = Mapping[str, Any]


async def find_balancer(api: "Api", name: str) -> Described | None:
    """Return the load balancer of that name, of any type; None without one.

    Raises:
        CloudError: AWS does not answer.
    """
    try:
        answer = await api.call("elbv2", "DescribeLoadBalancers", Names=[name])
    except Refused as error:
        if error.code == "LoadBalancerNotFound":
            return None
        raise
    found: Described = answer["LoadBalancers"][0]
    return found


async def find_network(api: "Api", name: str) -> Described | None:
    """Return the network load balancer of that name; None without one.

    Raises:
        CloudError: AWS does not answer.
    """
    found = await find_balancer(api, name)
    return found if found is not None and found["Type"] == NETWORK else None


async def observe(
    api: "Api", balancer: Described | None, *, prefix: str = "", names: Iterable[str] = ()
) -> Observed:
    """Read everything of the load balancer that `find_balancer` found.

    Args:
        api: The client of AWS.
        balancer: The load balancer that was found.
        prefix: The beginning of names of target groups to look for if one of `names` is not among
            those that the load balancer forwards to: an attempt that was cut off may have left
            them. "" looks for none.
        names: The names of the target groups that are needed.

    Raises:
        CloudError: AWS does not answer, or a part went away meanwhile.
    """
    listeners: Sequence[Described] = ()
    groups: list[Described] = []
    if balancer is not None:
        arn = balancer["LoadBalancerArn"]
        listeners, groups = await asyncio.gather(
            api.pages("elbv2", "DescribeListeners", "Listeners", LoadBalancerArn=arn),
            api.pages("elbv2", "DescribeTargetGroups", "TargetGroups", LoadBalancerArn=arn),
        )
    known = {group["TargetGroupName"] for group in groups}
    if prefix and not known.issuperset(names):
        every = await api.pages("elbv2", "DescribeTargetGroups", "TargetGroups")
        groups += (
            one
            for one in every
            if one["TargetGroupName"].startswith(prefix)
            and one["TargetGroupName"] not in known
            and not one.get("LoadBalancerArns")
        )
    arns = [group["TargetGroupArn"] for group in groups]
    tags = await tags_by_arn(api, [*arns, *([balancer["LoadBalancerArn"]] if balancer else [])])
    return Observed(
        await with_attributes(api, balancer, tags.get(balancer["LoadBalancerArn"], {}))
        if balancer is not None
        else None,
        tuple(map(listener_of, listeners)),
        tuple(await asyncio.gather(*(target_group_of(api, group, tags) for group in groups))),
    )


async def tags_by_arn(api: "Api", arns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read the tags of parts, by ARN.

    Raises:
        CloudError: AWS does not answer, or one of them is gone.
    """
    answers = await asyncio.gather(
        *(
            api.call("elbv2", "DescribeTags", ResourceArns=chunk)
            for chunk in in_parts(arns, _MOST_ARNS)
        )
    )
    return {
        description["ResourceArn"]: tags_of(description)
        for answer in answers
        for description in answer["TagDescriptions"]
    }


def subnets_of(balancer: Described | None) -> frozenset[str]:
    """Return the ids of the subnets of a load balancer, if there is one. Pure."""
    zones = balancer["AvailabilityZones"] if balancer is not None else ()
    return frozenset(str(zone["SubnetId"]) for zone in zones)


def balancer_of(balancer: Described, tags: Mapping[str, str]) -> Balancer:
    """Return a load balancer from its description, without its attributes. Pure."""
    return Balancer(
        arn=balancer["LoadBalancerArn"],
        name=balancer["LoadBalancerName"],
        dns_name=balancer["DNSName"],
        scheme=balancer["Scheme"],
        state=balancer.get("State", {}).get("Code", ""),
        address_type=balancer.get("IpAddressType", "ipv4"),
        zones={zone["ZoneName"]: zone["SubnetId"] for zone in balancer["AvailabilityZones"]},
        source_nat=balancer.get("EnablePrefixForIpv6SourceNat") == "on",
        groups=tuple(balancer.get("SecurityGroups") or ()),
        tags=tags,
    )


async def with_attributes(api: "Api", balancer: Described, tags: Mapping[str, str]) -> Balancer:
    """Read the attributes of a load balancer, and return it with them.

    Raises:
        CloudError: AWS does not answer, or the load balancer is gone.
    """
    arn = balancer["LoadBalancerArn"]
    answer = await api.call("elbv2", "DescribeLoadBalancerAttributes", LoadBalancerArn=arn)
    return msgspec.structs.replace(balancer_of(balancer, tags), attributes=attributes_of(answer))


def attributes_of(answer: Described) -> dict[str, str]:
    """Return attributes by key. Pure."""
    return {attribute["Key"]: attribute.get("Value", "") for attribute in answer["Attributes"]}


def listener_of(described: Described) -> Listener:
    """Return a listener from its description. Pure."""
    actions = described.get("DefaultActions") or ()
    certificates = described.get("Certificates") or ()
    return Listener(
        arn=described["ListenerArn"],
        port=int(described["Port"]),
        protocol=described["Protocol"],
        target_group=next((action.get("TargetGroupArn", "") for action in actions), ""),
        certificate=next(
            (certificate.get("CertificateArn", "") for certificate in certificates), ""
        ),
        policy=described.get("SslPolicy") or "",
    )


async def target_group_of(
    api: "Api", described: Described, tags: Mapping[str, Mapping[str, str]]
) -> TargetGroup:
    """Read a target group with its targets and attributes.

    Raises:
        CloudError: AWS does not answer, or the target group is gone.
    """
    arn = described["TargetGroupArn"]
    health, attributes = await asyncio.gather(
        api.call("elbv2", "DescribeTargetHealth", TargetGroupArn=arn),
        api.call("elbv2", "DescribeTargetGroupAttributes", TargetGroupArn=arn),
    )
    return TargetGroup(
        arn=arn,
        name=described["TargetGroupName"],
        health=health_of(described),
        targets=frozenset(
            description["Target"]["Id"]
            for description in health["TargetHealthDescriptions"]
            if description.get("TargetHealth", {}).get("Reason") != _GOING
        ),
        attributes=attributes_of(attributes),
        tags=tags.get(arn, {}),
    )


def health_of(described: Described) -> HealthCheck:
    """Return the health check in the description of a target group. Pure."""
    protocol = described["HealthCheckProtocol"]
    return HealthCheck(
        protocol=protocol,
        port=str(described.get("HealthCheckPort", TRAFFIC_PORT)),
        path=described.get("HealthCheckPath") or "" if protocol in _HTTP else "",
        healthy=int(described["HealthyThresholdCount"]),
        unhealthy=int(described["UnhealthyThresholdCount"]),
        interval=int(described["HealthCheckIntervalSeconds"]),
        timeout=int(described.get("HealthCheckTimeoutSeconds") or 0),
    )
