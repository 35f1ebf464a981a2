"""Batches for clouds that know only one thing at a time.

    self.instances = per_node(self._look_up, concurrency=10, owns=self._owns)
    self.load_balancers = per_service(self._ensure, self._delete)

Items run side by side up to `concurrency`, and a failing one costs only itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from proreus.cloudprovider.errors import CloudError, NotSupported
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.instances import InstanceAnswer, Instances, Ownership
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    EnsureAnswer,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
)
from proreus.kube.objects import Node, Service

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Ensure = Callable[[LoadBalancer], Awaitable[EnsureAnswer]]
Delete = Callable[[LoadBalancerRef], Awaitable[DeleteAnswer]]
ListOwned = Callable[[ClusterIdentity], Awaitable[Sequence[OwnedObject]]]


def per_node(
    fn: Callable[[Node], Awaitable[InstanceAnswer]],
    *,
    owns: Callable[[Node], Ownership],
    batch_size: int = 100,
    concurrency: int = 10,
) -> Instances:
    """Instances of a cloud that has no bulk call.

    Args:
        fn: Looks one node up; what it raises is that node's answer.
        owns: Whether the node's machine is of this cloud; no I/O.
        batch_size: How many nodes one `describe` takes. The answer comes when all are looked up.
        concurrency: How many are looked up at once.
    """
    return _PerNode(fn, owns, batch_size, concurrency)


def per_service(
    ensure: Ensure,
    delete: Delete,
    *,
    update_hosts: Ensure | None = None,
    group: Callable[[LoadBalancerRef], Hashable] = lambda lb: lb.uid,
    host_policy: Callable[[Service], HostPolicy] = lambda _: HostPolicy(),
    list_owned: ListOwned | None = None,
    fingerprint: Callable[[LoadBalancer], str] = lambda _: "",
    concurrency: int = 1,
) -> LoadBalancers:
    """Load balancers of a cloud whose calls concern one Service.

    Args:
        ensure: Makes or changes one load balancer; what it raises is that Service's answer.
        delete: Deletes one, every part of it.
        update_hosts: The same as `ensure` when only the hosts differ; `ensure` by default.
        group: What shares cloud objects; by default nothing does.
        host_policy: Which nodes are hosts; by default all, in both families.
        list_owned: Lists what carries the cluster's marks, if the cloud can.
        fingerprint: What `list_owned` shows for a load balancer that is as wished.
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
        concurrency=concurrency,
    )


class _PerNode:
    def __init__(
        self,
        fn: Callable[[Node], Awaitable[InstanceAnswer]],
        owns: Callable[[Node], Ownership],
        batch_size: int,
        concurrency: int,
    ) -> None:
        self._fn = fn
        self._owns = owns
        self._batch_size = batch_size
        self._concurrency = concurrency

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def owns(self, node: Node) -> Ownership:
        return self._owns(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return await _each(nodes, lambda node: node.metadata.name, self._fn, self._concurrency)


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
        concurrency: int,
    ) -> None:
        self._ensure = ensure
        self._delete = delete
        self._update_hosts = update_hosts
        self._group = group
        self._host_policy = host_policy
        self._list_owned = list_owned
        self._fingerprint = fingerprint
        self._concurrency = concurrency

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return self._group(lb)

    def host_policy(self, service: Service) -> HostPolicy:
        return self._host_policy(service)

    async def ensure(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await _each(wanted, lambda lb: lb.ref.uid, self._ensure, self._concurrency)

    async def update_hosts(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await _each(wanted, lambda lb: lb.ref.uid, self._update_hosts, self._concurrency)

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        return await _each(gone, lambda lb: lb.uid, self._delete, self._concurrency)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return await self._list_owned(cluster)

    def fingerprint(self, wanted: LoadBalancer) -> str:
        return self._fingerprint(wanted)


async def _cannot_list(cluster: ClusterIdentity) -> Sequence[OwnedObject]:
    raise NotSupported(f"this cloud cannot list what belongs to the cluster {cluster.name}")


async def _each(
    items: Iterable[Item],
    key: Callable[[Item], str],
    fn: Callable[[Item], Awaitable[Answer]],
    concurrency: int,
) -> dict[str, Answer | CloudError]:
    """Run `fn` for each item; an item whose task was cancelled from within has no answer."""
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
