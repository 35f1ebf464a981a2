"""The capability `LoadBalancers` of the provider `azure`.

All Services of a cluster are one group, since they share a load balancer of each kind and the
security group: whatever is ready goes into one write of each. What differs is found by a pure plan.
Azure's ETags tell of a change by others in between: then all is observed again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    Pending,
    nodes_with_pods,
)
from proreus.cloudprovider.mark_forms import owned_object
from proreus.cloudprovider.refused import Reason, Refused
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.kube.objects import Service
from proreus.providers.azure.api import Arm, Waiting
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.annotations import (
    FAMILIES,
    Options,
    check_denial,
    read_options,
)
from proreus.providers.azure.balancing.balancers import spots
from proreus.providers.azure.balancing.claims import check_given
from proreus.providers.azure.balancing.documents import named_id
from proreus.providers.azure.balancing.identities import Identities
from proreus.providers.azure.balancing.index import index
from proreus.providers.azure.balancing.neighbours import Neighbours
from proreus.providers.azure.balancing.observation import Observer
from proreus.providers.azure.balancing.parts import Had, Job, Scene, State
from proreus.providers.azure.balancing.placement import placed
from proreus.providers.azure.balancing.plan import ingress, plan
from proreus.providers.azure.balancing.presence import Presence, is_there
from proreus.providers.azure.balancing.scenes import scene_of
from proreus.providers.azure.balancing.sharing import gained, left_by, points
from proreus.providers.azure.balancing.work import Work
from proreus.providers.azure.errors import BUSY, is_everyones
from proreus.providers.azure.ids import machine_id
from proreus.providers.azure.machines import part

MOST_TRIES: Final = 4
"""How often a pass observes again when somebody else has changed something meanwhile."""
_LATER: Final = 5.0
_STALE: Final = frozenset({Reason.CONFLICT, Reason.PRECONDITION_FAILED})
_TAKEN: Final = frozenset({"PrivateIPAddressInUse", "PrivateIPAddressIsAllocated"})
"""Azure's words for a private address that somebody else has."""

Answer = TypeVar("Answer")


