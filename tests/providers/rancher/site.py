"""What the tests of the provider `rancher` share: an emulator with hosts, and a provider."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from proreus.cloudprovider import CloudProvider, LoadBalancer
from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import EndpointSlice, Node, ServicePort
from proreus.providers.rancher import RancherCloud
from proreus.providers.rancher.config import RancherConfig
from proreus.testing import objects

from ..ensured import Balancing  # noqa: TID252 - pytest imports tests by path
from ..surroundings import Events, Objects  # noqa: TID252
from .emulator.schemas import Json
from .emulator.server import Emulator

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
UID = "5e000000-0000-4000-8000-000000000001"
NAME = f"lb-{default_load_balancer_name(UID)}"
HTTP = ServicePort(80, "http", node_port=30080)
HTTPS = ServicePort(443, "https", node_port=30443)
DNS = ServicePort(53, "dns", node_port=30053, protocol="UDP")


def context(
    hooks: CallHooks | None = None, cluster: ClusterIdentity = CLUSTER, nodes: Iterable[Node] = ()
) -> Context:
    return Context(
        cluster,
        now=lambda: datetime.now(UTC),
        events=Events(),
        listers={name: Objects(nodes if name == "nodes" else ()) for name in RancherCloud.needs},
        hooks=hooks,
    )


def cloud(text: str) -> RancherCloud:
    """A provider with this cloud-config, not started yet."""
    return RancherCloud(read(text, RancherConfig, source="cloud-config"))


@asynccontextmanager
async def started(
    emulator: Emulator,
    sections: str = "",
    cluster: ClusterIdentity = CLUSTER,
    nodes: Iterable[Node] = (),
) -> AsyncIterator[RancherCloud]:
    """A started provider that speaks to the emulator; the calls of its start are forgotten."""
    provider = cloud(emulator.config(sections))
    provider.confirm = 1.0
    try:
        await provider.start(context(cluster=cluster, nodes=nodes))
        emulator.calls.clear()
        yield provider
    finally:
        await provider.close()


async def describe(provider: CloudProvider, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


def node(name: str, provider_id: str = "", ip: str = "") -> Node:
    return objects.node(name, provider_id, addresses=(ip,) if ip else ())


class LBSite(Balancing):
    """Hosts in one environment, and a provider."""

    pause = 0.01

    def __init__(self, emulator: Emulator, provider: RancherCloud, names: Sequence[str]) -> None:
        self.emulator, self.world, self.provider = emulator, emulator.world, provider
        self.nodes: list[Node] = []
        self.add(*names)

    def add(self, *names: str) -> None:
        """Register hosts, and their nodes."""
        for name, uuid in zip(names, self.world.add_hosts(names), strict=True):
            ip = self.world.host(uuid)["agentIpAddress"]
            self.nodes.append(node(name, f"rancher://{uuid}", ip))

    def desired(
        self,
        *ports: ServicePort,
        uid: str = UID,
        nodes: Sequence[Node] | None = None,
        cluster: ClusterIdentity = CLUSTER,
        endpoints: Sequence[EndpointSlice] = (),
        **spec: Any,
    ) -> LoadBalancer:
        service = objects.service(
            namespace="shop",
            uid=uid,
            **{"ports": ports or (HTTP,), "ip_families": ("IPv4",), **spec},
        )
        policy = self.balancers.host_policy(service)
        chosen = self.nodes if nodes is None else nodes
        return desired_load_balancer(service, chosen, policy, cluster, endpoints)

    def balancer(self, name: str = NAME) -> Json:
        (found,) = (one for one in self.world.of("loadBalancerService") if one["name"] == name)
        return found

    def externals(self) -> dict[str, Json]:
        """The external services by name, once what is due is done."""
        self.world.advance()
        return {str(one["name"]): one for one in self.world.of("externalService")}

    def served(self, name: str = NAME) -> dict[str, set[str]]:
        """Where the ports of a load balancer lead: addresses with their ports."""
        one = self.balancer(name)
        linked = [link["consumedServiceId"] for link in self.world.links_of(one["id"])]
        found: dict[str, set[str]] = {}
        for port in one["launchConfig"]["ports"]:
            public, _, to = str(port).partition("/")[0].partition(":")
            found[public] = (
                {f"{self._address(id_)}:{to}" for id_ in linked} if "lbConfig" not in one else set()
            )
        for rule in (one.get("lbConfig") or {}).get("portRules") or ():
            assert rule["serviceId"] in linked
            assert rule["protocol"] == "tcp"
            to = f"{self._address(rule['serviceId'])}:{rule['targetPort']}"
            found.setdefault(str(rule["sourcePort"]), set()).add(to)
        return found

    def _address(self, id_: str) -> str:
        (address,) = self.world.objects[id_]["externalIpAddresses"]
        return str(address)

    def targets(self, port: int) -> set[str]:
        """The addresses of all nodes with this port."""
        return {f"{one.status.addresses[0].address}:{port}" for one in self.nodes}

    def writes(self) -> dict[str, int]:
        """The requests since the last call that changed anything."""
        found = {k: v for k, v in self.emulator.calls.items() if not k.startswith("GET")}
        self.emulator.calls.clear()
        return found


@asynccontextmanager
async def lb_site(
    emulator: Emulator, names: Sequence[str] = ("node-1", "node-2")
) -> AsyncIterator[LBSite]:
    async with started(emulator) as provider:
        yield LBSite(emulator, provider, names)
