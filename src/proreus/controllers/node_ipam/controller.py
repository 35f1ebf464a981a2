"""Give nodes their pod CIDRs: watch, ask the cloud where the mode needs it, reserve, write.

Which blocks are taken is read off the cached nodes, event by event. Only what is being written is
remembered besides: a block stays reserved until the cache shows it, or until its write has surely
had no effect, also for the next controller in this process. Nothing is taken before the first list
of the nodes is in the cache.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider import Ownership, PodCIDRs
from proreus.cloudprovider.context import scope
from proreus.controllers.environment import Environment
from proreus.controllers.networks import cluster_cidrs, pod_cidrs
from proreus.controllers.node_ipam import plan as plans
from proreus.controllers.node_ipam.cidrset import Blocks, Range
from proreus.controllers.node_ipam.plan import Allocate, Assign, Mode, Settled, Trouble, Write
from proreus.kube.errors import Conflict
from proreus.kube.objects import Node
from proreus.kube.patch import Patch
from proreus.kube.requests import NODES
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import Controller, Outcome, contained
from proreus.runtime.events import EventSource
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue

log = klog.logger(__name__)

CONTROLLER: Final = "node-ipam-controller"
SOURCE: Final = "cidrAllocator"
BACKOFF: Final = Backoff(first=1.0, cap=300.0, factor=2.0, jitter=0.2)
BATCH: Final = 500


class NotAsDesired(Exception):
    """The signal that a node lacks pod CIDRs, as its condition says; it is tried again."""


class WriteCondition(msgspec.Struct, frozen=True):
    """The change that writes the node's condition."""

    patch: Patch


class Release(msgspec.Struct, frozen=True):
    """The step that lets the cloud take back the blocks of nodes that are gone."""

    nodes: tuple[Node, ...]


Change = Allocate | Write | Assign | Trouble | WriteCondition | Release


