"""Which routes the nodes need, and what must stay as it is because too little is known. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.routes import Route
from proreus.controllers.networks import Network, endpoint, is_within, network, pod_cidrs
from proreus.controllers.route.conditions import says_routed
from proreus.controllers.route.policy import LABEL_EXCLUDE
from proreus.kube.objects import Node

_LATE = datetime.max.replace(tzinfo=UTC)


class Wish(msgspec.Struct, frozen=True):
    """A route that a node needs.

    Attributes:
        node: The node's name.
        uid: Its uid.
        destination: One of its pod CIDRs.
        target: Its provider id.
        addresses: Its addresses, for clouds that route to those.
        was_routed: Whether the node says that it has its routes.
    """

    node: str
    uid: str
    destination: Network
    target: str
    addresses: frozenset[str]
    was_routed: bool

    def route(self) -> Route:
        """The route to create; its name has the node's uid, which no other cluster has."""
        return Route(
            name=f"{self.uid}-ipv{self.destination.version}",
            destination=str(self.destination),
            target=self.target,
        )

    def leads_here(self, route: Route) -> bool:
        """Whether the target is this node."""
        return route.target is not None and endpoint(route.target) in {
            self.target,
            *self.addresses,
        }


class Problem(msgspec.Struct, frozen=True):
    """Why a route will not be made before something changes."""

    node: str
    uid: str
    cidr: str
    text: str


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes together need.

    Attributes:
        wanted: The wish for each destination; those of older nodes first.
        problems: The pod CIDRs that get no route.
        left_alone: Names of the nodes whose routes are not the controller's business.
        claimed: The pod CIDRs of all nodes, whoever makes their routes.
        shielded: Pod CIDRs whose routes stay as they are.
        shielded_targets: Provider ids and addresses to which routes stay as they are.
        has_nodes: Whether there is any node.
    """

    wanted: Mapping[Network, Wish]
    problems: tuple[Problem, ...]
    left_alone: frozenset[str]
    claimed: frozenset[Network]
    shielded: Mapping[Network, str]
    shielded_targets: frozenset[str]
    has_nodes: bool


def relevant(old: Node | None, new: Node | None) -> bool:
    """Whether a change of a node can change its routes."""
    return old is None or new is None or _read(old) != _read(new)


def wishes(
    nodes: Iterable[Node],
    clusters: Sequence[Network],
    owns: Callable[[Node], Ownership],
) -> Wishes:
    """Collect the wishes of the nodes.

    Routes of these nodes stay as they are: those with the label `LABEL_EXCLUDE`, those of other
    clouds, and those that have no pod CIDR or no provider id *yet*, since nobody knows what
    they will need.
    """
    ordered = sorted(nodes, key=_age)
    left_alone = frozenset(
        node.metadata.name
        for node in ordered
        if LABEL_EXCLUDE in node.metadata.labels or owns(node) is Ownership.NO
    )
    waiting = [
        node
        for node in ordered
        if node.metadata.name in left_alone or not node.spec.provider_id or not pod_cidrs(node)
    ]
    shielded = {net: node.metadata.name for node in waiting for net in _networks(node)}
    names_waiting = {node.metadata.name for node in waiting}
    wanted: dict[Network, Wish] = {}
    problems: list[Problem] = []
    for node in ordered:
        if node.metadata.name in names_waiting:
            continue
        for text in pod_cidrs(node):
            text_or_wish = _wish(node, text, clusters, shielded, wanted)
            if isinstance(text_or_wish, Wish):
                wanted.setdefault(text_or_wish.destination, text_or_wish)
            else:
                problems.append(Problem(node.metadata.name, node.metadata.uid, text, text_or_wish))
    return Wishes(
        wanted=wanted,
        problems=tuple(problems),
        left_alone=left_alone,
        claimed=frozenset(net for node in ordered for net in _networks(node)),
        shielded=shielded,
        shielded_targets=frozenset(target for node in waiting for target in _endpoints(node)),
        has_nodes=bool(ordered),
    )


def _wish(
    node: Node,
    text: str,
    clusters: Sequence[Network],
    shielded: Mapping[Network, str],
    wanted: Mapping[Network, Wish],
) -> Wish | str:
    """The wish for one pod CIDR, or why there is none."""
    net = network(text)
    if net is None or not any(is_within(net, cluster) for cluster in clusters):
        return f"it is not in --cluster-cidr ({', '.join(map(str, clusters))})"
    other = shielded[net] if net in shielded else wanted[net].node if net in wanted else ""
    if other and other != node.metadata.name:
        return f"node {other} has the same pod CIDR"
    return Wish(
        node=node.metadata.name,
        uid=node.metadata.uid,
        destination=net,
        target=node.spec.provider_id,
        addresses=frozenset(endpoint(one.address) for one in node.status.addresses),
        was_routed=says_routed(node),
    )


def _networks(node: Node) -> list[Network]:
    return [net for text in pod_cidrs(node) if (net := network(text)) is not None]


def _endpoints(node: Node) -> list[str]:
    addresses = [endpoint(one.address) for one in node.status.addresses]
    return [*addresses, node.spec.provider_id] if node.spec.provider_id else addresses


def _age(node: Node) -> tuple[datetime, str]:
    return node.metadata.creation_timestamp or _LATE, node.metadata.name


def _read(node: Node) -> tuple[object, ...]:
    """What the wishes are made from; not the condition, which this controller writes itself."""
    is_excluded = LABEL_EXCLUDE in node.metadata.labels
    spec = node.spec
    addresses = node.status.addresses
    return node.metadata.uid, spec.provider_id, pod_cidrs(node), addresses, is_excluded
