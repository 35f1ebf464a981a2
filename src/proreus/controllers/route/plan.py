"""What to change in the cloud's route table, what to say on the nodes, and when to look again.

Three rules keep routes that are needed, or that are not ours:

* A route is deleted only if the provider lists it as this cluster's, it lies strictly inside a
  cluster CIDR, holds no node's pod CIDR inside it, and leads to a target that is known to have no
  right to it. A target that is unknown, or a node of which too little is known yet, keeps it.
* What is unexpected (a route that nobody needs, one that was there and is missing) must be so in
  two looks, the second a listing that began `Policy.confirm` later.
* No route is deleted or tried again without a listing made for it: `Plan.needs_listing`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto

import msgspec

from proreus.cloudprovider.routes import Route
from proreus.controllers.events import PlannedEvent, scrub
from proreus.controllers.networks import Network, endpoint, is_within
from proreus.controllers.route.attempts import Attempt, Key, Unit
from proreus.controllers.route.conditions import Says
from proreus.controllers.route.policy import Policy
from proreus.controllers.route.table import Table
from proreus.controllers.route.wishes import Problem, Wish, Wishes

REASON = "FailedToCreateRoute"


class State(Enum):
    """How it is with one route of a node."""

    THERE = auto()
    LACKING = auto()
    UNKNOWN = auto()


class Memory(msgspec.Struct, frozen=True):
    """What one plan leaves to the next.

    Attributes:
        attempts: What failed or is pending.
        doubts: Since when something looks unexpected: a wish's key, or a route nobody needs.
        there: The wishes that were met.
        problems: Those that have been said.
    """

    attempts: Mapping[Key, Attempt] = {}
    doubts: Mapping[Key | Route, float] = {}
    there: frozenset[Key] = frozenset()
    problems: frozenset[Problem] = frozenset()


class Plan(msgspec.Struct, frozen=True):
    """What to do now.

    Attributes:
        batches: Each is one `apply`.
        says: What the condition of a node is to say, by its name; others stay as they are.
        events: By the name of the node.
        memory: For the next plan.
        due: When to plan again, if nothing happens before; None if nothing waits.
        needs_listing: Whether the table must be listed first, and planned anew.
    """

    batches: tuple[tuple[Unit, ...], ...]
    says: Mapping[str, Says]
    events: tuple[tuple[str, PlannedEvent], ...]
    memory: Memory
    due: float | None
    needs_listing: bool


class _Draft:
    """A plan in the making."""

    def __init__(
        self, table: Table, memory: Memory, policy: Policy, busy: Collection[Network], now: float
    ) -> None:
        self.table = table
        self.memory = memory
        self.policy = policy
        self.busy = busy
        self.now = now
        self.units: list[Unit] = []
        # Of what the cloud works on, everything is remembered until it has answered.
        self.attempts = {key: one for key, one in memory.attempts.items() if key[0] in busy}
        self.doubts: dict[Key | Route, float] = {
            route: memory.doubts[route]
            for net in busy
            for route in table.routes.get(net, ())
            if route in memory.doubts
        }
        self.there: set[Key] = set()
        self.times: list[float] = []
        self.needs_listing = False

    def lasts(self, what: Key | Route) -> bool:
        """Whether a listing says that the unexpected has lasted; else it is looked at again."""
        since = self.memory.doubts.get(what, self.now)
        self.doubts[what] = since
        proved = since + self.policy.confirm
        if self.table.began >= proved:
            return True
        self.needs_listing |= self.now >= proved
        self.times.append(proved)
        return False

    def keep(self, key: Key) -> Attempt | None:
        """The attempt so far, which is remembered."""
        attempt = self.memory.attempts.get(key)
        if attempt is not None:
            self.attempts[key] = attempt
        return attempt

    def add(self, unit: Unit, attempt: Attempt | None) -> None:
        """Do it now, or when it is due."""
        if attempt is not None and self.now < attempt.due:
            self.times.append(attempt.due)
            return
        self.units.append(unit)
        self.needs_listing |= attempt is not None or bool(unit.delete)


def plan(
    wishes: Wishes,
    table: Table,
    memory: Memory,
    policy: Policy,
    clusters: Sequence[Network],
    *,
    busy: Collection[Network],
    now: float,
) -> Plan:
    """Compare what the nodes need with the table.

    Args:
        wishes: What the nodes need.
        table: What is known of the cloud's table.
        memory: What the last plan left.
        policy: The numbers.
        clusters: The networks of `--cluster-cidr`.
        busy: Destinations that the cloud works on; they are not touched.
        now: The time on the clock of `table.began`.
    """
    draft = _Draft(table, memory, policy, busy, now)
    states: dict[str, set[State]] = {}
    for wish in wishes.wanted.values():
        states.setdefault(wish.node, set()).add(_wished(draft, wish))
    creations = draft.units
    draft.units = []
    for net in table.routes:
        if net not in busy and wishes.has_nodes:
            _unneeded(draft, net, wishes, clusters)
    for problem in wishes.problems:
        states.setdefault(problem.node, set()).add(State.LACKING)
    new = [problem for problem in wishes.problems if problem not in memory.problems]
    replaced_first = sorted(creations, key=lambda unit: not unit.delete)
    says = {name: said for name, of in states.items() if (said := _says(of)) is not None}
    return Plan(
        batches=_batches([*draft.units, *replaced_first], draft.attempts, policy.batch),
        says={**dict.fromkeys(sorted(wishes.left_alone), Says.LEFT_ALONE), **says},
        events=tuple((one.node, failed(one.node, one.cidr, one.text)) for one in new),
        memory=Memory(
            attempts=draft.attempts,
            doubts=draft.doubts,
            there=frozenset(draft.there),
            problems=frozenset(wishes.problems),
        ),
        due=min(draft.times, default=None),
        needs_listing=draft.needs_listing,
    )


def failed(node: str, cidr: str, text: str) -> PlannedEvent:
    """The event about a route that could not be created; its reason is the Go framework's."""
    return PlannedEvent("Warning", REASON, f"Could not create route {cidr} for node {node}: {text}")


