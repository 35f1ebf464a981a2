"""Takes the steps of a plan for a network load balancer, one call for each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import all_but_refused
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.identity import pairs_of
from proreus.providers.aws.listeners import HealthCheck, PortMapping
from proreus.providers.aws.names import ids_in
from proreus.providers.aws.network import observe
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Balancer,
    Desired,
    Listener,
    Observed,
    TargetGroup,
)
from proreus.providers.aws.network.plan import (
    AddTags,
    ChangeAddressType,
    ChangeAttributes,
    ChangeGroups,
    ChangeHealthCheck,
    ChangeListener,
    ChangeSubnets,
    CreateBalancer,
    CreateListener,
    CreateTargetGroup,
    Delete,
    Deregister,
    Register,
    Step,
)
from proreus.providers.aws.network.preview import changed, in_zones, with_listener
from proreus.providers.aws.own_groups import ChangeRules, CreateGroup, OwnGroups, TagGroup

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

Effect = Callable[[Observed], Observed]
"""How what there is differs after a step."""

_SOURCE_NAT: Final = {"EnablePrefixForIpv6SourceNat": "on"}
_GONE: Final = frozenset({"LoadBalancerNotFound", "ListenerNotFound", "TargetGroupNotFound"})


async def take(
    api: "Api", own_groups: OwnGroups, desired: Desired | None, observed: Observed, step: Step
) -> Effect:
    """Take one step; return how it changes what was observed.

    Args:
        api: The way to AWS.
        own_groups: The way to security groups.
        desired: What is made; None for a deletion.
        observed: What there is.
        step: What is to be done.

    Raises:
        CloudError: AWS refuses.
    """
    match step:
        case Delete():
            return await _delete(api, step)
        case Register() | Deregister():
            return await _retarget(api, observed, step)
        case AddTags(arn, tags):
            await api.call("elbv2", "AddTags", ResourceArns=[arn], Tags=pairs_of(tags))
            return lambda before: changed(before, step)
        case ChangeAttributes() | ChangeAddressType() | ChangeSubnets() | ChangeGroups():
            return await _change_balancer(api, observed, step)
        case ChangeHealthCheck():
            await _change_health_check(api, observed, step)
            return lambda before: changed(before, step)
    if desired is None:
        raise AssertionError(step)
    return await _create(api, own_groups, desired, observed, step)


async def _create(
    api: "Api", own_groups: OwnGroups, desired: Desired, observed: Observed, step: Step
) -> Effect:
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            own = await own_groups.take(step, desired.own, desired.tags, observed.group)
            return lambda before: msgspec.structs.replace(before, group=own)
        case CreateBalancer(groups):
            made = await _create_balancer(api, desired, groups)
            return lambda before: msgspec.structs.replace(before, balancer=made)
        case CreateTargetGroup(name, mapping):
            group = await _create_group(api, desired, name, mapping)
            return lambda before: msgspec.structs.replace(
                before, target_groups=(*before.target_groups, group)
            )
        case CreateListener(mapping, target_group) if observed.balancer is not None:
            answer = await api.call(
                "elbv2",
                "CreateListener",
                LoadBalancerArn=observed.balancer.arn,
                Tags=pairs_of(desired.tags),
                **_forward(mapping, target_group),
            )
            return lambda before: with_listener(before, observe.listener_of(answer["Listeners"][0]))
        case ChangeListener(arn, mapping, target_group):
            answer = await api.call(
                "elbv2", "ModifyListener", ListenerArn=arn, **_forward(mapping, target_group)
            )
            return lambda before: with_listener(before, observe.listener_of(answer["Listeners"][0]))
    raise AssertionError(step)


async def _create_balancer(api: "Api", desired: Desired, groups: tuple[str, ...]) -> Balancer:
    mappings = [
        {
            "SubnetId": one.subnet,
            **({"AllocationId": one.allocation} if one.allocation else {}),
            **({"PrivateIPv4Address": one.private_address} if one.private_address else {}),
        }
        for one in desired.placed
    ]
    secured = {"SecurityGroups": list(groups)} if groups else {}
    answer = await api.call(
        "elbv2",
        "CreateLoadBalancer",
        Name=desired.name,
        Type=observe.NETWORK,
        Scheme=desired.scheme,
        IpAddressType=desired.address_type,
        SubnetMappings=mappings,
        Tags=pairs_of(desired.tags),
        **secured,
        **(_SOURCE_NAT if desired.source_nat else {}),
    )
    found = answer["LoadBalancers"][0]
    attributes = await api.call(
        "elbv2", "DescribeLoadBalancerAttributes", LoadBalancerArn=found["LoadBalancerArn"]
    )
    return msgspec.structs.replace(
        observe.balancer_of(found, desired.tags), attributes=observe.attributes_of(attributes)
    )


async def _create_group(
    api: "Api", desired: Desired, name: str, mapping: PortMapping
) -> TargetGroup:
    answer = await api.call(
        "elbv2",
        "CreateTargetGroup",
        Name=name,
        Protocol=mapping.target_protocol,
        Port=mapping.target_port,
        VpcId=desired.vpc,
        TargetType="instance",
        IpAddressType=desired.target_type,
        Tags=pairs_of(desired.tags),
        HealthCheckProtocol=mapping.health.protocol,
        HealthCheckIntervalSeconds=mapping.health.interval,
        **_health(mapping.health),
    )
    described = answer["TargetGroups"][0]
    arn = described["TargetGroupArn"]
    # AWS takes the same request once more for a success, whosesoever the group is.
    tags = await observe.tags_by_arn(api, [arn])
    if not desired.tags.items() <= tags.get(arn, {}).items():
        raise CloudError(
            f"the target group {name} is there with tags of another owner: look at it; clusters in"
            " one account need a KubernetesClusterID each"
        )
    return await observe.target_group_of(api, described, tags)


async def _change_health_check(api: "Api", observed: Observed, step: ChangeHealthCheck) -> None:
    arn, health = step.arn, step.health
    have = next((one.health for one in observed.target_groups if one.arn == arn), health)
    drifted: dict[str, Any] = {}
    # Both are part of the group's name, so they differ only if somebody has changed them.
    if have.protocol != health.protocol:
        drifted["HealthCheckProtocol"] = health.protocol
    if have.interval != health.interval:
        drifted["HealthCheckIntervalSeconds"] = health.interval
    await api.call("elbv2", "ModifyTargetGroup", TargetGroupArn=arn, **drifted, **_health(health))


def _health(health: HealthCheck) -> dict[str, Any]:
    """Return the fields of a health check that can be changed."""
    return {
        **({"HealthCheckTimeoutSeconds": health.timeout} if health.timeout else {}),
        "HealthCheckPort": health.port,
        "HealthyThresholdCount": health.healthy,
        "UnhealthyThresholdCount": health.unhealthy,
        **({"HealthCheckPath": health.path} if health.path else {}),
    }


def _forward(mapping: PortMapping, target_group: str) -> dict[str, Any]:
    tls = {"Certificates": [{"CertificateArn": mapping.certificate}]} if mapping.certificate else {}
    return {
        "Port": mapping.port,
        "Protocol": mapping.protocol,
        "DefaultActions": [{"Type": "forward", "TargetGroupArn": target_group}],
        **tls,
        **({"SslPolicy": mapping.policy} if mapping.policy else {}),
    }


async def _retarget(api: "Api", observed: Observed, step: Register | Deregister) -> Effect:
    arn, instances = step.arn, step.instances
    if isinstance(step, Deregister):
        await api.call("elbv2", "DeregisterTargets", TargetGroupArn=arn, Targets=_ids(instances))
        return lambda before: changed(before, step)

    async def send(instances: list[str]) -> None:
        await api.call("elbv2", "RegisterTargets", TargetGroupArn=arn, Targets=_ids(instances))

    new = [one for one in instances if one not in observed.refused]
    refused = await all_but_refused(send, new, _unfit)
    registered = Register(arn, tuple(one for one in new if one not in refused))
    return lambda before: msgspec.structs.replace(
        changed(before, registered), refused={**before.refused, **refused}
    )


def _unfit(error: Refused) -> frozenset[str]:
    return ids_in(error.text) if error.code == "InvalidTarget" else frozenset()


async def _delete(api: "Api", step: Delete) -> Effect:
    part = step.part
    match part:
        case Balancer():
            operation, field = "DeleteLoadBalancer", "LoadBalancerArn"
        case Listener():
            operation, field = "DeleteListener", "ListenerArn"
        case TargetGroup():
            operation, field = "DeleteTargetGroup", "TargetGroupArn"
    try:
        await api.call("elbv2", operation, **{field: part.arn})
    except Refused as error:
        if error.code not in _GONE:
            raise
    return lambda before: changed(before, step)


async def _change_balancer(
    api: "Api",
    observed: Observed,
    step: ChangeAttributes | ChangeAddressType | ChangeSubnets | ChangeGroups,
) -> Effect:
    arn = observed.balancer.arn if observed.balancer is not None else ""
    match step:
        case ChangeAttributes(of, attributes, of_target_group):
            operation, field = (
                ("ModifyTargetGroupAttributes", "TargetGroupArn")
                if of_target_group
                else ("ModifyLoadBalancerAttributes", "LoadBalancerArn")
            )
            await api.call("elbv2", operation, **{field: of}, Attributes=pairs_of(attributes))
        case ChangeAddressType(address_type):
            await api.call(
                "elbv2", "SetIpAddressType", LoadBalancerArn=arn, IpAddressType=address_type
            )
        case ChangeSubnets(subnets, source_nat):
            answer = await api.call(
                "elbv2",
                "SetSubnets",
                LoadBalancerArn=arn,
                Subnets=list(subnets),
                **({"IpAddressType": DUALSTACK, **_SOURCE_NAT} if source_nat else {}),
            )
            zones = {one["ZoneName"]: one["SubnetId"] for one in answer["AvailabilityZones"]}
            return lambda before: in_zones(changed(before, step), zones)
        case ChangeGroups(groups):
            await api.call(
                "elbv2", "SetSecurityGroups", LoadBalancerArn=arn, SecurityGroups=list(groups)
            )
    return lambda before: changed(before, step)


def _ids(instances: "tuple[str, ...] | list[str]") -> list[dict[str, str]]:
    # Without a port: each gets traffic at the port of the group.
    return [{"Id": one} for one in instances]