class NodeIpamController:
    """The controller `node-ipam-controller`."""

    def __init__(self, env: Environment) -> None:
        """Subscribe to the nodes.

        Raises:
            ValueError: The settings are wrong, or the provider has no `pod_cidrs` and the mode
                asks the cloud.
        """
        settings = env.settings
        self._env = env
        self._mode = Mode(settings.cidr_allocator_type)
        self._cloud: PodCIDRs | None = env.provider.pod_cidrs
        if self._mode.asks_cloud:
            env.need(self._cloud, "PodCIDRs")
        ranges, problems = plans.ranges(
            self._mode,
            settings.cluster_cidr,
            size=settings.node_cidr_mask_size,
            size_v4=settings.node_cidr_mask_size_ipv4,
            size_v6=settings.node_cidr_mask_size_ipv6,
        )
        if problems:
            raise ValueError("; ".join(problems))
        self._clusters = tuple(block_range.cluster for block_range in ranges)
        services, _ = cluster_cidrs(settings.service_cluster_ip_range)
        self._blocks = Blocks(
            ranges, services, {block_range.cluster: _Meter(block_range) for block_range in ranges}
        )
        former: Blocks | None = env.heritage.get(CONTROLLER)
        if former is not None:
            present = {node.metadata.uid for node in env.nodes.all()}
            known = former.reserved.items()
            self._blocks.inherit({uid: blocks for uid, blocks in known if uid in present})
        env.heritage[CONTROLLER] = self._blocks
        self._leaving: dict[str, tuple[Node, ...]] = {}
        self._waiting: set[str] = set()
        self._events: EventSource = env.events.source(SOURCE)
        self._queue: WorkQueue[str] = WorkQueue(env.named("cidrallocator_node"), backoff=BACKOFF)
        self._loop: Controller[Node, plans.InCloud, Change] = Controller(
            CONTROLLER,
            self,
            self._queue,
            env.nodes,
            batch=BATCH,
            slots=settings.concurrent_node_syncs,
            linger=0.05 if self._mode.asks_cloud else 0.0,
        )
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Allocate until stopped, once all nodes are known, so that no block is given twice."""
        await self._env.nodes.wait_synced()
        await self._loop.run()

    def stop(self) -> None:
        """Take no more nodes from the queue."""
        self._queue.shut_down()

    @property
    def is_busy(self) -> bool:
        """Whether nodes wait to be written."""
        return self._loop.is_busy

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        """Keep the blocks in step with the cache, and queue nodes that may need some."""
        if plans.has_other_cidrs(old, new):
            if new is not None:
                self._hold(new)
            if old is not None:
                self._let_go(old)
        if new is not None and plans.relevant(old, new):
            self._queue.add(new.metadata.name, Priority.USER if old is None else Priority.CHECK)

    def _hold(self, node: Node) -> None:
        cidrs = pod_cidrs(node)
        if not cidrs or self._mode is Mode.FROM_CLOUD:
            return
        claim = self._blocks.hold(node.metadata.uid, cidrs)
        for event in plans.claim_events(claim, self._clusters):
            self._events.event(node, event.type, event.reason, event.message)
            klog.warning(log, event.message, node=node.metadata.name)

    def _let_go(self, node: Node) -> None:
        """Free the blocks of a deleted node, after the cloud released them if it must."""
        name = node.metadata.name
        self._waiting.discard(name)
        self._queue.forget(name)
        if (
            self._mode is Mode.FROM_CLUSTER
            and plans.has_assigned(node)
            and not self._is_foreign(node)
        ):
            self._leaving[name] = (*self._leaving.get(name, ()), node)
            self._queue.add(name, Priority.CHECK)
        else:
            self._free(node)

    def _free(self, node: Node) -> None:
        freed = self._blocks.release(pod_cidrs(node))
        if self._blocks.forget(node.metadata.uid) or freed:
            self._wake()

    def _wake(self) -> None:
        """Queue the nodes that wait for a free block."""
        for name in sorted(self._waiting):
            self._queue.add(name, Priority.USER)
        self._waiting.clear()

    def group(self, key: str, obj: Node | None) -> Hashable:  # noqa: ARG002
        """Return a group for each node."""
        return key

    async def observe(self, keys: Sequence[str]) -> Mapping[str, plans.InCloud]:
        """Ask the cloud for the blocks of the batch's nodes, if the mode does so."""
        answers: dict[str, plans.InCloud] = dict.fromkeys(keys)
        if self._mode.asks_cloud and self._cloud is not None:
            known = [node for key in keys if (node := self._env.nodes.get(key)) is not None]
            askable = [
                node for node in known if plans.is_askable(node) and not self._is_foreign(node)
            ]
            if askable:
                answers.update(await self._cloud.describe(askable))
        return answers

    def _is_foreign(self, node: Node) -> bool:
        return self._env.owns(node) is Ownership.NO

    def plan(
        self, key: str, obj: Node | None, observed: plans.InCloud | Exception
    ) -> Change | None:
        """Decide for one node; a deleted one comes before its successor of the same name."""
        if key in self._leaving:
            return Release(self._leaving[key])
        if obj is None or (self._mode.asks_cloud and self._is_foreign(obj)):
            return None
        decided = plans.decide(self._mode, obj, observed)
        if not isinstance(decided, Settled):
            return decided
        patch = plans.condition_patch(obj, None, self._env.now())
        return WriteCondition(patch) if patch is not None else None

    async def apply(
        self,
        group: Hashable,
        changes: Mapping[str, Change],
    ) -> Mapping[str, Outcome]:
        """Apply the change of one node."""
        scope.set((CONTROLLER, group))
        return {name: await self._apply(name, change) for name, change in changes.items()}

    async def _apply(self, name: str, change: Change) -> Outcome:
        if isinstance(change, Release):
            return await self._release(name, change.nodes)
        node = self._env.nodes.get(name)
        return Outcome() if node is None else await self._apply_to(node, change)

    async def _apply_to(
        self, node: Node, change: WriteCondition | Assign | Write | Trouble | Allocate
    ) -> Outcome:
        match change:
            case WriteCondition(patch):
                return await self._write_condition(node, patch)
            case Assign(cidrs):
                return await self._assign(node, cidrs)
            case Write(cidrs):
                return await self._write(node, cidrs)
            case Trouble():
                return await self._report(node, change, is_final=False)
            case Allocate():
                return await self._allocate(node)

    async def _allocate(self, node: Node) -> Outcome:
        """Reserve blocks and write them; with none left, wait until a node goes."""
        uid, name = node.metadata.uid, node.metadata.name
        reserved = self._blocks.reserve(uid)
        if not isinstance(reserved, tuple):
            self._waiting.add(name)
            return await self._report(node, plans.exhausted(reserved), is_final=True)
        answer = await contained(
            self._env.client.patch(NODES, name, plans.write(node, tuple(map(str, reserved))))
        )
        if not isinstance(answer, Exception):
            klog.info(log, "Allocated", node=name, cidrs=",".join(map(str, reserved)))
            return Outcome(written=answer)
        if plans.may_have_written(answer):
            self._blocks.unsure(uid)
        elif self._blocks.refused(uid):
            self._wake()
        return self._not_written(node, answer)

    async def _write(self, node: Node, cidrs: Sequence[str]) -> Outcome:
        """Write the cloud's blocks to the node."""
        answer = await contained(
            self._env.client.patch(NODES, node.metadata.name, plans.write(node, cidrs))
        )
        if isinstance(answer, Exception):
            return self._not_written(node, answer)
        return Outcome(written=answer)

    def _not_written(self, node: Node, error: Exception) -> Outcome:
        """Return the outcome of a failed write; its event is recorded once."""
        if not isinstance(error, Conflict) and not self._queue.failures(node.metadata.name):
            self._event(node, plans.not_assigned(error))
        return Outcome(error=error)

    async def _assign(self, node: Node, cidrs: tuple[str, ...]) -> Outcome:
        """Give the node's blocks to its instance, and clear an earlier failure."""
        others = self._env.nodes.all() if self._blocks.are_shared(cidrs) else ()
        if trouble := plans.unassignable(node, others, self._clusters):
            return await self._report(node, trouble, is_final=False)
        answer = await contained(self._pod_cidrs().assign(node, cidrs))
        if isinstance(answer, Exception):
            return await self._report(node, plans.not_assigned(answer), is_final=False)
        patch = plans.condition_patch(node, None, self._env.now())
        return await self._write_condition(node, patch) if patch is not None else Outcome()

    async def _release(self, name: str, nodes: Sequence[Node]) -> Outcome:
        """Release the blocks of deleted nodes in the cloud, free them, and queue the node name."""
        for node in nodes:
            cidrs = plans.releasable(node, self._env.nodes.all(), self._clusters)
            if cidrs:
                answer = await contained(self._pod_cidrs().release(node, cidrs))
                if isinstance(answer, Exception):
                    return Outcome(error=answer)
            self._leaving[name] = tuple(
                leaving for leaving in self._leaving[name] if leaving is not node
            )
            self._free(node)
        if not self._leaving[name]:
            del self._leaving[name]
        self._queue.add(name)
        return Outcome()

    async def _report(self, node: Node, trouble: Trouble, *, is_final: bool) -> Outcome:
        """Report trouble by condition and event, if new; retry unless `is_final`."""
        error = None if is_final else NotAsDesired(trouble.message)
        patch = plans.condition_patch(node, trouble, self._env.now())
        if patch is None:
            return Outcome(error=error)
        self._event(node, trouble)
        outcome = await self._write_condition(node, patch)
        return (
            outcome if outcome.error is not None else Outcome(written=outcome.written, error=error)
        )

    async def _write_condition(self, node: Node, patch: Patch) -> Outcome:
        answer = await contained(
            self._env.client.patch(NODES, node.metadata.name, patch, subresource="status")
        )
        if isinstance(answer, Exception):
            return Outcome(error=answer)
        return Outcome(written=answer)

    def _event(self, node: Node, trouble: Trouble) -> None:
        event = plans.event(trouble)
        self._events.event(node, event.type, event.reason, event.message)

    def _pod_cidrs(self) -> PodCIDRs:
        return self._env.need(self._cloud, "PodCIDRs")

    async def settled(self, group: Hashable) -> None:
        """Wait until no call for the node still runs in a thread."""
        await self._env.context.settled((CONTROLLER, group))


class _Meter:
    """A counter of the blocks of one cluster CIDR, in Go's metrics."""

    def __init__(self, block_range: Range) -> None:
        cluster, size = str(block_range.cluster), block_range.size
        metrics.IPAM_MAX_CIDRS.labels(cluster).set(size)
        self._size = size
        self._used = 0
        self._usage = metrics.IPAM_USAGE.labels(cluster)
        self._usage.set(0)
        self._allocations = metrics.IPAM_ALLOCATIONS.labels(cluster)
        self._releases = metrics.IPAM_RELEASES.labels(cluster)
        self._tries = metrics.IPAM_TRIES.labels(cluster)

    def changed(self, delta: int) -> None:
        """Count blocks that were taken or became free."""
        self._used += delta
        self._usage.set(self._used / self._size)
        if delta > 0:
            self._allocations.inc(delta)
        else:
            self._releases.inc(-delta)

    def tried(self, count: int) -> None:
        """Observe how many blocks were checked to find a free one."""
        self._tries.observe(count)
