"""The capability `LoadBalancers` where nodes announce addresses: it assigns these, and no more.

What a Service has is in its status, which the speakers read. There is nothing else to make: each
node that announces an address hands its packets to its own kube-proxy.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from proreus.cloudprovider.context import Context
from proreus.cloudprovider.errors import CloudError, NotSupported
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
)
from proreus.kube.objects import Service
from proreus.providers.local import pools
from proreus.providers.local.asked import request_for, taken_by, taken_for
from proreus.providers.local.config import LocalConfig
from proreus.providers.local.given import disowning
from proreus.providers.local.plan import Reach
from proreus.providers.local.taken import Occupied, Taken, ages_of
from proreus.providers.local.usage import NONE, Named, in_use, of_machines

_NO_MACHINE: Final = Reach(())
"""No machine's own addresses: the leader's are in nobody's way, as no traffic comes there."""
_Taken = dict[str, tuple[Taken, ...]]
"""Addresses of Services, by their UIDs."""

_MEMORY: Final[WeakKeyDictionary[Context, tuple[_Taken, _Taken]]] = WeakKeyDictionary()
"""What was assigned and what was given last in each context, which outlives a provider."""


def forget(context: Context) -> None:
    """Forget what was assigned: from now on something else gives Services their addresses."""
    _MEMORY.pop(context, None)


class AnnouncedLoadBalancers:
    """The capability `LoadBalancers` with BGP. All Services are one group, so that none is quicker.

    Assigned addresses are remembered until the cache shows them: a Service that comes in between
    must not be given the same. What each Service was given last, with its ports and key, is
    remembered as long as it is there. The next provider goes on with both, after a change of the
    cloud-config.
    """

    def __init__(self, context: Context, settings: LocalConfig, named: Named = NONE) -> None:
        """Keep the pools of `settings`, and the machines that the inventory names."""
        self._context = context
        self._pools = settings.address_pools
        self._named = named
        self._assigned, self._granted = _MEMORY.setdefault(context, ({}, {}))
        present = {one.metadata.uid for one in self._services()}
        for known in (self._assigned, self._granted):
            for uid in known.keys() - present:
                del known[uid]  # it went while another kind of load balancers was in use

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return one group for all Services."""
        del lb
        return "pools"

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes: routers send traffic to those that announce."""
        del service
        return HostPolicy()

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return "": to ensure costs nothing."""
        del desired
        return ""

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Assign addresses."""
        await self._named.look()
        self._forget()
        occupied = self._occupied()
        answers: dict[str, EnsureAnswer] = {}
        for lb in desired:
            uid = lb.ref.uid
            found = self._assign(lb, occupied)
            if isinstance(found, pools.Refused):
                answers[uid] = disowning(found.error, lb, occupied)
            else:
                self._assigned[uid] = self._granted[uid] = occupied.of(uid)
                answers[uid] = Ensured(found.ingress)
        return answers

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Do as `ensure`: the nodes decide for themselves."""
        return await self.ensure(desired)

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Return the addresses that `ensure` would assign."""
        await self._named.look()
        occupied = self._occupied()
        answers: dict[str, Sequence[PartChange] | CloudError] = {}
        for lb in desired:
            found = self._assign(lb, occupied)
            if isinstance(found, pools.Refused):
                answers[lb.ref.uid] = found.error
                continue
            old = {one.ip for one in lb.ref.last_ingress}
            new = {*found.addresses}
            answers[lb.ref.uid] = (
                *(PartChange("create", f"address {one}") for one in sorted(new - old)),
                *(PartChange("delete", f"address {one}") for one in sorted(old - new)),
            )
        return answers

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Give the addresses back."""
        for ref in gone:
            self._assigned.pop(ref.uid, None)
            self._granted.pop(ref.uid, None)
        return {ref.uid: Done() for ref in gone}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Refuse: there are no objects besides the Services, so none can leak.

        Raises:
            NotSupported: Always: there is nothing to list.
        """
        del cluster
        raise NotSupported("nodes announce addresses of Services; there is nothing else to list")

    def _occupied(self) -> Occupied:
        """Return what is taken: what was assigned, whatever the cache shows, and the rest."""
        machines = of_machines(self._context.listers["nodes"].all(), named=self._named.addresses)
        services = [*self._services()]
        ages = ages_of(services, self._granted)
        taken = taken_by(services, by_nodes=True)
        occupied = Occupied(taken, in_use(machines, _NO_MACHINE), machines, ages)
        for uid, granted in self._granted.items():
            if occupied.of(uid) != granted and _addresses(occupied.of(uid)) == _addresses(granted):
                occupied.give(uid, granted)  # whatever it asks for that was refused
        for uid, assigned in self._assigned.items():
            occupied.move(uid, assigned)
        return occupied

    def _assign(self, lb: LoadBalancer, occupied: Occupied) -> pools.Assigned | pools.Refused:
        """Assign addresses to one Service, which then occupies them.

        Where it has what it was given, no kubelet can claim an address of it.
        """
        had = occupied.of(lb.ref.uid)
        is_same = had == self._granted.get(lb.ref.uid)
        current = [one.address for one in had] if is_same else []
        namespaces = self._context.listers.get("namespaces")
        machines = occupied.machines
        request = request_for(lb, current, namespaces, machines, by_nodes=True)
        found = pools.assign(request, occupied, self._pools)
        if isinstance(found, pools.Assigned):
            occupied.move(lb.ref.uid, taken_for(request, lb.ref.key, found.addresses))
        return found

    def _forget(self) -> None:
        """Forget what the cache shows."""
        for shown in self._services():
            uid = shown.metadata.uid
            if self._assigned.get(uid) == taken_by([shown], by_nodes=True):
                del self._assigned[uid]

    def _services(self) -> Iterator[Service]:
        for one in self._context.listers["services"].all():
            if isinstance(one, Service):
                yield one


def _addresses(taken: Sequence[Taken]) -> frozenset[str]:
    return frozenset(one.address for one in taken)
