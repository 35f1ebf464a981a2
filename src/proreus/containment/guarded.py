"""Wrap a provider for the controllers: every hook and verb behind the guard, answers checked."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    DeleteAnswer,
    Done,
    Endpoints,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    Instance,
    InstanceAnswer,
    Instances,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    NotFound,
    NotSupported,
    OwnedObject,
    Ownership,
    PartChange,
    Pending,
    PodCIDRs,
    Route,
    Routes,
    SSHKeys,
    confirmed_by,
    names_machine,
    scope,
    scope_of,
)
from proreus.containment import contract
from proreus.containment.answers import Verb
from proreus.containment.clusters import GuardedClusters
from proreus.containment.faults import Fault
from proreus.containment.guard import Guard
from proreus.containment.volumes import GuardedVolumes
from proreus.kube.objects import Node, Service

LIST_SECONDS: Final = 50.0
"""Seconds for a listing."""
CONFIRM_SECONDS: Final = 20.0
"""Seconds for a confirmation, which is waited for in vain where there is none."""


class Ungrouped(msgspec.Struct, frozen=True):
    """The group of a load balancer for which the hook named none: no verb runs for it."""

    uid: str
    problem: str


def guarded(provider: CloudProvider, guard: Guard) -> CloudProvider:
    """Wrap the capabilities of a started provider, each behind the guard.

    Raises:
        CloudError: The capabilities cannot be read.
    """
    answer = guard.hook("capabilities", lambda: _Guarded(provider, guard), None)
    if isinstance(answer, CloudError):
        raise answer
    return answer


class _Guarded(CloudProvider):
    """A provider that consists only of its wrapped capabilities."""

    def __init__(self, provider: CloudProvider, guard: Guard) -> None:
        super().__init__(None)
        self.name = provider.name  # type: ignore[misc]  # of the class, but this is of any
        self.has_cluster_id = provider.has_cluster_id
        self.left_finalizers = provider.left_finalizers
        self.machine_of = provider.machine_of
        if provider.instances is not None:
            self.instances = GuardedInstances(provider.instances, guard)
        if provider.load_balancers is not None:
            has_slices = "endpoint_slices" in provider.needs
            self.load_balancers = GuardedLoadBalancers(
                provider.load_balancers, guard, has_slices=has_slices
            )
        if provider.routes is not None:
            self.routes = GuardedRoutes(provider.routes, guard)
        if provider.pod_cidrs is not None:
            self.pod_cidrs = GuardedPodCIDRs(provider.pod_cidrs, guard)
        if provider.ssh_keys is not None:
            self.ssh_keys = GuardedSSHKeys(provider.ssh_keys, guard)
        if provider.volumes is not None:
            self.volumes = GuardedVolumes(provider.volumes, guard)

        if provider.clusters is not None:
            self.clusters = GuardedClusters(provider.clusters, guard)


class GuardedInstances:
    """A guard of `Instances`: every answer is an instance, its absence or an error."""

    def __init__(self, instances: Instances, guard: Guard) -> None:
        """Guard `instances`; messages about `describe` name its class."""
        self._instances = instances
        self._guard = guard
        type_ = type(instances)
        self._function = f"{type_.__module__}.{type_.__qualname__}.describe"
        self._describe = Verb(guard, "describe", text=self._function, seconds=None)
        self._confirmed = Verb(guard, "confirmed", seconds=CONFIRM_SECONDS)

    @property
    def batch_size(self) -> int:
        """The provider's batch size, or 1."""

        def read() -> int:
            size: object = self._instances.batch_size
            if isinstance(size, int) and size > 0:
                return size
            raise contract.Broken(f"{size!r} is not a number of nodes")

        size = self._guard.hook("batch_size", read, None)
        return 1 if isinstance(size, CloudError) else size

    def owns(self, node: Node) -> Ownership:
        """Return the provider's answer, or UNKNOWN: such a node is never deleted.

        A provider id that names no machine belongs to nobody.
        """

        def read() -> Ownership:
            answer: object = self._instances.owns(node)
            if isinstance(answer, Ownership):
                return answer
            raise contract.Broken(f"expected an Ownership, got {type(answer).__name__}")

        answer = self._guard.hook("owns", read, node)
        if isinstance(answer, CloudError) or (answer is Ownership.YES and _is_unreadable(node)):
            return Ownership.UNKNOWN
        return answer

    def scope(self, node: Node) -> str | None:
        """Return the provider's answer, or None: such a node is never deleted, nor a witness."""

        def read() -> str:
            answer: object = scope_of(self._instances, node)
            if isinstance(answer, str):
                return answer
            raise contract.Broken(f"expected a scope as str, got {type(answer).__name__}")

        answer = self._guard.hook("scope", read, node)
        return None if isinstance(answer, CloudError) else answer

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        """Return which of the nodes the provider confirms; none if anything is wrong."""
        names = {node.metadata.name for node in nodes}
        try:
            found = await self._confirmed.call(lambda: confirmed_by(self._instances, nodes))
        except CloudError:
            return frozenset()
        listed = found if isinstance(found, list | tuple | set | frozenset) else [None]
        if not all(isinstance(one, str) and one in names for one in listed):
            self._confirmed.wrong("must answer with names of nodes that are in the call")
            return frozenset()
        return frozenset(listed)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Call the provider's `describe`, and check each answer; the caller has a deadline.

        Nodes whose provider id names no machine are left out: the provider could look up their
        names.
        """
        refused: dict[str, InstanceAnswer] = {
            node.metadata.name: InvalidRequest(
                f"spec.providerID {node.spec.provider_id!r} names no machine"
            )
            for node in nodes
            if _is_unreadable(node)
        }
        accepted = [node for node in nodes if node.metadata.name not in refused]
        if not accepted:
            return refused
        names = [node.metadata.name for node in accepted]
        answers = refused | await self._describe.each(
            lambda: self._instances.describe(accepted), names, Instance, NotFound
        )
        for name in names:
            if name not in answers:
                problem = f"{self._function} left out node {name}: it is unknown, not gone"
                answers[name] = Fault(problem)
        return answers


def _is_unreadable(node: Node) -> bool:
    return bool(node.spec.provider_id) and not names_machine(node.spec.provider_id)


class GuardedLoadBalancers:
    """A guard of `LoadBalancers`: every answer has a type that the interface allows."""

    def __init__(
        self, load_balancers: LoadBalancers, guard: Guard, *, has_slices: bool = True
    ) -> None:
        """Guard `load_balancers`.

        Args:
            load_balancers: The provider's capability `LoadBalancers`.
            guard: The guard that runs its verbs and hooks.
            has_slices: Whether there are EndpointSlices for the policies that ask for endpoints.
        """
        self._cloud = load_balancers
        self._has_slices = has_slices
        self._guard = guard
        self._ensure = Verb(guard, "ensure")
        self._update_hosts = Verb(guard, "update_hosts")
        self._delete = Verb(guard, "delete")
        self._preview = Verb(guard, "preview")
        self._list_owned = Verb(guard, "list_owned", seconds=LIST_SECONDS)

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return the group in which one verb runs at a time; `Ungrouped` if the provider fails."""

        def read() -> Hashable:
            answer = self._cloud.group(lb)
            hash(answer)
            return answer

        answer = self._guard.hook("group", read, lb.service)
        return Ungrouped(lb.uid, str(answer)) if isinstance(answer, CloudError) else answer

    def host_policy(self, service: Service) -> HostPolicy:
        """Return the provider's choice of hosts for a Service.

        Raises:
            CloudError: The provider has no choice of hosts for this Service.
        """

        def read() -> HostPolicy | CloudError:
            try:
                policy = contract.struct(self._cloud.host_policy(service), HostPolicy)
            except CloudError as exc:
                return exc
            if policy.endpoints is not Endpoints.NONE and not self._has_slices:
                # With none at all, every node would lose its traffic.
                raise contract.Broken("asks for endpoints: `needs` lacks endpoint_slices")
            return policy

        answer = self._guard.hook("host_policy", read, service)
        if isinstance(answer, CloudError):
            raise answer
        return answer

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return the provider's fingerprint, or "": then the load balancer is ensured."""

        def read() -> str:
            answer: object = self._cloud.fingerprint(desired)
            if isinstance(answer, str):
                return answer
            raise contract.Broken(f"expected a fingerprint as str, got {type(answer).__name__}")

        answer = self._guard.hook("fingerprint", read, desired.service)
        return "" if isinstance(answer, CloudError) else answer

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Call the provider's `ensure`, and check each answer."""
        _refuse_ungrouped()
        uids = [lb.ref.uid for lb in desired]
        return await self._ensure.each(lambda: self._cloud.ensure(desired), uids, Ensured, Pending)

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Call the provider's `update_hosts`, and check each answer."""
        _refuse_ungrouped()
        uids = [lb.ref.uid for lb in desired]
        return await self._update_hosts.each(
            lambda: self._cloud.update_hosts(desired), uids, Ensured, Pending
        )

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Call the provider's `preview`: what would `ensure` change?

        Raises:
            NotSupported: The provider offers no previews.
            CloudError: The call failed, or its answer is no list of changes.
        """
        function = getattr(self._cloud, "preview", None)
        if function is None:
            raise NotSupported("the provider cannot say what it would change")
        answer = await self._preview.call(lambda: function(desired))
        changes = answer if isinstance(answer, Mapping) else {}
        return {
            lb.ref.uid: change
            if isinstance(change := changes.get(lb.ref.uid), CloudError)
            else self._preview.whole(change, PartChange)
            for lb in desired
        }

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Call the provider's `delete`, and check each answer."""
        _refuse_ungrouped()
        uids = [lb.uid for lb in gone]
        return await self._delete.each(lambda: self._cloud.delete(gone), uids, Done, Pending)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Call the provider's `list_owned`, and check each object.

        Raises:
            CloudError: The call failed, or one of the objects has another form.
        """
        return await self._list_owned.listing(lambda: self._cloud.list_owned(cluster), OwnedObject)


class GuardedRoutes:
    """A guard of `Routes`: a listing is whole, and every answer has an allowed type."""

    def __init__(self, routes: Routes, guard: Guard) -> None:
        """Guard `routes`."""
        self._routes = routes
        self._list = Verb(guard, "list_routes", seconds=LIST_SECONDS)
        self._apply = Verb(guard, "apply_routes")

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """Call the provider's `list`, and check each route.

        Raises:
            CloudError: The call failed, or one of the routes has another form.
        """
        return await self._list.listing(lambda: self._routes.list(cluster, nodes), Route)

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Call the provider's `apply`, and check each answer."""
        routes = [*create, *delete]
        return await self._apply.each(
            lambda: self._routes.apply(cluster, nodes, create, delete), routes, Done, Pending
        )


