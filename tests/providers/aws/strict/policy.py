"""IAM: what the policy of the provider does not allow is refused, as AWS would refuse it.

Only requests with `KEY` are judged; the owner of the account, who has another key, may do all.
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from . import elbv2
from .keys import FILE
from .world import AWSError, Params, World

_PREFIXES = {"ec2": "ec2", "elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing"}
_DENIED = {"ec2": "UnauthorizedOperation"}
_EC2 = {
    "GroupId": "security-group",
    "InstanceId": "instance",
    "NetworkInterfaceId": "network-interface",
    "RouteTableId": "route-table",
    "VpcId": "vpc",
}
_KINDS = {"i": "instance", "sg": "security-group", "vol": "volume", "vpc": "vpc"}

Tags = Mapping[str, str]


class Demand(msgspec.Struct, frozen=True):
    """An action on one resource ("*" if on none)."""

    action: str
    resource: str = "*"
    tags: Tags = {}
    asked: Tags = {}
    creates: str = ""
    """Of AddTags: which operation it is a part of."""


def check(world: World, service: str, operation: str, params: Params) -> None:
    """Refuse what no statement allows."""
    if service not in _PREFIXES:
        return
    for demand in demands(world, service, operation, params):
        if not any(allows(one, demand) for one in _statements()):
            raise AWSError(
                _DENIED.get(service, "AccessDenied"),
                f"{FILE.name} does not allow {demand.action} on {demand.resource}",
                403,
            )


@functools.cache
def _statements() -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = json.loads(FILE.read_text())["Statement"]
    return found


def demands(world: World, service: str, operation: str, params: Params) -> Iterator[Demand]:
    """The rights that a request needs (service authorization reference)."""
    action = f"{_PREFIXES[service]}:{operation}"
    if operation.startswith("Describe"):
        yield Demand(action)
    elif service == "ec2":
        for arn in _of_ec2(operation, params):
            yield Demand(action, arn)
            if "TagSpecifications" in params and arn.endswith("-new"):
                yield Demand("ec2:CreateTags", arn)
    else:
        asked = _tags(params)
        for arn in _of_balancers(service, operation, params):
            yield Demand(action, arn, _tags_of(world, service, arn), asked)
            if asked and operation != "AddTags":
                yield Demand("elasticloadbalancing:AddTags", arn, {}, asked, operation)


def _of_ec2(operation: str, params: Params) -> Iterator[str]:
    ids = [(_KINDS[one.split("-")[0]], one) for one in params.get("Resources") or ()]
    ids += [(kind, params[field]) for field, kind in _EC2.items() if field in params]
    if operation in {"CreateRoute", "ReplaceRoute"}:
        ids = [("route-table", params["RouteTableId"])]
    if operation == "CreateSecurityGroup":
        ids.append(("security-group", "sg-new"))
    for kind, id_ in ids or [("*", "*")]:
        yield f"arn:aws:ec2:us-east-1:123456789012:{kind}/{id_}"


def _of_balancers(service: str, operation: str, params: Params) -> Sequence[str]:
    if service == "elb":
        given = params.get("LoadBalancerNames") or [params["LoadBalancerName"]]
        return [f"arn:aws:elasticloadbalancing:::loadbalancer/{name}" for name in given]
    if operation in {"CreateLoadBalancer", "CreateTargetGroup"}:
        return [f"arn:aws:elasticloadbalancing:::{operation}/{params['Name']}"]
    fields = ("ListenerArn", "TargetGroupArn", "LoadBalancerArn")
    return (
        params.get("ResourceArns") or [params[one] for one in fields if one in params][:1] or ["*"]
    )


def _tags(params: Params) -> Tags:
    return {one["Key"]: one.get("Value", "") for one in params.get("Tags") or ()}


def _tags_of(world: World, service: str, arn: str) -> Tags:
    """The tags of a part, none if there is none."""
    try:
        if service == "elb":
            name = arn.rpartition("/")[2]
            answer = world.moto("elb", "DescribeTags", {"LoadBalancerNames": [name]})
        else:
            answer = elbv2.ask(world, "DescribeTags", {"ResourceArns": [arn]})
    except AWSError:
        return {}
    found = answer["TagDescriptions"]
    return _tags(found[0]) if found else {}


def allows(statement: Mapping[str, Any], demand: Demand) -> bool:
    """Whether a statement does; one with an operator or a key that is not known here cannot."""
    resources = statement["Resource"]
    return (
        demand.action in statement["Action"]
        and any(
            fnmatchcase(demand.resource, one)
            for one in ([resources] if isinstance(resources, str) else resources)
        )
        and all(
            _holds(operator, _value(key, demand), wanted)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _value(key: str, demand: Demand) -> str | None:
    kind, _, tag = key.partition("/")
    if kind == "aws:ResourceTag":
        return demand.tags.get(tag)
    if kind == "aws:RequestTag":
        return demand.asked.get(tag)
    return demand.creates if key == "elasticloadbalancing:CreateAction" else None


def _holds(operator: str, value: str | None, wanted: Any) -> bool:
    if operator == "Null":
        return (value is None) is bool(wanted == "true")
    values = {wanted} if isinstance(wanted, str) else set(wanted)
    return operator == "StringEquals" and value in values
