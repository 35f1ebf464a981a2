"""Network load balancers, as the API reference of 2015-12-01 has them."""

import re
from typing import Any

from . import elb
from .groups import release
from .instances import find, state_of
from .world import CORRECTIONS, Answer, AWSError, Params, World, corrects

MOST_TAG_ARNS = 20
# A listener's protocol, and those of target groups that it may forward to.
COMPATIBLE = {
    "TCP": {"TCP", "TCP_UDP"},
    "UDP": {"UDP", "TCP_UDP"},
    "TCP_UDP": {"TCP_UDP"},
    "TLS": {"TCP", "TLS"},
}
# Attributes of target groups of hosts, as AWS has them at first (TargetGroupAttribute).
_AT_FIRST = {"preserve_client_ip.enabled": "true", "proxy_protocol_v2.enabled": "false"}
_ARN = re.compile(r"(:elasticloadbalancing:[^:]*:[^:]*:[a-z-]+/)(app|net)(/[^/]+)")


def renamed(value: Any, kind: str, names: set[str] | None = None) -> Any:
    """The value with ARNs of network load balancers as AWS (net) or moto (app) writes them."""
    if isinstance(value, dict):
        return {key: renamed(one, kind, names) for key, one in value.items()}
    if isinstance(value, list):
        return [renamed(one, kind, names) for one in value]
    if isinstance(value, str):
        return _ARN.sub(
            lambda m: f"{m[1]}{kind}{m[3]}" if names is None or m[3][1:] in names else m[0], value
        )
    return value


def ask(world: World, operation: str, params: Params) -> Answer:
    """Moto's answer, with ARNs translated both ways."""
    answer = world.moto("elbv2", operation, renamed(params, "app"))
    balancers = world.backend("elbv2").load_balancers.values()
    answered: Answer = renamed(
        answer, "net", {one.name for one in balancers if one.type == "network"}
    )
    return answered


def by_name(world: World, name: str) -> Any:
    balancers = world.backend("elbv2").load_balancers.values()
    return next((one for one in balancers if one.name == name), None)


def by_arn(world: World, arn: str) -> Any:
    found = world.backend("elbv2").load_balancers.get(renamed(arn, "app"))
    if found is None:
        raise AWSError("LoadBalancerNotFound", "One or more load balancers not found")
    return found


def group(world: World, arn: str) -> Any:
    found = world.backend("elbv2").target_groups.get(arn)
    if found is None:
        raise AWSError("TargetGroupNotFound", "One or more target groups not found")
    return found


def _config(params: Params) -> tuple[Any, ...]:
    mappings = params.get("SubnetMappings") or [
        {"SubnetId": id_} for id_ in params.get("Subnets") or ()
    ]
    return (
        params.get("Type") or "application",
        params.get("Scheme") or "internet-facing",
        params.get("IpAddressType") or "ipv4",
        params.get("EnablePrefixForIpv6SourceNat") or "off",
        frozenset(tuple(sorted(one.items())) for one in mappings),
        frozenset(params.get("SecurityGroups") or ()),
    )


@corrects("elbv2", "CreateLoadBalancer")
def create(world: World, params: Params) -> Answer:
    """The same once more succeeds; other settings under the name are refused."""
    params.setdefault("Scheme", "internet-facing")
    name = params["Name"]
    present = by_name(world, name)
    if present is not None:
        if world.extra[f"elbv2/{name}"]["config"] != _config(params):
            raise AWSError(
                "DuplicateLoadBalancerName", f"A load balancer named '{name}' already exists"
            )
        return describe(world, {"Names": [name]})
    mappings = params.get("SubnetMappings") or []
    subnets = [one["SubnetId"] for one in mappings] or list(params.get("Subnets") or ())
    zones = elb.zones_of(world, subnets)
    if len(set(zones)) < len(zones):
        raise AWSError(
            "InvalidConfigurationRequest", "Two subnets of one Availability Zone were given"
        )
    known = {id_ for one in world.backend("ec2").groups.values() for id_ in one}
    if not known.issuperset(params.get("SecurityGroups") or ()):
        raise AWSError("InvalidSecurityGroup", "One or more security groups are invalid")
    addresses = world.backend("ec2").addresses
    ids = {one.allocation_id for one in addresses.values()} if isinstance(addresses, dict) else {
        one.allocation_id for one in addresses
    }  # fmt: skip
    for one in mappings:
        if one.get("AllocationId", next(iter(ids), "")) not in ids and "AllocationId" in one:
            raise AWSError("AllocationIdNotFound", f"'{one['AllocationId']}' does not exist")
    world.extra[f"elbv2/{name}"] = {
        "config": _config(params),
        "mappings": {one["SubnetId"]: one for one in mappings},
        "had_groups": bool(params.get("SecurityGroups")),
        "source_nat": params.get("EnablePrefixForIpv6SourceNat") or "off",
        "born": world.now(),
    }
    ask(world, "CreateLoadBalancer", params)
    return describe(world, {"Names": [name]})