class GuardedPodCIDRs:
    """A guard of `PodCIDRs`: an invalid block is left out, so that it counts as unknown."""

    def __init__(self, pod_cidrs: PodCIDRs, guard: Guard) -> None:
        """Guard `pod_cidrs`."""
        self._cloud = pod_cidrs
        self._describe = Verb(guard, "describe_pod_cidrs", seconds=LIST_SECONDS)
        self._assign = Verb(guard, "assign_pod_cidrs")
        self._release = Verb(guard, "release_pod_cidrs")

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        """Call the provider's `describe`, and check each block."""
        by_name: dict[str, tuple[str, ...]] = {}
        names = [node.metadata.name for node in nodes]
        answer = await self._describe.values(lambda: self._cloud.describe(nodes), names)
        for name, blocks in answer.items():
            if isinstance(blocks, tuple | list) and all(isinstance(cidr, str) for cidr in blocks):
                by_name[name] = tuple(blocks)
            else:
                self._describe.wrong(
                    f"answered with a {type(blocks).__name__} for {name}; "
                    "it must be a list of CIDRs"
                )
        return by_name

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Call the provider's `assign`."""
        await self._assign.call(lambda: self._cloud.assign(node, cidrs))

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Call the provider's `release`."""
        await self._release.call(lambda: self._cloud.release(node, cidrs))


class GuardedSSHKeys:
    """A guard of `SSHKeys`."""

    def __init__(self, ssh_keys: SSHKeys, guard: Guard) -> None:
        """Guard `ssh_keys`."""
        self._cloud = ssh_keys
        self._add = Verb(guard, "add_ssh_key")

    async def add_to_all_instances(self, user: str, public_key: str) -> None:
        """Call the provider's `add_to_all_instances`."""
        await self._add.call(lambda: self._cloud.add_to_all_instances(user, public_key))


def _refuse_ungrouped() -> None:
    """Raise the error of the running scope, if it is `Ungrouped`."""
    group = scope.get()
    if isinstance(group, Ungrouped):
        raise CloudError(group.problem)
