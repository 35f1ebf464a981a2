"""Load balancers of Octavia for Services: one for each family.

A verb does one thing at most and answers `Pending` while Octavia works on it. A load balancer is
found by the tag with its Service's uid, or as the official manager's by its name and the address
in the Service's status; then it is given our tags.

A Service may use a load balancer that was not made for it: another Service's, or one that somebody
has made by hand. There it has listeners of its own and changes nothing else; the load balancer goes
with the last Service, if it was made for one.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.adapters import per_service
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    Pending,
)
from proreus.kube.objects import LoadBalancerIngress, Service
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.errors import Refused
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia import owners, wishes
from proreus.providers.openstack.octavia.annotations import PREFIX, Says, says, selector
from proreus.providers.openstack.octavia.networks import Networks, is_made_for, is_made_in
from proreus.providers.openstack.octavia.octavia import Octavia, is_immutable
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    ERROR,
    Broken,
    DropBalancer,
    Look,
    MakeBalancer,
    Step,
    Taken,
    Wait,
    deletion,
    departure,
    plan,
)
from proreus.providers.openstack.octavia.security_groups import SecurityGroups

PACE: Final = tuple(min(1.5**times, 15.0) for times in range(8))
"""Seconds until Octavia is asked again whether it is ready; an amphora takes a minute or two."""


class OctaviaLoadBalancers:
    """The verbs for one Service."""

    def __init__(
        self,
        octavia: Octavia,
        networks: Networks,
        groups: SecurityGroups,
        config: OpenStackConfig,
    ) -> None:
        """Work as the cloud-config says."""
        self._octavia = octavia
        self._networks = networks
        self._groups = groups
        self._settings = config.load_balancer
        self._classes = config.load_balancer_class
        self._deleted: set[str] = set()
        self._waited: dict[str, int] = {}

    def offered(self) -> LoadBalancers:
        """The verbs as the framework wants them."""
        return per_service(
            self.ensure,
            self.delete,
            host_policy=self.host_policy,
            list_owned=self.list_owned,
            group=group,
        )

    def host_policy(self, service: Service) -> HostPolicy:
        """The nodes with certain labels, if the Service or the cloud-config names any."""
        return HostPolicy(selector(service.metadata.annotations, self._settings.node_selector))

    async def ensure(self, of: LoadBalancer) -> EnsureAnswer:
        """One load balancer for each family, one step for each."""
        asked = says(of.service.metadata.annotations, self._settings, self._classes)
        subnets: dict[str, str] = {}
        answers = [await self._ensure(of, asked, family, subnets) for family in of.families]
        waiting = [one for one in answers if isinstance(one, Pending)]
        if waiting:
            return waiting[0]
        if (pending := await self._groups.ensure(of, subnets)) is not None:
            return pending
        done = [one for one in answers if isinstance(one, Ensured)]
        return Ensured(
            ingress=tuple(ingress for one in done for ingress in one.ingress),
            annotations=done[0].annotations,
        )

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """The floating addresses first, since nothing leads to them afterwards."""
        annotations = ref.service.metadata.annotations if ref.service is not None else {}
        is_kept = annotations.get(f"{PREFIX}keep-floatingip", "").lower() == "true"
        found = await self._found(ref)
        observed = [(one, await self._octavia.observe(one, ref)) for one in found]
        steps = [
            (actual.id, step)
            for one, actual in observed
            if (step := self._undoing(one, actual, ref)) is not None
        ]
        if steps:
            self._deleted.add(ref.uid)
        if steps and all(isinstance(step, Wait) for _, step in steps):
            return self._pending(ref, "Octavia deletes the load balancer", is_waiting=True)
        gone = [
            one
            for one, actual in observed
            if actual.status in {ACTIVE, ERROR} and not is_needed(one, actual, ref)
        ]
        floating = {} if is_kept else await self._floating(ref, gone)
        for one in floating.values():
            await self._networks.take_away(one)
        for id_, step in steps:
            if isinstance(step, Broken):
                raise _broken(id_)
            if not isinstance(step, Wait):
                await self._take(step, id_, ())
        if steps:
            return self._pending(ref, "Octavia deletes the load balancer", is_waiting=False)
        self._waited.pop(ref.uid, None)
        group = await self._groups.remove(ref)
        if isinstance(group, Pending):
            return group
        was_there = ref.uid in self._deleted or bool(floating) or group
        self._deleted.discard(ref.uid)
        return Done(found=was_there)

    def _undoing(self, described: Described, actual: Balancer, ref: LoadBalancerRef) -> Step | None:
        """The next step to delete it, or to leave it to others; None if there is none."""
        if is_needed(described, actual, ref):
            return departure(actual, owners.without(described, ref))
        return deletion(actual, cascade=self._settings.cascade_delete)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """The load balancers and security groups with the cluster's tag."""
        found = await self._octavia.balancers({"tags": owners.cluster_tag(cluster.uid)})
        balancers = [
            OwnedObject("load balancer", id_of(one), service, uid)
            for one in found
            for service, uid in owners.users(one)
        ]
        return [*balancers, *await self._groups.owned(cluster)]

    async def _ensure(
        self, of: LoadBalancer, asked: Says, family: str, subnets: dict[str, str]
    ) -> Ensured | Pending:
        found = await self._one(of, asked, family)
        is_own = found is None or owners.is_made_for(found, of.ref)
        if found is None:
            subnet = await self._networks.subnet(of, asked, family)
        else:
            subnet = str(found.get("vip_subnet_id") or "")
        members = await self._networks.member_subnet(asked, family, subnet)
        subnets[family] = members
        provider = self._settings.lb_provider
        wanted = wishes.wish(of, asked, family, provider=provider, member_subnet=members)
        tags = owners.of_parts(of.marks, of.ref)
        actual = None
        if found is None:
            placed = self._place(of, asked, family, subnet)
            wanted = msgspec.structs.replace(wanted, placed=placed)
        else:
            actual = await self._octavia.observe(found, of.ref)
            on_it = tags if is_own else owners.of_sharer(of.marks, of.ref)
            labels = {"tags": owners.with_tags(found, on_it, of.ref)}
            fields = {**wanted.fields, **labels} if is_own else labels
            wanted = msgspec.structs.replace(wanted, fields=fields)
        is_known = bool(of.ref.last_ingress) or not is_own
        at_once = not self._settings.provider_requires_serial_api_calls
        step = plan(wanted, actual, at_once=at_once, is_known=is_known)
        while isinstance(step, Look) and actual is not None:
            actual = await self._octavia.look(actual, step.pool)
            step = plan(wanted, actual, at_once=at_once, is_known=is_known)
        id_ = actual.id if actual is not None else ""
        if isinstance(step, Broken):
            raise _broken(id_)
        if isinstance(step, Taken):
            raise InvalidRequest(
                f"port {step.port}/{step.transport} of load balancer {id_} is taken by another"
                " listener"
            )
        if isinstance(step, Wait):
            text = f"Octavia works on load balancer {id_} ({step.status})"
            return self._pending(of.ref, text, is_waiting=True)
        if step is not None:
            await self._take(step, id_, tags)
            what = "makes" if isinstance(step, MakeBalancer) else "changes"
            return self._pending(of.ref, f"Octavia {what} the load balancer", is_waiting=False)
        self._waited.pop(of.ref.uid, None)
        if found is None or actual is None:
            raise CloudError("there is no load balancer, and nothing to do")
        return await self._answer(of, asked, family, found, actual)

    async def _take(self, step: Step, id_: str, tags: Sequence[str]) -> None:
        """Take a step, unless Octavia works on the load balancer after all."""
        try:
            await self._octavia.take(step, id_, tags)
        except Refused as error:
            if not is_immutable(error):
                raise

    def _pending(self, ref: LoadBalancerRef, reason: str, *, is_waiting: bool) -> Pending:
        """Ask again: soon after a step, and the longer nothing happens the later."""
        waited = self._waited.get(ref.uid, 0) if is_waiting else 0
        self._waited[ref.uid] = waited + 1
        return Pending(PACE[min(waited, len(PACE) - 1)], reason)

    def _place(self, of: LoadBalancer, asked: Says, family: str, subnet: str) -> dict[str, object]:
        """What stays as it was made."""
        requested = of.requested_address
        is_own = bool(requested) and wishes.version_of(requested) == family and asked.internal
        found = {
            "provider": self._settings.lb_provider,
            "vip_port_id": asked.port_id,
            "vip_subnet_id": "" if asked.port_id else subnet,
            "vip_network_id": "" if asked.port_id or subnet else asked.network_id,
            "vip_address": requested if is_own else "",
            "flavor_id": asked.flavor_id,
            "availability_zone": asked.availability_zone,
        }
        return {name: value for name, value in found.items() if value}

    async def _answer(
        self, of: LoadBalancer, asked: Says, family: str, found: Described, actual: Balancer
    ) -> Ensured:
        """The address: the floating one where there is to be one."""
        port, address = str(found["vip_port_id"]), str(found["vip_address"])
        floating = await self._networks.at_port(port)
        if family == "IPv4" and not asked.internal:
            external = await self._networks.external()
            if floating is None and str(found.get("vip_network_id")) not in external:
                if not owners.is_made_for(found, of.ref):
                    # What shares it may be meant to be internal.
                    raise InvalidRequest(
                        f"load balancer {actual.id} has no floating IP, and gets none by a Service"
                        " that it was not made for: give it one"
                    )
                network = _floating_network(asked, external)
                floating = await self._networks.give(of, asked.floating, network, port)
            address = str(floating["floating_ip_address"]) if floating is not None else address
        elif floating is not None and is_made_for(floating, of.ref):
            if actual.others:
                raise InvalidRequest(
                    f"load balancer {actual.id} cannot become internal while other Services use it"
                )
            await self._networks.take_away(floating)
        return Ensured(
            ingress=(self._ingress(asked, address),),
            annotations={
                f"{PREFIX}load-balancer-id": id_of(found),
                f"{PREFIX}load-balancer-address": address,
            },
        )

    def _ingress(self, asked: Says, address: str) -> LoadBalancerIngress:
        if asked.hostname:
            return LoadBalancerIngress(hostname=asked.hostname)
        if asked.proxy and self._settings.enable_ingress_hostname:
            name = address.replace(":", "-")
            suffix = self._settings.ingress_hostname_suffix
            return LoadBalancerIngress(hostname=f"{name}.{suffix}")
        return LoadBalancerIngress(ip=address, ip_mode="Proxy" if asked.proxy else None)

    async def _one(self, of: LoadBalancer, asked: Says, family: str) -> Described | None:
        """The load balancer of a family; None if it is to be made.

        Raises:
            InvalidRequest: The Service names one that it cannot use.
        """
        every = await self._found(of.ref)
        found = [one for one in every if wishes.family_of(one) == family]
        for extra in found[1:]:
            # A request without an answer had made one after all.
            if owners.is_made_for(extra, of.ref) and not owners.others(extra, (), of.ref):
                actual = await self._octavia.observe(extra, of.ref)
                if actual.status in {ACTIVE, ERROR} and not actual.others:
                    gone = DropBalancer(actual.id, cascade=True)
                    await self._octavia.take(gone, actual.id, ())
        if not asked.adopted or asked.adopted in map(id_of, every):
            return found[0] if found else None
        named = await self._octavia.balancer(asked.adopted)
        if named is None and (every or of.ref.last_ingress):
            return found[0] if found else None  # it was deleted
        problem = "there is no such load balancer in this project"
        if named is not None:
            most = self._settings.max_shared_lb
            problem = wishes.problem(of, asked, named, every, most=most)
        if named is None or problem:
            raise InvalidRequest(f"annotation {PREFIX}load-balancer-id: {problem}")
        return named if wishes.family_of(named) == family else None

    async def _found(self, ref: LoadBalancerRef) -> list[Described]:
        """All that the Service uses, the oldest first."""
        tags = f"{owners.service_tag(ref.uid)},{owners.shared_tag(ref)}"
        tagged = await self._octavia.balancers({"tags-any": tags})
        # A cluster that was restored from a backup has Services of the same uids.
        cluster = owners.cluster_tag(ref.cluster.uid)
        found = [one for one in tagged if cluster in owners.tags_of(one)]
        if not found and (ref.last_ingress or _written(ref)):
            name = owners.name_of(ref)
            official = [
                *await self._octavia.balancers({"name": name}),
                *await self._octavia.balancers({"tags": name}),
                *await self._octavia.balancers({"name": ref.name}),
            ]
            found = [
                one
                for one in {id_of(one): one for one in official}.values()
                if owners.may_be_used_by(one, ref) and await self._is_shown(one, ref)
            ]
        return sorted(found, key=lambda one: (str(one.get("created_at")), id_of(one)))

    async def _is_shown(self, described: Described, ref: LoadBalancerRef) -> bool:
        """Whether the Service's status, or what the official manager writes, tells of it."""
        if _written(ref) == id_of(described):
            return True
        known = {one.ip for one in ref.last_ingress if one.ip}
        if str(described.get("vip_address")) in known:
            return True
        floating = await self._networks.at_port(str(described.get("vip_port_id")))
        return floating is not None and str(floating.get("floating_ip_address")) in known

    async def _floating(
        self, ref: LoadBalancerRef, gone: Sequence[Described]
    ) -> Mapping[str, Described]:
        """Those that were made for the Service, but for one by which others are reached; by id."""
        made: dict[str, Described] = {}
        ports = {str(one.get("vip_port_id")) for one in gone}
        for one in await self._networks.made_for(ref):
            port = str(one.get("port_id") or "")
            is_used = port and port not in ports
            if not is_used or not await self._octavia.balancers({"vip_port_id": port}):
                made[id_of(one)] = one
        for port in ports:
            at_port = await self._networks.at_port(port)
            if at_port is not None and (is_made_for(at_port, ref) or is_made_in(at_port, ref)):
                made[id_of(at_port)] = at_port
        return made


def group(ref: LoadBalancerRef) -> Hashable:
    """Services of one load balancer change its tags by turns."""
    return _written(ref) or ref.uid


def is_needed(described: Described, actual: Balancer, ref: LoadBalancerRef) -> bool:
    """Whether a load balancer stays when the Service goes."""
    is_made = owners.is_made_for(described, ref) or owners.is_made_in(described, ref.cluster)
    return bool(actual.others) or not is_made


def _floating_network(asked: Says, external: Mapping[str, str]) -> str:
    if asked.floating.network_id:
        return asked.floating.network_id
    if len(external) == 1:
        return next(iter(external))
    names = ", ".join(sorted(external.values())) or "none"
    raise InvalidRequest(
        f"the external network is not clear ({names}): give floating-network-id in [LoadBalancer],"
        f" or the annotation {PREFIX}floating-network-id"
    )


def _broken(id_: str) -> CloudError:
    return CloudError(f"load balancer {id_} is in the state {ERROR}: repair or delete it")


def _written(ref: LoadBalancerRef) -> str:
    """The load balancer that the Service's annotation names."""
    annotations = ref.service.metadata.annotations if ref.service is not None else {}
    return annotations.get(f"{PREFIX}load-balancer-id", "").strip()
