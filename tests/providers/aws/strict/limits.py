"""What holds for every EC2 operation: DryRun, filters, pages and ids."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import groups
from .world import Answer, AWSError, Params, World, corrects

MOST_FILTER_VALUES = 200
MOST_IDS = 1000


class Paging(NamedTuple):
    """How a listing is paged: the list's field, the limits of MaxResults, and the ids' parameter."""

    field: str
    least: int
    most: int
    ids: str


# Each from the request parameters of the operation in the EC2 API reference.
PAGED = {
    "DescribeInstances": Paging("Instances", 5, 1000, "InstanceIds"),
    "DescribeRouteTables": Paging("RouteTables", 5, 100, "RouteTableIds"),
    "DescribeSecurityGroups": Paging("SecurityGroups", 5, 1000, "GroupIds"),
    "DescribeSubnets": Paging("Subnets", 5, 1000, "SubnetIds"),
    "DescribeVolumes": Paging("Volumes", 5, 500, "VolumeIds"),
    "DescribeNetworkInterfaces": Paging("NetworkInterfaces", 5, 1000, "NetworkInterfaceIds"),
}
_IDS = {
    "InstanceIds": (re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})"), "InvalidInstanceID.Malformed"),
    "VolumeIds": (re.compile(r"vol-([0-9a-f]{8}|[0-9a-f]{17})"), "InvalidVolumeID.Malformed"),
}


def check(operation: str, params: Params) -> None:
    """Refuse what EC2 refuses before it looks at anything (EC2 API reference, Filter, errors)."""
    for one in params.get("Filters", ()):
        if len(one.get("Values", ())) > MOST_FILTER_VALUES:
            raise AWSError(
                "FilterLimitExceeded",
                "The maximum number of filter values specified on a single call is 200",
            )
    for name, (pattern, code) in _IDS.items():
        ids = params.get(name) or ()
        if len(ids) > MOST_IDS:
            raise AWSError("InvalidParameterValue", f"{name} takes at most {MOST_IDS}")
        for id_ in ids:
            if not pattern.fullmatch(id_):
                raise AWSError(code, f'Invalid id: "{id_}"')
    paging = PAGED.get(operation)
    if paging is not None and "MaxResults" in params:
        if params.get(paging.ids):
            raise AWSError(
                "InvalidParameterCombination",
                f"The parameter {paging.ids} cannot be used with the parameter maxResults",
            )
        if not paging.least <= params["MaxResults"] <= paging.most:
            raise AWSError(
                "InvalidParameterValue",
                f"Value ( {params['MaxResults']} ) for parameter maxResults is invalid."
                f" Expecting a value between {paging.least} and {paging.most}.",
            )
    if params.pop("DryRun", False):
        raise AWSError(
            "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
        )


def page(world: World, items: Sequence[Any], params: Params) -> tuple[list[Any], str]:
    """One page, and the token of the next one or ""."""
    paging = PAGED[world.operation]
    token = params.get("NextToken") or "0"
    if not token.isdecimal():
        raise AWSError("InvalidNextToken", "The token is not valid")
    size = params.get("MaxResults") or paging.most
    if world.faults.settings.page:
        size = min(size, world.faults.settings.page)
    start = int(token)
    more = start + size < len(items)
    return list(items[start : start + size]), str(start + size) if more else ""


def everything(
    world: World, operation: str, params: Params, items: Callable[[Answer], list[Any]]
) -> list[Any]:
    """All that moto has of a listing, whatever its own pages."""
    wanted = {key: one for key, one in params.items() if key not in {"MaxResults", "NextToken"}}
    found: list[Any] = []
    while True:
        answer = world.moto("ec2", operation, wanted)
        found.extend(items(answer))
        token = answer.get("NextToken")
        if not token:
            return found
        wanted["NextToken"] = token


@corrects(
    "ec2",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeVolumes",
)
def paged(world: World, params: Params) -> Answer:
    """Moto pages none of these, or otherwise than the API reference says."""
    operation = world.operation
    field = PAGED[operation].field
    items = everything(world, operation, params, lambda answer: answer[field])
    items = [one for one in items if groups.is_seen(world, one.get("GroupId", ""))]
    for one in items:
        # Moto tells this state twice over.
        for association in one.get("Ipv6CidrBlockAssociationSet") or ():
            association["Ipv6CidrBlockState"] = {"State": "associated"}
    shown, token = page(world, items, params)
    return {field: shown, "NextToken": token} if token else {field: shown}
