"""Label volumes that were made while no webhook was there: watch, ask in batches, write.

A volume that has labels and node affinity is left alone, so that nothing is asked while the webhook
works.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider import CloudError, scope
from proreus.controllers.environment import Environment
from proreus.controllers.events import PlannedEvent
from proreus.controllers.persistent_volume_label import plan as plans
from proreus.kube.objects import PersistentVolume
from proreus.kube.patch import Patch
from proreus.kube.requests import PERSISTENT_VOLUMES
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import Controller, Outcome, contained
from proreus.runtime.informer import Informer
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue

log = klog.logger(__name__)

CONTROLLER: Final = "persistentvolume-label-controller"
BACKOFF: Final = Backoff(first=1.0, cap=300.0, factor=2.0, jitter=0.2)
BATCH: Final = 100
SLOTS: Final = 16


class Label(msgspec.Struct, frozen=True):
    """The change that writes labels and node affinity to a volume."""

    patch: Patch
    event: PlannedEvent


class PersistentVolumeLabelController:
    """The controller `persistentvolume-label-controller`."""

    def __init__(self, env: Environment) -> None:
        """Subscribe to the volumes.

        Raises:
            ValueError: The provider lacks the capability `Volumes`.
        """
        self._env = env
        self._cloud = env.need(env.provider.volumes, "Volumes")
        # Of no use to others, and no right of the manager's own account.
        self._cache: Informer[PersistentVolume] = Informer(
            env.client, PERSISTENT_VOLUMES, check=env.check
        )
        self._events = env.events.source(CONTROLLER)
        self._queue: WorkQueue[str] = WorkQueue(
            env.named("persistentvolume_label"), backoff=BACKOFF
        )
        self._loop: Controller[PersistentVolume, plans.Answer, Label] = Controller(
            CONTROLLER, self, self._queue, self._cache, batch=BATCH, slots=SLOTS
        )
        self._cache.subscribe(self._on_volume)

    async def run(self) -> None:
        """Watch the volumes and run the loop."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._cache.run())
            await self._loop.run()
            watching.cancel()

    def stop(self) -> None:
        """Take no more volumes from the queue."""
        self._queue.shut_down()

    @property
    def is_busy(self) -> bool:
        """Whether volumes wait to be written."""
        return self._loop.is_busy

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None:
            if old is not None:
                self._queue.forget(old.metadata.name)
        elif plans.changed(old, new) and plans.relevant(new):
            self._queue.add(new.metadata.name, Priority.CHECK)

    def group(self, key: str, obj: PersistentVolume | None) -> Hashable:  # noqa: ARG002
        """Return a group for each volume."""
        return key

    async def observe(self, keys: Sequence[str]) -> Mapping[str, plans.Answer]:
        """Ask the cloud about the volumes of the batch whose labels are not known without it."""
        answers: dict[str, plans.Answer] = {}
        askable = []
        for key in keys:
            volume = self._cache.get(key)
            labels = {} if volume is None else plans.known(volume)
            if volume is not None and labels is None:
                askable.append(volume)
            else:
                answers[key] = labels or {}
        return {**answers, **await self._cloud.labels(askable)} if askable else answers

    def plan(
        self,
        key: str,  # noqa: ARG002
        obj: PersistentVolume | None,
        observed: plans.Answer | Exception,
    ) -> Label | None:
        """Decide for one volume.

        Raises:
            CloudError: The cloud does not say where the volume is; an event is recorded about it.
            ValueError: The cloud's answer names no valid zone; an event is recorded about it.
        """
        if obj is None or not plans.relevant(obj):
            return None
        try:
            if isinstance(observed, Exception):
                raise observed
            place = plans.desired(obj, observed)
        except (CloudError, ValueError) as error:
            if not self._queue.failures(obj.metadata.name):  # told once, until it succeeds
                self._record(obj, plans.trouble(error))
            raise
        patch = plans.repaired(obj, place)
        return Label(patch, plans.labelled(obj, place)) if patch else None

    async def apply(self, group: Hashable, changes: Mapping[str, Label]) -> Mapping[str, Outcome]:
        """Write the change of one volume."""
        scope.set((CONTROLLER, group))
        return {name: await self._apply(name, change) for name, change in changes.items()}

    async def _apply(self, name: str, change: Label) -> Outcome:
        volume = self._cache.get(name)
        if volume is None:
            return Outcome()
        answer = await contained(self._env.client.patch(PERSISTENT_VOLUMES, name, change.patch))
        if isinstance(answer, Exception):
            return Outcome(error=answer)
        klog.info(log, "Labelled", persistentvolume=name)
        self._record(volume, change.event)
        return Outcome(written=answer)

    def _record(self, volume: PersistentVolume, event: PlannedEvent) -> None:
        self._events.event(volume, event.type, event.reason, event.message)

    async def settled(self, group: Hashable) -> None:
        """Wait until no call for the volume still runs in a thread."""
        await self._env.context.settled((CONTROLLER, group))
