"""An account with machines and free addresses in which load balancers are made."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider import LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import (
    EndpointSlice,
    LoadBalancerIngress,
    ServicePort,
)
from proreus.providers.cloudstack.balancing.annotations import PREFIX
from proreus.testing import objects

from ..ensured import Balancing  # noqa: TID252 - pytest imports tests by path
from .emulator.accounts import MAIN, fields_of
from .emulator.server import Emulator
from .emulator.world import Json
from .site import CLUSTER, node, started

UID = "5e000000-0000-4000-8000-000000000001"
NAME = default_load_balancer_name(UID)
HTTP = ServicePort(80, "http", node_port=30080)
HTTPS = ServicePort(443, "https", node_port=30443)
DNS = ServicePort(80, "dns", node_port=30053, protocol="UDP")


class LBSite(Balancing):
    """Machines in one network, of the account or of a project, and a provider."""

    def __init__(
        self, emulator: Emulator, *, vpc: bool = False, acl: str = "mine", owner: str = MAIN
    ) -> None:
        self.emulator = emulator
        self.world = emulator.world
        self.owner = owner
        self.network = self.world.add_network(vpc=vpc, acl=acl, owner=owner)
        self.world.add_addresses("203.0.113.1", 20)
        self.names = ["node-1", "node-2"]
        self.machines = self.world.add_machines(self.names, self.network)

    def desired(
        self,
        *ports: ServicePort,
        asked: Mapping[str, str] | None = None,
        uid: str = UID,
        shown: str = "",
        mode: str | None = None,
        ids: Sequence[str] | None = None,
        namespace: str = "shop",
        cluster: ClusterIdentity = CLUSTER,
        endpoints: Sequence[EndpointSlice] = (),
        **spec: Any,
    ) -> LoadBalancer:
        service = objects.service(
            namespace=namespace,
            uid=uid,
            annotations={PREFIX + name: value for name, value in (asked or {}).items()},
            ingress=[LoadBalancerIngress(ip=shown, ip_mode=mode)] if shown else [],
            **{"ports": ports or (HTTP,), "ip_families": ("IPv4",), **spec},
        )
        ids = self.machines if ids is None else ids
        nodes = [
            node(f"node-{number}", f"external-cloudstack://{id_}")
            for number, id_ in enumerate(ids, 1)
        ]
        policy = self.balancers.host_policy(service)
        return desired_load_balancer(service, nodes, policy, cluster, endpoints)

    def rules(self) -> dict[str, Json]:
        """The rules by name, each with its machines."""
        return {
            one["name"]: {**one, "members": set(self.world.members.get(id_, ()))}
            for id_, one in self.world.rules.items()
        }

    def address(self, ip: str) -> Json:
        (found,) = (one for one in self.world.ips.values() if one["ipaddress"] == ip)
        return found

    def allocated(self) -> set[str]:
        taken = (one for one in self.world.ips.values() if one["state"] != "Free")
        return {one["ipaddress"] for one in taken}

    def give(self, ip: str, **fields: Any) -> str:
        """Acquire an address by hand; its id."""
        found = self.address(ip)
        network = self.world.networks[self.network]
        place = {"vpcid": network["vpcid"]} if "vpcid" in network else {}
        place = place or {"associatednetworkid": self.network}
        place |= fields_of(self.world, self.owner)
        found |= {"state": "Allocated", "allocated": "2026", **place, **fields}
        return str(found["id"])

    def official_rule(self, ip_id: str, name: str, port: int, node_port: int, **fields: Any) -> str:
        """A rule as an official manager makes it, with all machines; its id."""
        ip, id_ = self.world.ips[ip_id], self.world.new_id()
        self.world.rules[id_] = {
            "id": id_, "name": name, "publicipid": ip_id, "publicip": ip["ipaddress"],
            "publicport": str(port), "privateport": str(node_port), "protocol": "tcp",
            "algorithm": "roundrobin", "networkid": self.network, "state": "Active",
            "cidrlist": "0.0.0.0/0", "zoneid": ip["zoneid"], "description": "", **fields,
        }  # fmt: skip
        self.world.members[id_] = list(self.machines)
        return id_

    def is_empty(self) -> bool:
        """Whether nothing is left of any load balancer."""
        world = self.world
        tags = any(world.tags.values())
        return not (world.rules or world.firewall or world.acl_items or self.allocated() or tags)


@asynccontextmanager
async def lb_site(
    emulator: Emulator,
    *,
    vpc: bool = False,
    acl: str = "mine",
    sections: str = "",
    owner: str = MAIN,
) -> AsyncIterator[LBSite]:
    site = LBSite(emulator, vpc=vpc, acl=acl, owner=owner)
    extra = "" if owner == MAIN else f"project-id = {owner}"
    async with started(emulator, extra, sections=sections) as provider:
        site.provider = provider
        yield site
