"""Services, and the load balancers that NSX-T has for them."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider import CloudProvider, LoadBalancer
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.kube.objects import LoadBalancerIngress, Node, ServicePort
from proreus.testing import objects

from ...ensured import Balancing  # noqa: TID252 - pytest imports tests by path
from ..site import CLUSTER  # noqa: TID252
from .emulator.server import Emulator
from .site import MANAGED, started

Json = dict[str, Any]

UID = "5e000000-0000-4000-8000-000000000001"
OTHER_UID = "5e000000-0000-4000-8000-0000000000b2"
HTTP = ServicePort(80, "http", node_port=30080)
HTTPS = ServicePort(443, "https", node_port=30443)
DNS = ServicePort(53, "dns", node_port=30053, protocol="UDP")
OFFICIAL = "vsphere-cloud-controller-manager"
KINDS = (
    "lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles",
    "lb-persistence-profiles", "groups", "ip-allocations",
)  # fmt: skip


def node(name: str, *addresses: str) -> Node:
    return objects.node(name, f"vsphere://{name}", addresses=addresses)


NODES = (node("node-1", "10.0.0.1", "fd00::1"), node("node-2", "10.0.0.2"))


class LBSite(Balancing):
    """A provider of NSX-T, with two nodes."""

    def __init__(self, nsxt: Emulator, provider: CloudProvider) -> None:
        self.nsxt = nsxt
        self.provider = provider

    def desired(
        self,
        *ports: ServicePort,
        annotations: Mapping[str, str] | None = None,
        uid: str = UID,
        name: str = "web",
        shown: str = "",
        nodes: Sequence[Node] = NODES,
        cluster: ClusterIdentity = CLUSTER,
        namespace: str = "shop",
        **spec: Any,
    ) -> LoadBalancer:
        service = objects.service(
            name=name,
            namespace=namespace,
            uid=uid,
            annotations=dict(annotations or {}),
            ingress=[LoadBalancerIngress(ip=shown)] if shown else [],
            **{"ports": ports or (HTTP,), "ip_families": ("IPv4",), **spec},
        )
        policy = self.balancers.host_policy(service)
        return desired_load_balancer(service, nodes, policy, cluster)

    async def address(self, desired: LoadBalancer) -> str:
        (point,) = (await self.made(desired)).ingress
        return point.ip

    def parts(self) -> Iterator[Json]:
        """All objects of load balancers that are not of the system."""
        for kind in KINDS:
            yield from (one for one in self.nsxt.of(kind) if not one["_system_owned"])

    def paths(self) -> set[str]:
        return {one["path"] for one in self.parts()}

    def own(self, kind: str) -> list[Json]:
        """The objects of a kind that are not of the system, by their ports."""
        found = [one for one in self.nsxt.of(kind) if not one["_system_owned"]]
        return sorted(found, key=lambda one: tags(one).get("port", ""))

    def official(self, shown: str, *, name: str = "web", port: int = 80) -> set[str]:
        """Objects as the official manager leaves them for a Service; their paths.

        They are written from its source: ids are random, tags are its own alone.
        """
        mine = {"owner": OFFICIAL, "cluster": CLUSTER.name, "service": f"shop/{name}"}
        ported = {**mine, "port": f"TCP/{port}"}
        display = f"cluster:{CLUSTER.name}:shop/{name}"
        base, here = "/infra", f"0ff1c1a1-{port}-{name}"
        bodies: dict[str, Json] = {
            f"{base}/lb-services/0ff1-lbs": {
                "display_name": f"cluster:{CLUSTER.name}", "size": "SMALL", "enabled": True,
                "connectivity_path": "/infra/tier-1s/t1",
                "tags": as_tags({"owner": OFFICIAL, "cluster": CLUSTER.name, "site": "a"}),
            },
            f"{base}/ip-pools/vips/ip-allocations/{here}": {"tags": as_tags(mine)},
            f"{base}/lb-monitor-profiles/{here}": {
                "resource_type": "LBTcpMonitorProfile", "monitor_port": 30080,
                "display_name": f"{display}:30080", "tags": as_tags(ported),
            },
            f"{base}/lb-pools/{here}": {
                "display_name": display, "tags": as_tags(ported),
                "snat_translation": {"type": "LBSnatAutoMap"},
                "active_monitor_paths": [f"{base}/lb-monitor-profiles/{here}"],
                "members": [
                    {"admin_state": "ENABLED", "display_name": "test:node-1", "ip_address": "10.0.0.1"},
                    {"admin_state": "ENABLED", "display_name": "test:node-2", "ip_address": "10.0.0.2"},
                ],
            },
            f"{base}/lb-virtual-servers/{here}": {
                "display_name": display, "enabled": True, "ip_address": shown, "ports": [str(port)],
                "default_pool_member_ports": ["30080"], "pool_path": f"{base}/lb-pools/{here}",
                "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
                "lb_service_path": f"{base}/lb-services/0ff1-lbs",
                "tags": as_tags({**ported, "lbclass": "default", "ippoolid": "vips"}),
            },
        }  # fmt: skip
        for path, body in bodies.items():
            self.nsxt.put(path, **body)
        return set(bodies)


def tags(one: Json) -> dict[str, str]:
    return {tag["scope"]: tag["tag"] for tag in one.get("tags", ())}


def as_tags(found: Mapping[str, str]) -> list[Json]:
    return [{"scope": scope, "tag": tag} for scope, tag in sorted(found.items())]


@asynccontextmanager
async def lb_site(
    nsxt: Emulator, text: str = MANAGED, with_: Context | None = None, **changed: Any
) -> AsyncIterator[LBSite]:
    async with started(nsxt, text, with_, **changed) as provider:
        yield LBSite(nsxt, provider)