class AzureLoadBalancers:
    """Load balancers, public addresses and rules of the security group."""

    def __init__(self, arm: Arm, *, confirm: float) -> None:
        """Keep the client of Azure, and how long an absence is doubted: see `Absences`."""
        self._arm = arm
        self._config = arm.config
        self._presence = Presence(confirm)
        self._neighbours = Neighbours(arm)
        self._identities = Identities(arm)
        self._had: dict[str, Had] = {}
        self._left: dict[str, frozenset[str]] = {}
        self._seen: dict[str, set[str]] = {}

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return one group for all Services: they share load balancers and the security group."""
        return ("azure", lb.cluster.uid)

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes of both families; `ensure` leaves out nodes that are excluded.

        With several load balancers of a kind, Services with local traffic need the nodes with pods.
        """
        read_options(service)
        several = self._config.multiple_standard_load_balancer_configurations
        return nodes_with_pods(service, *FAMILIES) if several else HostPolicy()

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Make all load balancers as desired, in one write of what they share."""
        answers: dict[str, EnsureAnswer] = {}
        jobs = []
        for lb in desired:
            try:
                jobs.append(self._job(lb))
            except CloudError as error:
                answers[lb.ref.uid] = error
        found = await self._all(jobs, self._ensure)
        await self._disown(jobs, found)
        return {**answers, **found}

    async def _disown(self, jobs: Sequence[Job], answers: dict[str, EnsureAnswer]) -> None:
        """Let Services show no address that they have left, though what follows fails or lasts.

        An error that several share, such as about credentials, is of no single Service.
        """
        open_ = {uid: one for uid, one in answers.items() if isinstance(one, Pending | CloudError)}
        shared = Counter(id(one) for one in open_.values() if isinstance(one, CloudError))
        showing = (one for one in jobs if one.ref.last_ingress and one.ref.uid in open_)
        looked = [one for one in showing if shared[id(open_[one.ref.uid])] <= 1]
        left = await self._all(looked, partial(self._left_by, open_))
        for job in looked:
            addresses = left[job.ref.uid]
            if isinstance(addresses, frozenset) and addresses:
                answers[job.ref.uid] = _disowning(open_[job.ref.uid])
                # What lets clients in to them is still to be closed.
                self._left[job.ref.uid] = job.left | addresses

    async def _left_by(
        self, answers: Mapping[str, Pending | CloudError], jobs: Sequence[Job]
    ) -> dict[str, frozenset[str]]:
        """Return the addresses that Services show and have left; none while that is in doubt."""
        scene = self._scene(jobs[0].ref.cluster, jobs)
        state = await Observer(self._arm, scene).observe(jobs)
        if self._presence.doubted(state, scene, _now()):
            return {job.ref.uid: frozenset() for job in jobs}
        known, found = index(state), {}
        for job in jobs:
            answer = answers[job.ref.uid]
            is_taken = isinstance(answer, Refused) and answer.code in _TAKEN
            had = self._had.get(job.ref.uid, Had()).addresses
            had = had.union(self._seen.get(job.ref.uid, ()))
            found[job.ref.uid] = left_by(job, state, known, scene, had, is_taken=is_taken)
        return found

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Make the hosts as desired, just as `ensure` does."""
        return await self.ensure(desired)

    async def delete(self, refs: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Delete every part of the load balancers."""
        return await self._all([self._gone(ref) for ref in refs], self._delete)

    def _gone(self, ref: LoadBalancerRef) -> Job:
        return Job(ref, None, _last_options(ref), left=self._left.get(ref.uid, frozenset()))

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return nothing: to ensure all Services at once costs a handful of reads."""
        del desired
        return ""

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Return what `ensure` would change, for each Service by itself."""
        found: dict[str, Sequence[PartChange] | CloudError] = {}
        for lb in desired:
            try:
                found[lb.ref.uid] = await self._foresee(self._job(lb))
            except CloudError as error:
                found[lb.ref.uid] = error
        return found

    def _job(self, lb: LoadBalancer) -> Job:
        """Return a Service as a job, with what is known of its namespace.

        Raises:
            CloudError: The labels of its namespace count, and are not known: a Service must not
                move because of that.
            InvalidRequest: Its annotations are wrong.
        """
        options = read_options(lb.service)
        check_denial(lb.service, options)
        left = self._left.get(lb.ref.uid, frozenset())
        several = self._config.multiple_standard_load_balancer_configurations
        if not any(one.reads_namespaces for one in several):
            return Job(lb.ref, lb, options, left=left)
        namespaces = self._arm.context.listers.get("namespaces")
        found = None if namespaces is None else namespaces.get(lb.ref.namespace)
        if found is None:
            raise CloudError(
                f"the labels of the namespace {lb.ref.namespace} are not known, by which"
                " serviceNamespaceSelector in the cloud-config chooses the load balancer: if this"
                " lasts, let the manager list and watch namespaces"
            )
        return Job(lb.ref, lb, options, space=found.metadata.labels, left=left)

    async def _foresee(self, job: Job) -> Sequence[PartChange]:
        scene = self._scene(job.ref.cluster, [job])
        state = await Observer(self._arm, scene).observe([job])
        _check_owner(state, job.ref)
        self._neighbours.check([job], state, scene)
        scene = await self._neighbours.confirmed(state, scene)
        state = await self._identities.checked([job], state, scene)
        lines, _ = preview_plan(state, lambda now: plan([job], now, scene))
        return lines

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List load balancers and public addresses with the cluster's mark."""
        scene = self._scene(cluster, [])
        state = await Observer(self._arm, scene).observe([])
        found = []
        for balancer in state.balancers.values():
            own = marks.owner(balancer) if balancer is not None else None
            if balancer is not None and own is not None and own.cluster_uid == cluster.uid:
                found.append(OwnedObject("load balancer", str(balancer["id"])))
        for address in state.addresses.values():
            own = marks.owner(address)
            if own is not None and own.cluster_uid == cluster.uid and own.service_uid:
                found.append(owned_object("public IP", str(address["id"]), marks.read(address)))
        return found

    async def _all(
        self,
        jobs: Sequence[Job],
        verb: Callable[[Sequence[Job]], Awaitable[Mapping[str, Answer]]],
    ) -> dict[str, Answer | Pending | CloudError]:
        """Run a verb for all jobs at once; if refused, for each half, down to the job at fault."""
        if not jobs:
            return {}
        try:
            return dict(await self._steady(jobs, verb))
        except Waiting as waiting:
            return {job.ref.uid: waiting.pending for job in jobs}
        except CloudError as error:
            if len(jobs) == 1 or isinstance(error, _Foreign) or is_everyones(error):
                return {job.ref.uid: error for job in jobs}
        middle = len(jobs) // 2
        first = await self._all(jobs[:middle], verb)
        return {**first, **await self._all(jobs[middle:], verb)}

    async def _steady(
        self,
        jobs: Sequence[Job],
        verb: Callable[[Sequence[Job]], Awaitable[Mapping[str, Answer]]],
    ) -> Mapping[str, Answer]:
        """Run a verb, and again while somebody else changes the same resources.

        Raises:
            Waiting: Others change the resources all the time.
            CloudError: Azure refuses, or does not answer.
        """
        for number in range(1, MOST_TRIES + 1):
            try:
                return await verb(jobs)
            except Refused as error:
                # Some conflicts last, such as a name that somebody else has.
                is_busy = error.reason is Reason.PRECONDITION_FAILED or error.code in BUSY
                if error.reason not in _STALE or (number == MOST_TRIES and not is_busy):
                    raise
                reason = str(error)
        raise Waiting(Pending(_LATER, f"somebody else changes the same resources: {reason}"))

    async def _ensure(self, jobs: Sequence[Job]) -> Mapping[str, EnsureAnswer]:
        scene = self._scene(jobs[0].ref.cluster, jobs)
        work = Work(self._arm, scene)
        state = await Observer(self._arm, scene).observe(jobs)
        _check_owner(state, jobs[0].ref)
        self._neighbours.check(jobs, state, scene)
        self._presence.check(state, scene, _now())
        known = index(state)
        for job in jobs:
            # What follows may take it away and fail, before anything was ensured since a restart.
            seen = known.reached(job.ref.name) & job.before
            self._seen.setdefault(job.ref.uid, set()).update(seen)
        state = await self._converged(jobs, state, scene, work)
        self._neighbours.done(jobs)
        jobs = placed(jobs, state, scene)
        where, known = spots(jobs, state, scene), index(state)
        answers: dict[str, EnsureAnswer] = {}
        for job in jobs:
            found = ingress(job, state, where)
            check_given(job, found, scene)
            if job.lb is None or len(found) < len(job.lb.families):
                answers[job.ref.uid] = Pending(_LATER, "Azure has given no address yet")
                continue
            shown = points(job, found, state, known, scene)
            answers[job.ref.uid] = Ensured(shown, _rejected(job.lb, state))
            self._had = gained(self._had, job, found)
            self._left.pop(job.ref.uid, None)
        return answers

    async def _delete(self, jobs: Sequence[Job]) -> Mapping[str, DeleteAnswer]:
        jobs = [self._neighbours.leaving(job) for job in jobs]
        scene = self._scene(jobs[0].ref.cluster, jobs)
        work = Work(self._arm, scene)
        state = await Observer(self._arm, scene).observe(jobs)
        # In another cluster's load balancer there can be nothing of this one: it is not looked at.
        state = _without_foreign(state, jobs[0].ref)
        found = {job.ref.uid: is_there(job, state) for job in jobs}
        await self._converged(jobs, state, scene, work)
        self._neighbours.forget(jobs)
        for job in jobs:
            for one in (self._had, self._left, self._seen):
                one.pop(job.ref.uid, None)
        return {job.ref.uid: Done(found=found[job.ref.uid]) for job in jobs}

    async def _converged(
        self, jobs: Sequence[Job], state: State, scene: Scene, work: Work
    ) -> State:
        scene = await self._neighbours.confirmed(state, scene)
        state = await self._identities.checked(jobs, state, scene)
        take = partial(self._presence.take, work, jobs, scene)
        noted = self._neighbours.noting(jobs, take)
        return await converge(state, lambda now: plan(jobs, now, scene), noted)

    def _scene(self, cluster: ClusterIdentity, jobs: Sequence[Job]) -> Scene:
        return scene_of(self._config, self._arm.context.listers, cluster, jobs, self._had)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _disowning(answer: Pending | CloudError) -> EnsureAnswer:
    if isinstance(answer, Pending):
        return msgspec.structs.replace(answer, withdrawn=True)
    return answer.disowning()


class _Foreign(CloudError):
    """The error about a load balancer that another cluster has marked."""


def _last_options(ref: LoadBalancerRef) -> Options:
    """Return the last options of a deleted Service, as far as they can be read."""
    if ref.service is None:
        return Options()
    try:
        return read_options(ref.service)
    except CloudError:
        return Options()


def _without_foreign(state: State, ref: LoadBalancerRef) -> State:
    """Return the state without other clusters' load balancers and the addresses of these."""
    foreign = {
        name: one
        for name, one in state.balancers.items()
        if one is not None and marks.is_of_another_cluster(one, ref.cluster)
    }
    theirs = {
        named_id(frontend, "publicIPAddress")
        for one in foreign.values()
        for frontend in part(one, "frontendIPConfigurations") or ()
    }
    return state.having(
        balancers={**state.balancers, **dict.fromkeys(foreign)},
        addresses={id_: one for id_, one in state.addresses.items() if id_ not in theirs},
    )


def _check_owner(state: State, ref: LoadBalancerRef) -> None:
    """Refuse to change what another cluster has marked.

    Raises:
        CloudError: A load balancer has the mark of another cluster.
    """
    for one in state.balancers.values():
        if one is not None and marks.is_of_another_cluster(one, ref.cluster):
            raise _Foreign(
                f"the load balancer {one['name']} belongs to {marks.owner(one)}: give this cluster"
                " another --cluster-name, or loadBalancerName in the cloud-config"
            )


def _rejected(lb: LoadBalancer, state: State) -> dict[str, str]:
    found = {}
    for host in lb.hosts:
        id_ = machine_id(host.provider_id)
        if id_ is None:
            found[host.node] = "its provider id is none of Azure"
        elif reason := state.strangers.get(host.node) or state.refused.get(id_.resource):
            found[host.node] = reason
    return found
