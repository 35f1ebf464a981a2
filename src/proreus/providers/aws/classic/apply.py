"""Takes the steps of a plan, one call for each."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.annotations import INTERNAL
from proreus.providers.aws.classic.observe import balancer_of
from proreus.providers.aws.classic.parts import Actual, Balancer, Wish
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
from proreus.providers.aws.listeners import ClassicHealthCheck, Listener
from proreus.providers.aws.names import ids_in
from proreus.providers.aws.own_groups import ChangeRules, CreateGroup, OwnGroups, TagGroup

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

Effect = Callable[[Actual], Actual]
"""How what there is differs after a step."""

_UNFIT: Final = "InvalidInstance"
"""The code of an instance that AWS does not know, or that cannot be registered."""


async def take(api: "Api", own_groups: OwnGroups, wish: Wish, actual: Actual, step: Step) -> Effect:
    """Take one step.

    Raises:
        CloudError: AWS refuses.
    """
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            group = await own_groups.take(step, wish.own, wish.tags, actual.group)
            return lambda now: msgspec.structs.replace(now, group=group)
        case CreateBalancer(groups):
            made = await _create(api, wish, groups)
            return lambda now: msgspec.structs.replace(now, balancer=made)
        case Register() | Deregister():
            return await _reregister(api, wish, actual, step)
        case CreateListeners() | DeleteListeners() | ChangeCertificate():
            return await _change_listeners(api, wish, step)
        case CreatePolicy() | SetListenerPolicies() | SetBackendPolicies():
            return await _change_policies(api, wish, step)
        case _:
            return await _change(api, wish, step)


async def _create(api: "Api", wish: Wish, groups: tuple[str, ...]) -> Balancer:
    scheme = {"Scheme": wish.scheme} if wish.scheme == INTERNAL else {}
    answer = await api.call(
        "elb",
        "CreateLoadBalancer",
        LoadBalancerName=wish.name,
        Listeners=[_given(one) for one in sorted(wish.listeners)],
        Subnets=sorted(wish.subnets),
        SecurityGroups=list(groups),
        Tags=_pairs(wish.tags),
        **scheme,
    )
    return Balancer(
        name=wish.name,
        dns_name=answer["DNSName"],
        scheme=wish.scheme,
        subnets=frozenset(wish.subnets),
        zones=frozenset(wish.subnets.values()),
        groups=groups,
        listeners=wish.listeners,
        tags=wish.tags,
    )


def _given(listener: Listener) -> dict[str, Any]:
    """A listener as AWS takes it."""
    tls = {"SSLCertificateId": listener.certificate} if listener.certificate else {}
    return {
        "LoadBalancerPort": listener.port,
        "Protocol": listener.protocol,
        "InstancePort": listener.instance_port,
        "InstanceProtocol": listener.instance_protocol,
        **tls,
    }


async def _change_listeners(
    api: "Api", wish: Wish, step: CreateListeners | DeleteListeners | ChangeCertificate
) -> Effect:
    of = {"LoadBalancerName": wish.name}
    match step:
        case CreateListeners(listeners):
            given = [_given(one) for one in listeners]
            await api.call("elb", "CreateLoadBalancerListeners", **of, Listeners=given)
            return lambda now: _with_listeners(now, listeners)
        case DeleteListeners(ports):
            await api.call(
                "elb", "DeleteLoadBalancerListeners", **of, LoadBalancerPorts=list(ports)
            )
            return lambda now: _with_listeners(now, (), without=ports)
        case ChangeCertificate(port, certificate):
            await api.call(
                "elb",
                "SetLoadBalancerListenerSSLCertificate",
                **of,
                LoadBalancerPort=port,
                SSLCertificateId=certificate,
            )
            changed = tuple(one for one in wish.listeners if one.port == port)
            return lambda now: _with_listeners(now, changed, without=(port,))


async def _change_policies(
    api: "Api", wish: Wish, step: CreatePolicy | SetListenerPolicies | SetBackendPolicies
) -> Effect:
    of = {"LoadBalancerName": wish.name}
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
            return lambda now: _updated(now, policies={name: type_})
        case SetListenerPolicies(port, policies):
            await api.call(
                "elb",
                "SetLoadBalancerPoliciesOfListener",
                **of,
                LoadBalancerPort=port,
                PolicyNames=list(policies),
            )
            return lambda now: _updated(now, listener_policies={port: policies})
        case SetBackendPolicies(port, policies):
            await api.call(
                "elb",
                "SetLoadBalancerPoliciesForBackendServer",
                **of,
                InstancePort=port,
                PolicyNames=list(policies),
            )
            return lambda now: _updated(now, backend_policies={port: policies})


async def _reregister(
    api: "Api", wish: Wish, actual: Actual, step: Register | Deregister
) -> Effect:
    if isinstance(step, Deregister):
        operation, gone = "DeregisterInstancesFromLoadBalancer", step.instances
        # What AWS does not know any more is not registered any more.
        await _all_that_can_be(api, operation, wish.name, gone)
        return lambda now: _with_targets(now, remove=gone)
    new = [one for one in step.instances if one not in actual.refused]
    refused = await _all_that_can_be(api, "RegisterInstancesWithLoadBalancer", wish.name, new)
    return lambda now: _with_targets(now, add=set(new) - refused.keys(), refused=refused)


async def _all_that_can_be(
    api: "Api", operation: str, name: str, instances: Collection[str]
) -> dict[str, str]:
    """AWS takes all or none; those that it names are left out, and answered with the reason."""
    refused: dict[str, str] = {}
    while left := [one for one in instances if one not in refused]:
        given = [{"InstanceId": one} for one in left]
        try:
            await api.call("elb", operation, LoadBalancerName=name, Instances=given)
            break
        except Refused as error:
            named = ids_in(error.text) & set(left)
            if error.code != _UNFIT or not named:
                raise
            refused |= dict.fromkeys(named, error.text)
    return refused


async def _change(
    api: "Api",
    wish: Wish,
    step: (
        AttachSubnets
        | DetachSubnets
        | ApplyGroups
        | ConfigureHealthCheck
        | ChangeAttributes
        | AddTags
    ),
) -> Effect:
    of = {"LoadBalancerName": wish.name}
    match step:
        case AttachSubnets(subnets):
            await api.call("elb", "AttachLoadBalancerToSubnets", **of, Subnets=list(subnets))
            return await _placed(api, wish.name)
        case DetachSubnets(subnets):
            await api.call("elb", "DetachLoadBalancerFromSubnets", **of, Subnets=list(subnets))
            return await _placed(api, wish.name)
        case ApplyGroups(groups):
            given = list(groups)
            await api.call("elb", "ApplySecurityGroupsToLoadBalancer", **of, SecurityGroups=given)
            return lambda now: _with(now, groups=groups)
        case ConfigureHealthCheck(health):
            await api.call("elb", "ConfigureHealthCheck", **of, HealthCheck=_health(health))
            return lambda now: _with(now, health=health)
        case ChangeAttributes(attributes):
            given_attributes = {
                section: {key: one for key, one in values.items() if one != ""}
                for section, values in attributes.items()
            }
            await api.call(
                "elb", "ModifyLoadBalancerAttributes", **of, LoadBalancerAttributes=given_attributes
            )
            return lambda now: _updated(now, attributes=attributes)
        case AddTags(tags):
            await api.call("elb", "AddTags", LoadBalancerNames=[wish.name], Tags=_pairs(tags))
            return lambda now: _updated(now, tags=tags)


async def _placed(api: "Api", name: str) -> Effect:
    """In which zones it stands now: that of a subnet is not told."""
    answer = await api.call("elb", "DescribeLoadBalancers", LoadBalancerNames=[name])
    found = balancer_of(answer["LoadBalancerDescriptions"][0])
    return lambda now: _with(now, subnets=found.subnets, zones=found.zones)


def _health(health: ClassicHealthCheck) -> dict[str, Any]:
    return {
        "Target": health.target,
        "HealthyThreshold": health.healthy,
        "UnhealthyThreshold": health.unhealthy,
        "Timeout": health.timeout,
        "Interval": health.interval,
    }


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


def _with(now: Actual, **fields: Any) -> Actual:
    return msgspec.structs.replace(
        now, balancer=now.balancer and msgspec.structs.replace(now.balancer, **fields)
    )


def _updated(now: Actual, **fields: Mapping[Any, Any]) -> Actual:
    """With more in mappings."""
    have = {name: getattr(now.balancer, name, {}) for name in fields}
    return _with(now, **{name: {**have[name], **more} for name, more in fields.items()})


def _with_listeners(
    now: Actual, new: Collection[Listener], without: Collection[int] = ()
) -> Actual:
    have = now.balancer.listeners if now.balancer is not None else frozenset()
    kept = (one for one in have if one.port not in without)
    return _with(now, listeners=frozenset((*kept, *new)))


def _with_targets(
    now: Actual,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
) -> Actual:
    now = msgspec.structs.replace(now, refused={**now.refused, **(refused or {})})
    have = now.balancer.targets if now.balancer is not None else frozenset()
    return _with(now, targets=(have | set(add)) - set(remove))
