"""Approve serving certificates of kubelets: watch the requests, ask the cloud, apply.

All requests that wait are looked at together, so that a hundred kubelets that start cost one
question to the cloud, or none where it was asked about them a moment ago.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from proreus.controllers.environment import Environment
from proreus.controllers.kubelet_serving import plan as plans
from proreus.controllers.kubelet_serving.observation import known, observe
from proreus.controllers.kubelet_serving.plan import SELECTOR, Change, Observed
from proreus.kube.objects import CertificateSigningRequest, Node
from proreus.kube.requests import CERTIFICATE_SIGNING_REQUESTS
from proreus.runtime import by_cloud, klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import Controller, Outcome
from proreus.runtime.events import ref_of
from proreus.runtime.informer import Informer
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue

log = klog.logger(__name__)

CONTROLLER: Final = "kubelet-serving-approving-controller"
BACKOFF: Final = Backoff(first=1.0, cap=300.0, factor=2.0, jitter=0.2)
SLOTS: Final = 8
"""Requests that are approved at the same time."""

BATCH: Final = 100
"""Requests that are looked at together; each time all Nodes are looked through."""

AGE: Final = 60.0
"""Seconds that the cloud's answer about a machine may be old."""

_BY_NODE: Final = "node"


class KubeletServingController:
    """The controller `kubelet-serving-approving-controller`."""

    def __init__(self, env: Environment) -> None:
        """Subscribe to nodes and requests; the provider must have instances."""
        self._env = env
        self._instances = env.need(env.provider.instances, "Instances")
        self._inventory = env.need(env.inventory, "Instances")
        self._events = env.events.source(CONTROLLER)
        self._queue: WorkQueue[str] = WorkQueue(env.named("certificate"), backoff=BACKOFF)
        # Of no use to others, and no right of the manager's own account.
        self._requests: Informer[CertificateSigningRequest] = Informer(
            env.client,
            CERTIFICATE_SIGNING_REQUESTS,
            field_selector=SELECTOR,
            indexes={_BY_NODE: lambda one: (plans.node_name(one),)},
            check=env.check,
        )
        self._refused: set[str] = set()
        self._loop = Controller(
            CONTROLLER,
            self,
            self._queue,
            self._requests,
            batch=BATCH,
            slots=SLOTS,
        )
        self._requests.subscribe(self._on_request)
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Watch the requests and run the loop."""
        await self._env.nodes.wait_synced()
        by_cloud.SERVING_REQUESTS_REFUSED.set_function(self._env.cloud, lambda: len(self._refused))
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._requests.run())
                await self._loop.run()
                watching.cancel()
        finally:
            # Nobody knows any more.
            by_cloud.SERVING_REQUESTS_REFUSED.set(self._env.cloud, 0)

    def stop(self) -> None:
        """Take no more requests from the queue."""
        self._queue.shut_down()

    @property
    def is_busy(self) -> bool:
        """Whether requests wait to be approved."""
        return self._loop.is_busy

    def _on_request(
        self, old: CertificateSigningRequest | None, new: CertificateSigningRequest | None
    ) -> None:
        if new is not None and plans.is_pending(new):
            self._queue.add(new.metadata.name, Priority.USER)
        elif (gone := new or old) is not None:
            self._refused.discard(gone.metadata.name)
            self._queue.forget(gone.metadata.name)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            for name in self._refused:  # It may have been what another Node had, too.
                self._queue.add(name, Priority.CHECK)
        elif plans.matters(old, new):
            for request in self._requests.by(_BY_NODE, new.metadata.name):
                if plans.is_pending(request):
                    self._queue.add(request.metadata.name, Priority.USER)

    def group(self, key: str, obj: CertificateSigningRequest | None) -> Hashable:  # noqa: ARG002
        """Return a group for each request."""
        return key

    async def observe(self, keys: Sequence[str]) -> Mapping[str, Observed]:
        """Ask the cloud about the machines of all kubelets in the batch, together."""
        requests = [found for key in keys if (found := self._requests.get(key)) is not None]
        since = asyncio.get_running_loop().time() - AGE
        seen = await observe(
            requests, self._env.nodes, self._instances, self._inventory, not_before=since
        )
        return {key: seen.get(key, Observed()) for key in keys}

    def plan(
        self, key: str, obj: CertificateSigningRequest | None, observed: Observed | Exception
    ) -> Change | None:
        """Decide about one request."""
        if obj is None:
            self._refused.discard(key)
            return None
        if isinstance(observed, Exception):
            seen = known(obj, self._env.nodes, self._instances)
            return plans.plan(obj, seen, observed, self._env.now())
        return plans.plan(obj, observed, None, self._env.now())

    async def apply(
        self,
        group: Hashable,  # noqa: ARG002 - the changes say all
        changes: Mapping[str, Change],
    ) -> Mapping[str, Outcome]:
        """Approve the request, or say why not."""
        return {name: await self._apply(name, change) for name, change in changes.items()}

    async def _apply(self, name: str, change: Change) -> Outcome:
        if change.patch is not None:
            written = await self._env.client.patch(
                CERTIFICATE_SIGNING_REQUESTS, name, change.patch, subresource="approval"
            )
            metrics.SERVING_REQUESTS_APPROVED.inc()
            klog.info(log, "Approved a kubelet's serving certificate", request=name)
            return Outcome(written=written)
        if name not in self._refused:
            self._refused.add(name)
            klog.info(log, "Not approved", request=name, reason=change.refusal)
        request = self._requests.get(name)
        if request is not None and change.event is not None:
            event = change.event
            self._events.event(ref_of(request), event.type, event.reason, event.message)
        return Outcome(after=change.after)

    async def settled(self, group: Hashable) -> None:
        """Return at once: calls are made for batches, none for one request."""
