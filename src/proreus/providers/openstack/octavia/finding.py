"""Find the load balancers of a Service, and the one that it names."""

from collections.abc import Iterable

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.kube.objects import Service
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.names import foreign_project
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.annotations import PREFIX, Options
from proreus.providers.openstack.octavia.desired import family_of, sharing_problem
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia


class Finder:
    """A finder of a Service's load balancers by tags, or by name and status as officially."""

    def __init__(self, octavia: Octavia, networks: Networks, config: OpenStackConfig) -> None:
        """Keep the clients of Octavia and Neutron."""
        self._octavia = octavia
        self._networks = networks
        self._most = config.load_balancer.max_shared_lb
        self._tenants = config.tenants

    async def found(self, ref: LoadBalancerRef) -> list[Described]:
        """Return all load balancers that the Service uses, the one of each family to keep first.

        Of several that is the one whose address the Service's status shows, since clients know it;
        else the oldest.

        Raises:
            CloudError: The services give no usable answer, or nothing tells which load balancer is
                the Service's.
        """
        tagged = await self._octavia.balancers({"tags-any": owners.search(ref)})
        found = [
            one
            for one in tagged
            if owners.is_used_by(one, ref) and not await self._is_elsewhere(one, ref)
        ]
        if not found and ref.last_ingress:
            name, project = owners.name_of(ref), await self._octavia.project()
            official = [
                *await self._octavia.balancers({"name": name}),
                *await self._octavia.balancers({"tags": name}),
                *await self._octavia.balancers({"name": ref.name}),
            ]
            found = [
                one
                for one in {id_of(one): one for one in official}.values()
                if owners.may_be_used_by(one, ref)
                and not foreign_project(one, project)
                and await self._is_shown(one, ref)
            ]
            _check_single(found)
        found.sort(key=lambda one: (str(one.get("created_at")), id_of(one)))
        if len({family_of(one) for one in found}) == len(found) or not ref.last_ingress:
            return found
        shown = [one for one in found if await self._has_shown_address(one, ref)]
        return [*shown, *(one for one in found if one not in shown)]

    async def named(
        self, lb: LoadBalancer, options: Options, used: list[Described]
    ) -> Described | None:
        """Return the load balancer that an annotation names, unless the Service uses it already.

        None if the annotation names none, or one that was deleted.

        Args:
            lb: The desired load balancer, as the framework describes it.
            options: The options that annotations and cloud-config choose.
            used: The load balancers that `found` has returned.

        Raises:
            InvalidRequest: The Service may not use the named load balancer, or cannot.
            CloudError: Octavia gives no usable answer.
        """
        if not options.adopted or options.adopted in map(id_of, used):
            return None
        found = await self._octavia.balancer(options.adopted)
        if found is None and (used or lb.ref.last_ingress):
            return None
        problem = "there is no such load balancer in this project"
        if found is not None:
            of_family = [one for one in used if family_of(one) == family_of(found)]
            is_proven = not of_family and owners.is_proven(found, lb.ref)
            if is_proven and not await self._is_elsewhere(found, lb.ref):
                return found  # the list lacks it
            problem = sharing_problem(lb, options, found, used, self._tenants, most=self._most)
            problem = problem or await self.foreign(found, lb.ref.namespace)
        if found is None or problem:
            raise InvalidRequest(f"annotation {PREFIX}load-balancer-id: {problem}")
        return found

    async def foreign(self, described: Described, namespace: str) -> str:
        """Return why a load balancer is another project's; "" if it is not, or if it is listed.

        Args:
            described: The load balancer.
            namespace: The namespace of a Service that uses it.

        Raises:
            CloudError: No token is issued.
        """
        problem = foreign_project(described, await self._octavia.project())
        return "" if self._tenants.lists(namespace, (id_of(described),)) else problem

    async def _is_elsewhere(self, described: Described, ref: LoadBalancerRef) -> bool:
        """Tell whether a load balancer is another project's, though its marks name the Service.

        A cluster that was restored from a backup may be there, with all uids. The address in the
        status tells the Service's own, where the credentials are of another project than before.
        """
        is_foreign = bool(await self.foreign(described, ref.namespace))
        return is_foreign and not await self._has_shown_address(described, ref)

    async def _is_shown(self, described: Described, ref: LoadBalancerRef) -> bool:
        """Tell whether the Service's status shows a load balancer's address.

        Of a Service that shows a host name they tell which one the official manager has made. They
        spare one where they name another: in networks apart two may have the same address.
        """
        if (written := written_id(ref.service)) and written != id_of(described):
            return False
        if written and any(one.hostname for one in ref.last_ingress):
            return True
        return await self._has_shown_address(described, ref)

    async def _has_shown_address(self, described: Described, ref: LoadBalancerRef) -> bool:
        """Tell whether the status has the address of a load balancer, or of its floating IP."""
        known = {one.ip for one in ref.last_ingress if one.ip}
        if not known:
            return False
        if str(described.get("vip_address")) in known:
            return True
        floating = await self._networks.at_port(str(described.get("vip_port_id")))
        return floating is not None and str(floating.get("floating_ip_address")) in known


def _check_single(official: Iterable[Described]) -> None:
    """Refuse two load balancers of a family that are a Service's by name and address alone.

    The official manager makes one. Clusters of one name in networks apart may have both alike.

    Raises:
        CloudError: There are two; names both.
    """
    found: dict[str, str] = {}
    for one in official:
        first = found.setdefault(family_of(one), id_of(one))
        if first != id_of(one):
            raise CloudError(
                f"load balancers {first} and {id_of(one)} both have the name and the address of"
                " this Service, so neither is touched: give the id of its own in the annotation"
                f" {PREFIX}load-balancer-id"
            )


def written_id(service: Service | None) -> str:
    """Return the id of a load balancer in the Service's annotation, such as we write it, or ""."""
    annotations = service.metadata.annotations if service is not None else {}
    return annotations.get(f"{PREFIX}load-balancer-id", "").strip()
