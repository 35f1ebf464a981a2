"""The capability `LoadBalancers` where nodes announce addresses: it assigns these, and no more.

What a Service has is in its status, which the speakers read. There is nothing else to make: each
node that announces an address hands its packets to its own kube-proxy.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence

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
from proreus.kube.objects import LoadBalancerIngress, Node, Service
from proreus.providers.local import pools
from proreus.providers.local.config import LocalConfig

_IP_TYPES = frozenset({"InternalIP", "ExternalIP"})


class AnnouncedLoadBalancers:
    """The capability `LoadBalancers` with BGP. All Services are one group, so that none is quicker.

    Remembered is what was assigned, until the cache shows it: a Service that comes in between must
    not be given the same.
    """

    def __init__(self, context: Context, settings: LocalConfig) -> None:
        """Keep the pools of `settings`."""
        self._context = context
        self._pools = settings.address_pools
        self._assigned: dict[str, tuple[pools.Taken, ...]] = {}

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
        self._forget()
        return {lb.ref.uid: self._ensured(lb, self._assigned) for lb in desired}

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Do as `ensure`: the nodes decide for themselves."""
        return await self.ensure(desired)

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Return the addresses that `ensure` would assign."""
        assigned = dict(self._assigned)
        found: dict[str, Sequence[PartChange] | CloudError] = {}
        for lb in desired:
            answer = self._ensured(lb, assigned)
            if isinstance(answer, CloudError):
                found[lb.ref.uid] = answer
                continue
            ingress = answer.ingress if isinstance(answer, Ensured) else ()
            old = {one.ip for one in lb.ref.last_ingress}
            new = {one.ip for one in ingress}
            found[lb.ref.uid] = (
                *(PartChange("create", f"address {one}") for one in sorted(new - old)),
                *(PartChange("delete", f"address {one}") for one in sorted(old - new)),
            )
        return found

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Give the addresses back."""
        for ref in gone:
            self._assigned.pop(ref.uid, None)
        return {ref.uid: Done() for ref in gone}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Refuse: there are no objects besides the Services, so none can leak.

        Raises:
            NotSupported: Always.
        """
        del cluster
        raise NotSupported("nodes announce addresses of Services; there is nothing else to list")

    def _ensured(
        self, lb: LoadBalancer, assigned: dict[str, tuple[pools.Taken, ...]]
    ) -> EnsureAnswer:
        """Assign addresses to one Service, beside what is `assigned`, and add them."""
        request = pools.request_for(lb)
        taken = [
            *(one for several in assigned.values() for one in several),
            *pools.taken_by(one for one in self._services() if one.metadata.uid not in assigned),
        ]
        found = pools.assign(request, taken, self._pools, in_use=self._in_use())
        if isinstance(found, pools.Refused):
            return found.error
        assigned[lb.ref.uid] = tuple(
            pools.Taken(
                address=address,
                uid=lb.ref.uid,
                service=lb.ref.key,
                ports=request.ports,
                sharing_key=request.sharing_key,
            )
            for address in found.addresses
        )
        return Ensured(
            tuple(LoadBalancerIngress(ip=address, ip_mode="VIP") for address in found.addresses)
        )

    def _forget(self) -> None:
        """Forget what the cache shows."""
        for shown in self._services():
            uid = shown.metadata.uid
            if self._assigned.get(uid) == pools.taken_by([shown]):
                del self._assigned[uid]

    def _services(self) -> Iterator[Service]:
        for one in self._context.listers["services"].all():
            if isinstance(one, Service):
                yield one

    def _in_use(self) -> Mapping[str, str]:
        """Return the addresses of nodes."""
        return {
            listed.address: f"the node {node.metadata.name}"
            for node in self._context.listers["nodes"].all()
            if isinstance(node, Node)
            for listed in node.status.addresses
            if listed.type in _IP_TYPES
        }
