"""Give silent nodes up: watch their leases and statuses, write conditions and taints, evict pods.

It is for clusters whose kube-controller-manager runs without its controllers of node lifecycle and
taint eviction. If another controller of this kind is at work, this one does nothing but say so.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from proreus.controllers.environment import Environment
from proreus.controllers.node_lifecycle import evictions, health, plan
from proreus.controllers.node_lifecycle.evictions import Eviction
from proreus.controllers.node_lifecycle.memory import Memory
from proreus.controllers.node_lifecycle.policy import Policy
from proreus.controllers.node_lifecycle.rivals import Rivals, evicted, noticed
from proreus.controllers.node_lifecycle.zones import Zone, zone_of
from proreus.controllers.settings import Settings
from proreus.kube import patch
from proreus.kube.client import Written
from proreus.kube.errors import Conflict, KubeError, NotFound
from proreus.kube.objects import Node, Taint
from proreus.kube.patch import Patch
from proreus.kube.pods import NodeLease, Pod, Pulse
from proreus.kube.requests import NODE_LEASES, NODES, PODS, PULSES
from proreus.kube.watch import get_checked
from proreus.runtime import klog, node_collector
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import contained
from proreus.runtime.events import ObjectReference, ref_of
from proreus.runtime.informer import Informer

Result = TypeVar("Result")

log = klog.logger(__name__)

CONTROLLER: Final = "node-lifecycle-controller"
NAMESPACE: Final = "kube-node-lease"
TICK: Final = 0.1
"""Seconds between two looks at who may be tainted, and which pods are due."""
SLOTS: Final = 8
"""Writes about nodes, and deletions of pods, at the same time."""
BACKOFF: Final = Backoff(first=0.5, cap=5.0, jitter=0.5)
"""The pause between two tries to watch leases, with each of which all have the grace anew."""

_BY_NODE: Final = "node"


class NodeLifecycleController:
    """The controller `node-lifecycle-controller`."""

    def __init__(self, env: Environment) -> None:
        """Make the caches of leases and pods; nothing is watched yet."""
        self._env = env
        self._policy = policy_of(env.settings)
        self._clock = asyncio.get_running_loop().time
        self._events = env.events.source(CONTROLLER)
        # Of no use to others, and no rights of the manager's own account.
        self._pulses: Informer[Pulse] = Informer(env.client, PULSES, check=env.check)
        self._leases: Informer[NodeLease] = Informer(
            env.client, NODE_LEASES, namespace=NAMESPACE, backoff=BACKOFF, check=env.check
        )
        self._pods: Informer[Pod] = Informer(
            env.client,
            PODS,
            indexes={_BY_NODE: lambda pod: (pod.spec.node_name,)},
            check=env.check,
        )
        self._memory = Memory()
        self._zones: dict[str, Zone] = {}
        self._heard: dict[str, float] = {}
        self._rivals = Rivals()
        self._said: tuple[str, ...] = ()
        self._due: dict[str, Eviction] = {}
        self._mine: dict[str, float] = {}
        """When each pod was evicted last, by uid."""
        self._spared: dict[str, float] = {}
        """When each pod was left last by what its node turned out to be, by uid."""
        self._disrupted = False
        self._tainted: set[str] = set()
        self._slots = asyncio.Semaphore(SLOTS)
        self._stopped = asyncio.Event()
        self._pulses.subscribe(self._on_pulse)
        self._leases.subscribe(self._on_lease)
        self._pods.subscribe(self._on_pod)
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Watch, look at all nodes every period, and evict pods when they are due."""
        async with asyncio.TaskGroup() as group:
            watching = [
                group.create_task(informer.run())
                for informer in (self._pulses, self._leases, self._pods)
            ]
            for informer in (self._env.nodes, self._pulses, self._leases, self._pods):
                await informer.wait_synced()
            try:
                await asyncio.gather(
                    self._every(self._policy.period, self._monitor), self._every(TICK, self._act)
                )
            finally:
                for task in watching:
                    task.cancel()

    def stop(self) -> None:
        """Make no further pass."""
        self._stopped.set()

    @property
    def is_busy(self) -> bool:
        """Always false: the writes of this controller are few."""
        return False

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopped.is_set():
            await work()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopped.wait()

    # What the caches show

    def _on_pulse(self, old: Pulse | None, new: Pulse | None) -> None:
        self._rivals = noticed(self._rivals, old, new, self._env.now(), self._clock())
        if new is None:
            self._heard.pop(old.metadata.uid if old is not None else "", None)
            return
        if health.has_reported(old, new):
            self._heard[new.metadata.uid] = self._clock()

    def _on_lease(self, old: NodeLease | None, new: NodeLease | None) -> None:
        if new is not None and health.has_renewed(old, new):
            node = self._env.nodes.get(new.metadata.name)
            if node is not None:
                self._heard[node.metadata.uid] = self._clock()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            if old is not None:
                self._mine.pop(old.metadata.uid, None)
                self._spared.pop(old.metadata.uid, None)
        elif evictions.is_by_others(old, new, self._mine):
            self._rivals = evicted(self._rivals, self._clock())

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and evictions.executing(new.spec.taints):
            self._tainted.add(new.metadata.name)
        elif (gone := new or old) is not None:
            self._tainted.discard(gone.metadata.name)

    # What is done

    async def _monitor(self) -> None:
        if self._leases.failed > (self._memory.at or 0.0):
            self._due.clear()  # no node could say that it is back
        decided = plan.plan(
            tuple(self._env.nodes.all()),
            self._heard,
            self._memory,
            self._policy,
            now=self._env.now(),
            at=self._clock(),
            deaf=self._leases.failed,
        )
        self._memory, self._zones = decided.memory, dict(decided.zones)
        self._disrupted = decided.stopped
        self._show(decided)
        if self._is_held():
            return
        if decided.stopped:
            klog.warning(log, "No node of any zone is Ready: nothing is tainted or evicted")
        await asyncio.gather(*(self._give_up(one) for one in decided.silent))
        await asyncio.gather(*(self._mark_pods(node) for node in decided.lost))
        await asyncio.gather(*(self._taint(node, change) for node, change in decided.now))

    async def _act(self) -> None:
        if self._is_held():
            self._due.clear()
            return
        self._memory, uids = plan.take(self._memory, self._zones, self._policy, self._clock())
        if uids:
            for node in plan.chosen(self._env.nodes.all(), uids):
                change = plan.no_execute(node, self._env.now())
                if change is not None and await self._taint(node, change):
                    node_collector.NODE_EVICTIONS.labels(zone_of(node)).inc()
        await self._evict()

    async def _give_up(self, silence: plan.Silence) -> None:
        """Write that a node is silent, unless one more look shows that it is not."""
        node = silence.node
        name, uid = node.metadata.name, node.metadata.uid
        if await self._lives(name, uid) or not await self._is_free(node):
            return
        answer = await self._send(
            self._env.client.patch(NODES, name, silence.patch, subresource="status"),
            "The conditions of a silent node could not be written",
            name,
        )
        if answer is None or not silence.fell:
            return
        klog.info(log, "The node is not Ready any more: its kubelet is silent", node=name)
        text = f"Node {name} status is now: NodeNotReady"
        self._events.event(ref_of(node), "Normal", "NodeNotReady", text)
        await asyncio.gather(*(self._unready(pod) for pod in self._counted_ready(name)))

    async def _mark_pods(self, node: Node) -> None:
        """Write that the pods of a lost node are not Ready, where that write has failed."""
        name = node.metadata.name
        pods = self._counted_ready(name)
        if not pods or await self._lives(name, node.metadata.uid) or not await self._is_free(node):
            return
        await asyncio.gather(*(self._unready(pod) for pod in pods))

    def _counted_ready(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods.by(_BY_NODE, node) if evictions.is_counted_ready(pod)]

    async def _lives(self, name: str, uid: str) -> bool:
        """Read a node's lease anew: the cache may be what is silent."""
        try:
            async with self._slots:
                env = self._env
                lease = await get_checked(env.client, NODE_LEASES, name, NAMESPACE, env.check)
        except NotFound:
            return False
        except KubeError as error:
            klog.error(log, "The lease of a silent node could not be read", node=name, err=error)
            self._heard[uid] = self._clock()  # nor, perhaps, could its kubelet renew it
            return True
        known = self._leases.get(f"{NAMESPACE}/{name}")
        if not health.has_renewed(known, lease):
            return False
        self._heard[uid] = self._clock()
        return True

    async def _unready(self, pod: Pod) -> None:
        meta = pod.metadata
        body = patch.status(meta.uid, conditions=(evictions.not_ready(self._env.now()),))
        await self._send(
            self._env.client.patch(PODS, meta.name, body, meta.namespace, subresource="status"),
            "The Ready condition of a pod could not be written",
            key_of(pod),
        )

    async def _taint(self, node: Node, change: Patch) -> bool:
        name = node.metadata.name
        if not await self._is_free(node):
            return False
        answer = await self._send(
            self._env.client.patch(NODES, name, change), "A node could not be tainted", name
        )
        if answer is None:
            return False
        await self._env.nodes.wait_seen(name, answer)
        return True

    async def _evict(self) -> None:
        """Evict the pods that are due, by the taints that their nodes have now."""
        pods = self._on_tainted()
        due = evictions.schedule(pods, self._due, self._clock())
        self._due = dict(due)
        tried = {**self._spared, **self._mine}
        gone = evictions.overdue(pods, due, tried, self._clock())
        if not gone:
            return
        nodes = await self._read_anew({pod.spec.node_name for pod in gone})
        at = self._clock()
        leaving, staying = evictions.confirmed(gone, nodes, due, at, stopped=self._disrupted)
        self._spared |= dict.fromkeys(staying, at)
        await asyncio.gather(*(self._delete(pod) for pod in leaving))

    async def _read_anew(self, names: Collection[str]) -> dict[str, Node]:
        """Read nodes past the cache, whose watch may have gone silent; those that can be read."""
        ordered = sorted(names)
        what = "A node could not be read, so no pod is evicted from it"
        env = self._env
        reads = (
            self._send(get_checked(env.client, NODES, one, "", env.check), what, one)
            for one in ordered
        )
        answers = await asyncio.gather(*reads)
        return {name: node for name, node in zip(ordered, answers, strict=True) if node is not None}

    def _on_tainted(self) -> list[tuple[Pod, Sequence[Taint]]]:
        found: list[tuple[Pod, Sequence[Taint]]] = []
        for name in self._tainted:
            node = self._env.nodes.get(name)
            if node is not None:
                taints = evictions.counting(node, stopped=self._disrupted)
                found += ((pod, taints) for pod in self._pods.by(_BY_NODE, name))
        return found

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        self._mine[meta.uid] = self._clock()
        said = patch.status(meta.uid, conditions=(evictions.target(self._env.now()),))
        what = "A pod could not be evicted"
        if not evictions.is_target(pod):
            answer = await self._send(
                self._env.client.patch(PODS, meta.name, said, meta.namespace, subresource="status"),
                what,
                key_of(pod),
            )
            if answer is None:
                return
        ref = ObjectReference("v1", "Pod", meta.name, meta.namespace, meta.uid)
        self._events.event(
            ref, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key_of(pod)}"
        )
        deleted = await self._send(self._removed(pod), what, key_of(pod))
        if deleted:
            node_collector.PODS_EVICTED.inc()
            klog.info(log, "Evicted a pod", pod=key_of(pod), node=pod.spec.node_name)

    async def _removed(self, pod: Pod) -> bool:
        meta = pod.metadata
        await self._env.client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        return True

    async def _send(self, work: Awaitable[Result], what: str, about: str) -> Result | None:
        """Send a write; None if it failed, or if its object has changed or is gone."""
        async with self._slots:
            answer = await contained(work)
        if isinstance(answer, Conflict | NotFound):
            return None
        if isinstance(answer, Exception):
            klog.error(log, what, about=about, err=answer)
            return None
        return answer

    # Others

    def _is_held(self) -> bool:
        """Tell whether another controller of this kind is at work; say so when that changes."""
        active = self._rivals.active(self._clock())
        node_collector.EVICTION_RIVALS.set(len(active))
        if active != self._said:
            self._said = active
            if active:
                klog.warning(
                    log,
                    "Another controller taints silent nodes or evicts pods: this one does nothing;"
                    " run only one of the two",
                    others=", ".join(active),
                )
            else:
                klog.info(
                    log,
                    "The other controller has stopped evicting pods: this one does it from now on",
                )
        return bool(active)

    async def _is_free(self, node: Node) -> bool:
        """Tell whether nobody else is at work, by who wrote what this version of a node shows."""
        meta = node.metadata
        await self._pulses.wait_seen(meta.name, Written(meta.uid, int(meta.resource_version)))
        return not self._is_held()

    def _show(self, decided: plan.Pass) -> None:
        for gauge in (
            node_collector.ZONE_HEALTH,
            node_collector.ZONE_SIZE,
            node_collector.ZONE_UNHEALTHY,
        ):
            gauge.clear()  # a zone may have gone
        for name, zone in decided.zones.items():
            state = 100.0 * zone.ready / zone.size if zone.size else 100.0
            node_collector.ZONE_HEALTH.labels(name).set(state)
            node_collector.ZONE_SIZE.labels(name).set(zone.size)
            node_collector.ZONE_UNHEALTHY.labels(name).set(zone.not_ready)


def key_of(pod: Pod) -> str:
    """Return `namespace/name` of a pod."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def policy_of(settings: Settings) -> Policy:
    """Make the policy from the flags' values."""
    return Policy(
        period=settings.node_monitor_period,
        grace=settings.node_monitor_grace_period,
        startup_grace=settings.node_startup_grace_period,
        courtesy=settings.node_monitor_grace_period / 5,
        rate=settings.node_eviction_rate,
        reduced_rate=settings.secondary_node_eviction_rate,
        large=settings.large_cluster_size_threshold,
        threshold=settings.unhealthy_zone_threshold,
    )
