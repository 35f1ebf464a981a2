"""Compute which routes the nodes need, and which must stay as too little is known. Pure."""

from bisect import bisect, insort
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.routes import Route
from proreus.controllers.networks import Network, is_in_any, network, pod_cidrs
from proreus.controllers.route.conditions import shows_routes
from proreus.controllers.route.policy import LABEL_EXCLUDE
from proreus.kube.objects import Node, by_age


class DesiredRoute(msgspec.Struct, frozen=True):
    """A route that a node needs.

    Attributes:
        node: The name of the node.
        uid: The uid of the node.
        destination: The pod CIDR that the route leads to.
        target: The provider id of the node.
        addresses: The addresses of the node, for clouds that route to addresses.
        was_routed: Whether the node says that it has its routes.
    """

    node: str
    uid: str
    destination: Network
    target: str
    addresses: frozenset[str]
    was_routed: bool

    def route(self) -> Route:
        """Return the route to create, named after the node's uid, which no other cluster has."""
        return Route(
            name=f"{self.uid}-ipv{self.destination.version}",
            destination=str(self.destination),
            target=self.target,
        )

    def leads_here(self, route: Route) -> bool:
        """Tell whether a route's target is this node."""
        return route.target is not None and plain_address(route.target) in {
            self.target,
            *self.addresses,
        }


class Problem(msgspec.Struct, frozen=True):
    """The reason why a pod CIDR gets no route until something changes."""

    node: str
    uid: str
    cidr: str
    text: str


class DesiredRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """The routes that all nodes together need.

    Attributes:
        routes: The desired route for each destination; where two nodes claim one, that of the older
            node.
        problems: The problems of pod CIDRs that get no route.
        left_alone: The names of the nodes whose routes are not managed, by no other cloud either.
        claimed: The pod CIDRs of all nodes, whoever makes their routes.
        shielded: Pod CIDRs whose routes stay as they are.
        shielded_targets: Provider ids and addresses to which routes stay as they are.
        has_nodes: Whether there is any node.
    """

    routes: Mapping[Network, DesiredRoute]
    problems: tuple[Problem, ...]
    left_alone: frozenset[str]
    claimed: frozenset[Network]
    shielded: Mapping[Network, str]
    shielded_targets: frozenset[str]
    has_nodes: bool


def relevant(old: Node | None, new: Node | None) -> bool:
    """Tell whether a change of a node can change its routes."""
    return old is None or new is None or _read(old) != _read(new)


def desired_routes(
    nodes: Iterable[Node],
    clusters: Sequence[Network],
    owns: Callable[[Node], Ownership],
    *,
    has_others: bool = False,
) -> DesiredRoutes:
    """Compute the routes that the nodes need.

    Routes of these nodes stay as they are: those with the label `LABEL_EXCLUDE`, those of other
    clouds, and those that have no pod CIDR or no provider id *yet*, since nobody knows what
    they will need.

    Args:
        nodes: All nodes.
        clusters: The networks of `--cluster-cidr`.
        owns: Tells whether a node is of this cloud.
        has_others: Whether there are other clouds, which say themselves how their nodes are.
    """
    ordered = sorted(nodes, key=by_age)
    excluded = {node.metadata.name for node in ordered if LABEL_EXCLUDE in node.metadata.labels}
    foreign = {node.metadata.name for node in ordered if owns(node) is Ownership.NO}
    left_alone = excluded | foreign
    waiting = [
        node
        for node in ordered
        if node.metadata.name in left_alone or not node.spec.provider_id or not pod_cidrs(node)
    ]
    names_waiting = {node.metadata.name for node in waiting}
    routes: dict[Network, DesiredRoute] = {}
    problems: list[Problem] = []
    claims = _Claims(clusters)
    for node in ordered:
        for text in pod_cidrs(node):
            net = network(text)
            problem = claims.claim(net, node.metadata.name)
            if node.metadata.name in names_waiting:
                continue
            if problem or net is None:
                problems.append(Problem(node.metadata.name, node.metadata.uid, text, problem))
            else:
                routes.setdefault(net, _desired(node, net))
    return DesiredRoutes(
        routes=routes,
        problems=tuple(problems),
        left_alone=frozenset(excluded if has_others else left_alone),
        claimed=frozenset(net for node in ordered for net in _networks(node)),
        shielded={
            net: node.metadata.name
            for node in waiting
            for net in _networks(node)
            if net not in routes  # an older node has it
        },
        shielded_targets=frozenset(target for node in waiting for target in _endpoints(node)),
        has_nodes=bool(ordered),
    )


class _Claims:
    """The pod CIDRs to which nodes have a right; those of two nodes never overlap."""

    def __init__(self, clusters: Sequence[Network]) -> None:
        self._clusters = clusters
        self._starts: dict[int, list[int]] = {}
        self._held: dict[tuple[int, int], tuple[Network, str]] = {}

    def claim(self, net: Network | None, node: str) -> str:
        """Claim a CIDR for a node, older nodes first; return why it cannot have it, or ""."""
        if net is None or not is_in_any(net, self._clusters):
            return f"it is not in --cluster-cidr ({', '.join(map(str, self._clusters))})"
        starts = self._starts.setdefault(net.version, [])
        first = max(0, bisect(starts, int(net.network_address)) - 1)
        last = bisect(starts, int(net.broadcast_address))
        is_held = False
        for start in starts[first:last]:
            held, holder = self._held[net.version, start]
            if not held.overlaps(net):
                continue
            if holder != node:
                what = "the same pod CIDR" if held == net else f"the pod CIDR {held}"
                return f"node {holder} has {what}"
            is_held = True
        if not is_held:
            insort(starts, int(net.network_address))
            self._held[net.version, int(net.network_address)] = net, node
        return ""


def _desired(node: Node, net: Network) -> DesiredRoute:
    return DesiredRoute(
        node=node.metadata.name,
        uid=node.metadata.uid,
        destination=net,
        target=node.spec.provider_id,
        addresses=frozenset(plain_address(address.address) for address in node.status.addresses),
        was_routed=shows_routes(node),
    )


def _networks(node: Node) -> list[Network]:
    return [net for text in pod_cidrs(node) if (net := network(text)) is not None]


def _endpoints(node: Node) -> list[str]:
    addresses = [plain_address(address.address) for address in node.status.addresses]
    return [*addresses, node.spec.provider_id] if node.spec.provider_id else addresses


def _read(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that its routes depend on."""
    is_excluded = LABEL_EXCLUDE in node.metadata.labels
    spec = node.spec
    addresses = node.status.addresses
    return node.metadata.uid, spec.provider_id, pod_cidrs(node), addresses, is_excluded
