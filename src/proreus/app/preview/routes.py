"""What would be done to the cloud's routes, and what nodes would say of them. Pure."""

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
from proreus.controllers.route.plan import Memory, Plan, plan
from proreus.controllers.route.policy import Policy
from proreus.controllers.route.table import Table, applied, listed
from proreus.controllers.route.wishes import wishes

_AT_ONCE: Final = Policy(confirm=0.0, settle=0.0)
"""What the controller looks at twice is taken to be so the second time too."""
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
        {unit.destination: unit.wish.route() for unit in units if unit.wish},
        {unit.destination: unit.delete for unit in units if unit.delete},
        at=_NOW,
    )
    for name, says in _plan(drafts, after, decided.memory, clusters, owns).says.items():
        drafts.patch(name, conditions.to_say(drafts.nodes[name], says, now))
    drafts.held += [
        f"no route for {one.cidr} of node {one.node}: {one.text}"
        for one in wishes(drafts.nodes.values(), clusters, owns).problems
    ]
    return tuple(change for unit in units for change in _of(unit))


def _plan(
    drafts: Drafts, table: Table, memory: Memory, clusters: Sequence[Network], owns: Owns
) -> Plan:
    wanted = wishes(drafts.nodes.values(), clusters, owns)
    return plan(wanted, table, memory, _AT_ONCE, clusters, busy=(), now=_NOW)


def _of(unit: Unit) -> Iterator[Change]:
    about = f"route/{unit.destination}"
    gone = tuple(
        f"- to {route.target or 'nowhere'}{' (a black hole now)' if route.blackhole else ''}"
        for route in unit.delete
    )
    if unit.wish is not None:
        new = f"+ to {unit.wish.target} (node {unit.wish.node})"
        yield Change(about, "change" if gone else "create", (*gone, new))
    else:
        confirm = f"a second listing, {Policy().confirm:g} s later, must say so too"
        yield Change(about, "delete", gone, confirm)