@corrects("elbv2", "DescribeLoadBalancers")
def describe(world: World, params: Params) -> Answer:
    """With its addresses, its real state and name; any that is missing is an error."""
    for name in params.get("Names") or ():
        if by_name(world, name) is None:
            raise AWSError("LoadBalancerNotFound", f"Load balancers '[{name}]' not found")
    for arn in params.get("LoadBalancerArns") or ():
        by_arn(world, arn)
    answer = ask(world, "DescribeLoadBalancers", params)
    for one in answer["LoadBalancers"]:
        keep = world.extra.get(f"elbv2/{one['LoadBalancerName']}")
        if keep is None:
            continue
        one["EnablePrefixForIpv6SourceNat"] = keep["source_nat"]
        number = one["LoadBalancerArn"].rsplit("/", 1)[1]
        one["DNSName"] = f"{one['LoadBalancerName']}-{number}.elb.{world.region}.amazonaws.com"
        is_ready = world.now() >= keep["born"] + world.faults.settings.provisioning
        one["State"] = {"Code": "active" if is_ready else "provisioning"}
        for zone in one["AvailabilityZones"]:
            mapping = keep["mappings"].get(zone["SubnetId"], {})
            zone["LoadBalancerAddresses"] = [
                {
                    key: mapping[key]
                    for key in ("AllocationId", "PrivateIPv4Address", "IPv6Address")
                    if key in mapping
                }
            ] if len(mapping) > 1 else []  # fmt: skip
    return answer


@corrects("elbv2", "DeleteLoadBalancer")
def delete(world: World, params: Params) -> Answer:
    """One that is gone is no error; its groups stay in use for a while."""
    arn = renamed(params["LoadBalancerArn"], "app")
    found = world.backend("elbv2").load_balancers.get(arn)
    if found is None:
        return {}
    if found.attrs.get("deletion_protection.enabled") == "true":
        raise AWSError("OperationNotPermitted", "Deletion protection is enabled")
    release(world, list(found.security_groups or ()))
    world.extra.pop(f"elbv2/{found.name}", None)
    return ask(world, "DeleteLoadBalancer", params)


@corrects("elbv2", "SetSecurityGroups")
def set_groups(world: World, params: Params) -> Answer:
    """Only a network load balancer that was made with groups may have others."""
    found = by_arn(world, params["LoadBalancerArn"])
    keep = world.extra.get(f"elbv2/{found.name}", {"had_groups": True})
    if found.type == "network" and not keep["had_groups"]:
        raise AWSError(
            "InvalidConfigurationRequest",
            "Security groups cannot be set on a load balancer that was created without them",
        )
    return ask(world, "SetSecurityGroups", params)


@corrects("elbv2", "SetSubnets")
def set_subnets(world: World, params: Params) -> Answer:
    """It may change the address type, too, and whether IPv6 prefixes are used."""
    found = by_arn(world, params["LoadBalancerArn"])
    address_type = params.get("IpAddressType") or found.ip_address_type
    source_nat = params.get("EnablePrefixForIpv6SourceNat")
    if source_nat == "on" and address_type != "dualstack":
        raise AWSError("InvalidConfigurationRequest", "IPv6 prefixes need the type dualstack")
    if source_nat:
        world.extra[f"elbv2/{found.name}"]["source_nat"] = source_nat
    found.ip_address_type = address_type
    answer = ask(world, "SetSubnets", params)
    return answer | {"IpAddressType": address_type}


@corrects("elbv2", "SetIpAddressType")
def set_address_type(world: World, params: Params) -> Answer:
    """Dual stack takes UDP only from a prefix (user guide, listeners)."""
    found = by_arn(world, params["LoadBalancerArn"])
    if params["IpAddressType"] == "dualstack":
        for one in found.listeners.values():
            _check_udp(world, found, one.protocol)
    return ask(world, "SetIpAddressType", params)


