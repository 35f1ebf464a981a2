"""Track the cloud's route table: the last listing, and the answers since. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.routes import Route
from proreus.controllers.networks import Network, is_in_any, network


class Table(msgspec.Struct, frozen=True):
    """The cluster's routes to destinations in a cluster CIDR.

    Attributes:
        routes: The routes by destination; a cloud may have several to one destination.
        began: When the listing began (in seconds of the loop's clock).
        answered: When the cloud last carried out a change, by destination.
    """

    routes: Mapping[Network, tuple[Route, ...]]
    began: float
    answered: Mapping[Network, float] = {}


def listed(
    before: Table | None,
    routes: Iterable[Route],
    clusters: Sequence[Network],
    *,
    began: float,
    busy: Collection[Network],
    settle: float,
) -> Table:
    """Return the table after a listing that began at `began`.

    What was `busy` then, or answered less than `settle` seconds before, the listing may not
    show yet: of these destinations the older knowledge stays. Routes that do not lie in a
    cluster CIDR, such as a supernet of it, are not looked at any further.
    """
    known = before or Table({}, began)
    settling = {net: at for net, at in known.answered.items() if at + settle > began}
    kept = {*settling, *busy}
    found: dict[Network, tuple[Route, ...]] = {
        net: known.routes[net] for net in kept if net in known.routes
    }
    for route in routes:
        net = network(route.destination)
        if net is None or net in kept or not is_in_any(net, clusters):
            continue
        found[net] = (*found.get(net, ()), route)
    return Table(found, began, settling)


def applied(
    table: Table,
    created: Mapping[Network, Route],
    deleted: Mapping[Network, Collection[Route]],
    *,
    at: float,
) -> Table:
    """Return the table after the cloud has created and deleted these routes."""
    routes = dict(table.routes)
    for net, gone in deleted.items():
        routes[net] = tuple(route for route in routes.get(net, ()) if route not in gone)
    for net, new in created.items():
        routes[net] = (*routes.get(net, ()), new)
    answered = {**table.answered, **dict.fromkeys((*created, *deleted), at)}
    return Table({net: some for net, some in routes.items() if some}, table.began, answered)
