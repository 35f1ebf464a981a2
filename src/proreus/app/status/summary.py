"""Sum up the state of a cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from proreus.app.clouds.plan import LABEL_CLOUD
from proreus.controllers.cloud_node.plan import CONDITION as NODE_CONDITION
from proreus.controllers.route.conditions import CONDITION as ROUTE_CONDITION
from proreus.controllers.route.conditions import CREATED, NOT_CREATED
from proreus.controllers.service.conditions import CONDITION as SERVICE_CONDITION
from proreus.controllers.service.conditions import Reason
from proreus.controllers.service.intake import TYPE_LOAD_BALANCER, noted_cloud
from proreus.controllers.service.leaks import Leak
from proreus.kube.objects import (
    LABEL_INSTANCE_TYPE,
    LABEL_ZONE,
    TAINT_OUT_OF_SERVICE,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Service,
    condition,
    has_taint,
    key,
)


class State(StrEnum):
    """The state of a node or a Service, in the order of the tables, the worst first."""

    WAITING = "waiting"
    """The node is not initialised, or the Service has no load balancer that is ready."""
    DELETING = "deleting"
    """The object is being deleted."""
    OUT_OF_SERVICE = "out of service"
    """The node's pods and volumes move to others: its machine has no power."""
    SHUT_DOWN = "shut down"
    """The node's machine is stopped."""
    NOT_READY = "not ready"
    """The node's kubelet does not report."""
    WARNING = "warning"
    """The object works, but something about it is wrong."""
    READY = "ready"
    """Nothing is wrong."""


class Row(msgspec.Struct, frozen=True):
    """One node or Service; `age` in seconds, `detail` is its machine's type, or its addresses.

    `cloud` is the name of the row's cloud where there are several.
    """

    name: str
    state: State
    zone: str = ""
    detail: str = ""
    routes: str = ""
    reason: str = ""
    message: str = ""
    age: float = 0.0
    cloud: str = ""


class LeaseRow(msgspec.Struct, frozen=True):
    """The holder of a lease, and the seconds since it was renewed."""

    name: str
    holder: str
    renewed: float


class Cloud(msgspec.Struct, frozen=True):
    """A summary of the manager's calls to the cloud since it started.

    `calls` is by outcome, `rates` by quota and kind of call: those a second that the learned
    quota admits; a quota whose calls were never refused is not in it.
    """

    calls: Mapping[str, int] = {}
    waiting: int = 0
    rates: Mapping[str, float] = {}


class Deletions(msgspec.Struct, frozen=True):
    """A summary of nodes that look gone, and Ready nodes that the cloud does not know.

    Attributes:
        waiting: The nodes that wait for more answers.
        held: The nodes that the breaker holds.
        unproven: The nodes that stay because no Ready node speaks for the answers.
        unknown: The names of the Ready nodes whose machine the cloud does not know.
    """

    waiting: int
    held: int
    unproven: int = 0
    unknown: tuple[str, ...] = ()


class LeakRow(msgspec.Struct, frozen=True):
    """A cloud object whose Service is gone."""

    kind: str
    id: str
    service: str
    since: datetime


class GatewayRow(msgspec.Struct, frozen=True):
    """A replica's machine that serves addresses, as it says itself; `more` are not listed.

    `renewed` is how many seconds ago the replica said so.
    """

    name: str
    addresses: tuple[str, ...]
    more: int
    renewed: float


class SpeakerRow(msgspec.Struct, frozen=True):
    """A node that announces addresses by BGP; `more` are not listed.

    `problem` is why the node's speaker is not well, or ""; if it is well, FRR has the listed
    addresses, and a peer.
    """

    node: str
    problem: str
    addresses: tuple[str, ...]
    more: int