def _check_udp(world: World, balancer: Any, protocol: str) -> None:
    keep = world.extra.get(f"elbv2/{balancer.name}", {})
    if "UDP" in protocol and keep.get("source_nat") != "on":
        raise AWSError(
            "InvalidConfigurationRequest",
            "UDP listeners of a dualstack load balancer need a prefix for IPv6 source NAT",
        )


def _check_listener(world: World, params: Params, protocol: str, balancer_arn: str) -> None:
    """A listener forwards to compatible protocols, and a group serves one load balancer."""
    balancer = world.backend("elbv2").load_balancers[balancer_arn]
    if balancer.ip_address_type == "dualstack":
        _check_udp(world, balancer, protocol)
    if protocol == "TLS" and not params.get("Certificates"):
        raise AWSError("ValidationError", "A certificate must be specified for TLS listeners")
    for action in params.get("DefaultActions") or ():
        target = group(world, action["TargetGroupArn"])
        if target.protocol not in COMPATIBLE[protocol]:
            raise AWSError(
                "IncompatibleProtocols",
                f"Listener protocol '{protocol}' is not supported with a target group with"
                f" protocol '{target.protocol}'",
            )
        if any(arn != balancer_arn for arn in _balancers(world, target.arn)):
            raise AWSError(
                "TargetGroupAssociationLimit",
                f"The target group '{target.arn}' is associated with another load balancer",
            )


def _balancers(world: World, target_arn: str) -> list[str]:
    """The load balancers, with moto's ARNs, that forward to a target group."""
    return [
        arn
        for arn, one in world.backend("elbv2").load_balancers.items()
        if any(
            action.data.get("TargetGroupArn") == target_arn
            for listener in one.listeners.values()
            for action in listener.default_actions
        )
    ]


@corrects("elbv2", "CreateListener")
def create_listener(world: World, params: Params) -> Answer:
    """A port belongs to one listener; the very same one once more succeeds."""
    found = by_arn(world, params["LoadBalancerArn"])
    _check_listener(world, params, params["Protocol"], found.arn)
    for one in found.listeners.values():
        if int(one.port) != int(params["Port"]):
            continue
        targets = [action.data.get("TargetGroupArn") for action in one.default_actions]
        wanted = [action["TargetGroupArn"] for action in params["DefaultActions"]]
        if one.protocol != params["Protocol"] or targets != wanted:
            raise AWSError("DuplicateListener", "A listener already exists on this port")
        return ask(world, "DescribeListeners", {"ListenerArns": [renamed(one.arn, "net")]})
    return ask(world, "CreateListener", params)


@corrects("elbv2", "DescribeListeners")
def listeners(world: World, params: Params) -> Answer:
    """Only listeners that end TLS have a policy for it."""
    answer = ask(world, "DescribeListeners", params)
    for one in answer["Listeners"]:
        if one["Protocol"] != "TLS":
            one.pop("SslPolicy", None)
    return answer


@corrects("elbv2", "ModifyListener")
def modify_listener(world: World, params: Params) -> Answer:
    arn = renamed(params["ListenerArn"], "app")
    for one in world.backend("elbv2").load_balancers.values():
        if arn in one.listeners:
            protocol = params.get("Protocol") or one.listeners[arn].protocol
            given = params
            if protocol == "TLS" and "Certificates" not in params:
                given = params | {"Certificates": [{}]}
            _check_listener(world, given, protocol, one.arn)
    return ask(world, "ModifyListener", params)


@corrects("elbv2", "CreateTargetGroup")
def create_group(world: World, params: Params) -> Answer:
    """The same once more succeeds; other settings under the name are refused."""
    name = params["Name"]
    settings = {key: one for key, one in params.items() if key != "Tags"}
    targets = world.backend("elbv2").target_groups.values()
    present = next((one for one in targets if one.name == name), None)
    if present is not None:
        if world.extra.get(present.arn) != settings:
            raise AWSError(
                "DuplicateTargetGroupName", f"A target group named '{name}' already exists"
            )
        return describe_groups(world, {"TargetGroupArns": [present.arn]})
    answer = ask(world, "CreateTargetGroup", params)
    world.extra[answer["TargetGroups"][0]["TargetGroupArn"]] = settings
    return answer


