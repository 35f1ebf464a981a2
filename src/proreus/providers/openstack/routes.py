"""The capability `Routes` of the provider `openstack`: routes of pods on a Neutron router.

An extra route has no marks. Those that the framework looks at lie in a cluster CIDR, so a router
must not be shared by clusters whose CIDRs overlap. A server's port lets only its own addresses
through; so the pod CIDR becomes one of its allowed address pairs before the route is made, and is
taken away after the route is gone.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.routes import Holders, Route
from proreus.cloudprovider.routes import network_of as cidr_of
from proreus.kube.objects import Node
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.hops import (
    Hop,
    addresses_of,
    by_device,
    changed_pairs,
    checks_addresses,
    holder,
    hop,
    leading_to,
    owners_of,
    revision_of,
    same,
    subnets_of,
)
from proreus.providers.openstack.names import machine_of, parsed
from proreus.providers.openstack.reading import Reader

ATOMIC: Final = "extraroute-atomic"
"""Neutron's extension with which routes are added and removed without reading them first."""

_FULL = "RoutesExhausted"

Answer = Done | Pending | CloudError
Extra = Mapping[str, str]


class _Work(msgspec.Struct):
    """The work of one `apply`: what it has read, and what it has done so far.

    Attributes:
        hops: The next hop of each route to create, or the error of one that has none.
        subnets: The subnets of the router.
        ports: All ports that were read.
        addresses: The addresses of each node, by its provider id.
        answers: The answers so far.
        strange: By id why a port is another project's.
    """

    hops: dict[Route, Hop | CloudError]
    subnets: frozenset[str]
    ports: list[Described]
    addresses: dict[str, frozenset[str]]
    answers: dict[Route, Answer]
    strange: Mapping[str, str] = {}


