"""Initialise nodes and keep their addresses and labels current: watch, observe, apply.

A node event that matters queues the node; only a tainted node, one in the refresh pass, or one of
which the provider hints that its machine has changed, costs a question to the cloud. All nodes that
are ready at once are asked about together.
"""

import asyncio
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider import CloudError, InstanceAnswer, Ownership, confirmed_by
from proreus.containment.batches import outage
from proreus.containment.holders import MachineHolders
from proreus.controllers.cloud_node import plan as plans
from proreus.controllers.cloud_node.plan import Change
from proreus.controllers.environment import Environment
from proreus.controllers.hinted import Hinted
from proreus.kube.objects import Node
from proreus.runtime import by_cloud, klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import Controller, Outcome
from proreus.runtime.events import ref_of
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue
from proreus.runtime.writes import write_node

log = klog.logger(__name__)

BACKOFF = Backoff(first=1.0, cap=300.0, factor=2.0, jitter=0.2)
CONTROLLER = "cloud-node-controller"


class NotAsDesired(Exception):
    """The signal that a node is not as desired, as its condition says; it is tried again."""


class Observed(msgspec.Struct, frozen=True):
    """What was observed about one node: the cloud's answer, if asked, and whether to compare."""

    answer: InstanceAnswer | None
    refresh: bool


