"""The capability `Routes` of the provider `aws`: routes of pods in a VPC's route table.

A route has no marks in AWS. Our routes are those that somebody made (no local or propagated ones),
and that lead to an instance of this cluster, or to an instance or interface that is gone. Routes to
gateways and to what others have, such as NAT instances, are not listed, so nobody deletes them: nor
while a stopped instance, or an interface that is attached to none, makes them blackholes.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.routes import Holders, Route, network_of
from proreus.kube.objects import Node
from proreus.providers.aws.api import Api
from proreus.providers.aws.errors import LacksRight
from proreus.providers.aws.identity import TAG_LEGACY, Described, Place, tags_of
from proreus.providers.aws.lookup import MOST_VALUES, by_id
from proreus.providers.aws.lookup import Answer as Found
from proreus.providers.aws.machines import TERMINATED, state_of, zone_of
from proreus.providers.aws.names import instance_id, provider_id
from proreus.providers.aws.residents import Residents

MOST_TABLES = 100
"""Tables of one page (EC2 API reference, DescribeRouteTables)."""
_AT_ONCE = 10
_NO_ROUTE = frozenset({"InvalidRoute.NotFound", "InvalidParameterValue"})

T = TypeVar("T")
Answer = Done | Pending | CloudError


class AWSRoutes:
    """The capability `Routes` of the provider `aws`."""

    def __init__(self, api: Api, place: Place, table_id: str) -> None:
        """Keep the client of AWS and which route table to use.

        Args:
            api: The client of AWS.
            place: The place of the cluster.
            table_id: The table; "" for the one in the cluster's VPC with the cluster's tag.
        """
        self._api = api
        self._place = place
        self._configured = table_id
        self._table_id = table_id
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._residents = Residents(api, place)

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List routes: one call for the table, one about targets that no pod CIDR explains."""
        del cluster
        made = list(instance_routes(await self._table()))
        known = {
            id_: node.spec.provider_id
            for node in nodes
            if (id_ := instance_id(node.spec.provider_id)) is not None
        }
        holders = Holders(nodes, instance_id)
        targets = {target_of(one): _is_blackhole(one) for one in made}
        unexplained = {target_of(one) for one in made if not _is_held(one, holders)}
        asked = {id_ for id_ in unexplained if instance_id(id_)}
        machines = await by_id(self._api, asked) if asked else {}
        strange = await self._strange({id_: machines[id_] for id_ in asked & known.keys()})
        known = {**self._ours(machines), **known}
        others = {id_ for id_, machine in machines.items() if _is_there(machine)}
        lost = {id_ for id_, is_blackhole in targets.items() if is_blackhole} - set(known)
        others |= await self._interfaces_there(lost - asked)
        listed = (
            route_of(one, known, others)
            for one in made
            if target_of(one) not in strange or _is_held(one, holders)
        )
        return [holders.as_written(one) for one in listed if one is not None]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Answer]:
        """Replace, then delete, then create, so that a full table has room for new routes.

        What is to go may lead elsewhere by now, such as to a gateway: then it stays.
        """
        if not self._table_id:
            await self._table()
        targets = await self._interfaces(create)
        there = await self.list(cluster, nodes) if delete else ()
        listed = {(_network(one), one.target) for one in there}
        changed = [route for route in delete if (_network(route), route.target) not in listed]
        new = {_network(route): route for route in create}
        old = [route for route in delete if _network(route) in new]
        replaced = {_network(route) for route in old if route not in changed}
        first = await self._each(
            [route for route in create if _network(route) in replaced], targets, replace=True
        )
        answers: dict[Route, Answer] = dict(first)
        rest = [route for route in delete if _network(route) not in new and route not in changed]
        gone = await asyncio.gather(*(self._slot(self._delete(route)) for route in rest))
        answers.update(zip(rest, gone, strict=True))
        missing = [route for route in create if _network(route) not in replaced]
        answers.update(await self._each(missing, targets, replace=False))
        answers.update(dict.fromkeys(changed, Done()))
        answers.update({route: answers[new[_network(route)]] for route in old})
        return answers

    async def _table(self) -> Described:
        """Read the route table, and remember its id.

        Raises:
            CloudError: There is no such table, or there are several.
        """
        if self._configured:
            found = await self._api.pages(
                "ec2", "DescribeRouteTables", "RouteTables", RouteTableIds=[self._configured]
            )
        else:
            tags = self._place.tags
            filters = [{"Name": "tag-key", "Values": [tags.key, TAG_LEGACY]}]
            if self._place.vpc:
                filters.append({"Name": "vpc-id", "Values": [self._place.vpc]})
            tagged = await self._api.pages(
                "ec2",
                "DescribeRouteTables",
                "RouteTables",
                Filters=filters,
                MaxResults=MOST_TABLES,
            )
            found = tags.mine(tagged) if tags.id else []
            if len(found) != 1:
                ids = ", ".join(sorted(str(one["RouteTableId"]) for one in found)) or "none"
                raise CloudError(
                    f"exactly one route table of {self._place.vpc or 'the region'} must have the"
                    f" tag {tags.key}, found {ids}: tag one, or give RouteTableID in the"
                    " cloud-config"
                )
        if len(found) != 1:
            raise CloudError(f"there is no route table {self._configured}")
        self._table_id = str(found[0]["RouteTableId"])
        return found[0]

    def _ours(self, machines: Mapping[str, Found]) -> dict[str, str]:
        """Return the provider ids of those machines that are instances of this cluster."""
        return {
            id_: provider_id(zone_of(machine), id_)
            for id_, machine in machines.items()
            if isinstance(machine, Mapping)
            and self._place.tags.id
            and self._place.tags.has(tags_of(machine))
        }

    async def _strange(self, machines: Mapping[str, Found]) -> set[str]:
        """Return those machines that Nodes name and that are somebody else's, or may be.

        Raises:
            CloudError: EC2 gives no usable answer.
        """
        there = {id_: one for id_, one in machines.items() if _is_there(one)}
        described = {id_: one for id_, one in there.items() if isinstance(one, Mapping)}
        tags = self._place.tags
        others = {id_ for id_, one in described.items() if tags.is_anothers(tags_of(one))}
        strange = await self._residents.strangers(described.values())
        return others | strange.keys() | (there.keys() - described.keys())

    async def _interfaces_there(self, ids: Collection[str]) -> set[str]:
        """Return those network interfaces that exist; none without the right to see them.

        Raises:
            CloudError: EC2 gives no usable answer.
        """
        try:
            found = [
                one
                for part in in_parts(ids, MOST_VALUES)
                for one in await self._api.pages(
                    "ec2",
                    "DescribeNetworkInterfaces",
                    "NetworkInterfaces",
                    Filters=[{"Name": "network-interface-id", "Values": part}],
                )
            ]
        except LacksRight:
            # The official manager needs no such right; routes of nodes that are gone have to go.
            return set()
        return {str(one["NetworkInterfaceId"]) for one in found}

    async def _interfaces(self, routes: Sequence[Route]) -> dict[str, str | CloudError]:
        """Let target instances forward; return the network interface of each.

        An instance drops what is not addressed to itself unless its check is off. A route to an
        instance of several interfaces must name one: the first.
        """
        ids = {id_ for route in routes if (id_ := instance_id(route.target or "")) is not None}
        machines = await by_id(self._api, ids)
        of = list(machines)
        described = [one for one in machines.values() if isinstance(one, Mapping)]
        strange = await self._residents.strangers(described)
        done = await asyncio.gather(
            *(self._slot(self._prepare(id_, machines[id_], strange.get(id_, ""))) for id_ in of)
        )
        return dict(zip(of, done, strict=True))

    async def _prepare(self, id_: str, machine: Found, strange: str) -> str | CloudError:
        if isinstance(machine, CloudError):
            return machine
        if machine is None or state_of(machine) == TERMINATED:
            return CloudError(f"instance {id_} is gone")
        interfaces = sorted(
            machine.get("NetworkInterfaces") or (),
            key=lambda one: int(one.get("Attachment", {}).get("DeviceIndex", 0)),
        )
        if not interfaces:
            return CloudError(f"instance {id_} has no network interface yet")
        first = interfaces[0]
        tags = self._place.tags
        if tags.is_anothers(tags_of(machine)):
            strange = (
                f"instance {id_} is another cluster's: tag it {tags.key} if it is this one's, too"
            )
        if first.get("SourceDestCheck", True) and strange:
            return CloudError(f"the check of source and destination stays on, as {strange}")
        operation, what = "ModifyInstanceAttribute", {"InstanceId": id_}
        if len(interfaces) > 1:
            operation = "ModifyNetworkInterfaceAttribute"
            what = {"NetworkInterfaceId": str(first["NetworkInterfaceId"])}
        try:
            if first.get("SourceDestCheck", True):
                off = {"Value": False}
                await self._api.call("ec2", operation, SourceDestCheck=off, **what)
        except CloudError as error:
            return error
        return str(first["NetworkInterfaceId"])

    async def _each(
        self, routes: Sequence[Route], targets: Mapping[str, str | CloudError], *, replace: bool
    ) -> dict[Route, Answer]:
        made = await asyncio.gather(
            *(self._slot(self._make(route, targets, replace=replace)) for route in routes)
        )
        return dict(zip(routes, made, strict=True))

    async def _make(
        self, route: Route, targets: Mapping[str, str | CloudError], *, replace: bool
    ) -> Answer:
        id_ = instance_id(route.target or "")
        if id_ is None:
            return InvalidRequest(f"route {route.name}: target {route.target!r} is not an instance")
        interface = targets.get(
            id_, CloudError(f"EC2 did not describe instance {id_}, to which the route leads")
        )
        if isinstance(interface, CloudError):
            return interface
        given = {
            "RouteTableId": self._table_id,
            "NetworkInterfaceId": interface,
            **_destination(route),
        }
        try:
            if replace:
                await self._replace(given)
            else:
                await self._create(given, interface)
        except CloudError as error:
            return error
        return Done()

    async def _replace(self, given: Mapping[str, Any]) -> None:
        """Replace a route; without the right to, delete it and create it anew."""
        try:
            await self._api.call("ec2", "ReplaceRoute", **given)
        except LacksRight:
            where = {key: one for key, one in given.items() if key != "NetworkInterfaceId"}
            await self._api.call("ec2", "DeleteRoute", **where)
            await self._api.call("ec2", "CreateRoute", **given)
        except Refused as error:
            if error.code not in _NO_ROUTE:
                raise
            await self._api.call("ec2", "CreateRoute", **given)

    async def _create(self, given: Mapping[str, Any], interface: str) -> None:
        try:
            await self._api.call("ec2", "CreateRoute", **given)
        except Refused as error:
            if error.code != "RouteAlreadyExists":
                raise
            net = _parsed(_text(given))
            for route in (await self._table())["Routes"]:
                if _parsed(_text(route)) == net and route.get("NetworkInterfaceId") == interface:
                    return
            raise

    async def _delete(self, route: Route) -> Answer:
        try:
            await self._api.call(
                "ec2", "DeleteRoute", RouteTableId=self._table_id, **_destination(route)
            )
        except Refused as error:
            return Done() if error.code == "InvalidRoute.NotFound" else error
        except CloudError as error:
            return error
        return Done()

    async def _slot(self, work: Awaitable[T]) -> T:
        async with self._slots:
            return await work