class OpenStackRoutes:
    """The capability `Routes` of the provider `openstack`."""

    def __init__(self, api: Api, reader: Reader, router: str) -> None:
        """Keep the client of Neutron, and the router's id."""
        self._api = api
        self._reader = reader
        self._router = router
        self._is_atomic: bool | None = None
        self._lock = asyncio.Lock()

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the router's extra routes by one request.

        A Node may not show the address to which its route leads, as with `--node-ip` in another
        network: then one request more tells that its server has it.
        """
        del cluster
        routes = [
            Route(
                name=route["destination"], destination=route["destination"], target=route["nexthop"]
            )
            for route in (await self._read())["routes"]
        ]
        owners, unseen = owners_of(nodes), dict[Route, tuple[Node, str]]()
        for route in routes:
            node = owners.get(cidr_of(route.destination))
            server = machine_of(node.spec.provider_id) if node is not None else None
            if node and server and route.target not in addresses_of(node, ()):
                unseen[route] = node, server
        if not unseen:
            return routes
        servers = {server for _, server in unseen.values()}
        devices = by_device(await self._reader.ports("device_id", {self._router, *servers}))
        subnets = subnets_of(devices.get(self._router, ()))
        named: dict[Route, str] = {}
        for route, (node, server) in unseen.items():
            to = hop(node, devices.get(server, ()), subnets, route.destination)
            if to is not None and same(to.address, str(route.target)):
                named[route] = node.spec.provider_id
        return [replace(route, target=named.get(route, route.target)) for route in routes]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Answer]:
        """Create before deleting: a router can have several routes to one destination."""
        del cluster
        work = await self._prepare(nodes, create, delete)
        made = {route: one for route, one in work.hops.items() if isinstance(one, Hop)}
        work.answers.update(
            {route: one for route, one in work.hops.items() if isinstance(one, CloudError)}
        )
        allowed = await self._allow(made, work)
        await self._create({route: made[route] for route in made if route in allowed}, work)
        await self._undo({route: made[route] for route in allowed if allowed[route]}, work)
        await self._delete(delete, work)
        return work.answers

    async def _prepare(
        self, nodes: Sequence[Node], create: Sequence[Route], delete: Sequence[Route]
    ) -> _Work:
        """Read the ports that routes lead to, 100 servers at once, and the router's."""
        every, holders = (*create, *delete), Holders(nodes)
        named = {route: holders.of(route.target, route.destination) for route in every}
        servers = {
            target: found[1]
            for route in every
            if (target := route.target or "") and (found := parsed(target)) is not None
        }
        ports = await self._reader.ports("device_id", {self._router, *servers.values()})
        devices = by_device(ports)
        subnets = subnets_of(devices.get(self._router, ()))
        addresses = {
            target: addresses_of(named[route], devices.get(servers[target], ()))
            for route in every
            if (target := route.target or "") in servers
        }
        hops = {route: self._hop(route, named[route], devices, subnets) for route in create}
        strangers = {route.target for route in delete if route.target} - set(servers)
        known = frozenset[str]().union(*addresses.values())
        needed = {f"ip_address={stranger}" for stranger in strangers - known}
        ports += await self._reader.ports("fixed_ips", needed)
        return _Work(hops, subnets, ports, addresses, {}, await self._reader.strange(ports))

    def _hop(
        self,
        route: Route,
        node: Node | None,
        devices: Mapping[str, Sequence[Described]],
        subnets: Collection[str],
    ) -> Hop | CloudError:
        server = parsed(node.spec.provider_id) if node is not None else None
        if node is None or server is None:
            return InvalidRequest(f"route {route.name}: target {route.target!r} is not a server")
        found = hop(node, devices.get(server[1], ()), subnets, route.destination)
        if found is None:
            return CloudError(
                f"server {server[1]} has no address for {route.destination} in a subnet of router"
                f" {self._router}: connect its subnet with the router"
            )
        return found

    async def _allow(self, made: Mapping[Route, Hop], work: _Work) -> dict[Route, bool]:
        """Let ports pass packets to pods; return whether each route's pair is new.

        Routes whose port could not be changed are answered, and left out. So are those to servers
        that are none of the cluster's by their names, also where the pair is there: it is theirs,
        and would go with the route.
        """
        allowed: dict[Route, bool] = {}
        needed: dict[str, list[Route]] = {}
        for route, one in made.items():
            needed.setdefault(id_of(one.port), []).append(route)
        unlike = await self._reader.unlike([one.port for one in made.values()])

        async def change(routes: list[Route]) -> None:
            port = made[routes[0]].port
            new = {
                route: changed_pairs(port, [route.destination], ()) is not None for route in routes
            }
            why = unlike.get(id_of(port)) or (any(new.values()) and work.strange.get(id_of(port)))
            if why:
                error = why if isinstance(why, CloudError) else _not_ours(port, why)
                work.answers.update(dict.fromkeys(routes, error))
                return
            try:
                await self._set_pairs(port, [route.destination for route in routes], ())
            except CloudError as error:
                work.answers.update(dict.fromkeys(routes, error))
            else:
                allowed.update(new)

        await asyncio.gather(*(change(routes) for routes in needed.values()))
        return allowed

    async def _create(self, made: Mapping[Route, Hop], work: _Work) -> None:
        extras = {
            route: {"destination": route.destination, "nexthop": one.address}
            for route, one in made.items()
        }
        work.answers.update(await self._together(extras, add=True))

    async def _undo(self, new: Mapping[Route, Hop], work: _Work) -> None:
        """Remove the address pairs of routes that Neutron has refused.

        A route without a clear answer may exist, so its pairs stay; it will be tried again.
        """
        for route, one in new.items():
            if isinstance(work.answers.get(route), Refused):
                await self._forbid(one.port, route.destination)

    async def _delete(self, delete: Sequence[Route], work: _Work) -> None:
        extras = await self._leading(delete, work)
        new = {
            route: [
                to
                for made, to in work.hops.items()
                if isinstance(to, Hop) and same(made.destination, route.destination)
            ]
            for route in extras
        }
        stay = {
            route: Done()
            for route, extra in extras.items()
            if any(same(to.address, extra["nexthop"]) for to in new[route])
        }
        gone = {route: extra for route, extra in extras.items() if route not in stay}
        answers = await self._together(gone, add=False)
        for route, answer in answers.items():
            port = holder(extras[route]["nexthop"], work.ports, work.subnets)
            is_needed = port is not None and any(id_of(to.port) == id_of(port) for to in new[route])
            is_ours = port is not None and id_of(port) not in work.strange
            if isinstance(answer, Done) and port is not None and is_ours and not is_needed:
                answers[route] = await self._forbid(port, route.destination)
        answers |= stay
        work.answers.update(answers)

    async def _leading(self, delete: Sequence[Route], work: _Work) -> dict[Route, Extra]:
        """Return each route in the form the router has it; answer those that it lacks.

        Listed routes name their next hop. Those that were just made name a server.
        """
        extras: dict[Route, Extra] = {
            route: {"destination": route.destination, "nexthop": route.target}
            for route in delete
            if route.target and route.target not in work.addresses
        }
        rest = [route for route in delete if route not in extras]
        if not rest:
            return extras
        try:
            there = (await self._read())["routes"]
        except CloudError as error:
            work.answers.update(dict.fromkeys(rest, error))
            return extras
        for route in rest:
            addresses = work.addresses.get(route.target or "", frozenset())
            extra = leading_to(there, route.destination, addresses)
            is_there = any(same(one["destination"], route.destination) for one in there)
            if extra is not None:
                extras[route] = extra
            elif is_there and not addresses:
                unknown = (
                    f"the addresses of the server {route.target} are no longer known, so nothing"
                    " shows whether it is the cluster's: delete it from the router if it is"
                )
                work.answers[route] = CloudError(f"route to {route.destination}: {unknown}")
            else:
                work.answers[route] = Done()
        return extras

    async def _together(self, extras: Mapping[Route, Extra], *, add: bool) -> dict[Route, Answer]:
        """Change all routes in one request, or one by one if Neutron refuses that."""
        if not extras:
            return {}
        try:
            await self._change(list(extras.values()), add=add)
        except Refused as error:
            if len(extras) == 1:
                return dict.fromkeys(extras, error)
        except CloudError as error:
            return dict.fromkeys(extras, error)
        else:
            return dict.fromkeys(extras, Done())
        answers: dict[Route, Answer] = {}
        for route, extra in extras.items():
            answers |= await self._together({route: extra}, add=add)
            refused = answers[route]
            if isinstance(refused, Refused) and refused.code == _FULL:
                return {**dict.fromkeys(extras, refused), **answers}
        return answers

    async def _change(self, extras: Sequence[Extra], *, add: bool) -> None:
        """Add or remove extra routes.

        Raises:
            CloudError: No extra route was added or removed.
        """
        if await self._atomic():
            verb = "add_extraroutes" if add else "remove_extraroutes"
            await self._api.change(
                "neutron",
                "router_update",
                "PUT",
                f"routers/{self._router}/{verb}",
                {"router": {"routes": list(extras)}},
            )
            return
        async with self._lock:  # nobody else of this process may write between the two requests
            router = await self._read()
            before = list(router["routes"])
            rest = [one for one in before if not any(_alike(one, extra) for extra in extras)]
            after = [*rest, *extras] if add else rest
            if after != before:
                await self._api.change(
                    "neutron",
                    "router_update",
                    "PUT",
                    f"routers/{self._router}",
                    {"router": {"routes": after}},
                    revision=revision_of(router),
                )

    async def _atomic(self) -> bool:
        if self._is_atomic is None:
            path = f"extensions/{ATOMIC}"
            found = await self._api.find("neutron", "extension_get", path, "extension")
            self._is_atomic = found is not None
        return self._is_atomic

    async def _read(self) -> Described:
        return await self._api.get("neutron", "router_get", f"routers/{self._router}", "router")

    async def _forbid(self, port: Described, cidr: str) -> Answer:
        try:
            current = await self._api.get("neutron", "port_get", f"ports/{id_of(port)}", "port")
            await self._set_pairs(current, (), [cidr])
        except Refused as error:
            return Done() if error.is_absence else error
        except CloudError as error:
            return error
        return Done()

    async def _set_pairs(
        self, port: Described, add: Collection[str], remove: Collection[str]
    ) -> None:
        """Change the allowed address pairs of a port, if nobody else has changed it meanwhile."""
        pairs = changed_pairs(port, add, remove) if checks_addresses(port) else None
        if pairs is not None:
            await self._api.change(
                "neutron",
                "port_update",
                "PUT",
                f"ports/{id_of(port)}",
                {"port": {"allowed_address_pairs": pairs}},
                revision=revision_of(port),
            )


def _not_ours(port: Described, why: str) -> CloudError:
    return CloudError(
        f"port {id_of(port)} of the node's server lets no pods' packets through: {why}: if it is a"
        f" node's, give allow = *={id_of(port)}, or its project's id, in [Tenants] of the"
        " cloud-config"
    )


def _alike(one: Extra, other: Extra) -> bool:
    return same(one["destination"], other["destination"]) and same(one["nexthop"], other["nexthop"])
