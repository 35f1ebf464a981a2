"""Make load balancers for Services: watch, plan, call the provider, write the result.

Changes of one group (the provider says what shares cloud objects) go in one call. Node changes
are gathered for a moment and then looked at once for every Service; only those whose hosts
differ cost a call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from functools import partial

from proreus.cloudprovider import (
    CloudError,
    DeleteAnswer,
    EnsureAnswer,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    NotSupported,
    OwnedObject,
    Ownership,
    scope,
)
from proreus.cloudprovider.desired import desired_load_balancer, load_balancer_ref
from proreus.controllers.environment import Environment
from proreus.controllers.service import answers, contested, drift, intake, leaks, leaving, plan
from proreus.controllers.service.answers import Change
from proreus.controllers.service.hosts import HostSets, candidates
from proreus.controllers.service.nodesync import NodeSyncs
from proreus.controllers.service.plan import Delete, Ensure, Memory, Refuse, UpdateHosts
from proreus.controllers.service.writer import ServiceWriter
from proreus.kube.errors import Conflict
from proreus.kube.objects import EndpointSlice, Node, Service
from proreus.kube.objects import key as key_of
from proreus.runtime import by_cloud, klog, metrics, priority
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import Controller, Outcome, contained
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue

log = klog.logger(__name__)

BACKOFF = Backoff(first=5.0, cap=300.0, factor=2.0, jitter=0.1)
CONTROLLER = "service-controller"
BATCH = 500

Verb = Ensure | UpdateHosts | Refuse | Delete


class ServiceController:
    """The controller `service-lb-controller`.

    Attributes:
        leaks: The leaks: cloud objects in the last listing with our marks whose Service is gone.
    """

    def __init__(self, env: Environment) -> None:
        """Subscribe to Services and nodes; the provider must have load balancers."""
        self._env = env
        self._cloud = env.need(env.provider.load_balancers, "LoadBalancers")
        self._writer = ServiceWriter(env, env.events.source(CONTROLLER))
        self._classes = intake.classes_of(env.settings, env.provider.left_finalizers, env.cloud)
        former: dict[str, Memory] = env.heritage.get(CONTROLLER, {})
        self._memory = {key: plan.inherited(memory) for key, memory in former.items()}
        env.heritage[CONTROLLER] = self._memory
        self._queue: WorkQueue[str] = WorkQueue(env.named("service"), backoff=BACKOFF)
        for key in self._memory:  # also those of which no Service is left
            self._queue.add(key, Priority.RESYNC)
        self._holders = env.shared.setdefault(CONTROLLER, contested.Holders(env.all_services.by))
        again = partial(self._queue.add, after=intake.QUIET_SECONDS)
        self._contested = self._holders.join(env.cloud, self._memory, again)
        self._nodes_changed = asyncio.Event()
        self._host_sets = HostSets()
        self._node_syncs = NodeSyncs()
        self._surveyed: float | None = None
        self.leaks: tuple[leaks.Leak, ...] = ()
        self._loop: Controller[Service, None, Verb] = Controller(
            CONTROLLER,
            self,
            self._queue,
            env.services,
            batch=BATCH,
            slots=env.settings.concurrent_service_syncs,
            linger=0.0,  # nothing is asked for the batch
        )
        env.services.subscribe(self._on_service)
        env.nodes.subscribe(self._on_node)
        if env.endpoint_slices is not None:
            env.endpoint_slices.subscribe(self._on_slice)

    async def run(self) -> None:
        """Run the loop until stopped; beside it, gather node changes and repair drift."""
        await self._env.services.wait_synced()
        await self._env.nodes.wait_synced()
        if self._env.endpoint_slices is not None:
            await self._env.endpoint_slices.wait_synced()
        await contained(self._adopt())
        beside = [
            asyncio.create_task(self._gather_node_changes()),
            asyncio.create_task(self._repair_periodically()),
            asyncio.create_task(leaving.run(self._env, self._writer, self._holders, self._classes)),
        ]
        try:
            await self._loop.run()
        finally:
            for task in beside:
                task.cancel()

    def stop(self) -> None:
        """Take no more Services."""
        self._queue.shut_down()

    @property
    def is_busy(self) -> bool:
        """Always false: Services wait for the cloud, so events need not wait."""
        return False

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        if intake.needs_update(old, new, self._classes):
            present = new or old
            if present is not None:
                priority = Priority.RESYNC if old is None else Priority.USER
                self._queue.add(key_of(present), priority)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if intake.nodes_changed(old, new):
            self._host_sets.changed()
            self._nodes_changed.set()

    def _on_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        """Queue the Service after a moment, so that several changes become one."""
        for slice_ in (old, new):
            for service in intake.service_keys(slice_) if slice_ is not None else ():
                self._queue.add(service, Priority.CHECK, after=intake.QUIET_SECONDS)

    async def _gather_node_changes(self) -> None:
        """Queue the Services whose hosts differ, once node changes have been quiet for a while."""
        loop = asyncio.get_running_loop()
        while True:
            await self._nodes_changed.wait()
            first = loop.time()
            while self._nodes_changed.is_set():
                self._nodes_changed.clear()
                pause = intake.quiet_time(loop.time() - first, is_urgent=self._has_hostless())
                await asyncio.sleep(pause)
            differing = [
                key
                for key, desired in self._all_desired().items()
                if plan.has_new_hosts(self._memory.get(key), desired)
            ]
            self._node_syncs.begin(differing, loop.time())
            for key in differing:
                self._queue.add(key, Priority.CHECK)

    def _synced(self, key: str, *, failed: bool = False) -> None:
        """Note that the Service has its hosts, and measure when it was the last one."""
        if self._node_syncs.done(key, failed=failed):
            now = asyncio.get_running_loop().time()
            metrics.SERVICE_NODE_SYNC_LATENCY.observe(now - self._node_syncs.started)
            metrics.SERVICE_NODE_SYNC_ERRORS.inc(self._node_syncs.failed)

    def _has_hostless(self) -> bool:
        return any(
            intake.is_hostless(service)
            for service in self._env.services.all()
            if intake.is_to_have(service, self._classes)
        )

    async def _adopt(self) -> None:
        """After a restart, remember the load balancers that are as desired already."""
        all_desired = self._all_desired()
        cloud = await self._survey()
        if cloud is None:
            return
        for key, desired in all_desired.items():
            memory = drift.adopted(desired, self._cloud.fingerprint(desired), cloud)
            if memory is not None and self._memory.get(key, memory).ref.uid == memory.ref.uid:
                self._memory[key] = memory

    async def _repair_periodically(self) -> None:
        """Ensure every period what differs from the desired state, spread over the period."""
        period = self._env.settings.load_balancer_resync_period
        while True:
            await asyncio.sleep(period)
            priority.current.set(Priority.RESYNC)
            cloud = await contained(self._survey())
            if isinstance(cloud, Exception):
                continue
            all_desired = self._all_desired()
            differing = [
                key
                for key, desired in all_desired.items()
                if cloud is None
                or not drift.is_as_desired(desired, self._cloud.fingerprint(desired), cloud)
            ]
            for key, after in drift.spread(differing, period).items():
                if key in self._memory:
                    self._memory[key] = plan.doubted(self._memory[key])
                self._queue.add(key, Priority.RESYNC, after=after)

    async def _survey(self) -> drift.Fingerprints | None:
        """List our cloud objects; None if the cloud cannot list them."""
        present = self._known_uids()
        owned = await contained(self._cloud.list_owned(self._env.cluster))
        if isinstance(owned, NotSupported):
            return None
        if isinstance(owned, Exception):
            klog.warning(log, "The load balancers could not be listed", err=owned)
            raise owned
        self._report_leaks(owned, present | self._known_uids())
        before, self._surveyed = self._surveyed, self._env.now().timestamp()
        period = self._env.settings.load_balancer_resync_period
        return drift.fingerprints(owned, drift.turns(before, self._surveyed, period))

    def _known_uids(self) -> set[str]:
        services = {service.metadata.uid for service in self._env.services.everything()}
        return services | {memory.ref.uid for memory in self._memory.values()}

    def _report_leaks(self, owned: Sequence[OwnedObject], present: Collection[str]) -> None:
        """Report objects without a Service, and delete them if flags say so."""
        at = asyncio.get_running_loop().time()
        known = {leak.object for leak in self.leaks}
        self.leaks = leaks.leaks(owned, present, self.leaks, self._env.now(), at)
        by_cloud.show_leaks(self._env.cloud, (leak.object.kind for leak in self.leaks))
        for leak in self.leaks:
            if leak.object not in known:
                klog.warning(
                    log, "A cloud object is left over: its Service is gone",
                    kind=leak.object.kind, id=leak.object.id, service=leak.object.service,
                )  # fmt: skip
        grace = self._env.settings.delete_leaks_after
        for key, gone in leaks.due(self.leaks, self._env.cluster, at, grace).items():
            self._memory[key] = Memory(gone)
            self._queue.add(key, Priority.RESYNC)

    def _all_desired(self) -> Mapping[str, LoadBalancer]:
        """Return the desired load balancers of all Services that should have one."""
        every = {key_of(one): self._desired(one) for one in self._env.services.all()}
        return {key: one for key, one in every.items() if isinstance(one, LoadBalancer)}

    def group(self, key: str, obj: Service | None) -> Hashable:
        """Return the group in which the provider runs one verb at a time, for a load balancer."""
        if obj is not None:
            return self._cloud.group(load_balancer_ref(obj, self._env.cluster))
        memory = self._memory.get(key)
        return self._cloud.group(memory.ref) if memory else key

    async def observe(self, keys: Sequence[str]) -> Mapping[str, None]:
        """Return nothing: what a Service needs is decided from the cache."""
        return dict.fromkeys(keys)

    def plan(self, key: str, obj: Service | None, observed: Exception | None) -> Verb | None:  # noqa: ARG002
        """Decide which verb the Service needs."""
        memory = plan.still_ours(obj, self._memory.pop(key, None), self._classes)
        if memory is not None:
            self._memory[key] = memory
        verb = plan.decide(
            obj,
            memory,
            self._desired(obj),
            cluster=self._env.cluster,
            classes=self._classes,
        )
        if not isinstance(verb, UpdateHosts):
            self._synced(key)
        return None if isinstance(verb, plan.Nothing) else verb

    def _desired(self, service: Service | None) -> LoadBalancer | CloudError | None:
        if service is None or not intake.is_to_have(service, self._classes):
            return None
        try:
            return desired_load_balancer(
                service,
                candidates(self._env.nodes.all(), self._env.owns),
                self._cloud.host_policy(service),
                self._env.cluster,
                self._slices_of(service),
                select=self._host_sets.select,
            )
        except CloudError as exc:
            return exc

    def _slices_of(self, service: Service) -> Sequence[EndpointSlice]:
        slices = self._env.endpoint_slices
        return slices.by(intake.SLICES_BY_SERVICE, key_of(service)) if slices is not None else ()

    async def apply(self, group: Hashable, changes: Mapping[str, Verb]) -> Mapping[str, Outcome]:
        """Call the verbs of one group: deletions first, as they may free what others need."""
        scope.set(group)
        outcomes: dict[str, Outcome] = {}
        deletes = {key: verb for key, verb in changes.items() if isinstance(verb, Delete)}
        ensures = {key: verb for key, verb in changes.items() if isinstance(verb, Ensure)}
        updates = {key: verb for key, verb in changes.items() if isinstance(verb, UpdateHosts)}
        for key, verb in changes.items():
            if isinstance(verb, Refuse):
                outcomes[key] = await self._refuse(key, verb)
        outcomes.update(await self._delete(deletes))
        outcomes.update(await self._ensure(ensures, self._cloud.ensure))
        return {**outcomes, **await self._update_hosts(updates)}

    async def _update_hosts(self, verbs: Mapping[str, UpdateHosts]) -> Mapping[str, Outcome]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcomes = await self._ensure(verbs, self._cloud.update_hosts)
        for key, outcome in outcomes.items():
            metrics.SERVICE_LOAD_BALANCER_SYNCS.inc()
            metrics.SERVICE_UPDATE_HOST_LATENCY.observe(loop.time() - started)
            self._synced(key, failed=outcome.error is not None)
        return outcomes

    async def _refuse(self, key: str, verb: Refuse) -> Outcome:
        return await self._writer.write_present(
            key, lambda one: answers.refuse(one, verb.error, self._env.now(), self._contested)
        )

    async def _ensure(
        self,
        verbs: Mapping[str, Ensure | UpdateHosts],
        call: Callable[[Sequence[LoadBalancer]], Awaitable[Mapping[str, EnsureAnswer]]],
    ) -> Mapping[str, Outcome]:
        outcomes = {key: await self._prepare(key, verb.desired) for key, verb in verbs.items()}
        ready = {key: verb for key, verb in verbs.items() if outcomes[key].error is None}
        if not ready:
            return outcomes
        for key, verb in ready.items():
            self._memory[key] = plan.before_call(self._memory.get(key), verb)
        by_uid = await contained(call([verb.desired for verb in ready.values()]))
        for key, verb in ready.items():
            before, service = self._memory[key], verb.desired.service
            answer = answers.answer_of(by_uid, verb.desired.ref.uid)
            beside = (one for one in self._env.nodes.all() if self._env.owns(one) is Ownership.NO)
            answer = self._holders.admitted(service, self._env.cloud, before, answer, beside)
            self._memory[key] = plan.after(before, verb, answer)
            outcomes[key] = await self._conclude(key, verb, answer)
            if isinstance(answer, Ensured):
                self._holders.given(before, self._memory[key])
        return outcomes

    async def _prepare(self, key: str, desired: LoadBalancer) -> Outcome:
        """Write finalizer and condition before the cloud is called; a Conflict if it must not be.

        If the finalizer came later, nobody would know of what was made if the process ended during
        the call.
        """
        outcome = await self._writer.prepare(key, self._classes)
        present = self._env.services.get(key)
        if outcome.error is None and not plan.is_kept(present, desired.ref, self._classes):
            return Outcome(written=outcome.written, error=Conflict(409, "the Service has changed"))
        return outcome

    async def _conclude(
        self, key: str, verb: Ensure | UpdateHosts, answer: EnsureAnswer
    ) -> Outcome:
        return await self._writer.write_present(
            key,
            lambda service: answers.after_ensure(
                service, answer, self._env.now(),
                verb=verb, classes=self._classes, contested=self._contested,
            ),
        )  # fmt: skip

    async def _delete(self, verbs: Mapping[str, Delete]) -> Mapping[str, Outcome]:
        if not verbs:
            return {}
        outcomes: dict[str, Outcome] = {}
        services = {key: self._env.services.get(key) for key in verbs}
        for key, verb in verbs.items():
            self._memory[key] = plan.before_call(self._memory.get(key), verb)
            self._writer.record(services[key], answers.before_delete(services[key], verb.ref))
        by_uid = await contained(self._cloud.delete([verb.ref for verb in verbs.values()]))
        for key, verb in verbs.items():
            answer = answers.answer_of(by_uid, verb.ref.uid)
            now, memory = asyncio.get_running_loop().time(), self._memory[key]
            self._memory[key], answer = plan.confirmed_delete(memory, answer, now, services[key])
            if plan.is_gone(answer):
                del self._memory[key]
            outcomes[key] = await self._conclude_delete(key, verb.ref, answer)
        return outcomes

    async def _conclude_delete(
        self, key: str, gone: LoadBalancerRef, answer: DeleteAnswer
    ) -> Outcome:
        def change_of(service: Service | None) -> Change:
            return answers.after_delete(
                service, answer, self._env.now(),
                ref=gone, classes=self._classes, contested=self._contested,
            )  # fmt: skip

        outcome = await self._writer.write(key, change_of)
        if outcome.error is None and outcome.after is None:
            # There may be a new Service under the old name, or one that wants it again.
            return Outcome(written=outcome.written, after=0.0)
        return outcome

    async def settled(self, group: Hashable) -> None:
        """Wait until no call for the group still runs in a thread."""
        await self._env.context.settled(group)
