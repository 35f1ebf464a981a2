"""Delete nodes whose machine is gone, taint those shut down or powered off: ask, plan, apply.

Every `--node-monitor-period` the whole fleet is looked at in one pass, or the part of it that
matters while no node is in question (`outstanding`). Only nodes that are not Ready cost a question,
and all of them go in as few calls as the cloud allows. A hint of the provider that the machine of
a node has changed brings a pass forward, and does nothing else. A new provider, and so
any change of the cloud-config or its credentials, starts the controller anew: what was learned of
the answers of another one is not used.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from math import inf

import msgspec

from proreus.cloudprovider import Instances, scope_of
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.containment.inventory import Inventory
from proreus.controllers.cloud_node_lifecycle import out_of_service, plan
from proreus.controllers.cloud_node_lifecycle.ages import Ages
from proreus.controllers.cloud_node_lifecycle.declared import is_declared_gone
from proreus.controllers.cloud_node_lifecycle.denials import Denied, unless
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Memory
from proreus.controllers.cloud_node_lifecycle.outlived import (
    has_run_since,
    is_marked_outlived,
    outlived,
    outlived_marks,
)
from proreus.controllers.cloud_node_lifecycle.outstanding import (
    Outstanding,
    is_quiet,
    stands_out,
)
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.powered_off import had_power
from proreus.controllers.cloud_node_lifecycle.questions import (
    Known,
    KnownFor,
    Question,
    Reply,
    Rules,
    always,
    may_be_ours,
    needs_age,
    questions,
)
from proreus.controllers.cloud_node_lifecycle.survey import survey
from proreus.controllers.cloud_node_lifecycle.taints import may_return
from proreus.controllers.environment import Environment
from proreus.controllers.events import PlannedEvent
from proreus.controllers.hinted import Hinted
from proreus.controllers.settings import Settings
from proreus.kube.connections import Gate
from proreus.kube.errors import Conflict, NotFound
from proreus.kube.objects import Node
from proreus.kube.patch import Patch
from proreus.kube.requests import NODES
from proreus.runtime import by_cloud, klog, metrics, priority
from proreus.runtime.controller import contained
from proreus.runtime.events import ref_of
from proreus.runtime.priority import Priority

log = klog.logger(__name__)

CONTROLLER = "cloud-node-lifecycle-controller"
COUNTDOWN_VERBOSITY = 2
_MARK = "an annotation about what the cloud says of it"


class CloudNodeLifecycleController:
    """The controller `cloud-node-lifecycle-controller`."""

    def __init__(self, env: Environment) -> None:
        """Take the settings; the environment must have an inventory."""
        self._env = env
        self._instances = env.need(env.provider.instances, "Instances")
        self._inventory = env.need(env.inventory, "Instances")
        self._policy = policy_of(env.settings)
        clock = asyncio.get_running_loop().time
        self._waiting, self._declared = Ages(clock, needs_age), Ages(clock, is_declared_gone)
        self._last_ready = env.last_ready
        self._known = msgspec.structs.replace(
            known(self._instances, self._inventory, self._waiting.seconds),
            declared_for=self._declared.seconds,
            ready_until=self._last_ready.ready_until,
            ready_for=self._last_ready.ready_for,
            taken_over=self._last_ready.taken_over,
        )
        self._memory = Memory()
        self.unknown: frozenset[str] = frozenset()
        """The names of the Ready nodes whose machine the cloud does not know."""
        self._turn = 0
        self._stopped = asyncio.Event()
        self._woken = asyncio.Event()
        self._taken_over = asyncio.Event()
        self._waker: asyncio.TimerHandle | None = None
        self._hinted = Hinted(env, self._instances)
        self._changed: set[str] = set()
        self._events = env.events.source(CONTROLLER)
        self._outstanding = Outstanding()
        env.nodes.subscribe(self._waiting.on_node)
        env.nodes.subscribe(self._declared.on_node)
        env.nodes.subscribe(self._outstanding.on_node)
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Make a pass every period until stopped; the period starts when a pass ends."""
        await self._env.nodes.wait_synced()
        priority.current.set(Priority.CHECK)
        beside = [
            asyncio.create_task(self._hinted.run(self._look)),
            asyncio.create_task(self._mark_taken_over()),
        ]
        if self._policy.witnesses:
            asking = survey(self._env, self._inventory, self._may_go)
            beside.append(asyncio.create_task(asking))
        try:
            while not self._stopped.is_set():
                self._woken.clear()  # What is hinted from now on needs another pass.
                await self._pass()
                if self._stopped.is_set():
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._env.settings.node_monitor_period):
                        await self._woken.wait()
        finally:
            for task in beside:
                task.cancel()
            if self._waker is not None:
                self._waker.cancel()

    def stop(self) -> None:
        """Make no further pass."""
        self._stopped.set()
        self._woken.set()

    @property
    def is_busy(self) -> bool:
        """Always false: the writes of this controller are few."""
        return False

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            if old is not None:
                self._inventory.forget(old.metadata.uid)
                self._hinted.forget(old.metadata.name)
                self._changed.discard(old.metadata.name)
            return
        if self._changed and stands_out(new):
            name = new.metadata.name
            if name in self._changed:
                self._changed.discard(name)
                self._wake(0.0)
        if self._last_ready.taken_over(new) < inf and not is_marked_outlived(new):
            self._taken_over.set()

    async def _mark_taken_over(self) -> None:
        """Mark Nodes at once that another machine has taken over: a pass may wait for the cloud.

        Another manager, or the controller with another cloud-config, does not see the UUID change.
        """
        while True:
            await self._taken_over.wait()
            self._taken_over.clear()
            nodes = self._others()
            rules = Rules(self._policy, self._known, asyncio.get_running_loop().time())
            found = outlived(nodes, self._memory.outlived, rules)
            marks = outlived_marks(nodes, found, rules)
            written = [await self._write(node, patch, _MARK) for node, patch in marks]
            if not all(written):
                await asyncio.sleep(self._env.settings.node_monitor_period)
                self._taken_over.set()

    def _may_go(self, node: Node) -> bool:
        return may_be_ours(node, self._known.owns(node), self._policy)

    def _others(self) -> list[Node]:
        """Return the nodes for which another machine than before reports."""
        others = (self._env.nodes.get(name) for name in self._last_ready.others)
        return [node for node in others if node is not None]

    def _settle(self) -> None:
        """Forget of which Nodes the instances have run since another machine reports for them.

        With another cloud-config nobody would know that they have.
        """
        for node in self._others():
            if has_run_since(node, self._known):
                self._last_ready.settle(node)

    def _look(self, node: Node, delay: float) -> None:
        """Bring the next pass forward, now if it asks about the node, or else once it will.

        The Node of a machine that stops is Ready for some time yet.
        """
        if stands_out(node):
            self._wake(delay)
        else:
            self._changed.add(node.metadata.name)

    def _wake(self, delay: float) -> None:
        """Make the next pass in this number of seconds at the latest."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._waker is not None:
            if now < self._waker.when() <= now + delay:
                return
            self._waker.cancel()
        self._waker = loop.call_at(now + delay, self._woken.set)

    async def _pass(self) -> None:
        loop = asyncio.get_running_loop()
        self._turn += 1
        now = self._env.now()
        questions_ = questions(
            self._nodes(now),
            now,
            self._known,
            self._policy,
            self._memory,
            batch_size=self._inventory.batch_size,
            turn=self._turn,
            at=loop.time(),
        )
        replies = await asyncio.gather(*(self._ask(question) for question in questions_))
        returning = await self._returning()
        now, at = self._env.now(), loop.time()
        decided = plan.plan(
            self._nodes(now),
            replies,
            self._memory,
            self._policy,
            self._known,
            now=now,
            at=at,
            returning=returning,
        )
        self._memory, self.unknown = decided.memory, frozenset(decided.unknown)
        self._settle()
        self._report(decided, loop.time())
        await self._carry_out(decided, at)

    async def _carry_out(self, decided: plan.Pass, at: float) -> None:
        """Write what was decided `at` that time, but nothing that the cloud has denied since.

        Deletions come first, as nothing is observed again before; but other controllers ask the
        cloud, too, and a write may take long.
        """
        for deletion in decided.delete:
            is_denied = partial(self._known.was_there, deletion.node, at)
            await self._delete(deletion, unless(is_denied))
        for node, patch in decided.marks:
            await self._write(node, patch, _MARK)
        for node, patch in decided.refuted:
            await self._write(
                node, patch, "the removal of the annotation machine-gone, as the machine runs"
            )
        for node, patch in decided.taints:
            await self._write(node, patch, "the shutdown taint")
        await self._move_pods(decided, at)

    async def _move_pods(self, decided: plan.Pass, at: float) -> None:
        """Take nodes out of service, and back."""
        for node, patch in decided.out_of_service:
            gate = unless(partial(had_power, node, at, self._known))
            if await self._write(node, patch, "the taint out-of-service", gate):
                metrics.NODES_OUT_OF_SERVICE.inc()
                self._tell(node, out_of_service.marked(node))
        for node, patch in decided.in_service:
            if await self._write(node, patch, "the taint out-of-service"):
                self._tell(node, out_of_service.returned(node))

    def _nodes(self, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of a pass: all nodes, or only those that it depends on."""
        nodes = self._env.nodes
        others = (*self._inventory.notable, *self._last_ready.others)
        some = self._outstanding.with_others(others, nodes.get)
        if is_quiet(some, now, self._known, self._policy, self._memory):
            return some
        return tuple(nodes.all())

    async def _ask(self, question: Question) -> Reply:
        """Ask the cloud about nodes that may be gone, together with nodes that surely exist."""
        return Reply(
            question,
            await self._inventory.ask_with_witnesses(
                question.candidates, question.witnesses, question.due, question.due_off
            ),
        )

    async def _returning(self) -> Mapping[str, InstanceAnswer]:
        """Ask the cloud about Ready nodes that were taken out of service: does the machine run?"""
        nodes = tuple(node for node in self._outstanding.nodes if may_return(node))
        if not nodes:
            return {}
        now = asyncio.get_running_loop().time()
        observed = await self._inventory.get(nodes, not_before=now)
        return {name: observation.answer for name, observation in observed.items()}

    def _report(self, decided: plan.Pass, at: float) -> None:
        by_breaker = sum(wait.hold is Alert.BREAKER for wait in decided.held.values())
        by_cloud.NODES_WAITING.set(self._env.cloud, len(decided.waiting))
        by_cloud.NODES_HELD.set(self._env.cloud, by_breaker)
        by_cloud.NODES_UNPROVEN.set(self._env.cloud, len(decided.held) - by_breaker)
        by_cloud.NODES_UNKNOWN.set(self._env.cloud, len(decided.unknown))
        by_cloud.NODES_ASIDE.set(self._env.cloud, sum(decided.unknown.values()))
        by_cloud.NODES_POWERED_OFF.set(self._env.cloud, len(decided.powered_off))
        for name, wait in decided.powered_off.items():
            klog.v(
                log,
                COUNTDOWN_VERBOSITY,
                "The machine is powered off",
                node=name,
                reason=wait.reason,
            )
        reasons = {**decided.waiting, **decided.held}
        for name, seconds in decided.countdown(at).items():
            klog.v(
                log,
                COUNTDOWN_VERBOSITY,
                "The node looks gone",
                node=name,
                may_go_in_seconds=None if seconds is None else round(seconds),
                reason=reasons[name].reason,
            )
        for alarm in decided.alarms:
            names = sorted(node.metadata.name for node in alarm.nodes)
            klog.warning(log, alarm.event.message, nodes=",".join(names))
            for node in alarm.nodes:
                self._tell(node, alarm.event)

    def _tell(self, node: Node, event: PlannedEvent) -> None:
        self._events.event(ref_of(node), event.type, event.reason, event.message)

    async def _write(self, node: Node, patch: Patch, what: str, gate: Gate | None = None) -> bool:
        """Write a patch; tell whether it was written."""
        name = node.metadata.name
        answer = await contained(self._env.client.patch(NODES, name, patch, gate=gate))
        if isinstance(answer, Conflict | NotFound | Denied):
            return False
        if isinstance(answer, Exception):
            klog.error(log, f"Could not change {what}", node=name, err=answer)
            return False
        klog.info(log, f"Changed {what}", node=name)
        await self._env.nodes.wait_seen(name, answer)
        return True

    async def _delete(self, deletion: plan.Deletion, gate: Gate) -> None:
        """Delete exactly the Node that was judged; a newer one of its name is judged anew."""
        meta = deletion.node.metadata
        answer = await contained(
            self._env.client.delete(
                NODES,
                meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
                gate=gate,
            )
        )
        if isinstance(answer, Conflict | NotFound | Denied):
            return
        if isinstance(answer, Exception):
            klog.error(log, "The node could not be deleted", node=meta.name, err=answer)
            text = f"Error deleting node {meta.name}: {answer}"
            self._tell(deletion.node, PlannedEvent("Warning", "DeletingNodeFailed", text))
            return
        metrics.NODES_DELETED.inc()
        klog.info(log, "Deleted the node", node=meta.name, reason=deletion.reason)
        self._tell(deletion.node, deletion.event)


def known(instances: Instances, inventory: Inventory, known_for: KnownFor = always) -> Known:
    """Return what provider and inventory know of nodes without a call."""
    return Known(
        owns=instances.owns,
        scope=lambda node: scope_of(instances, node),
        sighting=inventory.sighting,
        known_for=known_for,
    )


def policy_of(settings: Settings) -> Policy:
    """Make the policy from the flags' values."""
    return Policy(
        confirmations=settings.node_deletion_confirmations,
        confirmation_interval=settings.node_deletion_interval,
        startup_grace=settings.node_startup_grace,
        witnesses=settings.node_deletion_witnesses,
        breaker_fraction=settings.node_deletion_breaker,
        resume=settings.node_deletion_resume,
        delete_by_name=settings.delete_nodes_by_name,
        out_of_service_grace=(
            settings.node_out_of_service_grace if settings.node_out_of_service_taint else None
        ),
    )
