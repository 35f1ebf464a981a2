"""Tell which addresses the official manager has surely acquired for a Service.

They have no mark before the Service is looked at: only the names of its rules say whose they are.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

from proreus.cloudprovider.desired import load_balancer_ref
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Owner, Verdict
from proreus.kube.objects import KubeObject, Service
from proreus.providers.cloudstack.api import Described
from proreus.providers.cloudstack.balancing import documents, owners
from proreus.providers.cloudstack.balancing.parts import Address, Rule


class Adoption:
    """A reader of addresses that the official manager has acquired."""

    def __init__(
        self,
        users: Callable[[str, Collection[Rule]], Awaitable[list[Described]]],
        addresses: Callable[[dict[str, str]], Awaitable[list[Described]]],
        services: Lister[KubeObject],
    ) -> None:
        """Keep who reads, and all Services.

        Args:
            users: Returns all rules on an address but some.
            addresses: Returns the public addresses that parameters select.
            services: All Services.
        """
        self._users = users
        self._addresses = addresses
        self._services = services

    async def adopted(
        self, ref: LoadBalancerRef, rules: Sequence[Rule], id_: str
    ) -> Address | None:
        """Return the address that the official manager has surely acquired for a Service.

        Its rules are named by the Service's UID and lack our marks, the Service's status shows it,
        and the Service does not name it: the official manager would release such an address.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        there = [one for one in rules if one.address == id_]
        if not there or ref.service is None or any(one.is_marked for one in there):
            return None
        found = await self._addresses({"id": id_})
        ip = str(found[0]["ipaddress"]) if found else ""
        shown = {one.ip for one in ref.last_ingress}
        if not ip or ip not in shown or ip == ref.service.spec.load_balancer_ip:
            return None
        is_others = documents.is_kept(found[0]) or owners.owners_of(found[0])
        if is_others or await self._users(id_, rules):
            return None
        return Address(ip, id_, is_adopted=True)

    async def by_others(self, ref: LoadBalancerRef, id_: str, ip: str) -> list[Owner]:
        """Return the Service of another namespace for which an address was surely acquired.

        A Service whose status shows it goes on using it, also where its last rule is gone.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        if any(point.ip == ip for point in ref.last_ingress):
            return []
        there = [one for one in await self._users(id_, ()) if not owners.owners_of(one)]
        found = []
        for one in self._services.all() if there else ():
            meta = one.metadata
            if not isinstance(one, Service) or meta.namespace == ref.namespace:
                continue
            other = load_balancer_ref(one, ref.cluster)
            named = (rule for rule in there if other.name in str(rule.get("name") or ""))
            rules = [
                documents.rule(rule, other, ())
                for rule in named
                if owners.verdict_of(rule, other) is Verdict.NAMED
            ]
            if await self.adopted(other, rules, id_) is not None:
                found.append(Owner(ref.cluster.uid, "", meta.namespace, meta.name, meta.uid))
        return found
