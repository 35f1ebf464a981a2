"""Rules about routes: how they are created, listed and deleted."""

from collections.abc import Mapping, Sequence

from proreus.cloudprovider import Done, Route
from proreus.kube.objects import Node
from proreus.testing.conformance.answers import Violated, expect
from proreus.testing.conformance.machines import capabilities
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import CLUSTER, OTHER_CLUSTER, Site, Started


@rule(capabilities, wants=("routes",))
async def routes_applied(site: Site) -> None:
    """Routes are created, listed and deleted, and doing so again changes nothing.

    `apply` answers `Done` for a route to be made that is there already, and for one to be deleted
    that is gone already. Routes to be deleted are as `list` showed them: find them by destination
    and target, since their names are the cloud's.
    """
    started = await site.start()
    _ = started.routes
    hosts = await site.hosts(started, 2)
    desired = [_route(number, one) for number, one in enumerate(hosts)]
    for _ in range(2):
        await _apply(started, hosts, create=desired)
        found = await _listed(started, hosts, desired)
    gone = [one for one in found if one.destination == desired[0].destination]
    for _ in range(2):
        await _apply(started, hosts, delete=gone)
        await _listed(started, hosts, desired[1:])


@rule(routes_applied, wants=("marks_routes",))
async def routes_of_other_clusters(site: Site) -> None:
    """Routes of another cluster are neither listed nor deleted.

    Mark each route with the cluster's uid when it is created, and look only at those.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    desired = [_route(0, hosts[0])]
    await _apply(started, hosts, create=desired)
    found = await _listed(started, hosts, desired)
    other = await site.start(cluster=OTHER_CLUSTER)
    seen = await other.routes.list(OTHER_CLUSTER, hosts)
    if seen:
        raise Violated(f"another cluster's list shows {list(seen)}")
    await other.routes.apply(OTHER_CLUSTER, hosts, (), found)
    await _listed(started, hosts, desired)


def _route(number: int, host: Node) -> Route:
    return Route(f"route-{number}", f"10.200.{number}.0/24", host.spec.provider_id)


async def _apply(
    started: Started,
    hosts: Sequence[Node],
    create: Sequence[Route] = (),
    delete: Sequence[Route] = (),
) -> None:
    answers = await started.routes.apply(CLUSTER, hosts, create, delete)
    for route in (*create, *delete):
        expect(Done, answers.get(route), f"apply, for {route.name},")


async def _listed(
    started: Started, hosts: Sequence[Node], desired: Sequence[Route]
) -> Sequence[Route]:
    """List the routes and check that they are the desired ones."""
    found = await started.routes.list(CLUSTER, hosts)
    # A cloud may have other names for them, or none, and lead to addresses.
    owners = {address.address: host for host in hosts for address in host.status.addresses}
    if sorted(_which(one, owners) for one in found) != sorted(_which(one, {}) for one in desired):
        raise Violated(f"list should show {list(desired)}, but shows {list(found)}")
    return found


def _which(route: Route, owners: Mapping[str, Node]) -> tuple[str, str, bool]:
    """Return what identifies a route: destination, provider id or target, and if a blackhole."""
    target = route.target or ""
    owner = owners.get(target)
    return route.destination, owner.spec.provider_id if owner else target, route.blackhole


RULES = (routes_applied, routes_of_other_clusters)
