"""Load balancers of Octavia for Services: one for each family.

A verb does one thing at most and answers `Pending` while Octavia works on it. A load balancer is
found by the tag with its Service's uid, or as the official manager's by its name and the address
in the Service's status; then it is given our tags.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final

from proreus.cloudprovider.adapters import per_service
from proreus.cloudprovider.errors import CloudError, InvalidRequest, NotSupported
from proreus.cloudprovider.identity import (
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    OwnedObject,
)
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
from proreus.providers.openstack.octavia import wishes
from proreus.providers.openstack.octavia.annotations import PREFIX, Says, says, selector
from proreus.providers.openstack.octavia.networks import Networks, is_made_for
from proreus.providers.openstack.octavia.octavia import Octavia, is_immutable, with_tags
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    ERROR,
    Broken,
    DropBalancer,
    MakeBalancer,
    Step,
    Wait,
    deletion,
    plan,
)

POLL: Final = 1.0
"""Seconds until Octavia is asked again whether it is ready."""
AT_ONCE: Final = 4
"""Services that are worked on side by side where several come in one call."""

_OFFICIAL = "kube_service_"


class OctaviaLoadBalancers:
    """The verbs for one Service."""

    def __init__(self, octavia: Octavia, networks: Networks, config: OpenStackConfig) -> None:
        """Work as the cloud-config says."""
        self._octavia = octavia
        self._networks = networks
        self._settings = config.load_balancer
        self._classes = config.load_balancer_class
        self._deleted: set[str] = set()

    def offered(self) -> LoadBalancers:
        """The verbs as the framework wants them."""
        return per_service(
            self.ensure,
            self.delete,
            host_policy=self.host_policy,
            list_owned=self.list_owned,
            concurrency=AT_ONCE,
        )

    def host_policy(self, service: Service) -> HostPolicy:
        """The nodes with certain labels, if the Service or the cloud-config names any."""
        return HostPolicy(selector(service.metadata.annotations, self._settings.node_selector))

    async def ensure(self, of: LoadBalancer) -> EnsureAnswer:
        """One load balancer for each family, one step for each."""
        asked = says(of.service.metadata.annotations, self._settings, self._classes)
        if self._settings.manage_security_groups:
            raise NotSupported(
                "manage-security-groups in [LoadBalancer] is not supported yet: open the node"
                " ports yourself, and leave it out"
            )
        answers = [await self._ensure(of, asked, family) for family in of.families]
        waiting = [one for one in answers if isinstance(one, Pending)]
        if waiting:
            return waiting[0]
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
        floating = {} if is_kept else await self._floating(ref, found)
        for one in floating.values():
            await self._networks.take_away(one)
        for one in found:
            actual = await self._octavia.observe(one, _mine(ref))
            step = deletion(actual, cascade=self._settings.cascade_delete)
            if step is not None and not isinstance(step, Wait):
                try:
                    await self._octavia.take(step, id_of(one), ())
                except Refused as error:
                    if not is_immutable(error):
                        raise
        if found:
            self._deleted.add(ref.uid)
            return Pending(POLL, "Octavia deletes the load balancer")
        was_there = ref.uid in self._deleted or bool(floating)
        self._deleted.discard(ref.uid)
        return Done(found=was_there)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """The load balancers with the cluster's tag."""
        found = await self._octavia.balancers({"tags": wishes.cluster_tag(cluster.uid)})
        owned = []
        for one in found:
            of = wishes.marks_in(one.get("tags"))
            owned.append(
                OwnedObject(
                    kind="load balancer",
                    id=id_of(one),
                    service=of.get(MARK_SERVICE, ""),
                    service_uid=of.get(MARK_SERVICE_UID, ""),
                )
            )
        return owned

    async def _ensure(self, of: LoadBalancer, asked: Says, family: str) -> Ensured | Pending:
        tags = wishes.tags_of(of.marks)
        found = await self._one(of, asked, family)
        if found is None:
            subnet = await self._networks.subnet(of, asked, family)
        else:
            subnet = str(found.get("vip_subnet_id") or "")
        members = await self._networks.member_subnet(asked, family, subnet)
        provider = self._settings.lb_provider
        wanted = wishes.wish(of, asked, family, provider=provider, member_subnet=members)
        wanted = with_tags(wanted, found, tags)
        actual = None
        if found is None:
            wanted = _placed(wanted, self._place(of, asked, family, subnet))
        else:
            actual = await self._octavia.observe(found, _mine(of.ref))
        is_known = bool(of.ref.last_ingress)
        at_once = not self._settings.provider_requires_serial_api_calls
        step = plan(wanted, actual, at_once=at_once, is_known=is_known)
        id_ = actual.id if actual is not None else ""
        if isinstance(step, Broken):
            raise CloudError(f"load balancer {id_} is in the state {ERROR}: repair or delete it")
        if isinstance(step, Wait):
            return Pending(POLL, f"Octavia works on load balancer {id_} ({step.status})")
        if step is not None:
            return await self._step(step, id_, tags)
        if found is None:
            raise CloudError("there is no load balancer, and nothing to do")
        return await self._answer(of, asked, family, found)

    async def _step(self, step: Step, id_: str, tags: Sequence[str]) -> Pending:
        try:
            await self._octavia.take(step, id_, tags)
        except Refused as error:
            if not is_immutable(error):
                raise
        what = "makes" if isinstance(step, MakeBalancer) else "changes"
        return Pending(POLL, f"Octavia {what} the load balancer")

    def _place(self, of: LoadBalancer, asked: Says, family: str, subnet: str) -> dict[str, object]:
        """What stays as it was made."""
        requested = of.requested_address
        is_own = bool(requested) and _family(requested) == family and asked.internal
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
        self, of: LoadBalancer, asked: Says, family: str, found: Described
    ) -> Ensured:
        """The address: the floating one where there is to be one."""
        port, address = str(found["vip_port_id"]), str(found["vip_address"])
        floating = await self._networks.at_port(port)
        if family == "IPv4" and not asked.internal:
            external = await self._networks.external()
            if floating is None and str(found.get("vip_network_id")) not in external:
                network = _floating_network(asked, external)
                floating = await self._networks.give(of, asked.floating, network, port)
            address = str(floating["floating_ip_address"]) if floating is not None else address
        elif floating is not None and is_made_for(floating, of.ref):
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
        """The load balancer of a family.

        Raises:
            NotSupported: The Service names one that was not made for it.
        """
        found = [
            one for one in await self._found(of.ref) if _family(str(one["vip_address"])) == family
        ]
        for extra in found[1:]:
            # A request without an answer had made one after all.
            if extra.get("provisioning_status") in {ACTIVE, ERROR}:
                gone = DropBalancer(id_of(extra), cascade=True)
                await self._octavia.take(gone, id_of(extra), ())
        if found or not asked.adopted:
            return found[0] if found else None
        if family == of.families[0] and await self._octavia.balancer(asked.adopted) is not None:
            raise NotSupported(
                f"annotation {PREFIX}load-balancer-id: using a load balancer that was not made for"
                " this Service is not supported yet; remove the annotation"
            )
        return None

    async def _found(self, ref: LoadBalancerRef) -> list[Described]:
        """All that are the Service's, the oldest first.

        Raises:
            NotSupported: One is shared with other Services.
        """
        of_uid = await self._octavia.balancers({"tags": wishes.service_tag(ref.uid)})
        # A cluster that was restored from a backup has Services of the same uids.
        cluster = wishes.cluster_tag(ref.cluster.uid)
        tagged = [one for one in of_uid if cluster in (one.get("tags") or ())]
        named: list[Described] = []
        if not tagged and ref.last_ingress:
            named = await self._octavia.balancers({"name": wishes.name_of(ref)})
            known = {one.ip for one in ref.last_ingress if one.ip}
            named = [one for one in named if await self._has_address(one, known)]
        for one in (*tagged, *named):
            tags = {str(tag) for tag in one.get("tags") or ()} - {wishes.name_of(ref)}
            if any(tag.startswith(_OFFICIAL) for tag in tags):
                raise NotSupported(
                    f"load balancer {id_of(one)} is shared by Services, which is not supported yet"
                )
        return sorted([*tagged, *named], key=lambda one: (str(one.get("created_at")), id_of(one)))

    async def _has_address(self, described: Described, known: set[str]) -> bool:
        if str(described.get("vip_address")) in known:
            return True
        floating = await self._networks.at_port(str(described.get("vip_port_id")))
        return floating is not None and str(floating.get("floating_ip_address")) in known

    async def _floating(
        self, ref: LoadBalancerRef, found: Sequence[Described]
    ) -> Mapping[str, Described]:
        """The floating addresses that were made for the Service, by id."""
        made = {id_of(one): one for one in await self._networks.made_for(ref)}
        for one in found:
            at_port = await self._networks.at_port(str(one.get("vip_port_id")))
            if at_port is not None and is_made_for(at_port, ref):
                made[id_of(at_port)] = at_port
        return made


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


def _placed(wanted: Balancer, where: Mapping[str, object]) -> Balancer:
    return Balancer(wanted.name, wanted.fields, where, wanted.listeners)


def _mine(ref: LoadBalancerRef) -> frozenset[str]:
    """What tells a part to be the Service's: our tag, or the official name."""
    return frozenset({wishes.service_tag(ref.uid), wishes.name_of(ref)})


def _family(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address).version}"
