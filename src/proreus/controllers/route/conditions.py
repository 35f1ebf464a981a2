"""Make the condition `NetworkUnavailable` of a Node: what it says, and who owns it. Pure.

The condition has one writer: where its reason is not ours, a network plugin owns it, and it is left
alone.
"""

from datetime import datetime
from enum import Enum

from proreus.kube import patch as patches
from proreus.kube.objects import Condition, Node, condition
from proreus.kube.patch import Patch

CONDITION = "NetworkUnavailable"
CREATED = "RouteCreated"
NOT_CREATED = "NoRouteCreated"


class NetworkState(Enum):
    """The states of the condition NetworkUnavailable: status, reason, message."""

    ROUTED = ("False", CREATED, "RouteController created a route")
    UNROUTED = ("True", NOT_CREATED, "RouteController failed to create a route")
    LEFT_ALONE = ("False", CREATED, "RouteController leaves the routes of this node alone")


def shows_routes(node: Node) -> bool:
    """Tell whether our condition on the node says that it has its routes."""
    now = condition(node.status.conditions, CONDITION)
    return now is not None and (now.status, now.reason) == ("False", CREATED)


def condition_patch(node: Node, state: NetworkState, now: datetime) -> Patch:
    """Make the patch of nodes/status that shows the state; false if nothing differs.

    The patch is made only when the status or the reason differ, as the Go framework does since
    1.36. On a node that is left alone, only our own "no route" is taken back.
    """
    current = condition(node.status.conditions, CONDITION)
    status, reason, message = state.value
    written = Condition(CONDITION, status, reason, message, now)
    uid = node.metadata.uid
    nothing = patches.status(uid)
    if current is None:
        is_wanted = state is not NetworkState.LEFT_ALONE
        return patches.status(uid, conditions=(written,)) if is_wanted else nothing
    if current.reason not in (CREATED, NOT_CREATED):
        return nothing
    if (current.status, current.reason) == (status, reason):
        return nothing
    since = current.last_transition_time if current.status == status else now
    return patches.status(uid, conditions=(Condition(CONDITION, status, reason, message, since),))
