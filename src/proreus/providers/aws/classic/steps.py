"""Make the steps that change a classic load balancer: call, effect and preview of each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.aws.annotations import INTERNAL
from proreus.providers.aws.calls import Call
from proreus.providers.aws.classic.parts import Attributes, Balancer, Desired, Observed
from proreus.providers.aws.identity import pairs_of
from proreus.providers.aws.listeners import ClassicHealthCheck, Listener
from proreus.providers.aws.own_groups import RuleChange

Step = PlannedCall[Call | RuleChange, Observed]


def create(desired: Desired, groups: tuple[str, ...]) -> Step:
    """Return the step to make the load balancer with these security groups."""
    listeners = sorted(desired.listeners)
    parameters = {
        "LoadBalancerName": desired.name,
        "Listeners": [_given(listener) for listener in listeners],
        "Subnets": sorted(desired.subnets),
        "SecurityGroups": list(groups),
        "Tags": pairs_of(desired.tags),
        **({"Scheme": desired.scheme} if desired.scheme == INTERNAL else {}),
    }
    new = Balancer(
        name=desired.name,
        dns_name="",
        scheme=desired.scheme,
        subnets=frozenset(desired.subnets),
        zones=frozenset(desired.subnets.values()),
        groups=groups,
        listeners=desired.listeners,
        tags=desired.tags,
    )
    detail = f"{desired.scheme}, subnets {' '.join(sorted(desired.subnets))}"
    line = PartChange("create", f"load balancer {desired.name}", detail)
    return Step(
        Call("elb", "CreateLoadBalancer", parameters),
        lambda before: msgspec.structs.replace(before, balancer=new),
        (line, *map(_line_of, listeners)),
    )


def apply_groups(name: str, groups: tuple[str, ...]) -> Step:
    """Return the step to set the load balancer's security groups."""
    return _step(
        "ApplySecurityGroupsToLoadBalancer",
        {"LoadBalancerName": name, "SecurityGroups": list(groups)},
        lambda _: {"groups": groups},
        PartChange("change", f"load balancer {name}", f"security groups {' '.join(groups)}"),
    )


def add_tags(name: str, tags: Mapping[str, str]) -> Step:
    """Return the step to add tags to the load balancer."""
    return _step(
        "AddTags",
        {"LoadBalancerNames": [name], "Tags": pairs_of(tags)},
        lambda now: {"tags": {**now.tags, **tags}},
        PartChange("change", f"load balancer {name}", f"tags {' '.join(sorted(tags))}"),
    )


def attach_subnets(desired: Desired, ids: Sequence[str]) -> Step:
    """Return the step to add subnets to the load balancer."""
    return _step(
        "AttachLoadBalancerToSubnets",
        {"LoadBalancerName": desired.name, "Subnets": list(ids)},
        lambda now: _placed(desired, now.subnets | set(ids)),
        *(PartChange("create", f"subnet {id_}") for id_ in ids),
    )


def detach_subnets(desired: Desired, ids: Sequence[str]) -> Step:
    """Return the step to take subnets from the load balancer."""
    return _step(
        "DetachLoadBalancerFromSubnets",
        {"LoadBalancerName": desired.name, "Subnets": list(ids)},
        lambda now: _placed(desired, now.subnets - set(ids)),
        *(PartChange("delete", f"subnet {id_}") for id_ in ids),
    )


def create_listeners(name: str, listeners: Sequence[Listener]) -> Step:
    """Return the step to make listeners."""
    return _step(
        "CreateLoadBalancerListeners",
        {"LoadBalancerName": name, "Listeners": [_given(listener) for listener in listeners]},
        lambda now: {"listeners": now.listeners | set(listeners)},
        *map(_line_of, listeners),
    )


def delete_listeners(name: str, ports: Sequence[int]) -> Step:
    """Return the step to delete the listeners at these ports, with what policies they have."""

    def after(now: Balancer) -> Mapping[str, Any]:
        policies = now.listener_policies.items()
        return {
            "listeners": frozenset(kept for kept in now.listeners if kept.port not in ports),
            "listener_policies": {port: names for port, names in policies if port not in ports},
        }

    lines = (PartChange("delete", f"listener {port}") for port in ports)
    given = {"LoadBalancerName": name, "LoadBalancerPorts": list(ports)}
    return _step("DeleteLoadBalancerListeners", given, after, *lines)


def set_certificate(name: str, changed: Listener) -> Step:
    """Return the step to give the listener at a port another certificate."""

    def after(now: Balancer) -> Mapping[str, Any]:
        others = {listener for listener in now.listeners if listener.port != changed.port}
        return {"listeners": frozenset(others | {changed})}

    return _step(
        "SetLoadBalancerListenerSSLCertificate",
        {
            "LoadBalancerName": name,
            "LoadBalancerPort": changed.port,
            "SSLCertificateId": changed.certificate,
        },
        after,
        PartChange("change", f"listener {changed.port}", f"certificate {changed.certificate}"),
    )


