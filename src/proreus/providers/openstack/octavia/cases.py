"""Compare what a Service has for one family with what it should have."""

from collections.abc import Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.ownership import (
    inside_refusal,
    may_show,
    refusal,
    shown_by_others,
)
from proreus.cloudprovider.ports import Ports
from proreus.cloudprovider.routes import pods_by_cidr
from proreus.kube.objects import IP_MODE_PROXY, LoadBalancerIngress, Service, vip_addresses
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.annotations import PREFIX, Options
from proreus.providers.openstack.octavia.conflicts import node_beside, ports_at
from proreus.providers.openstack.octavia.desired import (
    desired_balancer,
    family_of,
    has_guests,
    named_places,
    new_parts,
    requested_address,
    version_of,
)
from proreus.providers.openstack.octavia.finding import Finder, written_id
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    ERROR,
    Broken,
    Change,
    MakeBalancer,
    MakeListener,
    MakePool,
    ReadPool,
    SetMembers,
    Step,
    Taken,
    deletion,
    plan,
)
from proreus.providers.openstack.reading import MOST_IDS

_AT_WORK: Final = frozenset({"PENDING_CREATE", "PENDING_UPDATE"})


class Case(msgspec.Struct, frozen=True):
    """The load balancer of a family, desired and observed.

    Attributes:
        family: IPv4 or IPv6.
        found: The load balancer as Octavia describes it; None if it is to be made.
        is_own: Whether it was made for the Service, or will be.
        desired: The desired load balancer.
        observed: The observed load balancer; None if it is to be made.
        tags: The tags of parts that are made.
        subnet: The subnet in which it is; "" if only a network or a port is given.
        members: The subnet of its members.
    """

    family: str
    found: Described | None
    is_own: bool
    desired: Balancer
    observed: Balancer | None
    tags: tuple[str, ...]
    subnet: str
    members: str


