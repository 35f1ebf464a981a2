"""Plan the changes of the route table, the nodes' conditions, and when to plan again.

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

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.routes import Route
from proreus.controllers.events import PlannedEvent, scrub
from proreus.controllers.networks import Network, is_within, overlap
from proreus.controllers.route.attempts import Attempt, Key, Unit
from proreus.controllers.route.conditions import NetworkState
from proreus.controllers.route.desired import DesiredRoute, DesiredRoutes, Problem
from proreus.controllers.route.policy import Policy
from proreus.controllers.route.table import Table

REASON = "FailedToCreateRoute"


class State(Enum):
    """The state of one route of a node."""

    THERE = auto()
    LACKING = auto()
    UNKNOWN = auto()


class Memory(msgspec.Struct, frozen=True):
    """The memory that one plan hands to the next.

    Attributes:
        attempts: The attempts that failed or are pending, by destination.
        doubts: The time since when a desired route has been missing, or an unneeded route has been
            there.
        there: The desired routes that exist in the cloud.
        problems: The problems that have been reported.
    """

    attempts: Mapping[Key, Attempt] = {}
    doubts: Mapping[Key | Route, float] = {}
    there: frozenset[Key] = frozenset()
    problems: frozenset[Problem] = frozenset()


class Plan(msgspec.Struct, frozen=True):
    """The steps and changes to make now.

    Attributes:
        batches: The batches of changes, each for one call of `apply`.
        conditions: The state that each node's condition should show, by the node's name; other
            conditions stay.
        events: The events to record, by the name of the node.
        memory: The memory for the next plan.
        due: When to plan again if nothing happens before; None if nothing waits.
        needs_listing: Whether the table must be listed, and planned again, before anything else is
            done.
    """

    batches: tuple[tuple[Unit, ...], ...]
    conditions: Mapping[str, NetworkState]
    events: tuple[tuple[str, PlannedEvent], ...]
    memory: Memory
    due: float | None
    needs_listing: bool


class _Draft:
    """The parts of a plan while it is made."""

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
        self.attempts = {key: attempt for key, attempt in memory.attempts.items() if key[0] in busy}
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
        """Tell whether a second listing confirms an unexpected state; if not, plan a second."""
        since = self.memory.doubts.get(what, self.now)
        self.doubts[what] = since
        proved = since + self.policy.confirm
        if self.table.began >= proved:
            return True
        self.needs_listing |= self.now >= proved
        self.times.append(proved)
        return False

    def keep(self, key: Key) -> Attempt | None:
        """Return the attempt so far, and remember it."""
        attempt = self.memory.attempts.get(key)
        if attempt is not None:
            self.attempts[key] = attempt
        return attempt

    def add(self, unit: Unit, attempt: Attempt | None) -> None:
        """Add what is to be done about a destination, or note when it is due."""
        if attempt is not None and self.now < attempt.due:
            self.times.append(attempt.due)
            return
        self.units.append(unit)
        self.needs_listing |= attempt is not None or bool(unit.delete)


def plan(
    desired: DesiredRoutes,
    table: Table,
    memory: Memory,
    policy: Policy,
    clusters: Sequence[Network],
    *,
    busy: Collection[Network],
    now: float,
) -> Plan:
    """Compare the routes that the nodes need with the cloud's route table.

    Args:
        desired: The routes that the nodes need.
        table: The cloud's route table as far as it is known.
        memory: The memory that the last plan handed over.
        policy: The settings: shares, counts and durations.
        clusters: The networks of `--cluster-cidr`.
        busy: The destinations that the cloud works on; they are not touched.
        now: The time on the clock of `table.began`.
    """
    draft = _Draft(table, memory, policy, busy, now)
    states: dict[str, set[State]] = {}
    for desired_route in desired.routes.values():
        states.setdefault(desired_route.node, set()).add(_plan_route(draft, desired_route))
    creations = draft.units
    draft.units = []
    for net in table.routes:
        if net not in busy and desired.has_nodes:
            _plan_deletions(draft, net, desired, clusters)
    for problem in desired.problems:
        states.setdefault(problem.node, set()).add(State.LACKING)
    new = [problem for problem in desired.problems if problem not in memory.problems]
    replaced_first = sorted(creations, key=lambda unit: not unit.delete)
    conditions = {
        name: state
        for name, states_of_node in states.items()
        if (state := _network_state(states_of_node)) is not None
    }
    return Plan(
        batches=_batches([*draft.units, *replaced_first], draft.attempts, policy.batch),
        conditions={
            **dict.fromkeys(sorted(desired.left_alone), NetworkState.LEFT_ALONE),
            **conditions,
        },
        events=tuple((each.node, failed(each.node, each.cidr, each.text)) for each in new),
        memory=Memory(
            attempts=draft.attempts,
            doubts=draft.doubts,
            there=frozenset(draft.there),
            problems=frozenset(desired.problems),
        ),
        due=min(draft.times, default=None),
        needs_listing=draft.needs_listing,
    )


def failed(node: str, cidr: str, text: str) -> PlannedEvent:
    """Make the event about a route that could not be created, with the Go framework's reason."""
    return PlannedEvent("Warning", REASON, f"Could not create route {cidr} for node {node}: {text}")


