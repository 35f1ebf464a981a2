"""Read a classic load balancer."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.classic.parts import Balancer
from proreus.providers.aws.identity import tags_of
from proreus.providers.aws.listeners import ClassicHealthCheck, Listener

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_MOST_NAMES: Final = 20
_MISSING: Final = "LoadBalancerNotFound"

Described = Mapping[str, Any]


async def observe(api: "Api", name: str, *, with_policies: bool) -> Balancer | None:
    """Read the load balancer of that name with all parts; return None if there is none.

    Args:
        api: The client of AWS.
        name: The name of the load balancer.
        with_policies: Whether to read the types of its policies, too.

    Raises:
        CloudError: AWS does not answer, or the load balancer went away meanwhile.
    """
    described = await _describe(api, name)
    if described is None:
        return None
    attributes, tags, policies = await asyncio.gather(
        api.call("elb", "DescribeLoadBalancerAttributes", LoadBalancerName=name),
        tags_by_name(api, [name]),
        _policies(api, name) if with_policies else _nothing(),
    )
    return msgspec.structs.replace(
        balancer_of(described),
        attributes=attributes_of(attributes),
        tags=tags.get(name, {}),
        policies=policies,
    )


async def exists(api: "Api", name: str) -> bool:
    """Tell whether there is a load balancer of that name.

    Raises:
        CloudError: AWS does not answer.
    """
    return await _describe(api, name) is not None


async def _describe(api: "Api", name: str) -> Described | None:
    try:
        answer = await api.call("elb", "DescribeLoadBalancers", LoadBalancerNames=[name])
    except Refused as error:
        if error.code == _MISSING:
            return None
        raise
    found: Described = answer["LoadBalancerDescriptions"][0]
    return found


async def _nothing() -> dict[str, str]:
    return {}


async def _policies(api: "Api", name: str) -> dict[str, str]:
    answer = await api.call("elb", "DescribeLoadBalancerPolicies", LoadBalancerName=name)
    return {
        policy["PolicyName"]: policy["PolicyTypeName"] for policy in answer["PolicyDescriptions"]
    }


async def tags_by_name(api: "Api", names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the tags of load balancers.

    Raises:
        CloudError: AWS does not answer, or one of them is gone.
    """
    answers = await asyncio.gather(
        *(
            api.call("elb", "DescribeTags", LoadBalancerNames=chunk)
            for chunk in in_parts(names, _MOST_NAMES)
        )
    )
    return {
        description["LoadBalancerName"]: tags_of(description)
        for answer in answers
        for description in answer["TagDescriptions"]
    }


def attributes_of(answer: Described) -> dict[str, dict[str, Any]]:
    """Return attributes by section, with an empty prefix of the access log added. Pure."""
    found = answer["LoadBalancerAttributes"]
    sections = {name: dict(one) for name, one in found.items() if isinstance(one, Mapping)}
    sections.setdefault("AccessLog", {}).setdefault("S3BucketPrefix", "")
    return sections


def balancer_of(described: Described) -> Balancer:
    """Return a load balancer from its description, without what other calls tell. Pure."""
    listeners = described.get("ListenerDescriptions") or ()
    backends = described.get("BackendServerDescriptions") or ()
    return Balancer(
        name=described["LoadBalancerName"],
        dns_name=described["DNSName"],
        scheme=described["Scheme"],
        subnets=frozenset(described.get("Subnets") or ()),
        zones=frozenset(described.get("AvailabilityZones") or ()),
        groups=tuple(described.get("SecurityGroups") or ()),
        listeners=frozenset(_listener(listener["Listener"]) for listener in listeners),
        health=_health(described.get("HealthCheck")),
        targets=frozenset(instance["InstanceId"] for instance in described.get("Instances") or ()),
        listener_policies={
            int(listener["Listener"]["LoadBalancerPort"]): tuple(listener.get("PolicyNames") or ())
            for listener in listeners
        },
        backend_policies={
            int(backend["InstancePort"]): tuple(backend.get("PolicyNames") or ())
            for backend in backends
        },
    )


def _listener(described: Described) -> Listener:
    protocol = described["Protocol"].upper()
    return Listener(
        port=int(described["LoadBalancerPort"]),
        protocol=protocol,
        instance_port=int(described["InstancePort"]),
        instance_protocol=(described.get("InstanceProtocol") or protocol).upper(),
        certificate=described.get("SSLCertificateId") or "",
    )


def _health(described: Described | None) -> ClassicHealthCheck | None:
    if not described:
        return None
    return ClassicHealthCheck(
        target=described["Target"],
        healthy=int(described["HealthyThreshold"]),
        unhealthy=int(described["UnhealthyThreshold"]),
        timeout=int(described["Timeout"]),
        interval=int(described["Interval"]),
    )
