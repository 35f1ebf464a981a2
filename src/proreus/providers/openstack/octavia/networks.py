"""Where a load balancer stands, and its floating address."""

import fnmatch
import re
from collections.abc import Iterable, Mapping

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.errors import Refused
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia.annotations import PREFIX, Floating, Says
from proreus.providers.openstack.reading import MOST_IDS, Reader

_NOT_FOUND = 404
_VERSIONS = {"IPv4": 4, "IPv6": 6}
_OFFICIAL = "Floating IP for Kubernetes external service"
_LONGEST = 255


class Networks:
    """Neutron, as load balancers need it."""

    def __init__(self, api: Api, reader: Reader) -> None:
        """Ask through `api`."""
        self._api = api
        self._reader = reader
        self._versions: dict[str, int] = {}

    async def subnet(self, of: LoadBalancer, says: Says, family: str) -> str:
        """The subnet of that family in which it stands; "" if only a network or a port is given.

        Raises:
            InvalidRequest: There is none.
            CloudError: Neutron does not tell.
        """
        if says.subnet_id and await self._is_of(says.subnet_id, family):
            return says.subnet_id
        if says.subnet_id and len(of.families) == 1:
            raise InvalidRequest(f"annotation {PREFIX}subnet-id: the subnet is not of {family}")
        if says.port_id or (says.network_id and not says.subnet_id):
            return ""
        addresses = [
            host.addresses[family][0] for host in of.hosts[:MOST_IDS] if host.addresses.get(family)
        ]
        ports = await self._reader.ports("fixed_ips", {f"ip_address={one}" for one in addresses})
        subnets = {
            str(fixed["ip_address"]): str(fixed["subnet_id"])
            for port in ports
            for fixed in port.get("fixed_ips") or ()
        }
        for address in addresses:  # the machine of a host may be gone
            if address in subnets:
                return subnets[address]
        raise InvalidRequest(
            f"there is no host with an address of {family} in this project: give the subnet"
            f" by the annotation {PREFIX}subnet-id, or subnet-id in [LoadBalancer]"
        )

    async def member_subnet(self, says: Says, family: str, default: str) -> str:
        """The subnet of members; that of the load balancer unless another one is given."""
        one = says.member_subnet_id
        return one if one and await self._is_of(one, family) else default

    async def external(self) -> dict[str, str]:
        """The external networks: their names by id."""
        parameters = {"router:external": "true", "fields": ("id", "name")}
        found, _ = await self._api.pages(
            "neutron", "network_list", "networks", "networks", parameters
        )
        return {id_of(one): str(one["name"]) for one in found}

    async def at_port(self, port: str) -> Described | None:
        """The floating address of a port."""
        found = await self._floating({"port_id": port})
        return found[0] if found else None

    async def made_for(self, ref: LoadBalancerRef) -> list[Described]:
        """Floating addresses that were made for a Service, wherever they are."""
        return await self._floating({"description": description(ref)})

    async def give(
        self, of: LoadBalancer, floating: Floating, network: str, port: str
    ) -> Described:
        """A floating address for a port: the requested one, or a new one.

        Raises:
            InvalidRequest: The requested address is another's, or there is no such subnet.
            CloudError: There is none to be had.
        """
        requested = of.requested_address
        loose = [one for one in await self.made_for(of.ref) if not one.get("port_id")]
        if requested:
            loose = await self._floating({"floating_ip_address": requested})
            if any(one.get("port_id") for one in loose):
                raise InvalidRequest(f"spec.loadBalancerIP: {requested} is in use already")
        for one in loose[:1]:
            path = f"floatingips/{id_of(one)}"
            change = {"floatingip": {"port_id": port}}
            await self._api.change("neutron", "floatingip_update", "PUT", path, change)
            return one
        wanted: dict[str, str] = {
            "floating_network_id": network,
            "port_id": port,
            "description": description(of.ref),
            **({"floating_ip_address": requested} if requested else {}),
        }
        refused: CloudError | None = None
        for subnet in await self._subnets(floating, network):
            chosen = {"subnet_id": subnet} if subnet else {}
            try:
                answer = await self._api.change(
                    "neutron",
                    "floatingip_create",
                    "POST",
                    "floatingips",
                    {"floatingip": {**wanted, **chosen}},
                )
            except Refused as error:
                refused = error  # a subnet may be full
            else:
                made: Described = answer["floatingip"]
                return made
        raise refused or InvalidRequest("no floating subnet is of that name or has those tags")

    async def take_away(self, floating: Described) -> None:
        """Delete a floating address."""
        path = f"floatingips/{id_of(floating)}"
        try:
            await self._api.change("neutron", "floatingip_delete", "DELETE", path)
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise

    async def _is_of(self, subnet: str, family: str) -> bool:
        if subnet not in self._versions:
            try:
                found = await self._api.get("neutron", "subnet_get", f"subnets/{subnet}", "subnet")
            except Refused as error:
                if error.status == _NOT_FOUND:
                    raise InvalidRequest(f"there is no subnet {subnet} in this project") from error
                raise
            self._versions[subnet] = int(found["ip_version"])
        return self._versions[subnet] == _VERSIONS[family]

    async def _floating(self, parameters: Mapping[str, str]) -> list[Described]:
        found, _ = await self._api.pages(
            "neutron", "floatingip_list", "floatingips", "floatingips", parameters
        )
        return found

    async def _subnets(self, floating: Floating, network: str) -> list[str]:
        """The subnets to try, in order; [""] leaves it to Neutron."""
        if floating.subnet_id:
            return [floating.subnet_id]
        if not floating.subnet and not floating.subnet_tags:
            return [""]
        found, _ = await self._api.pages(
            "neutron", "subnet_list", "subnets", "subnets", {"network_id": network}
        )
        return [id_of(one) for one in matching(found, floating)]