def unseen(desired: DesiredRoutes, memory: Memory) -> frozenset[str]:
    """Return the nodes whose routes nobody has seen, for when the table cannot be listed."""
    return frozenset(
        desired_route.node
        for desired_route in desired.routes.values()
        if not desired_route.was_routed
        and (desired_route.destination, desired_route.target) not in memory.there
    )


def unlisted(node: str, error: Exception) -> PlannedEvent:
    """Make the event about a node without routes because the table cannot be listed."""
    text = scrub(f"Could not create routes for node {node}: cannot list the routes: {error}")
    return PlannedEvent("Warning", REASON, text)


def _plan_route(draft: _Draft, desired_route: DesiredRoute) -> State:
    """Plan the steps for one desired route; return its present state."""
    key = (desired_route.destination, desired_route.target)
    is_busy = desired_route.destination in draft.busy
    was_there = key in draft.memory.there
    present = draft.table.routes.get(desired_route.destination, ())
    if not is_busy and any(
        desired_route.leads_here(route) and not route.blackhole for route in present
    ):
        draft.there.add(key)
        return State.THERE
    attempt = draft.keep(key)
    if not is_busy and not any(_is_unknown(route) for route in present):
        is_unexpected = not present and attempt is None and (was_there or desired_route.was_routed)
        if not is_unexpected or draft.lasts(key):
            draft.add(Unit(desired_route.destination, desired_route, present), attempt)
        elif was_there:
            draft.there.add(key)
    return State.LACKING if attempt is not None and attempt.is_lacking else State.UNKNOWN


def _plan_deletions(
    draft: _Draft, net: Network, desired: DesiredRoutes, clusters: Sequence[Network]
) -> None:
    """Plan the deletion of routes to `net` that nobody needs."""
    present = draft.table.routes[net]
    desired_route = desired.routes.get(net)
    if desired_route is not None:
        if not any(desired_route.leads_here(route) and not route.blackhole for route in present):
            return  # they are replaced, all at once
        present = tuple(route for route in present if not desired_route.leads_here(route))
    gone = tuple(
        route for route in present if _may_go(net, route, desired, clusters) and draft.lasts(route)
    )
    if gone:
        unit = Unit(net, delete=gone)
        draft.add(unit, draft.keep(unit.key))


def _may_go(
    net: Network, route: Route, desired: DesiredRoutes, clusters: Sequence[Network]
) -> bool:
    """Tell whether the route is ours and surely needed by nobody, by the module's rules."""
    return not (
        net in clusters
        or _is_unknown(route)
        or (
            net not in desired.routes
            and plain_address(route.target or "") in desired.shielded_targets
        )
        or any(overlap(net, cidr) for cidr in desired.shielded)
        or (net in desired.claimed and net not in desired.routes)
        or any(cidr != net and is_within(cidr, net) for cidr in desired.claimed)
    )


def _is_unknown(route: Route) -> bool:
    return route.target is None and not route.blackhole


def _network_state(states: Collection[State]) -> NetworkState | None:
    if State.LACKING in states:
        return NetworkState.UNROUTED
    return None if State.UNKNOWN in states else NetworkState.ROUTED


def _batches(
    units: Iterable[Unit], attempts: Mapping[Key, Attempt], most: int
) -> tuple[tuple[Unit, ...], ...]:
    """Make batches of at most `most`, or of fewer after a whole batch has failed."""
    by_limit: dict[int, list[Unit]] = {}
    for unit in units:
        attempt = attempts.get(unit.key)
        by_limit.setdefault(attempt.batch if attempt else most, []).append(unit)
    return tuple(
        tuple(members[start : start + limit])
        for limit, members in by_limit.items()
        for start in range(0, len(members), limit)
    )