@corrects("elbv2", "DescribeTargetGroups")
def describe_groups(world: World, params: Params) -> Answer:
    """A group's load balancers are those whose listeners forward to it now."""
    asked = dict(params)
    balancer = asked.pop("LoadBalancerArn", "")
    if balancer:
        by_arn(world, balancer)
    for arn in asked.get("TargetGroupArns") or ():
        group(world, arn)
    known = {one.name for one in world.backend("elbv2").target_groups.values()}
    for name in asked.get("Names") or ():
        if name not in known:
            raise AWSError("TargetGroupNotFound", f"Target groups '{name}' not found")
    answer = ask(world, "DescribeTargetGroups", asked)
    for one in answer["TargetGroups"]:
        used = _balancers(world, one["TargetGroupArn"])
        one["LoadBalancerArns"] = [renamed(arn, "net") for arn in used]
    if balancer:
        answer["TargetGroups"] = [
            one for one in answer["TargetGroups"] if balancer in one["LoadBalancerArns"]
        ]
    return answer


@corrects("elbv2", "RegisterTargets")
def register(world: World, params: Params) -> Answer:
    """Instances must run in the group's VPC; all or none are registered."""
    target = group(world, params["TargetGroupArn"])
    for one in params["Targets"]:
        if target.target_type != "instance":
            break
        instance = find(world, one["Id"])
        if instance is None or state_of(instance) != "running":
            raise AWSError(
                "InvalidTarget",
                f"The following targets are not in a running state and cannot be registered:"
                f" '{one['Id']}'",
            )
    for one in params["Targets"]:
        world.born.setdefault(f"{target.arn}/{one['Id']}", world.now())
    return ask(world, "RegisterTargets", params)


@corrects("elbv2", "DeregisterTargets")
def deregister(world: World, params: Params) -> Answer:
    for one in params["Targets"]:
        world.born.pop(f"{params['TargetGroupArn']}/{one['Id']}", None)
    return ask(world, "DeregisterTargets", params)


@corrects("elbv2", "DescribeTargetHealth")
def health(world: World, params: Params) -> Answer:
    """Unused without a listener, initial at first, then what the health checks say."""
    target = group(world, params["TargetGroupArn"])
    answer = ask(world, "DescribeTargetHealth", params)
    is_used = bool(_balancers(world, target.arn))
    settings = world.faults.settings
    for one in answer["TargetHealthDescriptions"]:
        id_ = one["Target"]["Id"]
        if one["TargetHealth"].get("Reason") == "Target.NotRegistered":
            continue
        instance = find(world, id_) if target.target_type == "instance" else None
        is_checked = world.age(f"{target.arn}/{id_}") >= settings.health
        if not is_used:
            one["TargetHealth"] = {"State": "unused", "Reason": "Target.NotInUse"}
        elif target.target_type == "instance" and (
            instance is None or state_of(instance) != "running"
        ):
            one["TargetHealth"] = {"State": "unused", "Reason": "Target.InvalidState"}
        elif not is_checked:
            one["TargetHealth"] = {"State": "initial", "Reason": "Elb.RegistrationInProgress"}
        elif id_ in settings.unhealthy:
            one["TargetHealth"] = {"State": "unhealthy", "Reason": "Target.FailedHealthChecks"}
        else:
            one["TargetHealth"] = {"State": "healthy"}
    return answer


@corrects("elbv2", "DescribeTags")
def tags(world: World, params: Params) -> Answer:
    if len(params["ResourceArns"]) > MOST_TAG_ARNS:
        raise AWSError("ValidationError", "At most 20 resources may be named")
    return ask(world, "DescribeTags", params)


@corrects("elbv2", "DescribeTargetGroupAttributes")
def group_attributes(world: World, params: Params) -> Answer:
    """Moto lacks those of network load balancers, while they are as they are at first."""
    told = ask(world, "DescribeTargetGroupAttributes", params)["Attributes"]
    found = _AT_FIRST | {one["Key"]: one["Value"] for one in told}
    return {"Attributes": [{"Key": key, "Value": value} for key, value in found.items()]}


def _translated(operation: str) -> None:
    CORRECTIONS["elbv2", operation] = lambda world, params: ask(world, operation, params)


for _operation in (
    "AddTags", "DeleteListener", "DeleteTargetGroup", "DescribeLoadBalancerAttributes",
    "ModifyLoadBalancerAttributes", "ModifyTargetGroup", "ModifyTargetGroupAttributes",
    "RemoveTags",
):  # fmt: skip
    _translated(_operation)
