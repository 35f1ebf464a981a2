"""Preview the changes of the cloud's routes and of the nodes' network conditions. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from proreus.app.preview.changes import Change
from proreus.app.preview.nodes import Drafts
from proreus.cloudprovider.routes import Route
from proreus.controllers.cloud_node_lifecycle.questions import Owns
from proreus.controllers.networks import Network
from proreus.controllers.route import conditions
from proreus.controllers.route.attempts import Unit
from proreus.controllers.route.desired import desired_routes
from proreus.controllers.route.plan import Memory, Plan, plan
from proreus.controllers.route.policy import Policy
from proreus.controllers.route.table import Table, applied, listed

_AT_ONCE: Final = Policy(confirm=0.0, settle=0.0)
"""The policy without second looks: a preview takes what it sees for lasting."""
_NOW: Final = 0.0


def changes(
    drafts: Drafts, routes: Iterable[Route], clusters: Sequence[Network], owns: Owns, now: datetime
) -> tuple[Change, ...]:
    """Compare the routes that the cloud lists with what the drafted nodes need."""
    table = listed(None, routes, clusters, began=_NOW, busy=(), settle=0.0)
    decided = _plan(drafts, table, Memory(), clusters, owns)
    units = [unit for batch in decided.batches for unit in batch]
    after = applied(
        table,
        {unit.destination: unit.desired.route() for unit in units if unit.desired},
        {unit.destination: unit.delete for unit in units if unit.delete},
        at=_NOW,
    )
    for name, state in _plan(drafts, after, decided.memory, clusters, owns).conditions.items():
        if name in drafts.nodes:
            drafts.patch(name, conditions.condition_patch(drafts.nodes[name], state, now))
    drafts.held += [
        f"no route for {problem.cidr} of node {problem.node}: {problem.text}"
        for problem in desired_routes(drafts.everything, clusters, owns).problems
        if problem.node in drafts.nodes
    ]
    return tuple(change for unit in units for change in _changes(unit))


def _plan(
    drafts: Drafts, table: Table, memory: Memory, clusters: Sequence[Network], owns: Owns
) -> Plan:
    desired = desired_routes(drafts.everything, clusters, owns)
    return plan(desired, table, memory, _AT_ONCE, clusters, busy=(), now=_NOW)


def _changes(unit: Unit) -> Iterator[Change]:
    about = f"route/{unit.destination}"
    gone = tuple(
        f"- to {route.target or 'nowhere'}{' (a black hole now)' if route.blackhole else ''}"
        for route in unit.delete
    )
    if unit.desired is not None:
        new = f"+ to {unit.desired.target} (node {unit.desired.node})"
        yield Change(about, "change" if gone else "create", (*gone, new))
    else:
        confirm = f"a second listing, {Policy().confirm:g} s later, must say so too"
        yield Change(about, "delete", gone, confirm)