def description(ref: LoadBalancerRef) -> str:
    """What is written on floating addresses; the uids in it prove whose they are."""
    proof = f" ({ref.uid} {ref.cluster.uid})"
    return official_description(ref)[: _LONGEST - len(proof)] + proof


def official_description(ref: LoadBalancerRef) -> str:
    """What the official manager writes on them."""
    return f"{_OFFICIAL} {ref.key} from cluster {ref.cluster.name}"


def is_made_for(floating: Described, ref: LoadBalancerRef) -> bool:
    """Whether it was made for the Service, by us or by the official manager.

    What the official manager writes can be guessed; so the Service's status must name the address,
    too.
    """
    text = str(floating.get("description") or "")
    if text == description(ref):
        return True
    known = {one.ip for one in ref.last_ingress if one.ip}
    return text == official_description(ref) and floating.get("floating_ip_address") in known


def matching(subnets: Iterable[Described], floating: Floating) -> list[Described]:
    """The subnets with a name or tags like that, in the order of their names.

    A name is a pattern with `*` and `?`, or after `~` a regular expression; `!` in front of either
    means all others. Tags are separated by commas: all of them, or after `!` all but these.
    """
    ordered = sorted(subnets, key=lambda one: str(one.get("name", "")))
    return [one for one in ordered if _matches(one, floating)]


def _matches(subnet: Described, floating: Floating) -> bool:
    if floating.subnet:
        pattern = floating.subnet
        is_other = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        if pattern.startswith("~"):
            found = re.search(pattern[1:], str(subnet.get("name", ""))) is not None
        else:
            found = fnmatch.fnmatchcase(str(subnet.get("name", "")), pattern)
        return found != is_other
    tags = floating.subnet_tags
    wanted = {tag.strip() for tag in tags.removeprefix("!").split(",") if tag.strip()}
    return (wanted <= set(subnet.get("tags") or ())) != tags.startswith("!")


def is_made_in(floating: Described, ref: LoadBalancerRef) -> bool:
    """Whether it was made for some Service of that cluster, which may be gone.

    That of the official manager must be in the Service's status.
    """
    text = str(floating.get("description") or "")
    if not text.startswith(_OFFICIAL):
        return False
    known = {one.ip for one in ref.last_ingress if one.ip}
    is_shown = floating.get("floating_ip_address") in known
    return text.endswith(f" {ref.cluster.uid})") or (
        is_shown and text.endswith(f" from cluster {ref.cluster.name}")
    )
