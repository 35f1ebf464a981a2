"""Services and nodes for the tests of load balancers of Azure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider import CloudError, Ensured, LoadBalancer, Pending
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import Done, EnsureAnswer
from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from proreus.providers.azure import AzureCloud
from proreus.testing import objects

from .emulator import seed
from .emulator.kinds import filled
from .emulator.server import Emulator
from .emulator.store import Resource, compute, network
from .site import CLUSTER, ID

PREFIX = "service.beta.kubernetes.io/"
UID = "5a0c{:04}-0000-4000-8000-000000000000"


def name_of(uid: str) -> str:
    return ("a" + uid.replace("-", ""))[:32]


def service(
    number: int = 1,
    annotations: Mapping[str, str] | None = None,
    ports: Sequence[ServicePort] = (ServicePort(80, "http", node_port=30080),),
    *,
    ingress: Sequence[str] = (),
    namespace: str = "shop",
    **spec: Any,
) -> Service:
    """A Service; annotations without their prefix."""
    given = {f"{PREFIX}{key}": value for key, value in (annotations or {}).items()}
    points = tuple(LoadBalancerIngress(ip=ip) for ip in ingress)
    return Service(
        metadata=ObjectMeta(
            name=f"web-{number}", namespace=namespace, uid=UID.format(number), annotations=given
        ),
        spec=ServiceSpec(
            type="LoadBalancer", ports=tuple(ports), **{"ip_families": ("IPv4",), **spec}
        ),
        status=ServiceStatus(load_balancer=LoadBalancerStatus(ingress=points)),
    )


def node(name: str, id_: str, *addresses: str, labels: Mapping[str, str] | None = None) -> Node:
    found = tuple(NodeAddress("InternalIP", one) for one in addresses)
    return objects.node(name, id_, addresses=found, labels=labels or {})


def machines(azure: Emulator, count: int = 2, families: tuple[str, ...] = ("IPv4",)) -> list[Node]:
    """Start machines, and return their nodes."""
    found = []
    for number in range(count):
        id_ = seed.machine(azure.store, f"node-{number}", families=families)
        nic = azure.store.of[network("networkInterfaces", f"node-{number}-nic").lower()]
        addresses = [
            one["properties"]["privateIPAddress"] for one in nic["properties"]["ipConfigurations"]
        ]
        found.append(
            node(f"node-{number}", f"azure://{id_.replace('Cluster', 'cluster')}", *addresses)
        )
    return found


def set_machines(azure: Emulator, count: int = 2, set_: str = "pool") -> list[Node]:
    """Start machines of a scale set, and return their nodes."""
    if azure.store.get(compute("virtualMachineScaleSets", set_)) is None:
        seed.scale_set(azure.store, set_)
    found = []
    for number in range(count):
        name = seed.set_machine(azure.store, set_, number)
        id_ = f"{ID}/virtualMachineScaleSets/{set_}/virtualMachines/{number}"
        nic = azure.store.of[f"{id_.removeprefix('azure://')}/networkInterfaces/nic".lower()]
        address = nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
        found.append(node(name, id_, address))
    return found


def desired(provider: AzureCloud, one: Service, nodes: Iterable[Node]) -> LoadBalancer:
    assert provider.load_balancers is not None
    policy = provider.load_balancers.host_policy(one)
    return desired_load_balancer(one, nodes, policy, CLUSTER)


async def answers(
    provider: AzureCloud, nodes: Iterable[Node], *services: Service
) -> Mapping[str, EnsureAnswer]:
    """Ensure Services at once; the answers by their names."""
    assert provider.load_balancers is not None
    nodes = list(nodes)
    found = await provider.load_balancers.ensure(
        [desired(provider, one, nodes) for one in services]
    )
    return {one.metadata.name: found[one.metadata.uid] for one in services}


async def ensure(
    provider: AzureCloud, nodes: Iterable[Node], *services: Service
) -> dict[str, list[str]]:
    """Ensure Services at once; their addresses by their names."""
    found = await answers(provider, nodes, *services)
    for one in found.values():
        assert isinstance(one, Ensured), one
    return {
        name: [point.ip for point in one.ingress]
        for name, one in found.items()
        if isinstance(one, Ensured)
    }


async def delete(provider: AzureCloud, *services: Service, bare: bool = False) -> None:
    """Delete the load balancers of Services, which are gone from the API if `bare`."""
    assert provider.load_balancers is not None
    refs = [desired(provider, one, ()).ref for one in services]
    if bare:
        refs = [msgspec.structs.replace(one, service=None, last_ingress=()) for one in refs]
    for _ in range(5):
        found = await provider.load_balancers.delete(refs)
        if not any(isinstance(one, Pending) for one in found.values()):
            break
    for one in found.values():
        if isinstance(one, CloudError):
            raise one
        assert isinstance(one, Done)


def balancer(azure: Emulator, name: str = "kubernetes") -> Resource | None:
    found = azure.store.get(network("loadBalancers", name))
    return azure.store.shown(found) if found is not None else None


def parts(azure: Emulator, field: str, name: str = "kubernetes") -> dict[str, Any]:
    """The parts of one type of a load balancer, as properties by name."""
    found = balancer(azure, name)
    listed = found["properties"][field] if found is not None else ()
    return {one["name"]: one["properties"] for one in listed}


def rules(azure: Emulator) -> dict[str, Any]:
    """The rules of the security group, as properties by name."""
    group = azure.store.of[network("networkSecurityGroups", "nsg").lower()]
    return {one["name"]: one["properties"] for one in group["properties"]["securityRules"]}


def addresses(azure: Emulator) -> dict[str, Resource]:
    """Public addresses by name."""
    return {one["name"]: one for one in azure.store.kind("Microsoft.Network/publicIPAddresses")}


def targets(rule: Mapping[str, Any]) -> set[str]:
    """The destinations of a rule."""
    single = rule.get("destinationAddressPrefix")
    return {*rule.get("destinationAddressPrefixes", ()), *([single] if single else ())}


def everything(azure: Emulator) -> str:
    """All that load balancers change, to compare."""
    kinds = ("loadBalancers", "publicIPAddresses", "networkSecurityGroups", "networkInterfaces")
    found = {
        one["id"]: {key: value for key, value in one.items() if key != "etag"}
        for kind in kinds
        for one in azure.store.kind(f"Microsoft.Network/{kind}")
    }
    return json.dumps(found, sort_keys=True)


def public_ip(azure: Emulator, name: str, tags: Mapping[str, str] | None = None) -> str:
    """Make a public address as somebody does by hand; return the address."""
    given = {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}
    kind = "Microsoft.Network/publicIPAddresses"
    one = seed.resource(kind, network("publicIPAddresses", name), given, sku={"name": "Standard"})
    one["tags"] = dict(tags or {})
    return str(azure.store.put(filled(azure.store, one, None))["properties"]["ipAddress"])
