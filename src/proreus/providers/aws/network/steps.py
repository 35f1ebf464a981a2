"""Make the steps that change a network load balancer: call, effect and preview of each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.aws.calls import Call
from proreus.providers.aws.identity import pairs_of
from proreus.providers.aws.listeners import HealthCheck, PortMapping
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Balancer,
    Desired,
    Listener,
    Observed,
    Part,
    TargetGroup,
)
from proreus.providers.aws.own_groups import RuleChange

Step = PlannedCall[Call | RuleChange, Observed]

NETWORK: Final = "network"
"""The type of these load balancers; others of the same name are somebody else's."""
_SOURCE_NAT: Final = {"EnablePrefixForIpv6SourceNat": "on"}


def create_balancer(desired: Desired, groups: tuple[str, ...]) -> Step:
    """Return the step to make the load balancer: with these groups, or without any for ever."""
    subnets = [
        {
            "SubnetId": placed.subnet,
            **({"AllocationId": placed.allocation} if placed.allocation else {}),
            **({"PrivateIPv4Address": placed.private_address} if placed.private_address else {}),
        }
        for placed in desired.placed
    ]
    parameters = {
        "Name": desired.name,
        "Type": NETWORK,
        "Scheme": desired.scheme,
        "IpAddressType": desired.address_type,
        "SubnetMappings": subnets,
        "Tags": pairs_of(desired.tags),
        **({"SecurityGroups": list(groups)} if groups else {}),
        **(_SOURCE_NAT if desired.source_nat else {}),
    }
    new = Balancer(
        arn=f"new {desired.name}",
        name=desired.name,
        dns_name="",
        scheme=desired.scheme,
        state="provisioning",
        address_type=desired.address_type,
        zones={placed.zone: placed.subnet for placed in desired.placed},
        source_nat=desired.source_nat,
        groups=groups,
        tags=desired.tags,
    )
    ids = " ".join(placed.subnet for placed in desired.placed)
    detail = f"{desired.scheme}, {desired.address_type}, subnets {ids}"
    return _step(
        "CreateLoadBalancer",
        parameters,
        lambda before: before.having(new),
        PartChange("create", new.title, detail),
    )


def create_target_group(desired: Desired, name: str, mapping: PortMapping) -> Step:
    """Return the step to make the target group of a listener."""
    health = mapping.health
    parameters = {
        "Name": name,
        "Protocol": mapping.target_protocol,
        "Port": mapping.target_port,
        "VpcId": desired.vpc,
        "TargetType": "instance",
        "IpAddressType": desired.target_type,
        "Tags": pairs_of(desired.tags),
        "HealthCheckProtocol": health.protocol,
        "HealthCheckIntervalSeconds": health.interval,
        **_health(health),
    }
    new = TargetGroup(f"new {name}", name, health, tags=desired.tags)
    return _step(
        "CreateTargetGroup",
        parameters,
        lambda before: before.having(new),
        PartChange("create", new.title, f"{mapping.target_protocol} {mapping.target_port}"),
    )


def create_listener(desired: Desired, balancer: str, mapping: PortMapping, group: str) -> Step:
    """Return the step to make a listener that forwards to a target group."""
    parameters = {
        "LoadBalancerArn": balancer,
        "Tags": pairs_of(desired.tags),
        **_forward(mapping, group),
    }
    return _listener_step("create", f"new {mapping.port}", parameters, mapping, group)


def modify_listener(arn: str, mapping: PortMapping, group: str) -> Step:
    """Return the step to change a listener, or where it forwards to."""
    parameters = {"ListenerArn": arn, **_forward(mapping, group)}
    return _listener_step("change", arn, parameters, mapping, group)


def modify_health_check(group: TargetGroup, desired: HealthCheck) -> Step:
    """Return the step to change the health check of a target group."""
    drifted: dict[str, Any] = {}
    # Both are part of the group's name, so they differ only if somebody has changed them.
    if group.health.protocol != desired.protocol:
        drifted["HealthCheckProtocol"] = desired.protocol
    if group.health.interval != desired.interval:
        drifted["HealthCheckIntervalSeconds"] = desired.interval
    detail = f"{desired.protocol} {desired.port}{desired.path} every {desired.interval} s"
    return _step(
        "ModifyTargetGroup",
        {"TargetGroupArn": group.arn, **drifted, **_health(desired)},
        lambda before: before.changed(group, lambda _: {"health": desired}),
        PartChange("change", f"health check of {group.title}", detail),
    )


def modify_attributes(part: Balancer | TargetGroup, attributes: Mapping[str, str]) -> Step:
    """Return the step to set attributes of the load balancer or of a target group."""
    operation, field = (
        ("ModifyLoadBalancerAttributes", "LoadBalancerArn")
        if isinstance(part, Balancer)
        else ("ModifyTargetGroupAttributes", "TargetGroupArn")
    )
    detail = ", ".join(f"{key}={value}" for key, value in attributes.items())
    return _step(
        operation,
        {field: part.arn, "Attributes": pairs_of(attributes)},
        lambda before: before.changed(
            part, lambda now: {"attributes": {**now.attributes, **attributes}}
        ),
        PartChange("change", part.title, detail),
    )


