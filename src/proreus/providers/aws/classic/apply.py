"""Takes the steps of a plan for a classic load balancer, one call for each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.cloudprovider.lookups import all_but_refused
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.annotations import INTERNAL
from proreus.providers.aws.classic.observe import balancer_of
from proreus.providers.aws.classic.parts import Desired, Observed
from proreus.providers.aws.classic.plan import (
    AddTags,
    ApplyGroups,
    AttachSubnets,
    ChangeAttributes,
    ChangeCertificate,
    ConfigureHealthCheck,
    CreateBalancer,
    CreateListeners,
    CreatePolicy,
    DeleteListeners,
    Deregister,
    DetachSubnets,
    Register,
    SetBackendPolicies,
    SetListenerPolicies,
    Step,
)
from proreus.providers.aws.classic.preview import made, pretend
from proreus.providers.aws.identity import pairs_of
from proreus.providers.aws.listeners import ClassicHealthCheck, Listener
from proreus.providers.aws.names import ids_in
from proreus.providers.aws.own_groups import ChangeRules, CreateGroup, OwnGroups, TagGroup

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

Effect = Callable[[Observed], Observed]
"""How what there is differs after a step."""


async def take(
    api: "Api", own_groups: OwnGroups, desired: Desired, observed: Observed, step: Step
) -> Effect:
    """Take one step; return how it changes what was observed.

    Raises:
        CloudError: AWS refuses.
    """
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            group = await own_groups.take(step, desired.own, desired.tags, observed.group)
            return lambda before: msgspec.structs.replace(before, group=group)
        case CreateBalancer(groups):
            dns_name = await _create(api, desired, groups)
            balancer = made(desired, groups, dns_name)
            return lambda before: msgspec.structs.replace(before, balancer=balancer)
        case Register() | Deregister():
            return await _reregister(api, desired, observed, step)
        case AttachSubnets() | DetachSubnets():
            return await _replace(api, desired, step)
        case CreateListeners() | DeleteListeners() | ChangeCertificate():
            await _change_listeners(api, desired, step)
        case CreatePolicy() | SetListenerPolicies() | SetBackendPolicies():
            await _change_policies(api, desired, step)
        case _:
            await _change(api, desired, step)
    return lambda before: pretend(before, step, desired)


async def _create(api: "Api", desired: Desired, groups: tuple[str, ...]) -> str:
    """Make the load balancer and return its host name."""
    scheme = {"Scheme": desired.scheme} if desired.scheme == INTERNAL else {}
    answer = await api.call(
        "elb",
        "CreateLoadBalancer",
        LoadBalancerName=desired.name,
        Listeners=[_given(one) for one in sorted(desired.listeners)],
        Subnets=sorted(desired.subnets),
        SecurityGroups=list(groups),
        Tags=pairs_of(desired.tags),
        **scheme,
    )
    return str(answer["DNSName"])


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


async def _change_listeners(
    api: "Api", desired: Desired, step: CreateListeners | DeleteListeners | ChangeCertificate
) -> None:
    of = {"LoadBalancerName": desired.name}
    match step:
        case CreateListeners(listeners):
            given = [_given(one) for one in listeners]
            await api.call("elb", "CreateLoadBalancerListeners", **of, Listeners=given)
        case DeleteListeners(ports):
            await api.call(
                "elb", "DeleteLoadBalancerListeners", **of, LoadBalancerPorts=list(ports)
            )
        case ChangeCertificate(port, certificate):
            await api.call(
                "elb",
                "SetLoadBalancerListenerSSLCertificate",
                **of,
                LoadBalancerPort=port,
                SSLCertificateId=certificate,
            )


async def _change_policies(
    api: "Api", desired: Desired, step: CreatePolicy | SetListenerPolicies | SetBackendPolicies
) -> None:
    of = {"LoadBalancerName": desired.name}
    match step:
        case CreatePolicy(name, type_, attribute, value):
            await api.call(
                "elb",
                "CreateLoadBalancerPolicy",
                **of,
                PolicyName=name,
                PolicyTypeName=type_,
                PolicyAttributes=[{"AttributeName": attribute, "AttributeValue": value}],
            )
        case SetListenerPolicies(port, policies):
            await api.call(
                "elb",
                "SetLoadBalancerPoliciesOfListener",
                **of,
                LoadBalancerPort=port,
                PolicyNames=list(policies),
            )
        case SetBackendPolicies(port, policies):
            await api.call(
                "elb",
                "SetLoadBalancerPoliciesForBackendServer",
                **of,
                InstancePort=port,
                PolicyNames=list(policies),
            )


async def _reregister(
    api: "Api", desired: Desired, observed: Observed, step: Register | Deregister
) -> Effect:
    is_new = isinstance(step, Register)
    operation = "DeregisterInstancesFromLoadBalancer"
    if is_new:
        operation = "RegisterInstancesWithLoadBalancer"

    async def send(instances: list[str]) -> None:
        given = [{"InstanceId": one} for one in instances]
        await api.call("elb", operation, LoadBalancerName=desired.name, Instances=given)

    new = [one for one in step.instances if not is_new or one not in observed.refused]
    refused = await all_but_refused(send, new, _unfit)
    if isinstance(step, Deregister):
        # What AWS does not know any more is not registered any more.
        return lambda before: pretend(before, step, desired)
    registered = Register(tuple(one for one in new if one not in refused))
    return lambda before: msgspec.structs.replace(
        pretend(before, registered, desired), refused={**before.refused, **refused}
    )


def _unfit(error: Refused) -> frozenset[str]:
    """Return the instances that AWS does not know, or that cannot be registered."""
    return ids_in(error.text) if error.code == "InvalidInstance" else frozenset()


async def _replace(api: "Api", desired: Desired, step: AttachSubnets | DetachSubnets) -> Effect:
    """Change the load balancer's subnets, and ask AWS in which zones they are."""
    given = {"LoadBalancerName": desired.name, "Subnets": list(step.subnets)}
    if isinstance(step, AttachSubnets):
        await api.call("elb", "AttachLoadBalancerToSubnets", **given)
    else:
        await api.call("elb", "DetachLoadBalancerFromSubnets", **given)
    answer = await api.call("elb", "DescribeLoadBalancers", LoadBalancerNames=[desired.name])
    found = balancer_of(answer["LoadBalancerDescriptions"][0])
    return lambda before: msgspec.structs.replace(
        before,
        balancer=before.balancer
        and msgspec.structs.replace(before.balancer, subnets=found.subnets, zones=found.zones),
    )


async def _change(
    api: "Api",
    desired: Desired,
    step: ApplyGroups | ConfigureHealthCheck | ChangeAttributes | AddTags,
) -> None:
    of = {"LoadBalancerName": desired.name}
    match step:
        case ApplyGroups(groups):
            given = list(groups)
            await api.call("elb", "ApplySecurityGroupsToLoadBalancer", **of, SecurityGroups=given)
        case ConfigureHealthCheck(health):
            await api.call("elb", "ConfigureHealthCheck", **of, HealthCheck=_health(health))
        case ChangeAttributes(attributes):
            given_attributes = {
                section: {key: one for key, one in values.items() if one != ""}
                for section, values in attributes.items()
            }
            await api.call(
                "elb", "ModifyLoadBalancerAttributes", **of, LoadBalancerAttributes=given_attributes
            )
        case AddTags(tags):
            await api.call("elb", "AddTags", LoadBalancerNames=[desired.name], Tags=pairs_of(tags))


def _health(health: ClassicHealthCheck) -> dict[str, Any]:
    return {
        "Target": health.target,
        "HealthyThreshold": health.healthy,
        "UnhealthyThreshold": health.unhealthy,
        "Timeout": health.timeout,
        "Interval": health.interval,
    }