def instance_routes(table: Described) -> Iterator[Described]:
    """Return the routes of a table that somebody made and that may lead to an instance. Pure."""
    for route in table.get("Routes") or ():
        if route.get("Origin", "CreateRoute") != "CreateRoute":
            continue
        if _text(route) and target_of(route):
            yield route


def route_of(
    route: Described, known: Mapping[str, str], others: Collection[str] = ()
) -> Route | None:
    """Return a route as the framework sees it, or None if it is not ours. Pure.

    Args:
        route: The route as DescribeRouteTables describes it.
        known: The provider ids of the cluster's instances.
        others: The ids of other instances and interfaces that exist, or may.
    """
    id_ = target_of(route)
    target = known.get(id_)
    is_blackhole = _is_blackhole(route)
    if target is None and (id_ in others or not is_blackhole):
        return None
    return Route(name=_text(route), destination=_text(route), target=target, blackhole=is_blackhole)


def target_of(route: Described) -> str:
    """Return the id of the instance that a route leads to, or else of its network interface.

    For an instance that is gone, AWS tells only the interface.
    """
    return str(route.get("InstanceId") or route.get("NetworkInterfaceId") or "")


def _is_held(route: Described, holders: Holders) -> bool:
    """Tell whether a route leads to the instance of a Node that has its destination as pod CIDR.

    A Node names its instance itself, so of others its word proves nothing.
    """
    destination = _text(route)
    node = holders.of(target_of(route), destination)
    cidrs = (node.spec.pod_cidrs or (node.spec.pod_cidr,)) if node is not None else ()
    return network_of(destination) in map(network_of, cidrs)


def _is_blackhole(route: Described) -> bool:
    """Tell whether the target of a route is gone, or only not available now."""
    return route.get("State") == "blackhole"


def _is_there(machine: Found) -> bool:
    """Tell whether an instance exists, or may exist."""
    if isinstance(machine, CloudError):
        return True
    return machine is not None and state_of(machine) != TERMINATED


def _text(route: Mapping[str, Any]) -> str:
    return str(route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock") or "")


def _parsed(text: str) -> object:
    return ipaddress.ip_network(text, strict=False) if text else None


def _network(route: Route) -> object:
    return _parsed(route.destination)


def _destination(route: Route) -> dict[str, str]:
    net = ipaddress.ip_network(route.destination, strict=False)
    return {"DestinationCidrBlock" if net.version == 4 else "DestinationIpv6CidrBlock": str(net)}  # noqa: PLR2004 - IP