def add_tags(part: Balancer | TargetGroup, tags: Mapping[str, str]) -> Step:
    """Return the step to add tags to a part."""
    return _step(
        "AddTags",
        {"ResourceArns": [part.arn], "Tags": pairs_of(tags)},
        lambda before: before.changed(part, lambda now: {"tags": {**now.tags, **tags}}),
        PartChange("change", part.title, f"tags {' '.join(sorted(tags))}"),
    )


def set_address_type(balancer: Balancer, address_type: str) -> Step:
    """Return the step to give the load balancer IPv6 addresses, or take them."""
    return _step(
        "SetIpAddressType",
        {"LoadBalancerArn": balancer.arn, "IpAddressType": address_type},
        lambda before: before.changed(balancer, lambda _: {"address_type": address_type}),
        PartChange("change", balancer.title, f"address type {address_type}"),
    )


def set_subnets(
    desired: Desired, balancer: Balancer, subnets: Sequence[str], *, source_nat: bool
) -> Step:
    """Return the step to set the subnets; `source_nat` adds IPv6 and source NAT prefixes."""
    zones = {subnet: zone for zone, subnet in balancer.zones.items()}
    zones |= {placed.subnet: placed.zone for placed in desired.placed}
    fields: dict[str, Any] = {"zones": {zones[subnet]: subnet for subnet in subnets}}
    if source_nat:
        fields |= {"address_type": DUALSTACK, "source_nat": True}
    more = f", {DUALSTACK}, source NAT" if source_nat else ""
    return _step(
        "SetSubnets",
        {
            "LoadBalancerArn": balancer.arn,
            "Subnets": list(subnets),
            **({"IpAddressType": DUALSTACK, **_SOURCE_NAT} if source_nat else {}),
        },
        lambda before: before.changed(balancer, lambda _: fields),
        PartChange("change", balancer.title, f"subnets {' '.join(subnets)}{more}"),
    )


def set_groups(balancer: Balancer, groups: tuple[str, ...]) -> Step:
    """Return the step to set the security groups of the load balancer."""
    return _step(
        "SetSecurityGroups",
        {"LoadBalancerArn": balancer.arn, "SecurityGroups": list(groups)},
        lambda before: before.changed(balancer, lambda _: {"groups": groups}),
        PartChange("change", balancer.title, f"security groups {' '.join(groups)}"),
    )


def register(group: TargetGroup, ids: Sequence[str]) -> Step:
    """Return the step to make instances targets."""
    return _step(
        "RegisterTargets",
        {"TargetGroupArn": group.arn, "Targets": _targets(ids)},
        lambda before: before.changed(group, lambda now: {"targets": now.targets | set(ids)}),
        *(PartChange("create", f"target {id_}", group.title) for id_ in ids),
    )


def deregister(group: TargetGroup, ids: Sequence[str]) -> Step:
    """Return the step to take targets off."""
    return _step(
        "DeregisterTargets",
        {"TargetGroupArn": group.arn, "Targets": _targets(ids)},
        lambda before: before.changed(group, lambda now: {"targets": now.targets - set(ids)}),
        *(PartChange("delete", f"target {id_}", group.title) for id_ in ids),
    )


def delete(part: Part) -> Step:
    """Return the step to delete a part."""
    match part:
        case Balancer():
            operation, field = "DeleteLoadBalancer", "LoadBalancerArn"
        case Listener():
            operation, field = "DeleteListener", "ListenerArn"
        case TargetGroup():
            operation, field = "DeleteTargetGroup", "TargetGroupArn"
    return _step(
        operation,
        {field: part.arn},
        lambda before: before.without(part),
        PartChange("delete", part.title),
    )


def _step(
    operation: str,
    parameters: Mapping[str, Any],
    after: Callable[[Observed], Observed],
    *lines: PartChange,
) -> Step:
    return Step(Call("elbv2", operation, parameters), after, lines)


def _listener_step(
    action: Literal["create", "change"],
    arn: str,
    parameters: Mapping[str, Any],
    mapping: PortMapping,
    group: str,
) -> Step:
    listener = Listener(
        arn, mapping.port, mapping.protocol, group, mapping.certificate, mapping.policy
    )
    tls = f", certificate {mapping.certificate}" if mapping.certificate else ""
    detail = f"{mapping.protocol} to {mapping.target_port}{tls}"
    return _step(
        "CreateListener" if action == "create" else "ModifyListener",
        parameters,
        lambda before: before.having(listener),
        PartChange(action, listener.title, detail),
    )


def _forward(mapping: PortMapping, group: str) -> dict[str, Any]:
    tls = {"Certificates": [{"CertificateArn": mapping.certificate}]} if mapping.certificate else {}
    return {
        "Port": mapping.port,
        "Protocol": mapping.protocol,
        "DefaultActions": [{"Type": "forward", "TargetGroupArn": group}],
        **tls,
        **({"SslPolicy": mapping.policy} if mapping.policy else {}),
    }


def _health(health: HealthCheck) -> dict[str, Any]:
    """Return the fields of a health check that can be changed."""
    return {
        **({"HealthCheckTimeoutSeconds": health.timeout} if health.timeout else {}),
        "HealthCheckPort": health.port,
        "HealthyThresholdCount": health.healthy,
        "UnhealthyThresholdCount": health.unhealthy,
        **({"HealthCheckPath": health.path} if health.path else {}),
    }


def _targets(ids: Sequence[str]) -> list[dict[str, str]]:
    # Without a port: each gets traffic at the port of the group.
    return [{"Id": id_} for id_ in ids]