class CloudNodeController:
    """The controller `cloud-node-controller`."""

    def __init__(self, env: Environment) -> None:
        """Subscribe to the nodes; the provider must have instances."""
        self._env = env
        self._instances = env.need(env.provider.instances, "Instances")
        self._inventory = env.need(env.inventory, "Instances")
        self._events = env.events.source(CONTROLLER)
        self._queue: WorkQueue[str] = WorkQueue(env.named("Nodes"), backoff=BACKOFF)
        self._refresh: set[str] = set()
        # Of these the cloud itself is asked: another source (`Confirms`) may lag behind the hint.
        self._doubtful: set[str] = set()
        self._hinted = Hinted(env, self._instances)
        # The nodes of this cloud that are not initialised yet. Each scrape of the metrics asks for
        # them, and must not look at all nodes.
        self._waiting: dict[str, Node] = {}
        # The inventory knows the machines only of nodes that it was asked about.
        self._holders = MachineHolders(env.provider.machine_of)
        self._loop = Controller(
            CONTROLLER,
            self,
            self._queue,
            env.nodes,
            batch=self._inventory.batch_size,
            slots=env.settings.concurrent_node_syncs,
        )
        env.nodes.subscribe(self._holders.on_node)
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Run the loop and the refresh pass, and follow hints."""
        with self._inventory.swept():
            await self._env.nodes.wait_synced()
            refresher, cloud = asyncio.create_task(self._refresh_periodically()), self._env.cloud
            hints = asyncio.create_task(self._hinted.run(self._look))
            by_cloud.NODES_UNINITIALIZED.set_function(cloud, lambda: len(self._waiting))
            by_cloud.OLDEST_UNINITIALIZED.set_function(cloud, self._longest_wait)
            try:
                await self._loop.run()
            finally:
                refresher.cancel()
                hints.cancel()
                by_cloud.NODES_UNINITIALIZED.set_function(cloud, lambda: 0)  # nobody knows any more
                by_cloud.OLDEST_UNINITIALIZED.set_function(cloud, lambda: 0)

    def stop(self) -> None:
        """Take no more nodes from the queue."""
        self._queue.shut_down()

    @property
    def is_busy(self) -> bool:
        """Whether nodes wait to be written."""
        return self._loop.is_busy

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            if old is not None:
                self._refresh.discard(old.metadata.name)
                self._doubtful.discard(old.metadata.name)
                self._hinted.forget(old.metadata.name)
                self._waiting.pop(old.metadata.name, None)
                self._inventory.forget(old.metadata.uid)
                self._queue.forget(old.metadata.name)
            return
        self._note(new)
        name = new.metadata.name
        if plans.relevant(old, new):
            urgent = plans.needs_instance(new)
            self._queue.add(name, Priority.USER if urgent else Priority.RESYNC)
        elif plans.is_settled(new) and name not in self._refresh and name not in self._doubtful:
            # Mostly by what we have just written: it is not looked at once more.
            self._queue.withdraw(name)

    def _note(self, node: Node) -> None:
        """Remember whether the node waits for its initialisation."""
        if plans.needs_instance(node) and self._instances.owns(node) is not Ownership.NO:
            self._waiting[node.metadata.name] = node
        else:
            self._waiting.pop(node.metadata.name, None)

    def _look(self, node: Node, delay: float) -> None:
        """Queue a node, so that it is compared with its machine, which may have changed."""
        self._doubtful.add(node.metadata.name)
        self._queue.add(node.metadata.name, Priority.CHECK, after=delay)

    async def _refresh_periodically(self) -> None:
        while True:
            names = [node.metadata.name for node in self._env.nodes.all()]
            for node in self._env.nodes.all():
                self._note(node)  # Another cloud-config may have made it ours.
            self._refresh.update(names)
            for name in names:
                self._queue.add(name, Priority.RESYNC)
            await asyncio.sleep(self._env.settings.node_status_update_frequency)

    def group(self, key: str, obj: Node | None) -> Hashable:
        """Return a group for each node, or a shared one by `--concurrent-node-status-updates`."""
        return plans.update_group(key, obj, self._env.settings.concurrent_node_status_updates)

    async def observe(self, keys: Sequence[str]) -> Mapping[str, Observed]:
        """Ask the cloud about all nodes of the batch that need it, together."""
        doubtful = self._doubtful.intersection(keys)
        self._doubtful -= doubtful  # What is hinted from now on needs another question.
        self._refresh |= doubtful
        try:
            return await self._observe(keys, doubtful)
        except BaseException:
            self._doubtful |= doubtful
            raise

    async def _observe(
        self, keys: Sequence[str], doubtful: Collection[str]
    ) -> Mapping[str, Observed]:
        nodes = {
            key: node
            for key in keys
            if (node := self._env.nodes.get(key)) is not None
            and (key in self._refresh or plans.needs_instance(node))
            and self._instances.owns(node) is not Ownership.NO
        }
        now = asyncio.get_running_loop().time()
        same = await self._confirmed(
            (node for key, node in nodes.items() if key not in doubtful), now
        )
        rest = [node for key, node in nodes.items() if key not in same]
        answers = await self._inventory.get(rest, not_before=now)
        if error := outage(answers):
            raise error
        return {
            key: Observed(
                answer=answers[key].answer if key in answers else None,
                refresh=key in self._refresh and key not in same,
            )
            for key in keys
        }

    async def _confirmed(self, nodes: Iterable[Node], now: float) -> Collection[str]:
        """Return which nodes need not be compared, as the provider has a source that says so."""
        settled = [
            node
            for node in nodes
            if plans.may_be_confirmed(node, self._inventory.sighting(node), now)
        ]
        return await confirmed_by(self._instances, settled)

    def plan(self, key: str, obj: Node | None, observed: Observed | Exception) -> Change | None:
        """Decide what to write on one node."""
        if obj is None:
            return None
        if isinstance(observed, Exception):
            error = observed if isinstance(observed, CloudError) else CloudError(str(observed))
            observed = Observed(answer=error, refresh=False)
        elif not isinstance(observed.answer, CloudError):
            self._refresh.discard(key)
        answer = observed.answer
        return plans.plan(
            obj,
            None if answer is None else self._holders.unmistaken(obj, answer),
            self._env.now(),
            refresh=observed.refresh,
            ownership=self._instances.owns(obj),
        )

    async def apply(
        self,
        group: Hashable,  # noqa: ARG002 - the changes say all
        changes: Mapping[str, Change],
    ) -> Mapping[str, Outcome]:
        """Write the node's status, then its other changes."""
        return {name: await self._apply(name, change) for name, change in changes.items()}

    async def _apply(self, name: str, change: Change) -> Outcome:
        node = self._env.nodes.get(name)
        result = await write_node(self._env.client, name, status=change.status, main=change.main)
        if result.error is not None:
            return Outcome(written=result.written, error=result.error)
        if node is not None:
            for event in change.events:
                self._events.event(ref_of(node), event.type, event.reason, event.message)
            if change.initialised:
                self._count_initialised(node)
        failure = change.failure
        if failure is None or not failure.retry:
            return Outcome(written=result.written)
        return Outcome(
            written=result.written, after=failure.after, error=NotAsDesired(failure.message)
        )

    def _longest_wait(self) -> float:
        """Return the age in seconds of our oldest node that is not initialised; 0 without one."""
        created = (node.metadata.creation_timestamp for node in tuple(self._waiting.values()))
        now = self._env.now()
        first = min((moment for moment in created if moment is not None), default=now)
        return (now - first).total_seconds()

    def _count_initialised(self, node: Node) -> None:
        created = node.metadata.creation_timestamp
        if created is not None:
            delay = (self._env.now() - created).total_seconds()
            metrics.NODE_TAINT_REMOVAL_DELAY.observe(delay)
            metrics.NODE_INITIAL_SYNC_DELAY.observe(delay)
        klog.info(log, "Initialised the node", node=node.metadata.name)

    async def settled(self, group: Hashable) -> None:
        """Return at once: calls are made for batches, none for one node."""