def unseen(wishes: Wishes, memory: Memory) -> frozenset[str]:
    """The nodes of which nobody knows a route, as long as the table cannot be listed."""
    return frozenset(
        wish.node
        for wish in wishes.wanted.values()
        if not wish.was_routed and (wish.destination, wish.target) not in memory.there
    )


def unlisted(node: str, error: Exception) -> PlannedEvent:
    """The event about a node whose routes are not made because the table cannot be listed."""
    text = scrub(f"Could not create routes for node {node}: cannot list the routes: {error}")
    return PlannedEvent("Warning", REASON, text)


def _wished(draft: _Draft, wish: Wish) -> State:
    """Plan for one wish; how it is with it now."""
    key = (wish.destination, wish.target)
    is_busy = wish.destination in draft.busy
    was_there = key in draft.memory.there
    present = draft.table.routes.get(wish.destination, ())
    if not is_busy and any(wish.leads_here(route) and not route.blackhole for route in present):
        draft.there.add(key)
        return State.THERE
    attempt = draft.keep(key)
    if not is_busy and not any(_is_unknown(route) for route in present):
        is_unexpected = not present and attempt is None and (was_there or wish.was_routed)
        if not is_unexpected or draft.lasts(key):
            draft.add(Unit(wish.destination, wish, present), attempt)
        elif was_there:
            draft.there.add(key)
    return State.LACKING if attempt is not None and attempt.is_lacking else State.UNKNOWN


def _unneeded(draft: _Draft, net: Network, wishes: Wishes, clusters: Sequence[Network]) -> None:
    """Plan the deletion of routes to `net` that nobody needs."""
    present = draft.table.routes[net]
    wish = wishes.wanted.get(net)
    if wish is not None:
        if not any(wish.leads_here(route) and not route.blackhole for route in present):
            return  # they are replaced, all at once
        present = tuple(route for route in present if not wish.leads_here(route))
    gone = tuple(
        route for route in present if _may_go(net, route, wishes, clusters) and draft.lasts(route)
    )
    if gone:
        unit = Unit(net, delete=gone)
        draft.add(unit, draft.keep(unit.key))


def _may_go(net: Network, route: Route, wishes: Wishes, clusters: Sequence[Network]) -> bool:
    """Whether the route is one of ours that nobody may need; the rule of the module."""
    return not (
        net in clusters
        or _is_unknown(route)
        or (net not in wishes.wanted and endpoint(route.target or "") in wishes.shielded_targets)
        or any(net.overlaps(one) for one in wishes.shielded if one.version == net.version)
        or any(one != net and is_within(one, net) for one in wishes.claimed)
    )


def _is_unknown(route: Route) -> bool:
    return route.target is None and not route.blackhole


def _says(states: Collection[State]) -> Says | None:
    if State.LACKING in states:
        return Says.UNROUTED
    return None if State.UNKNOWN in states else Says.ROUTED


def _batches(
    units: Iterable[Unit], attempts: Mapping[Key, Attempt], most: int
) -> tuple[tuple[Unit, ...], ...]:
    """Batches of at most `most`, or of fewer where a whole batch has failed before."""
    by_limit: dict[int, list[Unit]] = {}
    for unit in units:
        attempt = attempts.get(unit.key)
        by_limit.setdefault(attempt.batch if attempt else most, []).append(unit)
    return tuple(
        tuple(members[start : start + limit])
        for limit, members in by_limit.items()
        for start in range(0, len(members), limit)
    )
