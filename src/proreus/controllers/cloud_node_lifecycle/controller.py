"""Removes nodes whose machine is gone and taints those that are shut down: look, decide, do.

Every `--node-monitor-period` the whole fleet is looked at in one pass. Only nodes that are not
Ready cost a question, and all of them go in as few calls as the cloud allows.
"""

import asyncio

from proreus.cloudprovider import Instances
from proreus.controllers.cloud_node_lifecycle import plan
from proreus.controllers.cloud_node_lifecycle.ages import Ages
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Look, Question, questions
from proreus.controllers.environment import Environment, Settings
from proreus.controllers.inventory import Inventory
from proreus.kube.errors import Conflict, NotFound
from proreus.kube.objects import Node
from proreus.kube.patch import Patch
from proreus.kube.requests import NODES
from proreus.runtime import klog, metrics, priority
from proreus.runtime.controller import contained
from proreus.runtime.events import ref_of
from proreus.runtime.priority import Priority

log = klog.logger(__name__)

CONTROLLER = "cloud-node-lifecycle-controller"
COUNTDOWN_VERBOSITY = 2


class CloudNodeLifecycleController:
    """The controller `cloud-node-lifecycle-controller`."""

    def __init__(self, env: Environment) -> None:
        """Take the settings; `env.inventory` must be there."""
        if env.inventory is None or env.provider.instances is None:
            raise ValueError(f"the provider {env.provider.name} has no instances")
        self._env = env
        self._instances: Instances = env.provider.instances
        self._inventory: Inventory = env.inventory
        self._policy = policy_of(env.settings)
        self._memory = plan.Memory()
        self._turn = 0
        self._ages = Ages(asyncio.get_running_loop().time)
        self._stopped = asyncio.Event()
        self._events = env.events.source(CONTROLLER)
        env.nodes.subscribe(self._ages.on_node)

    async def run(self) -> None:
        """Make a pass every period until stopped; the period starts again when a pass ends."""
        await self._env.nodes.wait_synced()
        priority.current.set(Priority.CHECK)
        while not self._stopped.is_set():
            await self._pass()
            try:
                async with asyncio.timeout(self._env.settings.node_monitor_period):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Make no further pass."""
        self._stopped.set()

    @property
    def is_busy(self) -> bool:
        """Never: its writes are few."""
        return False

    async def _pass(self) -> None:
        loop = asyncio.get_running_loop()
        self._turn += 1
        asked = questions(
            tuple(self._env.nodes.all()),
            self._env.now(),
            self._instances.owns,
            self._policy,
            batch_size=self._inventory.batch_size,
            turn=self._turn,
            known_for=self._ages.known_for,
        )
        looks = await asyncio.gather(*(self._look(question) for question in asked))
        decided = plan.plan(
            tuple(self._env.nodes.all()),
            looks,
            self._memory,
            self._policy,
            self._instances.owns,
            now=self._env.now(),
            at=loop.time(),
            known_for=self._ages.known_for,
        )
        self._memory = decided.memory
        self._report(decided, loop.time())
        for node, patch in decided.taints:
            await self._taint(node, patch)
        for deletion in decided.delete:
            await self._delete(deletion)

    async def _look(self, question: Question) -> Look:
        """Ask about the candidates and their witnesses in one go."""
        began = asyncio.get_running_loop().time()
        nodes = [*question.candidates, *question.witnesses]
        return Look(question, await self._inventory.get(nodes, not_before=began))

    def _report(self, decided: plan.Pass, at: float) -> None:
        metrics.NODES_WAITING.set(len(decided.waiting))
        metrics.NODES_HELD.set(len(decided.held))
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
        if decided.alarm is not None:
            alarm = decided.alarm
            names = sorted(node.metadata.name for node in decided.suspects)
            klog.warning(log, alarm.message, nodes=",".join(names))
            for node in decided.suspects:
                self._events.event(ref_of(node), alarm.type, alarm.reason, alarm.message)

    async def _taint(self, node: Node, patch: Patch) -> None:
        name = node.metadata.name
        answer = await contained(self._env.client.patch(NODES, name, patch))
        if isinstance(answer, Conflict | NotFound):
            return
        if isinstance(answer, Exception):
            klog.error(log, "The shutdown taint could not be changed", node=name, err=answer)
            return
        klog.info(log, "Changed the shutdown taint", node=name)
        await self._env.nodes.wait_seen(name, answer)

    async def _delete(self, deletion: plan.Deletion) -> None:
        """Delete exactly the object that was judged; anything newer is judged anew."""
        meta = deletion.node.metadata
        answer = await contained(
            self._env.client.delete(
                NODES, meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        )
        if isinstance(answer, Conflict | NotFound):
            return
        ref = ref_of(deletion.node)
        if isinstance(answer, Exception):
            klog.error(log, "The node could not be deleted", node=meta.name, err=answer)
            text = f"Error deleting node {meta.name}: {answer}"
            self._events.event(ref, "Warning", "DeletingNodeFailed", text)
            return
        metrics.NODES_DELETED.inc()
        klog.info(log, "Deleted the node", node=meta.name, reason=deletion.reason)
        event = deletion.event
        self._events.event(ref, event.type, event.reason, event.message)


def policy_of(settings: Settings) -> Policy:
    """The numbers that the flags give."""
    return Policy(
        confirmations=settings.node_deletion_confirmations,
        confirmation_interval=settings.node_deletion_interval,
        startup_grace=settings.node_startup_grace,
        witnesses=settings.node_deletion_witnesses,
        breaker_fraction=settings.node_deletion_breaker,
        resume=settings.node_deletion_resume,
        delete_by_name=settings.delete_nodes_by_name,
    )
