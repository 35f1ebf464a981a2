"""Makes the batched provider interface of functions that concern one node or one Service.

    self.instances = per_node(self._by_id, self._by_name, parse=id_in, concurrency=10)
    self.load_balancers = per_service(self._ensure, self._delete)

Items run side by side up to `concurrency`, and a failing one costs only itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from proreus.cloudprovider.errors import CloudError, InvalidRequest, NotSupported
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.instances import InstanceAnswer, Instances, Ownership
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    EnsureAnswer,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    PartChange,
)
from proreus.kube.objects import Node, Service

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Ensure = Callable[[LoadBalancer], Awaitable[EnsureAnswer]]
Delete = Callable[[LoadBalancerRef], Awaitable[DeleteAnswer]]
Preview = Callable[[LoadBalancer], Awaitable[Sequence[PartChange]]]
ListOwned = Callable[[ClusterIdentity], Awaitable[Sequence[OwnedObject]]]


def per_node(
    by_id: Callable[[str], Awaitable[InstanceAnswer]],
    by_name: Callable[[Node], Awaitable[InstanceAnswer]],
    *,
    parse: Callable[[str], str | None],
    owns: Callable[[Node], Ownership] | None = None,
    scope: Callable[[Node], str] = lambda _: "",
    batch_size: int = 100,
    concurrency: int = 10,
) -> Instances:
    """Make the capability `Instances` for a cloud that has no bulk call for machines.

    What `by_id` or `by_name` raises is that node's answer. A node whose provider id `parse`
    cannot read is never looked up: its answer is `InvalidRequest`.

    Args:
        by_id: Looks a machine up by what `parse` has read.
        by_name: Looks up the machine of a node that has no provider id.
        parse: Reads the machine's id in a provider id; None if it is not of this cloud's form.
            No I/O.
        owns: Whether the node's machine is of this cloud; no I/O. By default it is if `parse`
            reads its provider id. Never asked about a provider id that `parse` cannot read.
        scope: Where the node is looked up, if not all are in the same place (`Scopes`).
        batch_size: How many nodes one `describe` takes. The answer comes when all are looked up.
        concurrency: How many are looked up at once.
    """
    return _PerNode(
        by_id, by_name, parse, owns, scope, batch_size=batch_size, concurrency=concurrency
    )


def per_service(
    ensure: Ensure,
    delete: Delete,
    *,
    update_hosts: Ensure | None = None,
    group: Callable[[LoadBalancerRef], Hashable] = lambda lb: lb.uid,
    host_policy: Callable[[Service], HostPolicy] = lambda _: HostPolicy(),
    list_owned: ListOwned | None = None,
    fingerprint: Callable[[LoadBalancer], str] = lambda _: "",
    preview: Preview | None = None,
    concurrency: int = 1,
) -> LoadBalancers:
    """Make the capability `LoadBalancers` of functions that concern one Service each.

    Args:
        ensure: Makes or changes one load balancer; what it raises is that Service's answer.
        delete: Deletes one, every part of it.
        update_hosts: The same as `ensure` when only the hosts differ; `ensure` by default.
        group: What shares cloud objects; by default nothing does.
        host_policy: Which nodes are hosts; by default all, in both families.
        list_owned: Lists what carries the cluster's marks, if the cloud can.
        fingerprint: What `list_owned` shows for a load balancer that is as desired. A CloudError
            that it raises means that there is none.
        preview: What `ensure` would change, found by reading only, if the provider can tell; what
            it raises is that Service's answer.
        concurrency: How many members of one group are worked on at once; more than one is safe
            only where they do not change what they share.
    """
    return _PerService(
        ensure,
        delete,
        update_hosts=update_hosts or ensure,
        group=group,
        host_policy=host_policy,
        list_owned=list_owned or _cannot_list,
        fingerprint=fingerprint,
        preview=preview or _cannot_preview,
        concurrency=concurrency,
    )


class _PerNode:
    def __init__(
        self,
        by_id: Callable[[str], Awaitable[InstanceAnswer]],
        by_name: Callable[[Node], Awaitable[InstanceAnswer]],
        parse: Callable[[str], str | None],
        owns: Callable[[Node], Ownership] | None,
        scope: Callable[[Node], str],
        *,
        batch_size: int,
        concurrency: int,
    ) -> None:
        self._by_id = by_id
        self._by_name = by_name
        self._parse = parse
        self._owns = owns
        self._scope = scope
        self._batch_size = batch_size
        self._concurrency = concurrency

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def owns(self, node: Node) -> Ownership:
        if node.spec.provider_id and not self._parse(node.spec.provider_id):
            return Ownership.NO
        if self._owns is not None:
            return self._owns(node)
        return Ownership.YES if node.spec.provider_id else Ownership.UNKNOWN

    def scope(self, node: Node) -> str:
        return self._scope(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return await _each(nodes, lambda node: node.metadata.name, self._look_up, self._concurrency)

    async def _look_up(self, node: Node) -> InstanceAnswer:
        if not node.spec.provider_id:
            return await self._by_name(node)
        id_ = self._parse(node.spec.provider_id)
        if not id_:
            return InvalidRequest(f"spec.providerID {node.spec.provider_id!r} is not of this cloud")
        return await self._by_id(id_)


class _PerService:
    def __init__(
        self,
        ensure: Ensure,
        delete: Delete,
        *,
        update_hosts: Ensure,
        group: Callable[[LoadBalancerRef], Hashable],
        host_policy: Callable[[Service], HostPolicy],
        list_owned: ListOwned,
        fingerprint: Callable[[LoadBalancer], str],
        preview: Preview,
        concurrency: int,
    ) -> None:
        self._ensure = ensure
        self._delete = delete
        self._update_hosts = update_hosts
        self._group = group
        self._host_policy = host_policy
        self._list_owned = list_owned
        self._fingerprint = fingerprint
        self._preview = preview
        self._concurrency = concurrency

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return self._group(lb)

    def host_policy(self, service: Service) -> HostPolicy:
        return self._host_policy(service)

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await _each(desired, lambda lb: lb.ref.uid, self._ensure, self._concurrency)

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await _each(desired, lambda lb: lb.ref.uid, self._update_hosts, self._concurrency)

    async def delete(self, refs: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        return await _each(refs, lambda lb: lb.uid, self._delete, self._concurrency)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return await self._list_owned(cluster)

    def fingerprint(self, desired: LoadBalancer) -> str:
        try:
            return self._fingerprint(desired)
        except CloudError:
            return ""  # `ensure` says what is wrong

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        return await _each(desired, lambda lb: lb.ref.uid, self._preview, self._concurrency)


async def _cannot_list(cluster: ClusterIdentity) -> Sequence[OwnedObject]:
    raise NotSupported(f"this cloud cannot list what belongs to the cluster {cluster.name}")


async def _cannot_preview(desired: LoadBalancer) -> Sequence[PartChange]:
    raise NotSupported(
        f"the provider has no preview: nobody knows what it would change for {desired.ref.key}"
    )


async def _each(
    items: Iterable[Item],
    key: Callable[[Item], str],
    fn: Callable[[Item], Awaitable[Answer]],
    concurrency: int,
) -> dict[str, Answer | CloudError]:
    """Run `fn` for each item; leave out an item whose task was cancelled from within."""
    answers: dict[str, Answer | CloudError] = {}
    slots = asyncio.Semaphore(concurrency)

    async def one(item: Item) -> None:
        async with slots:
            answers[key(item)] = await _answer(fn, item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    return answers


async def _answer(fn: Callable[[Item], Awaitable[Answer]], item: Item) -> Answer | CloudError:
    try:
        return await fn(item)
    except CloudError as error:
        return error
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the item's answer; SDKs call sys.exit()
        # The text of a foreign exception may hold a secret; events would show it.
        answer = CloudError(f"unexpected {type(error).__name__}")
        answer.__cause__ = error
        return answer
