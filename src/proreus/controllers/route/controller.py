"""Keep the cloud's routes to the nodes' pods: watch, list, plan, apply, write conditions.

One key, one whole table: every pass compares all nodes with what is known of the table. A pass
does not wait for the changes that it starts, and never touches a destination that the cloud is
still working on, so a slow or failing route holds up no other.
"""

import asyncio
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider import CloudError, Route
from proreus.cloudprovider.context import scope
from proreus.controllers.environment import Environment
from proreus.controllers.events import PlannedEvent
from proreus.controllers.networks import Network, cluster_cidrs
from proreus.controllers.route import attempts, conditions
from proreus.controllers.route import plan as plans
from proreus.controllers.route import table as tables
from proreus.controllers.route.attempts import Unit
from proreus.controllers.route.conditions import NetworkState
from proreus.controllers.route.desired import DesiredRoutes, desired_routes, relevant
from proreus.controllers.route.plan import Memory, Plan
from proreus.controllers.route.policy import Policy
from proreus.controllers.route.table import Table
from proreus.kube.objects import Node
from proreus.kube.patch import Patch
from proreus.kube.requests import NODES
from proreus.runtime import klog, metrics, priority
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import (
    REPORT_AFTER_FAILURES,
    Controller,
    Outcome,
    Slots,
    contained,
)
from proreus.runtime.events import EventSource
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import ShutDown, WorkQueue

log = klog.logger(__name__)

CONTROLLER: Final = "node-route-controller"
SOURCE: Final = "route_controller"
"""The component of its events, as in the Go framework."""
TABLE: Final = "table"
QUIET: Final = 0.2
"""Seconds to wait after an event, so that several become one pass."""
QUIET_FACTOR: Final = 10.0
"""The least pause after an event, as a multiple of the planning time (thousands of nodes)."""
APPLIES_AT_ONCE: Final = 4
LIST_DEADLINE: Final = 60.0
LIST_BACKOFF: Final = Backoff(first=0.5, cap=30.0, jitter=0.5)
WRITE_BACKOFF: Final = Backoff(first=1.0, cap=300.0, jitter=0.2)
WRITES_AT_ONCE: Final = 500
JITTER: Final = 0.1


