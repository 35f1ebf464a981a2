"""An account with servers, for which load balancers are made."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider import Done, LoadBalancer, Pending
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import EndpointSlice, LoadBalancerIngress, ServicePort
from proreus.providers.rackspace.balancing.annotations import PREFIX
from proreus.testing import objects

from ..ensured import Balancing  # noqa: TID252 - pytest imports tests by path
from .emulator.checks import Json
from .emulator.server import Emulator
from .site import CLUSTER, SCHEME, started

UID = "5e000000-0000-4000-8000-000000000001"
NAME = default_load_balancer_name(UID)
HTTP = ServicePort(80, "http", node_port=30080)
HTTPS = ServicePort(443, "https", node_port=30443)
DNS = ServicePort(80, "dns", node_port=30053, protocol="UDP")


class LBSite(Balancing):
    """Two servers, and a provider."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.clb = emulator.clb
        self.servers = emulator.add_servers(["node-1", "node-2"])

    def desired(
        self,
        *ports: ServicePort,
        asked: Mapping[str, str] | None = None,
        uid: str = UID,
        shown: Sequence[str] = (),
        ids: Sequence[str] | None = None,
        namespace: str = "shop",
        cluster: ClusterIdentity = CLUSTER,
        endpoints: Sequence[EndpointSlice] = (),
        claimed: Sequence[str] = (),
        **spec: Any,
    ) -> LoadBalancer:
        """What the framework desires of a Service, with all servers as nodes.

        Where addresses are `claimed`, the first node has these by its kubelet's word.
        """
        service = objects.service(
            namespace=namespace,
            uid=uid,
            annotations={PREFIX + name: value for name, value in (asked or {}).items()},
            **{
                "ports": ports or (HTTP,),
                "ip_families": ("IPv4",),
                "ingress": [LoadBalancerIngress(ip=ip) for ip in shown],
                **spec,
            },
        )
        servers = [self.emulator.servers[id_] for id_ in self.servers if ids is None or id_ in ids]
        nodes = [
            objects.node(
                one["name"],
                f"{SCHEME}{one['id']}",
                addresses=[a["addr"] for net in ("private", "public") for a in one["addresses"][net]],
            )
            for one in servers
        ]  # fmt: skip
        if claimed:
            nodes[0] = objects.node("node-1", nodes[0].spec.provider_id, addresses=claimed)
        policy = self.balancers.host_policy(service)
        return desired_load_balancer(service, nodes, policy, cluster, endpoints)

    async def wait(self, pending: Pending) -> None:
        """End the work that the emulator has begun."""
        del pending
        self.clb.finish()

    async def deleted(self, desired: LoadBalancer) -> Done:
        """Deleted, once nothing is left."""
        answer = await super().deleted(desired)
        assert isinstance(answer, Done), answer
        return answer

    def shown(self) -> dict[str, Json]:
        """The load balancers by name, without ids."""
        return {
            one["name"]: {
                **{key: one[key] for key in ("protocol", "port", "algorithm", "timeout")},
                "status": one["status"],
                "vips": [vip["address"] for vip in one["virtualIps"]],
                "nodes": sorted(f"{n['address']}:{n['port']}" for n in one["nodes"]),
                "access": {i["address"]: i["type"] for i in one["accessList"]},
                "monitor": (one["healthMonitor"] or {}).get("type"),
                "persistence": (one["sessionPersistence"] or {}).get("persistenceType"),
                "throttle": (one["connectionThrottle"] or {}).get("maxConnections"),
                "marks": {i["key"]: i["value"] for i in one["metadata"]},
            }
            for one in self.clb.alive()
        }

    def by_name(self, name: str) -> Json:
        """The one of this name as the cloud keeps it."""
        (found,) = (one for one in self.clb.alive() if one["name"] == name)
        return found

    def by_hand(self, name: str = "by hand", **fields: Any) -> Json:
        """A load balancer that somebody has made."""
        body = {
            "name": name, "protocol": "HTTP", "port": 8080,
            "virtualIps": [{"type": "PUBLIC", "ipVersion": "IPV4"}], **fields,
        }  # fmt: skip
        return self.clb.by_id[self.clb.create({"loadBalancer": body})["loadBalancer"]["id"]]


@asynccontextmanager
async def lb_site(emulator: Emulator, sections: str = "") -> AsyncIterator[LBSite]:
    site = LBSite(emulator)
    async with started(emulator, sections) as provider:
        site.provider = provider
        yield site
