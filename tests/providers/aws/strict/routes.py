"""Routes: one interface per target, blackholes, canonical destinations, limits."""

import ipaddress
from typing import Any

from .instances import find, state_of
from .limits import everything, page
from .world import ACCOUNT, Answer, AWSError, Params, World, corrects

_DESTINATIONS = ("DestinationCidrBlock", "DestinationIpv6CidrBlock")


@corrects("ec2", "CreateRoute", "ReplaceRoute")
def create(world: World, params: Params) -> Answer:
    """A destination is there once, and its target lives (CreateRoute, ReplaceRoute)."""
    for field in _DESTINATIONS:
        if field in params:
            params[field] = str(ipaddress.ip_network(params[field], strict=False))
    table = world.backend("ec2").get_route_table(params["RouteTableId"])
    _check_target(world, params, table.vpc_id)
    where = {field: params[field] for field in _DESTINATIONS if field in params}
    destination = "".join(where.values())
    there = [(r.destination_cidr_block or r.destination_ipv6_cidr_block) for r in table.routes]
    if world.operation == "ReplaceRoute":
        if destination not in there:
            raise AWSError(
                "InvalidParameterValue",
                f"There is no route defined for '{destination}' in the route table. Use CreateRoute"
                " instead.",
            )
        world.moto("ec2", "DeleteRoute", {"RouteTableId": table.id, **where})
        world.moto("ec2", "CreateRoute", params)
        return {}
    if destination in there:
        raise AWSError(
            "RouteAlreadyExists", f"The route identified by {destination} already exists."
        )
    same_family = [one for one in there if (":" in (one or "")) == (":" in destination)]
    if len(same_family) >= world.faults.settings.routes_per_table:
        raise AWSError("RouteLimitExceeded", "The maximum number of routes has been reached.")
    return world.moto("ec2", "CreateRoute", params)


def _check_target(world: World, params: Params, vpc: str) -> None:
    """An instance of one interface, or an interface, in the table's VPC."""
    if params.get("InstanceId"):
        nic = single(world, params["InstanceId"]).nics[0]
    elif params.get("NetworkInterfaceId"):
        nic = world.backend("ec2").enis.get(params["NetworkInterfaceId"])
        if nic is None:
            raise AWSError(
                "InvalidNetworkInterfaceID.NotFound",
                f"The networkInterface ID '{params['NetworkInterfaceId']}' does not exist",
            )
    else:
        return
    if nic.subnet.vpc_id != vpc:
        raise AWSError(
            "InvalidParameterValue", f"the table and {nic.id} belong to different networks"
        )


def single(world: World, id_: str) -> Any:
    """The instance, if it lives and has one interface."""
    instance = find(world, id_)
    if instance is None or state_of(instance) == "terminated":
        raise AWSError("InvalidInstanceID.NotFound", f"The instance ID '{id_}' does not exist")
    if len(instance.nics) > 1:
        raise AWSError(
            "InvalidInstanceID",
            f"There are multiple interfaces attached to instance '{id_}'. Please specify an"
            " interface ID for the operation instead.",
        )
    return instance


@corrects("ec2", "ModifyInstanceAttribute")
def modify(world: World, params: Params) -> Answer:
    """The check of source and destination is an interface's where there are several."""
    if "SourceDestCheck" in params:
        nic = single(world, params["InstanceId"]).nics[0]
        nic.source_dest_check = params["SourceDestCheck"]["Value"]
    return world.moto("ec2", world.operation, params)


@corrects("ec2", "DescribeRouteTables")
def describe(world: World, params: Params) -> Answer:
    """A route is a blackhole while its target is not available (Route, State).

    So is one to an instance that is terminated or stopped, or to an interface of no instance.
    """
    tables = everything(world, world.operation, params, lambda answer: answer["RouteTables"])
    for table in tables:
        for route in table["Routes"]:
            _amend(world, route)
    shown, token = page(world, tables, params)
    return {"RouteTables": shown} | ({"NextToken": token} if token else {})


def _amend(world: World, route: dict[str, Any]) -> None:
    """Both ids are told while the instance lives, and only the interface's afterwards."""
    instance = find(world, route.get("InstanceId", ""))
    nic_id = route.get("NetworkInterfaceId")
    if instance is None and nic_id:
        nic = world.backend("ec2").enis.get(nic_id)
        instance = getattr(nic, "instance", None)
        if instance is None:
            route["State"] = "blackhole"
    if instance is None:
        return
    route["NetworkInterfaceId"] = route.get("NetworkInterfaceId") or next(
        (nic.id for nic in instance.nics.values()), "eni-00000000000000000"
    )
    route["State"] = "active"
    if state_of(instance) == "terminated":
        route["State"] = "blackhole"
        route.pop("InstanceId", None)
        route.pop("InstanceOwnerId", None)
    else:
        route["InstanceId"] = instance.id
        route["InstanceOwnerId"] = ACCOUNT
        if state_of(instance) == "stopped":
            route["State"] = "blackhole"