class RouteController:
    """The controller `node-route-controller`."""

    def __init__(
        self,
        env: Environment,
        policy: Policy | None = None,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Subscribe to the nodes.

        Raises:
            ValueError: The provider has no routes, or there is no usable `--cluster-cidr`.
        """
        self._cloud = env.need(env.provider.routes, "Routes")
        self._clusters, problem = cluster_cidrs(env.settings.cluster_cidr)
        if problem or not self._clusters:
            raise ValueError(f"--cluster-cidr: {problem or 'must be given to make routes'}")
        self._env = env
        self._policy = policy or Policy()
        self._chance = chance
        self._events: EventSource = env.events.source(SOURCE)
        self._queue: WorkQueue[str] = WorkQueue(
            env.named("Routes"), backoff=LIST_BACKOFF, chance=chance
        )
        self._slots = Slots(APPLIES_AT_ONCE, slow=APPLIES_AT_ONCE)
        self._conditions = ConditionWriter(env)
        self._table: Table | None = None
        self._memory = Memory()
        self._busy: set[Network] = set()
        self._compare_at = 0.0
        self._list_after = 0.0
        self._quiet = QUIET
        self._reported: frozenset[str] = frozenset()
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Make a pass for each relevant event, and one every period, until stopped."""
        await self._env.nodes.wait_synced()
        self._queue.add(TABLE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._conditions.run())
            while await self._next():
                failure = await contained(self._pass(tasks))
                if isinstance(failure, Exception):
                    self._failed(failure)
                self._queue.done(TABLE)

    def stop(self) -> None:
        """Begin no more passes and writes."""
        self._queue.shut_down()
        self._conditions.stop()

    @property
    def is_busy(self) -> bool:
        """Whether conditions wait to be written."""
        return self._conditions.is_busy

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if relevant(old, new):
            self._queue.add(TABLE, Priority.USER, after=self._quiet)

    async def _next(self) -> bool:
        try:
            return bool(await self._queue.take(1))
        except ShutDown:
            return False

    async def _pass(self, tasks: asyncio.TaskGroup) -> None:
        """Plan the routes by the known route table, or after a new listing, and apply the plan."""
        loop = asyncio.get_running_loop()
        metrics.ROUTE_SYNCS.inc()
        is_comparison = loop.time() >= self._compare_at
        decided = self._plan(self._table) if self._table and not is_comparison else None
        if decided is None or decided.needs_listing:
            wait = self._list_after - loop.time()
            if wait > 0:  # the cloud has just failed to list
                self._queue.add(TABLE, Priority.CHECK, after=wait)
                return
            self._table = await self._list(is_comparison=is_comparison)
            decided = self._plan(self._table)
        self._act(decided, tasks)
        times = [self._compare_at] if decided.due is None else [decided.due, self._compare_at]
        self._queue.add(TABLE, Priority.CHECK, after=min(times) - loop.time())

    def _failed(self, error: Exception) -> None:
        """Try again later; from the third failure in a row, report on the nodes."""
        delay = self._queue.retry(TABLE, priority=Priority.CHECK)
        self._list_after = asyncio.get_running_loop().time() + delay
        metrics.OBSERVE_FAILURES.labels(CONTROLLER).inc()
        klog.error(
            log, "The routes could not be compared", err=error, retry_seconds=round(delay, 1)
        )
        if self._queue.failures(TABLE) < REPORT_AFTER_FAILURES:
            return
        desired = self._desired()
        unseen = sorted(plans.unseen(desired, self._memory))
        self._conditions.show(
            {**self._conditions.desired, **dict.fromkeys(unseen, NetworkState.UNROUTED)}
        )
        for name in unseen:
            if name not in self._reported:
                self._event(name, plans.unlisted(name, error))
        self._reported |= set(unseen)

    async def _list(self, *, is_comparison: bool) -> Table:
        """List the cloud's routes and update the table."""
        loop = asyncio.get_running_loop()
        is_routine = is_comparison and self._table is not None
        priority.current.set(Priority.RESYNC if is_routine else Priority.USER)
        began, busy = loop.time(), frozenset(self._busy)
        async with asyncio.timeout(LIST_DEADLINE):
            routes = await self._cloud.list(self._env.cluster, tuple(self._env.nodes.all()))
        self._queue.forget(TABLE)
        self._reported = frozenset()
        period = self._env.settings.route_reconciliation_period
        self._compare_at = began + period * (1 - JITTER * self._chance())
        return tables.listed(
            self._table, routes, self._clusters,
            began=began, busy=busy, settle=self._policy.settle,
        )  # fmt: skip

    def _plan(self, table: Table) -> Plan:
        loop = asyncio.get_running_loop()
        now = loop.time()
        decided = plans.plan(
            self._desired(),
            table,
            self._memory,
            self._policy,
            self._clusters,
            busy=self._busy,
            now=now,
        )
        self._quiet = max(QUIET, QUIET_FACTOR * (loop.time() - now))
        return decided

    def _desired(self) -> DesiredRoutes:
        nodes, has_others = self._env.nodes.all(), bool(self._env.cloud)
        return desired_routes(nodes, self._clusters, self._env.owns, has_others=has_others)

    def _act(self, decided: Plan, tasks: asyncio.TaskGroup) -> None:
        self._memory = decided.memory
        for batch in decided.batches:
            self._busy.update(unit.destination for unit in batch)
            tasks.create_task(self._apply(batch))
        self._conditions.show(decided.conditions)
        for name, event in decided.events:
            self._event(name, event)

    async def _apply(self, batch: Sequence[Unit]) -> None:
        """Apply one batch in the cloud, and keep the answers."""
        mark = object()
        scope.set(mark)
        priority.current.set(Priority.USER)
        async with self._slots.slot(lambda: None):
            answers = await contained(
                self._cloud.apply(
                    self._env.cluster,
                    tuple(self._env.nodes.all()),
                    [unit.desired.route() for unit in batch if unit.desired],
                    [route for unit in batch for route in unit.delete],
                )
            )
        await contained(self._env.context.settled(mark))
        if not isinstance(answers, Mapping | Exception):
            answers = CloudError(f"the provider answered with {type(answers).__name__}")
        self._keep(batch, answers)
        self._busy.difference_update(unit.destination for unit in batch)
        self._queue.add(TABLE, Priority.USER, after=self._quiet)

    def _keep(
        self, batch: Sequence[Unit], answers: Mapping[Route, attempts.Answer] | Exception
    ) -> None:
        """Update table and memory with the answers; report what is new."""
        now = asyncio.get_running_loop().time()
        known = dict(self._memory.attempts)
        created: dict[Network, Route] = {}
        deleted: dict[Network, tuple[Route, ...]] = {}
        results = [
            attempts.result(
                unit, answers, known.get(unit.key), self._policy, batch=len(batch), now=now
            )
            for unit in batch
        ]
        for unit, result in zip(batch, results, strict=True):
            before = known.pop(unit.key, None)
            if result.attempt is not None:
                known[unit.key] = result.attempt
                self._report(unit, result.attempt, before)
            if result.created is not None:
                created[unit.destination] = result.created
            if result.deleted:
                deleted[unit.destination] = result.deleted
        self._memory = msgspec.structs.replace(self._memory, attempts=known)
        if self._table is not None:
            self._table = tables.applied(self._table, created, deleted, at=now)
        klog.info(
            log, "Changed routes", created=len(created), deleted=sum(map(len, deleted.values())),
            failed=sum(result.attempt is not None for result in results),
        )  # fmt: skip

    def _report(
        self, unit: Unit, attempt: attempts.Attempt, before: attempts.Attempt | None
    ) -> None:
        is_new = attempt.text and (before is None or before.text != attempt.text)
        if is_new and unit.desired is not None:
            route = unit.desired.route()
            event = plans.failed(unit.desired.node, route.destination, attempt.text)
            self._event(unit.desired.node, event)
        klog.warning(
            log, "A route differs from the desired state", destination=str(unit.destination),
            node=unit.desired.node if unit.desired else "", failures=attempt.failures,
            answer=attempt.text,
        )  # fmt: skip

    def _event(self, name: str, event: PlannedEvent) -> None:
        node = self._env.nodes.get(name)
        if node is not None:
            self._events.event(node, event.type, event.reason, event.message)


class ConditionWriter:
    """The writer of the nodes' condition: one PATCH each, and none where nothing differs.

    Attributes:
        desired: The desired state of each node's condition, by the name of the node.
    """

    def __init__(self, env: Environment) -> None:
        """Start without a desired NetworkUnavailable condition for any node."""
        self._env = env
        self.desired: Mapping[str, NetworkState] = {}
        self._queue: WorkQueue[str] = WorkQueue(env.named("RouteConditions"), backoff=WRITE_BACKOFF)
        self._loop = Controller(
            CONTROLLER,
            self,
            self._queue,
            env.nodes,
            batch=WRITES_AT_ONCE,
            slots=env.settings.concurrent_node_syncs,
            linger=0.0,
        )

    async def run(self) -> None:
        """Write conditions until stopped."""
        await self._loop.run()

    def stop(self) -> None:
        """Begin no more writes."""
        self._queue.shut_down()

    @property
    def is_busy(self) -> bool:
        """Whether conditions wait to be written."""
        return self._loop.is_busy

    def show(self, desired: Mapping[str, NetworkState]) -> None:
        """Set the desired conditions, and queue the nodes that differ."""
        self.desired = desired
        for name in desired:
            if self._patch(name, self._env.nodes.get(name)):
                self._queue.add(name)

    def _patch(self, name: str, node: Node | None) -> Patch | None:
        state = self.desired.get(name)
        if node is None or state is None:
            return None
        return conditions.condition_patch(node, state, self._env.now()) or None

    def group(self, key: str, obj: Node | None) -> Hashable:  # noqa: ARG002
        """Return a group for each node."""
        return key

    async def observe(self, keys: Sequence[str]) -> Mapping[str, None]:
        """Return nothing: the desired conditions are known."""
        return dict.fromkeys(keys)

    def plan(self, key: str, obj: Node | None, observed: Exception | None) -> Patch | None:  # noqa: ARG002
        """Make the patch from the newest node."""
        return self._patch(key, obj)

    async def apply(
        self,
        group: Hashable,  # noqa: ARG002 - the node itself
        changes: Mapping[str, Patch],
    ) -> Mapping[str, Outcome]:
        """Patch the status of the nodes."""
        outcomes = {}
        for name, patch in changes.items():
            answer = await contained(
                self._env.client.patch(NODES, name, patch, subresource="status")
            )
            if isinstance(answer, Exception):
                outcomes[name] = Outcome(error=answer)
            else:
                outcomes[name] = Outcome(written=answer)
        return outcomes

    async def settled(self, group: Hashable) -> None:
        """Return at once, since a condition is written without a call of the cloud."""