class Inside(msgspec.Struct, frozen=True):
    """The state that only the manager itself knows."""

    cloud: Cloud
    deletions: Deletions
    leaks: tuple[LeakRow, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    """A summary of the state, the worst rows first.

    `inside` is None where the manager was not asked.
    """

    at: datetime
    cluster: str
    nodes: tuple[Row, ...]
    services: tuple[Row, ...]
    leases: tuple[LeaseRow, ...] = ()
    inside: Inside | None = None
    gateways: tuple[GatewayRow, ...] = ()
    speakers: tuple[SpeakerRow, ...] = ()


def summarise(
    nodes: Iterable[Node],
    services: Iterable[Service],
    now: datetime,
    *,
    cluster: str = "",
    leases: Iterable[LeaseRow] = (),
    inside: Inside | None = None,
    gateways: Iterable[GatewayRow] = (),
    speakers: Iterable[SpeakerRow] = (),
) -> Summary:
    """Sum up the state of a cluster."""
    return Summary(
        at=now,
        cluster=cluster,
        nodes=_sorted(node_row(node, now) for node in nodes),
        services=_sorted(
            service_row(service, now)
            for service in services
            if service.spec.type == TYPE_LOAD_BALANCER or _our_condition(service) is not None
        ),
        leases=tuple(leases),
        inside=inside,
        gateways=tuple(gateways),
        speakers=tuple(speakers),
    )


def counts(rows: Iterable[Row]) -> Mapping[State, int]:
    """Count the rows in each state."""
    current = Counter(row.state for row in rows)
    return {state: current[state] for state in State if current[state]}


def leak_rows(leaks: Iterable[Leak]) -> tuple[LeakRow, ...]:
    """Return the rows of leaks: objects whose Service is gone."""
    return tuple(
        LeakRow(leak.object.kind, leak.object.id, leak.object.service, leak.since) for leak in leaks
    )


def node_row(node: Node, now: datetime) -> Row:
    """Return the row of a node."""
    current = condition(node.status.conditions, NODE_CONDITION)
    ready = condition(node.status.conditions, "Ready")
    routes = _routes(node)
    state = _node_state(node, ready, current, routes)
    shown = current if current is not None and current.status == "False" else None
    if shown is None and state is State.NOT_READY:
        shown = ready
    return Row(
        name=node.metadata.name,
        state=state,
        zone=node.metadata.labels.get(LABEL_ZONE, ""),
        detail=node.metadata.labels.get(LABEL_INSTANCE_TYPE, ""),
        routes=routes,
        reason=shown.reason if shown else "",
        message=shown.message if shown else "",
        age=_age(node.metadata.creation_timestamp, now),
        cloud=node.metadata.labels.get(LABEL_CLOUD, ""),
    )


_BY_TAINT: Final = (
    (TAINT_UNINITIALIZED, State.WAITING),
    (TAINT_OUT_OF_SERVICE, State.OUT_OF_SERVICE),
    (TAINT_SHUTDOWN, State.SHUT_DOWN),
)


def _node_state(
    node: Node, ready: Condition | None, current: Condition | None, routes: str
) -> State:
    if node.metadata.deletion_timestamp is not None:
        return State.DELETING
    for taint, state in _BY_TAINT:
        if has_taint(node, taint):
            return state
    if ready is None or ready.status != "True":
        return State.NOT_READY
    if (current is not None and current.status == "False") or routes == "missing":
        return State.WARNING
    return State.READY


def _routes(node: Node) -> str:
    """Return "made" or "missing" by our route controller's condition on the node; "" without."""
    current = condition(node.status.conditions, ROUTE_CONDITION)
    states = {CREATED: "made", NOT_CREATED: "missing"}
    return states.get(current.reason, "") if current is not None else ""


def service_row(service: Service, now: datetime) -> Row:
    """Return the row of a Service in the status summary: state, addresses, reason and age."""
    current = _our_condition(service)
    points = service.status.load_balancer.ingress
    if service.metadata.deletion_timestamp is not None:
        state = State.DELETING
    elif current is None:
        # Another manager's, whose status is all there is to see.
        state = State.READY if points else State.WAITING
    elif current.status == "True":
        state = State.READY if current.reason == Reason.ENSURED else State.WARNING
    else:
        state = State.WAITING
    return Row(
        name=key(service),
        state=state,
        detail=", ".join(point.ip or point.hostname for point in points),
        reason=current.reason if current else "",
        message=current.message if current and state is not State.READY else "",
        age=_age(service.metadata.creation_timestamp, now),
        cloud=noted_cloud(service),
    )


def _our_condition(service: Service) -> Condition | None:
    return condition(service.status.conditions, SERVICE_CONDITION)


def _age(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    order = list(State)
    return tuple(sorted(rows, key=lambda row: (order.index(row.state), row.name)))
