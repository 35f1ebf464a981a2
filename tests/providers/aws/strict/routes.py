"""Routes: one interface per target, blackholes, canonical destinations, limits."""

import ipaddress
from typing import Any

from .instances import find, state_of
from .limits import everything, page
from .world import Answer, AWSError, Params, World, corrects


@corrects("ec2", "CreateRoute", "ReplaceRoute")
def create(world: World, params: Params) -> Answer:
    """The target must live, and be told by its interface if it has several (CreateRoute)."""
    for field in ("DestinationCidrBlock", "DestinationIpv6CidrBlock"):
        if field in params:
            params[field] = str(ipaddress.ip_network(params[field], strict=False))
    if params.get("InstanceId"):
        instance = single(world, params["InstanceId"])
        nic = next(iter(instance.nics.values()), None)
    else:
        nics = world.backend("ec2").enis
        if params["NetworkInterfaceId"] not in nics:
            raise AWSError(
                "InvalidNetworkInterfaceID.NotFound",
                f"The networkInterface ID '{params['NetworkInterfaceId']}' does not exist",
            )
        nic = nics[params["NetworkInterfaceId"]]
    table = world.backend("ec2").route_tables.get(params["RouteTableId"])
    if table is not None and nic is not None and nic.subnet.vpc_id != table.vpc_id:
        raise AWSError(
            "InvalidParameterValue",
            f"route table {table.id} and interface {nic.id} belong to different networks",
        )
    if table is not None and world.operation == "CreateRoute":
        is_v6 = "DestinationIpv6CidrBlock" in params
        made = [r for r in table.routes if bool(r.destination_ipv6_cidr_block) == is_v6]
        if len(made) >= world.faults.settings.routes_per_table:
            raise AWSError("RouteLimitExceeded", "The maximum number of routes has been reached.")
    return world.moto("ec2", world.operation, params)


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
        single(world, params["InstanceId"])
    return world.moto("ec2", world.operation, params)


@corrects("ec2", "DescribeRouteTables")
def describe(world: World, params: Params) -> Answer:
    """A route to an instance that is terminated is a blackhole (Route, State)."""
    tables = everything(world, world.operation, params, lambda answer: answer["RouteTables"])
    for table in tables:
        for route in table["Routes"]:
            _amend(world, route)
    shown, token = page(world, tables, params)
    return {"RouteTables": shown} | ({"NextToken": token} if token else {})


def _amend(world: World, route: dict[str, Any]) -> None:
    """Both ids are told while the instance lives, and only the interface's afterwards."""
    instance = find(world, route.get("InstanceId", ""))
    if instance is None:
        nic = world.backend("ec2").enis.get(route.get("NetworkInterfaceId", ""))
        instance = getattr(nic, "instance", None)
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
        route["InstanceOwnerId"] = "123456789012"
