"""Find networks and subnets for load balancers in Neutron, and keep floating IPs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import CloudError, InvalidRequest, RetryAfter
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import Host, LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.lookups import most_first
from proreus.cloudprovider.ownership import Tenants, named_by_others, refusal, shown_by_others
from proreus.cloudprovider.refused import Reason, Refused
from proreus.kube.objects import KubeObject
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.nova.services import Parameters
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.hops import revision_of
from proreus.providers.openstack.names import foreign_project, parsed
from proreus.providers.openstack.octavia.annotations import PREFIX, Floating, Options
from proreus.providers.openstack.octavia.conflicts import are_few, held, is_in_use, lookalike, rival
from proreus.providers.openstack.octavia.floating import (
    description,
    descriptions,
    is_made_for,
    is_shown,
    owner,
)
from proreus.providers.openstack.octavia.owners import reserved_for
from proreus.providers.openstack.octavia.reservations import refused_inside, reserved_at
from proreus.providers.openstack.octavia.subnets import matching
from proreus.providers.openstack.reading import MOST_IDS, Reader

_VERSIONS = {"IPv4": 4, "IPv6": 6}
_NETWORKS = ("network-id", "floating-network-id")
_FOR_ALL = ("shared", "router:external")
"""What is true of networks that other projects may use."""
_FLOATING_SUBNET = "floating-subnet-id"
_PLACES = ("network-id", "subnet-id", "port-id", "floating-network-id")
"""The annotations that say where the addresses of a load balancer are from."""
_FLOATING = ("floating-network-id", _FLOATING_SUBNET)


class Networks:
    """The part of Neutron that load balancers need."""

    def __init__(
        self, api: Api, reader: Reader, tenants: Tenants, services: Lister[KubeObject]
    ) -> None:
        """Keep the client of Neutron, who may name what (`tenants`), and all Services."""
        self._api = api
        self.reader = reader
        self._tenants = tenants
        self.services = services
        self.nodes = api.context.listers["nodes"]
        self._versions: dict[str, int] = {}

    async def subnet(self, lb: LoadBalancer, options: Options, family: str) -> str:
        """Return the subnet of a family for a load balancer; "" if a network or port is given.

        Raises:
            InvalidRequest: There is no subnet of the family, or few hosts tell one of others.
            CloudError: Neutron gives no usable answer.
        """
        if options.subnet_id and await self._is_of(options.subnet_id, family):
            return options.subnet_id
        if options.subnet_id and len(lb.families) == 1:
            raise InvalidRequest(
                f"annotation {PREFIX}subnet-id: the subnet has no addresses of the Service's"
                f" family, {family}: give one that has"
            )
        if options.port_id or (options.network_id and not options.subnet_id):
            return ""
        if found := await self.of_hosts(lb.hosts[:MOST_IDS], family):
            most = most_first(found)[0]
            if are_few(found.count(most), lb.hosts, self.nodes.all()):
                await self.check(lb, {"subnet-id": most})
            return most
        raise InvalidRequest(
            f"no host has an {family} address in this project, so the load balancer's subnet is not"
            f" known: give the annotation {PREFIX}subnet-id, or subnet-id in [LoadBalancer] of the"
            " cloud-config"
        )

    async def of_hosts(self, hosts: Iterable[Host], family: str) -> list[str]:
        """Return the subnet of each host that has an address there.

        Others may have the same one in networks apart: only the ports of its own server tell.
        """
        addresses = {
            id_[1]: found[0]
            for host in hosts
            if (found := host.addresses.get(family)) and (id_ := parsed(host.provider_id))
        }
        return [*(await self.reader.subnets_of(addresses)).values()]

    async def member_subnet(self, options: Options, family: str, default: str) -> str:
        """Return the subnet of members, by default that of the load balancer."""
        subnet = options.member_subnet_id
        return subnet if subnet and await self._is_of(subnet, family) else default

    async def external(self) -> dict[str, str]:
        """Return the names of the external networks by id."""
        query = {"router:external": "true", "fields": ("id", "name")}
        found = await self._api.listed("neutron", "network_list", "networks", "networks", query)
        return {id_of(network): str(network["name"]) for network in found}

    async def at_port(self, port: str) -> Described | None:
        """Return the floating IP of a port; None without one."""
        return next(iter(await self.floating({"port_id": port})), None)

    async def made_for(self, ref: LoadBalancerRef) -> list[Described]:
        """Return the floating IPs that were made for a Service, wherever they are."""
        found = await self.floating({"description": descriptions(ref)})
        project = await self._api.project()
        return [
            floating
            for floating in found
            if is_made_for(floating, ref)
            and (is_shown(floating, ref) or not foreign_project(floating, project))
        ]

    async def give(self, lb: LoadBalancer, options: Options, network: str, port: str) -> Described:
        """Attach a floating IP to a port: the requested one, or a new one.

        Raises:
            InvalidRequest: The requested address, or the network or subnet for a new one, is
                another's; or there is no such subnet.
            CloudError: Neutron has no floating IP to give.
        """
        for floating in (await self.loose(lb))[:1]:
            fields = {"port_id": port}
            if is_made_for(floating, lb.ref):
                fields["description"] = description(lb.ref, kept=options.keep)
            await self._change_floating(floating, fields)
            return floating
        requested = lb.requested_address
        subnets = await self.sources(lb, options, network)
        desired: dict[str, str] = {
            "floating_network_id": network,
            "port_id": port,
            "description": description(lb.ref, kept=options.keep),
            **({"floating_ip_address": requested} if requested else {}),
        }
        refused: CloudError | None = None
        for subnet in subnets:
            chosen = {"subnet_id": subnet} if subnet else {}
            try:
                answer = await self._api.change(
                    "neutron",
                    "floatingip_create",
                    "POST",
                    "floatingips",
                    {"floatingip": {**desired, **chosen}},
                )
            except Refused as error:
                refused = error  # a subnet may be full
            else:
                made: Described = answer["floatingip"]
                return made
        raise refused or InvalidRequest(
            f"no subnet of the external network {network} matches floating-subnet or"
            " floating-subnet-tags, of the annotations or the cloud-config: correct them"
        )

    async def loose(self, lb: LoadBalancer) -> list[Described]:
        """Return unattached floating IPs of a Service, which it gets before a new one is made.

        Raises:
            InvalidRequest: The requested address is another's.
            CloudError: Neutron gives no usable answer.
        """
        if not lb.requested_address:
            made = await self.made_for(lb.ref)
            return [floating for floating in made if not floating.get("port_id")]
        found = await self.floating({"floating_ip_address": lb.requested_address})
        self._check_requested(lb, found, await self._api.project())
        return found

    async def sources(self, lb: LoadBalancer, options: Options, network: str) -> list[str]:
        """Return the subnets for a new floating IP, in the order in which they are tried.

        Raises:
            InvalidRequest: The network or subnet that annotations name is another's, or does not
                exist; or the requested address is others' there.
            CloudError: Neutron gives no usable answer.
        """
        if lb.requested_address:
            await self.check_address(lb, lb.requested_address, network)
        await self.check(
            lb, {name: options.named[name] for name in _FLOATING if name in options.named}
        )
        return await self._subnets(lb.ref, options.floating, network)

    async def network_of(self, subnet: str) -> str:
        """Return the id of a subnet's network; "" if it is unknown.

        Raises:
            CloudError: Neutron gives no usable answer.
        """
        found = await self._described("subnet-id", subnet) if subnet else None
        return str((found or {}).get("network_id") or "")

    def _check_requested(self, lb: LoadBalancer, found: Sequence[Described], project: str) -> None:
        """Refuse another's floating IP, also a missing one, unless the Service's status has it."""
        address = lb.requested_address
        shown = shown_by_others(address, lb.ref, self.services.all())
        for floating in found or [{"id": address} for _ in shown[:1]]:
            mark, names = owner(floating), (id_of(floating), address)
            owners = [*([mark] if mark is not None else []), *shown]
            problem = ""
            if not is_shown(floating, lb.ref):
                problem = refusal(owners, lb.ref, self._tenants, names)
                if not problem and not self._tenants.lists(lb.ref.namespace, names):
                    problem = foreign_project(floating, project)
            if not problem and (port := floating.get("port_id")):
                problem = f"this floating IP is attached to port {port}: free it or give another"
            if problem:
                raise InvalidRequest(f"spec.loadBalancerIP: {address}: {problem}")

    async def describe(self, floating: Described, ref: LoadBalancerRef, *, kept: bool) -> None:
        """Describe a floating IP: for which Service it was made, and whether it outlives that."""
        text = description(ref, kept=kept)
        if floating.get("description") != text:
            await self._change_floating(floating, {"description": text})

    async def check(self, lb: LoadBalancer, named: Mapping[str, str]) -> None:
        """Refuse networks, subnets and ports that a Service may not name.

        Args:
            lb: The desired load balancer, as the framework describes it.
            named: The ids of the objects, by the annotations that name them.

        Raises:
            InvalidRequest: An object is another's, or does not exist, or is a port in use.
            CloudError: Neutron gives no usable answer.
        """
        problems = []
        for name, id_ in named.items():
            described = await self._described(name, id_)
            if described is None and name == _FLOATING_SUBNET:
                described = {}  # a project need not see the subnets of external networks
            problem = f"this project shows nothing with the id {id_}: give another id"
            if described is not None:
                is_listed = self._tenants.lists(lb.ref.namespace, (id_,))
                owners = await reserved_at(name, described, self._described)
                problem = refusal(owners, lb.ref, self._tenants, (id_,))
                problem = problem or await refused_inside(
                    name, named, lb.ref, self._tenants, self._api
                )
                if not problem and not is_listed:
                    problem = await self._foreign(name, described)
                if not problem and is_in_use(described):
                    user = described.get("device_owner") or "a device"
                    problem = f"port {id_} is in use by {user}: give a free port"
                if not problem and name == "port-id":
                    problem = await self._reached_at(lb, described)
                if not problem and name in _PLACES and not is_listed:
                    listers = self._api.context.listers
                    problem = await lookalike(self.reader, listers, described)
            if problem:
                problems.append(f"annotation {PREFIX}{name}: {problem}")
        if problems:
            raise InvalidRequest("; ".join(problems))

    async def check_address(self, lb: LoadBalancer, address: str, network: str) -> None:
        """Refuse an address that a Service asks for in a network where it is others'.

        Raises:
            InvalidRequest: It is a virtual address of somebody's port, a router's or a name
                server's, or that of another namespace's Service; or the status shows it, and
                a machine or another load balancer has it by now.
            CloudError: Neutron or Octavia gives no usable answer.
        """
        shown = {plain_address(point.ip) for point in lb.ref.last_ingress}
        is_shown = plain_address(address) in shown
        if is_shown and (problem := await rival(self._api, self.reader, lb.ref, network, address)):
            raise InvalidRequest(f"spec.loadBalancerIP: {address}: {problem}").disowning()
        if self._tenants.lists(lb.ref.namespace, (address,)):
            return
        others = shown_by_others(address, lb.ref, self.services.all())
        problem = refusal(others, lb.ref, self._tenants, (address,)) if others else ""
        if problem := problem or await self._held(lb, network, (address,)):
            raise InvalidRequest(f"spec.loadBalancerIP: {address}: {problem}")

    async def _reached_at(self, lb: LoadBalancer, port: Described) -> str:
        """Return why a Service may not be reached at a free port: its addresses are others'.

        A port that was given outlives its load balancer, and a floating IP may stay at it. Of a
        Service whose status shows a host name the annotation tells that it is reached there.
        """
        names, owners = [id_of(port)], []
        if self._tenants.lists(lb.ref.namespace, names):
            return ""
        addresses = [str(one["ip_address"]) for one in port.get("fixed_ips") or ()]
        if problem := await self._held(lb, str(port.get("network_id") or ""), addresses):
            return problem
        if (floating := await self.at_port(id_of(port))) is not None:
            addresses.append(str(floating["floating_ip_address"]))
            names += (id_of(floating), addresses[-1])
            mark = owner(floating)
            owners = [mark] if mark is not None and not is_shown(floating, lb.ref) else []
        for one in addresses:
            owners += shown_by_others(one, lb.ref, self.services.all())
        owners += named_by_others(f"{PREFIX}port-id", names[0], lb.ref, self.services.all())
        return refusal(owners, lb.ref, self._tenants, names) if owners else ""

    async def _held(self, lb: LoadBalancer, network: str, addresses: Collection[str]) -> str:
        shown = {point.ip for point in lb.ref.last_ingress}
        return await held(self.reader, self.nodes.all(), network, addresses, shown)

    async def _foreign(self, annotation: str, described: Described) -> str:
        """Return why a network, a subnet or a port is another project's alone; "" if it is not."""
        problem = foreign_project(described, await self._api.project())
        if not problem or annotation == "port-id":
            return problem
        network: Described | None = described
        if annotation not in _NETWORKS:
            network = await self._described(_NETWORKS[0], str(described.get("network_id") or ""))
        is_for_all = network is not None and any(network.get(one) for one in _FOR_ALL)
        return "" if is_for_all else problem

    async def _described(self, annotation: str, id_: str) -> Described | None:
        """Read a network, a subnet or a port that an annotation names."""
        if annotation in _NETWORKS:
            query = {"id": id_, "fields": ("id", "name", "tags", "project_id", *_FOR_ALL)}
            found = await self._api.listed("neutron", "network_list", "networks", "networks", query)
            return found[0] if found else None
        kind = "port" if annotation == "port-id" else "subnet"
        return await self._api.find("neutron", f"{kind}_get", f"{kind}s/{id_}", kind)

    async def _change_floating(self, floating: Described, fields: Mapping[str, object]) -> None:
        path, change = f"floatingips/{id_of(floating)}", {"floatingip": dict(fields)}
        with _unchanged(floating) as revision:
            await self._api.change(
                "neutron", "floatingip_update", "PUT", path, change, revision=revision
            )

    async def free(self, floating: Described) -> None:
        """Detach a floating IP from its port, and keep it."""
        await self._change_floating(floating, {"port_id": None})

    async def take_away(self, floating: Described) -> None:
        """Delete a floating IP, unless somebody has changed it since it was read."""
        path = f"floatingips/{id_of(floating)}"
        with _unchanged(floating) as revision:
            await self._api.delete("neutron", "floatingip_delete", path, revision=revision)

    async def _is_of(self, subnet: str, family: str) -> bool:
        if subnet not in self._versions:
            found = await self._api.find("neutron", "subnet_get", f"subnets/{subnet}", "subnet")
            if found is None:
                raise InvalidRequest(
                    f"this project shows no subnet {subnet}: correct the subnet's id in the"
                    " Service's annotations or in [LoadBalancer] of the cloud-config"
                )
            self._versions[subnet] = int(found["ip_version"])
        return self._versions[subnet] == _VERSIONS[family]

    async def floating(self, parameters: Parameters) -> list[Described]:
        """List floating IPs by what they are to have."""
        return await self._api.listed(
            "neutron", "floatingip_list", "floatingips", "floatingips", parameters
        )

    async def _subnets(self, ref: LoadBalancerRef, floating: Floating, network: str) -> list[str]:
        """Return the subnets to try, in order; [""] leaves the choice to Neutron.

        Raises:
            InvalidRequest: All subnets that an annotation means are others'.
        """
        if floating.subnet_id:
            return [floating.subnet_id]
        if not floating.subnet and not floating.subnet_tags:
            return [""]
        found = await self._api.listed(
            "neutron", "subnet_list", "subnets", "subnets", {"network_id": network}
        )
        subnets = matching(found, floating)
        if not floating.annotation:
            return [id_of(subnet) for subnet in subnets]
        refused = {
            id_of(subnet): refusal(reserved_for(subnet), ref, self._tenants, (id_of(subnet),))
            for subnet in subnets
        }
        if refused and all(refused.values()):
            problem = next(iter(refused.values()))
            raise InvalidRequest(f"annotation {PREFIX}{floating.annotation}: {problem}")
        return [id_ for id_, problem in refused.items() if not problem]


@contextmanager
def _unchanged(floating: Described) -> Iterator[int | None]:
    """Change that revision of a floating IP; if it has another one by now, have it read again."""
    try:
        yield revision_of(floating)
    except Refused as error:
        if error.reason is not Reason.PRECONDITION_FAILED:
            raise
        text = f"somebody else has changed floating IP {floating.get('floating_ip_address')}"
        raise RetryAfter(f"{text}: it is read again", after=1.0) from error
