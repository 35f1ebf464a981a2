"""Make and delete what load balancers share: instance groups, health checks, firewall rules."""

import asyncio

from proreus.cloudprovider.recorded import Record
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.steps import converge
from proreus.kube.objects import Node
from proreus.providers.gce import errors
from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.apply import Applier
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.members import group_steps, without_strangers
from proreus.providers.gce.balancing.observe import Observer
from proreus.providers.gce.balancing.parts import IPV4, IPV6, UNSPECIFIED, Form, Kind
from proreus.providers.gce.balancing.steps import Observed
from proreus.providers.gce.balancing.subsets.names import SubsetNames
from proreus.providers.gce.balancing.sweeping import sweeps_of
from proreus.providers.gce.identity import ClusterId
from proreus.providers.gce.names import parsed
from proreus.providers.gce.place import Place


class SharedParts:
    """The shared parts of a cluster's load balancers.

    Attributes:
        sweeps: The count of deletions of shared parts, by all clouds with the network's project.
    """

    def __init__(
        self,
        api: Api,
        place: Place,
        observer: Observer,
        *,
        cluster_id: ClusterId,
        keeps_groups: bool,
    ) -> None:
        """Keep the client of Google; `keeps_groups`: another controller has the instance groups."""
        self.sweeps = sweeps_of(place)
        self._nodes = api.context.listers["nodes"]
        self._api = api
        self._place = place
        self._observer = observer
        self._applier = Applier(api, place, observer)
        self._cluster_id = cluster_id
        self._keeps_groups = keeps_groups
        self._groups = asyncio.Lock()

    async def ensure_groups(self, desired: Desired, record: Record) -> Observed:
        """Make the instance groups as desired, which all backend services need."""
        if desired.backend is None or desired.subset is not None:
            return Observed()
        async with self._groups:
            observed = await self._observer.groups(desired.group)
            if self._keeps_groups:
                return observed
            return await converge(
                without_strangers(desired, observed),
                lambda observed: group_steps(desired.machines, observed),
                lambda _, step: self._applier.take(step, desired.group),
                before=record.clear,
            )

    async def sweep(self, form: Form, names: SubsetNames) -> None:
        """Delete what load balancers of a form share, unless one of them uses it.

        Args:
            form: The form whose shared parts are deleted.
            names: The names of any load balancer with a subset: the names of shared parts are the
                same in all.
        """
        if form is Form.SUBSET:
            await self._sweep_subsets(names)
            return
        id_ = self._cluster_id.value()
        if form is Form.INTERNAL:
            await self._sweep_services(id_)
        async with self.sweeps.running():
            is_unused = await self._delete_unused(form.check, naming.shared_check(id_))
            if is_unused and not await self._is_needed_elsewhere(form, id_):
                for family in (IPV4,) if form is Form.POOL else (IPV4, IPV6):
                    name = naming.shared_check_firewall(form, id_, family)
                    await self._delete_unused(Kind.FIREWALL, name)
        if form is not Form.POOL and not self._keeps_groups:
            await self._sweep_groups(naming.instance_group(id_))

    async def _sweep_subsets(self, names: SubsetNames) -> None:
        """Delete the health check of subsets and its firewall rule.

        The controller of external load balancers with backend services has a regional health check
        of the same name, and shares the firewall rule.
        """
        async with self.sweeps.running():
            is_unused = await self._delete_unused(Kind.CHECK, names.shared_check)
            if not is_unused or self._may_be_needed_by_projects():
                return
            if await self._observer.find(Kind.REGION_CHECK, names.shared_check) is None:
                await self._delete_unused(Kind.FIREWALL, names.shared_check_firewall)

    async def _is_needed_elsewhere(self, form: Form, id_: str) -> bool:
        """Tell whether other regions or projects need the firewall rule for a health check."""
        if self._may_be_needed_by_projects():
            return True
        check, group = naming.shared_check(id_), naming.instance_group(id_)
        return form is Form.EXTERNAL and await self._observer.has_check_elsewhere(check, group)

    def _may_be_needed_by_projects(self) -> bool:
        """Tell whether there are nodes in other projects that may have the same network.

        Their health checks are not this account's to see. Without nodes nothing needs the rule.
        """
        ids = [one.spec.provider_id for one in self._nodes.all() if isinstance(one, Node)]
        others = {found[0] for found in map(parsed, ids) if found} - {self._place.project}
        return bool(others if self._place.is_shared else others & self.sweeps.projects)

    async def _sweep_services(self, id_: str) -> None:
        for protocol in ("TCP", "UDP", UNSPECIFIED):
            for affinity in (False, True):
                name = naming.shared_service(id_, protocol, affinity=affinity)
                if await self._observer.find(Kind.SERVICE, name) is not None:
                    await self._delete_unused(Kind.SERVICE, name)

    async def _sweep_groups(self, name: str) -> None:
        async with self._groups:
            for zone in (await self._observer.groups(name)).groups():
                await self._delete_unused(Kind.GROUP, name, zone)

    async def _delete_unused(self, kind: Kind, name: str, zone: str = "") -> bool:
        """Delete a part; return False if it is used, or a firewall that the host project keeps."""
        try:
            await self._api.delete(f"{kind.method}.delete", self._observer.path(kind, name, zone))
        except Refused as error:
            if error.code in errors.IN_USE:
                return False
            if kind is Kind.FIREWALL and self._place.is_shared and errors.is_forbidden(error):
                return False
            raise
        return True