def create_policy(name: str, policy: str, type_: str, attribute: str, value: str) -> Step:
    """Return the step to make a policy with one attribute."""
    return _step(
        "CreateLoadBalancerPolicy",
        {
            "LoadBalancerName": name,
            "PolicyName": policy,
            "PolicyTypeName": type_,
            "PolicyAttributes": [{"AttributeName": attribute, "AttributeValue": value}],
        },
        lambda now: {"policies": {**now.policies, policy: type_}},
        PartChange("create", f"policy {policy}"),
    )


def set_listener_policies(name: str, port: int, policies: tuple[str, ...]) -> Step:
    """Return the step to set the policies of the listener at a port."""
    return _step(
        "SetLoadBalancerPoliciesOfListener",
        {"LoadBalancerName": name, "LoadBalancerPort": port, "PolicyNames": list(policies)},
        lambda now: {"listener_policies": {**now.listener_policies, port: policies}},
        PartChange("change", f"listener {port}", f"policies {' '.join(policies)}"),
    )


def set_backend_policies(name: str, port: int, policies: tuple[str, ...]) -> Step:
    """Return the step to set the policies for a port of the instances."""
    return _step(
        "SetLoadBalancerPoliciesForBackendServer",
        {"LoadBalancerName": name, "InstancePort": port, "PolicyNames": list(policies)},
        lambda now: {"backend_policies": {**now.backend_policies, port: policies}},
        PartChange("change", f"instance port {port}", f"policies {' '.join(policies) or 'none'}"),
    )


def configure_health_check(name: str, health: ClassicHealthCheck) -> Step:
    """Return the step to change the health check of hosts."""
    check = {
        "Target": health.target,
        "HealthyThreshold": health.healthy,
        "UnhealthyThreshold": health.unhealthy,
        "Timeout": health.timeout,
        "Interval": health.interval,
    }
    detail = f"{health.target} every {health.interval} s within {health.timeout} s"
    return _step(
        "ConfigureHealthCheck",
        {"LoadBalancerName": name, "HealthCheck": check},
        lambda _: {"health": health},
        PartChange("change", "health check", detail),
    )


def modify_attributes(name: str, sections: Attributes) -> Step:
    """Return the step to set attributes of the load balancer."""
    given = {
        section: {key: value for key, value in values.items() if value != ""}
        for section, values in sections.items()
    }
    details = {
        section: ", ".join(f"{key}={value}" for key, value in values.items())
        for section, values in sections.items()
    }
    return _step(
        "ModifyLoadBalancerAttributes",
        {"LoadBalancerName": name, "LoadBalancerAttributes": given},
        lambda now: {"attributes": {**now.attributes, **sections}},
        *(PartChange("change", f"attribute {part}", text) for part, text in details.items()),
    )


def register(name: str, ids: Sequence[str]) -> Step:
    """Return the step to register instances."""
    return _step(
        "RegisterInstancesWithLoadBalancer",
        {"LoadBalancerName": name, "Instances": [{"InstanceId": id_} for id_ in ids]},
        lambda now: {"targets": now.targets | set(ids)},
        *(PartChange("create", f"target {id_}") for id_ in ids),
    )


def deregister(name: str, ids: Sequence[str]) -> Step:
    """Return the step to deregister instances."""
    return _step(
        "DeregisterInstancesFromLoadBalancer",
        {"LoadBalancerName": name, "Instances": [{"InstanceId": id_} for id_ in ids]},
        lambda now: {"targets": now.targets - set(ids)},
        *(PartChange("delete", f"target {id_}") for id_ in ids),
    )


def _step(
    operation: str,
    parameters: Mapping[str, Any],
    after: Callable[[Balancer], Mapping[str, Any]],
    *lines: PartChange,
) -> Step:
    """Return a step that sets the fields of the load balancer that `after` returns."""

    def effect(before: Observed) -> Observed:
        if before.balancer is None:
            raise AssertionError(operation)
        balancer = msgspec.structs.replace(before.balancer, **after(before.balancer))
        return msgspec.structs.replace(before, balancer=balancer)

    return Step(Call("elb", operation, parameters), effect, lines)


def _placed(desired: Desired, subnets: frozenset[str]) -> dict[str, Any]:
    """Return the subnets of the load balancer, and the zones that they are in.

    The zone of a subnet that is not desired is not known: the subnet counts as if in a zone of its
    own.
    """
    zones = frozenset(desired.subnets.get(id_, f"zone of {id_}") for id_ in subnets)
    return {"subnets": subnets, "zones": zones}


def _given(listener: Listener) -> dict[str, Any]:
    """Return a listener in the form that AWS takes."""
    tls = {"SSLCertificateId": listener.certificate} if listener.certificate else {}
    return {
        "LoadBalancerPort": listener.port,
        "Protocol": listener.protocol,
        "InstancePort": listener.instance_port,
        "InstanceProtocol": listener.instance_protocol,
        **tls,
    }


def _line_of(listener: Listener) -> PartChange:
    tls = f", certificate {listener.certificate}" if listener.certificate else ""
    to = f"{listener.instance_protocol} {listener.instance_port}"
    return PartChange("create", f"listener {listener.port}", f"{listener.protocol} to {to}{tls}")