class Cases:
    """A reader of load balancers that decides the next step; it changes nothing."""

    def __init__(self, octavia: Octavia, networks: Networks, config: OpenStackConfig) -> None:
        """Keep the clients of Octavia and Neutron, and the cloud-config."""
        self._ports = Ports(networks.services)
        self._octavia = octavia
        self._networks = networks
        self._settings = config.load_balancer
        self._tenants = config.tenants
        self._finder = Finder(octavia, networks, config)

    async def found(self, ref: LoadBalancerRef, family: str = "") -> list[Described]:
        """Return all load balancers that a Service uses, or those of a family; the oldest first.

        Raises:
            CloudError: Octavia or Neutron gives no usable answer.
        """
        every = await self._finder.found(ref)
        return [balancer for balancer in every if not family or family_of(balancer) == family]

    async def owned(self, cluster: ClusterIdentity) -> list[Described]:
        """Return the load balancers with the cluster's tag, of other projects only those listed.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        found = await self._octavia.balancers({"tags": owners.cluster_tag(cluster.uid)})
        here = []
        for one in found:
            namespaces = {user.namespace for user in owners.users(one, cluster)}
            problems = [await self._finder.foreign(one, namespace) for namespace in namespaces]
            here += [one] if not all(problems) else []
        return here

    async def check_project(self, found: Sequence[Described], ref: LoadBalancerRef) -> None:
        """Refuse to delete load balancers of another project: without the address none is known.

        Raises:
            CloudError: One is another project's, and the cloud-config does not list it.
        """
        for one in found:
            if problem := await self._finder.foreign(one, ref.namespace):
                raise CloudError(
                    f"load balancer {id_of(one)} is not deleted: {problem}: use credentials of its"
                    f" project, or give allow = *={id_of(one)} in [Tenants] of the cloud-config"
                )

    async def find(
        self,
        lb: LoadBalancer,
        options: Options,
        family: str,
        every: Sequence[Described],
        *,
        at_work: bool = False,
    ) -> Case:
        """Return the desired and the observed load balancer of a family.

        Args:
            lb: The desired load balancer, as the framework describes it.
            options: The options that annotations and cloud-config choose.
            family: IPv4 or IPv6.
            every: All load balancers that the Service uses.
            at_work: Whether to treat a load balancer on which Octavia works as if that work were
                done.

        Raises:
            InvalidRequest: The Service names an object that it cannot have.
            CloudError: Octavia or Neutron gives no usable answer.
        """
        found = await self._choose(lb, options, family, every)
        is_own = found is None or owners.is_made_for(found, lb.ref)
        if found is None:
            await self._check_place(lb, options)
            subnet = await self._networks.subnet(lb, options, family)
        else:
            subnet = str(found.get("vip_subnet_id") or "")
        members = await self._networks.member_subnet(options, family, subnet)
        provider = self._settings.lb_provider
        desired = desired_balancer(lb, options, family, provider=provider, member_subnet=members)
        tags = owners.of_parts(lb.marks, lb.ref)
        observed = None
        if found is None:
            placed = self._place(lb, options, family, subnet)
            if address := str(placed.get("vip_address", "")):
                network = await self._networks.network_of(subnet) or options.network_id
                await self._networks.check_address(lb, address, network)
            desired = msgspec.structs.replace(desired, placed=placed)
        else:
            shown = found
            if at_work and found.get("provisioning_status") in _AT_WORK:
                shown = {**found, "provisioning_status": ACTIVE}
            observed = self._with_kept(await self._octavia.observe(shown, lb.ref), lb.ref, desired)
            on_it = tags if is_own else owners.of_sharer(lb.marks, lb.ref)
            labels = {"tags": owners.with_tags(found, on_it, lb.ref)}
            fields = {**desired.fields, **labels} if is_own else labels
            desired = msgspec.structs.replace(desired, fields=fields)
        return Case(family, found, is_own, desired, observed, tags, subnet, members)

    def _with_kept(self, observed: Balancer, ref: LoadBalancerRef, desired: Balancer) -> Balancer:
        """Return a load balancer with the ports taken that others had, and still ask for.

        A listener of another protocol is made anew.
        """

        def asks(service: Service) -> bool:
            return written_id(service).lower() == observed.id.lower()

        own = {one.key for one in observed.listeners}
        self._ports.note(ref.uid, ((observed.id, key) for key in own))
        new = {one.key for one in desired.listeners} - own
        kept = {key for key in new if self._ports.holder(ref.uid, observed.id, key, asks)}
        return msgspec.structs.replace(observed, taken=observed.taken | kept)

    def forget(self, uid: str) -> None:
        """Forget the ports of a Service that is gone."""
        self._ports.forget(uid)

    async def next_step(
        self, lb: LoadBalancer, options: Options, case: Case, observed: Balancer | None
    ) -> tuple[Step | None, Balancer | None]:
        """Return the next step for a load balancer, and its state as observed for that step.

        Raises:
            InvalidRequest: The step makes an object that the Service may not have.
            CloudError: The Service asks for something impossible.
        """
        while True:
            step = plan(
                case.desired,
                observed,
                at_once=not self._settings.provider_requires_serial_api_calls,
                cascade=self._settings.cascade_delete,
                is_known=bool(lb.ref.last_ingress) or not case.is_own,
            )
            if not isinstance(step, ReadPool) or observed is None:
                break
            observed = await self._octavia.read_pool(observed, step.pool)
        id_ = observed.id if observed is not None else ""
        if isinstance(step, Broken):
            raise broken(id_)
        if isinstance(step, Taken):
            error = InvalidRequest(
                f"port {step.port}/{step.transport} of load balancer {id_} is taken by another"
                " Service's listener: choose another port or another load balancer"
            )
            # Of another cluster's nobody else knows. Unmarked, the status may be all that proves
            # whose the load balancer is.
            is_shared = observed is not None and has_guests(observed.others, lb.ref.cluster)
            is_proven = case.found is not None and owners.is_proven(case.found, lb.ref)
            leads = is_shared and is_proven and vip_addresses(lb.ref.last_ingress)
            raise error.disowning() if leads else error
        if isinstance(step, MakeBalancer | MakeListener | MakePool | SetMembers | Change):
            await self._check_parts(lb, options, observed)
        return step, observed

    async def check_given(
        self, lb: LoadBalancer, options: Options, found: Described, point: LoadBalancerIngress
    ) -> None:
        """Refuse to show an address that something else has in a network apart, or inside.

        Networks may have the same addresses, and Neutron gives each of them once in each. It knows
        nothing of those inside the cluster, nor of bare metal. What the status shows as a proxy's
        is looked at, too, once it is to be the Service's own: nodes have led nothing there.

        Raises:
            InvalidRequest: Another one has it; names the remedy.
            CloudError: Octavia or Neutron gives no usable answer.
        """
        led = (one for one in lb.ref.last_ingress if one.ip_mode != IP_MODE_PROXY)
        ref = msgspec.structs.replace(lb.ref, last_ingress=tuple(led))
        for address in vip_addresses((point,)):
            if may_show(address, ref, self._tenants):
                continue
            problem = self._has_inside(ref, address)
            problem = problem or await self._at_port(lb, options, found, address)
            shown = shown_by_others(address, ref, self._networks.services.all())
            owned = refusal(shown, ref, self._tenants, (address,)) if shown else ""
            if not problem and owned and await self._is_elsewhere(address, found):
                problem = f"{owned}, in another network"
            if problem:
                raise InvalidRequest(
                    f"{address}, which Neutron has given, cannot be had: {problem}: name a network"
                    " with addresses that nothing else of the cluster has"
                )

    async def _at_port(
        self, lb: LoadBalancer, options: Options, found: Described, address: str
    ) -> str:
        """Return which port has an address, too, to which nodes may be led; "" for none.

        Where nodes stand, or the cloud-config says, only nodes' servers matter: many networks have
        the same addresses.
        """
        networks = self._networks
        is_vip = address == str(found["vip_address"])
        here = str(found["vip_network_id"]) if is_vip else ""
        floating = await networks.floating({"floating_ip_address": address})
        own = [one for one in floating if one.get("port_id") == found["vip_port_id"]]
        led = {str(one.get("port_id") or "") for one in floating if one not in own} - {""}
        asked = (networks.reader, address, here, led, networks.nodes.all())
        of_node, elsewhere = await ports_at(*asked, project=await self._octavia.project())
        if of_node or not elsewhere:
            return of_node
        given = {options.subnet_id, options.network_id, options.floating.network_id}
        given -= {"", *(id_.lower() for id_ in options.named.values())}
        if is_vip:
            given |= {*await networks.of_hosts(lb.hosts[:MOST_IDS], version_of(address))}
            places = {str(found["vip_subnet_id"]), here}
        else:
            external = await networks.external()
            given |= external.keys() if len(external) == 1 else set()
            places = {str(one["floating_network_id"]) for one in own}
        return "" if given & places else elsewhere

    def _has_inside(self, ref: LoadBalancerRef, address: str) -> str:
        """Return why a Service may not show an address of which Neutron cannot know; or ""."""
        nodes = tuple(self._networks.nodes.all())
        services, pods = self._networks.services.all(), pods_by_cidr(nodes)
        if problem := inside_refusal(address, ref, self._tenants, services, pods):
            return problem
        others = node_beside((address,), nodes)
        return f"it is {others}" if others else ""

    async def _is_elsewhere(self, address: str, found: Described) -> bool:
        """Tell whether an address is that of another load balancer or its floating IP, too."""
        every = await self._octavia.balancers({"vip_address": address})
        floating = await self._networks.floating({"floating_ip_address": address})
        ports = {str(one.get("port_id") or "") for one in floating} - {"", found["vip_port_id"]}
        return bool(ports) or any(id_of(one) != id_of(found) for one in every)

    async def surplus(self, found: Sequence[Described], ref: LoadBalancerRef) -> list[Balancer]:
        """Return duplicates of a family's load balancer, made by requests without an answer.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        extras = [
            await self._octavia.observe(described, ref)
            for described in found[1:]
            if owners.is_made_for(described, ref) and not owners.others(described, (), ref)
        ]
        return [balancer for balancer in extras if not balancer.others]

    def delete_step(self, observed: Balancer) -> Step | None:
        """Return the next step to delete a load balancer; None if there is none."""
        return deletion(observed, cascade=self._settings.cascade_delete)

    async def _choose(
        self, lb: LoadBalancer, options: Options, family: str, every: Sequence[Described]
    ) -> Described | None:
        """Return the load balancer of a family; None if it has to be made."""
        found = [balancer for balancer in every if family_of(balancer) == family]
        named = await self._finder.named(lb, options, list(every))
        if named is not None:
            return named if family_of(named) == family else None
        return found[0] if found else None

    async def _check_place(self, lb: LoadBalancer, options: Options) -> None:
        """Refuse to make a load balancer where the Service may not have it.

        Raises:
            InvalidRequest: An annotation names an object that is another's, or in use.
        """
        if port := options.named.get("port-id"):
            for balancer in await self._octavia.balancers({"vip_port_id": port}):
                makers = ", ".join(map(str, owners.makers(balancer))) or "nobody known"
                raise InvalidRequest(
                    f"annotation {PREFIX}port-id: the port is used by load balancer"
                    f" {id_of(balancer)}, which belongs to {makers}: name a free port"
                )
        await self._networks.check(lb, named_places(options))

    async def _check_parts(
        self, lb: LoadBalancer, options: Options, observed: Balancer | None
    ) -> None:
        """Refuse what annotations name and the Service may not use, but for parts that it has."""
        new = new_parts(options, observed)
        member_subnet = {name: id_ for name, id_ in new.items() if name == "member-subnet-id"}
        await self._networks.check(lb, member_subnet)
        name = "default-tls-container-ref"
        # Barbican's containers bear no marks.
        if name in new and (problem := refusal((), lb.ref, self._tenants, (new[name],))):
            raise InvalidRequest(f"annotation {PREFIX}{name}: {problem}")

    def _place(
        self, lb: LoadBalancer, options: Options, family: str, subnet: str
    ) -> dict[str, object]:
        """Return the fields that a load balancer gets at its creation, and keeps for ever."""
        requested = requested_address(lb)
        is_own = bool(requested) and version_of(requested) == family and options.internal
        found = {
            "provider": self._settings.lb_provider,
            "vip_port_id": options.port_id,
            "vip_subnet_id": "" if options.port_id else subnet,
            "vip_network_id": "" if options.port_id or subnet else options.network_id,
            "vip_address": requested if is_own else "",
            "flavor_id": options.flavor_id,
            "availability_zone": options.availability_zone,
        }
        return {name: value for name, value in found.items() if value}


def broken(id_: str) -> CloudError:
    """Make the error for a load balancer in the state ERROR."""
    return CloudError(f"load balancer {id_} is in the state {ERROR}: repair or delete it")


def is_needed(described: Described, observed: Balancer, ref: LoadBalancerRef) -> bool:
    """Tell whether a load balancer stays when the Service goes.

    A load balancer that was made for another Service goes with the last that leaves it. Parts of
    old managers bear no tags, so any listener that is left may be another's.
    """
    if observed.others:
        return True
    is_left = not observed.taken and owners.is_made_in(described, ref.cluster)
    return not (is_left or owners.is_made_for(described, ref))
