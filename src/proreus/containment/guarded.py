"""A provider as the controllers see it: every hook and verb behind the guard, answers checked."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    InstanceAnswer,
    Instances,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    NotSupported,
    OwnedObject,
    Ownership,
    PartChange,
    Pending,
    PodCIDRs,
    Route,
    Routes,
    names_machine,
    scope,
    scope_of,
)
from proreus.containment import contract
from proreus.containment.faults import Faults, Kind
from proreus.containment.guard import Guard
from proreus.kube.objects import Node, Service

Key = TypeVar("Key", bound=Hashable)
S = TypeVar("S", bound=msgspec.Struct)

LIST_SECONDS: Final = 50.0
"""For a listing."""


class Ungrouped(msgspec.Struct, frozen=True):
    """The group of a load balancer whose group is not known: no verb runs for it."""

    uid: str
    problem: str


def guarded(provider: CloudProvider, guard: Guard) -> CloudProvider:
    """The capabilities of a started provider, each behind the guard.

    Raises:
        CloudError: They cannot be read.
    """
    found = guard.hook("capabilities", lambda: _Guarded(provider, guard), None)
    if isinstance(found, CloudError):
        raise found
    return found


class _Guarded(CloudProvider):
    """A provider that is nothing but its capabilities."""

    def __init__(self, provider: CloudProvider, guard: Guard) -> None:
        super().__init__(None)
        self.name = provider.name  # type: ignore[misc]  # of the class, but this is of any
        self.has_cluster_id = provider.has_cluster_id
        if provider.instances is not None:
            self.instances = GuardedInstances(provider.instances, guard)
        if provider.load_balancers is not None:
            self.load_balancers = GuardedLoadBalancers(provider.load_balancers, guard)
        if provider.routes is not None:
            self.routes = GuardedRoutes(provider.routes, guard)
        if provider.pod_cidrs is not None:
            self.pod_cidrs = GuardedPodCIDRs(provider.pod_cidrs, guard)


class GuardedInstances:
    """Machines; what `describe` answers is checked by `containment.batches`."""

    def __init__(self, instances: Instances, guard: Guard) -> None:
        """Stand before `instances`."""
        self._instances = self.__wrapped__ = instances
        self._guard = guard

    @property
    def batch_size(self) -> int:
        """The provider's, or 1."""

        def read() -> int:
            size: object = self._instances.batch_size
            if isinstance(size, int) and size > 0:
                return size
            raise contract.Broken(f"{size!r} is no number of nodes")

        size = self._guard.hook("batch_size", read, None)
        return 1 if isinstance(size, CloudError) else size

    def owns(self, node: Node) -> Ownership:
        """The provider's word, or UNKNOWN: such a node is never deleted.

        Nobody can own what a provider id does not name.
        """

        def read() -> Ownership:
            found: object = self._instances.owns(node)
            if isinstance(found, Ownership):
                return found
            raise contract.Broken(f"a {type(found).__name__} is no Ownership")

        found = self._guard.hook("owns", read, node)
        if isinstance(found, CloudError) or (found is Ownership.YES and _is_unreadable(node)):
            return Ownership.UNKNOWN
        return found

    def scope(self, node: Node) -> str | None:
        """The provider's word, or None: such a node is never deleted, and is no witness."""

        def read() -> str:
            found: object = scope_of(self._instances, node)
            if isinstance(found, str):
                return found
            raise contract.Broken(f"a {type(found).__name__} is no scope: it must be a str")

        found = self._guard.hook("scope", read, node)
        return None if isinstance(found, CloudError) else found

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Ask the provider; the caller has a deadline.

        It does not see nodes whose provider id names no machine: it could look up their names.
        """
        unreadable = {
            node.metadata.name: InvalidRequest(
                f"spec.providerID {node.spec.provider_id!r} names no machine"
            )
            for node in nodes
            if _is_unreadable(node)
        }
        asked = [node for node in nodes if node.metadata.name not in unreadable]
        if not asked:
            return unreadable
        found = await self._guard.run(
            "describe", lambda: self._instances.describe(asked), seconds=None
        )
        # What is no mapping is told where answers are checked.
        return {**found, **unreadable} if unreadable and isinstance(found, Mapping) else found


def _is_unreadable(node: Node) -> bool:
    return bool(node.spec.provider_id) and not names_machine(node.spec.provider_id)


class GuardedLoadBalancers:
    """Load balancers: every answer is one of those that the interface has."""

    def __init__(self, load_balancers: LoadBalancers, guard: Guard) -> None:
        """Stand before `load_balancers`."""
        self._cloud = load_balancers
        self._guard = guard

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """The provider's group; `Ungrouped` without one, and then verbs answer with an error."""

        def read() -> Hashable:
            found = self._cloud.group(lb)
            hash(found)
            return found

        found = self._guard.hook("group", read, lb.service)
        return Ungrouped(lb.uid, str(found)) if isinstance(found, CloudError) else found

    def host_policy(self, service: Service) -> HostPolicy:
        """The provider's policy.

        Raises:
            CloudError: It has none for this Service.
        """

        def read() -> HostPolicy | CloudError:
            try:
                return contract.struct(self._cloud.host_policy(service), HostPolicy)
            except CloudError as exc:
                return exc

        found = self._guard.hook("host_policy", read, service)
        if isinstance(found, CloudError):
            raise found
        return found

    def fingerprint(self, wanted: LoadBalancer) -> str:
        """The provider's fingerprint, or "": then the load balancer is ensured."""

        def read() -> str:
            found: object = self._cloud.fingerprint(wanted)
            if isinstance(found, str):
                return found
            raise contract.Broken(f"a {type(found).__name__} is no fingerprint")

        found = self._guard.hook("fingerprint", read, wanted.service)
        return "" if isinstance(found, CloudError) else found

    async def ensure(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Ask the provider; each answer is sound."""
        return await self._ensure("ensure", self._cloud.ensure, wanted)

    async def update_hosts(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """The same, when only the hosts differ."""
        return await self._ensure("update_hosts", self._cloud.update_hosts, wanted)

    async def _ensure(
        self,
        verb: str,
        function: Callable[[Sequence[LoadBalancer]], Awaitable[Mapping[str, EnsureAnswer]]],
        wanted: Sequence[LoadBalancer],
    ) -> Mapping[str, EnsureAnswer]:
        _refuse_ungrouped()
        given = await self._guard.call(verb, lambda: function(wanted))
        uids = [one.ref.uid for one in wanted]
        return answers(self._guard.faults, verb, given, uids, Ensured)

    async def preview(
        self, wanted: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Ask the provider what `ensure` would change.

        Raises:
            NotSupported: It does not offer that.
            CloudError: It failed, or what it answers is no change.
        """
        function = getattr(self._cloud, "preview", None)
        if function is None:
            raise NotSupported("the provider cannot say what it would change")
        given: object = await self._guard.call("preview", lambda: function(wanted))
        found = given if isinstance(given, Mapping) else {}
        return {
            one.ref.uid: said
            if isinstance(said := found.get(one.ref.uid), CloudError)
            else _listed(self._guard.faults, "preview", said, PartChange)
            for one in wanted
        }

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Ask the provider; each answer is sound."""
        _refuse_ungrouped()
        given = await self._guard.call("delete", lambda: self._cloud.delete(gone))
        uids = [one.uid for one in gone]
        return answers(self._guard.faults, "delete", given, uids, Done)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Ask the provider.

        Raises:
            CloudError: It failed, or one of the objects is none.
        """
        found = await self._guard.call(
            "list_owned", lambda: self._cloud.list_owned(cluster), seconds=LIST_SECONDS
        )
        return _listed(self._guard.faults, "list_owned", found, OwnedObject)


class GuardedRoutes:
    """Routes: a listing is whole, and every answer is one of those that the interface has."""

    def __init__(self, routes: Routes, guard: Guard) -> None:
        """Stand before `routes`."""
        self._routes = routes
        self._guard = guard

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """Ask the provider.

        Raises:
            CloudError: It failed, or one of the routes is none.
        """
        found = await self._guard.call(
            "list_routes", lambda: self._routes.list(cluster, nodes), seconds=LIST_SECONDS
        )
        return _listed(self._guard.faults, "list_routes", found, Route)

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Ask the provider; each answer is sound."""
        given = await self._guard.call(
            "apply_routes", lambda: self._routes.apply(cluster, nodes, create, delete)
        )
        routes = [*create, *delete]
        return answers(self._guard.faults, "apply_routes", given, routes, Done)


class GuardedPodCIDRs:
    """Address blocks that the cloud gives: what is no block is left out, so it is unknown."""

    def __init__(self, pod_cidrs: PodCIDRs, guard: Guard) -> None:
        """Stand before `pod_cidrs`."""
        self._cloud = pod_cidrs
        self._guard = guard

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        """Ask the provider."""
        verb = "describe_pod_cidrs"
        given: object = await self._guard.call(
            verb, lambda: self._cloud.describe(nodes), seconds=LIST_SECONDS
        )
        faults = self._guard.faults
        found: dict[str, tuple[str, ...]] = {}
        for name, blocks in looked_up(
            faults, verb, given, [node.metadata.name for node in nodes]
        ).items():
            if isinstance(blocks, tuple | list) and all(isinstance(one, str) for one in blocks):
                found[name] = tuple(blocks)
            else:
                problem = f"{verb} answered with a {type(blocks).__name__}; it must be blocks"
                faults.tell(verb, Kind.WRONG_ANSWER, problem)
        return found

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Ask the provider."""
        await self._guard.call("assign_pod_cidrs", lambda: self._cloud.assign(node, cidrs))

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Ask the provider."""
        await self._guard.call("release_pod_cidrs", lambda: self._cloud.release(node, cidrs))


def answers(
    faults: Faults,
    verb: str,
    given: object,
    asked: Collection[Key],
    success: type[S],
) -> dict[Key, S | Pending | CloudError]:
    """The answers for what was asked; a wrong one is an error, one left out stays left out.

    Raises:
        CloudError: There is nothing to look an answer up in.
    """
    found: dict[Key, S | Pending | CloudError] = {}
    for one, value in looked_up(faults, verb, given, asked).items():
        try:
            found[one] = contract.answer(value, success, Pending)
        except contract.Broken as exc:
            found[one] = CloudError(f"{verb}: {exc}")
            faults.tell(verb, Kind.WRONG_ANSWER, f"{verb}: {exc}")
    return found


def looked_up(
    faults: Faults, verb: str, given: object, asked: Collection[Key]
) -> Mapping[Key, object]:
    """What is said of those that were asked about, and nothing else.

    Raises:
        CloudError: There is nothing to look an answer up in.
    """
    if not isinstance(given, Mapping):
        problem = f"{verb} answered with a {type(given).__name__}; it must be a mapping"
        faults.tell(verb, Kind.WRONG_ANSWER, problem)
        raise CloudError(problem)
    unasked = given.keys() - set(asked)
    if unasked:
        faults.tell(verb, Kind.UNASKED, f"{verb} answered for {len(unasked)} that nobody asked for")
    found = {one: given[one] for one in asked if one in given}
    for _ in range(len(asked) - len(found)):
        faults.tell(verb, Kind.LEFT_OUT, f"{verb} left something out of its answer")
    return found


def _listed(faults: Faults, verb: str, found: object, type_: type[S]) -> Sequence[S]:
    try:
        if not isinstance(found, Sequence):
            raise contract.Broken(f"a {type(found).__name__} is no sequence")
        return [contract.struct(one, type_) for one in found]
    except contract.Broken as exc:
        faults.tell(verb, Kind.WRONG_ANSWER, f"{verb}: {exc}")
        raise CloudError(f"{verb}: {exc}") from exc


def _refuse_ungrouped() -> None:
    """Answer with the error of the running scope, if that is no real group."""
    group = scope.get()
    if isinstance(group, Ungrouped):
        raise CloudError(group.problem)
