"""The table of all operations of Azure that the provider may call; others are not sent.

The custom role in `deploy/azure` is made from it (`tools/azure_role.py`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

COMPUTE: Final = "Microsoft.Compute"
NETWORK: Final = "Microsoft.Network"
RESOURCE_GRAPH: Final = "Microsoft.ResourceGraph"

API_VERSIONS: Final[Mapping[str, str]] = {
    COMPUTE: "2024-07-01",
    NETWORK: "2024-05-01",
    RESOURCE_GRAPH: "2024-04-01",
}
"""The version of each resource provider's API."""
STACK_VERSIONS: Final[Mapping[str, str]] = {COMPUTE: "2020-06-01", NETWORK: "2018-11-01"}
"""The same on an Azure Stack Hub (the profile 2020-09-01-hybrid)."""
DISKS: Final = "2024-03-02"
"""The version for disks, which have their own."""
SCALE_SET_NETWORK: Final = "2018-10-01"
"""The version for network interfaces and addresses of scale sets."""


class Use(StrEnum):
    """The capability that operations are for."""

    INSTANCES = "Nodes"
    GRAPH = "Nodes, with resourceGraph in the cloud-config"
    BALANCING = "Load balancers"
    ROUTES = "Routes"
    VOLUMES = "Volumes"


class Operation(msgspec.Struct, frozen=True):
    """An operation of Azure's API.

    Attributes:
        name: The resource provider and the operation, for logs and metrics.
        action: The action that the caller needs the right to.
        version: The version of the operation's API; "" for that of the resource provider.
    """

    name: str
    action: str
    version: str = ""

    @property
    def kind(self) -> str:
        """The type of the resource, with its provider."""
        return self.action.rpartition("/")[0]

    @property
    def namespace(self) -> str:
        """The resource provider."""
        return self.action.partition("/")[0]


def _of(namespace: str, kind: str, verb: str, version: str = "") -> Operation:
    short = namespace.rpartition(".")[2].lower()
    right = {"put": "write", "delete": "delete"}.get(verb, "read")
    name = f"{short}.{kind.replace('/', '_')}_{verb}"
    return Operation(name, f"{namespace}/{kind}/{right}", version)


VM: Final = "virtualMachines"
SCALE_SET: Final = "virtualMachineScaleSets"
SCALE_SET_VM: Final = f"{SCALE_SET}/{VM}"
NIC: Final = "networkInterfaces"
PUBLIC_IP: Final = "publicIPAddresses"
LOAD_BALANCER: Final = "loadBalancers"
SECURITY_GROUP: Final = "networkSecurityGroups"
ROUTE_TABLE: Final = "routeTables"
LINK: Final = "privateLinkServices"
NET: Final = "virtualNetworks"

VM_GET: Final = _of(COMPUTE, VM, "get")
VM_LIST: Final = _of(COMPUTE, VM, "list")
SCALE_SET_GET: Final = _of(COMPUTE, SCALE_SET, "get")
SCALE_SET_LIST: Final = _of(COMPUTE, SCALE_SET, "list")
SCALE_SET_PUT: Final = _of(COMPUTE, SCALE_SET, "put")
SCALE_SET_VM_GET: Final = _of(COMPUTE, SCALE_SET_VM, "get")
SCALE_SET_VM_LIST: Final = _of(COMPUTE, SCALE_SET_VM, "list")
SCALE_SET_VM_PUT: Final = _of(COMPUTE, SCALE_SET_VM, "put")
SCALE_SET_NIC_LIST: Final = _of(COMPUTE, f"{SCALE_SET}/{NIC}", "list", SCALE_SET_NETWORK)
SCALE_SET_IP_LIST: Final = _of(COMPUTE, f"{SCALE_SET}/{PUBLIC_IP}", "list", SCALE_SET_NETWORK)
DISK_GET: Final = _of(COMPUTE, "disks", "get", DISKS)
NIC_LIST: Final = _of(NETWORK, NIC, "list")
NIC_PUT: Final = _of(NETWORK, NIC, "put")
PUBLIC_IP_GET: Final = _of(NETWORK, PUBLIC_IP, "get")
PUBLIC_IP_LIST: Final = _of(NETWORK, PUBLIC_IP, "list")
PUBLIC_IP_PUT: Final = _of(NETWORK, PUBLIC_IP, "put")
PUBLIC_IP_DELETE: Final = _of(NETWORK, PUBLIC_IP, "delete")
LOAD_BALANCER_GET: Final = _of(NETWORK, LOAD_BALANCER, "get")
LOAD_BALANCER_PUT: Final = _of(NETWORK, LOAD_BALANCER, "put")
LOAD_BALANCER_DELETE: Final = _of(NETWORK, LOAD_BALANCER, "delete")
SECURITY_GROUP_GET: Final = _of(NETWORK, SECURITY_GROUP, "get")
SECURITY_GROUP_PUT: Final = _of(NETWORK, SECURITY_GROUP, "put")
LINK_GET: Final = _of(NETWORK, LINK, "get")
LINK_LIST: Final = _of(NETWORK, LINK, "list")
LINK_PUT: Final = _of(NETWORK, LINK, "put")
LINK_DELETE: Final = _of(NETWORK, LINK, "delete")
LINK_CONNECTION_DELETE: Final = _of(NETWORK, f"{LINK}/privateEndpointConnections", "delete")
ADDRESS_CHECK: Final = _of(NETWORK, f"{NET}/checkIpAddressAvailability", "get")
ROUTE_TABLE_GET: Final = _of(NETWORK, ROUTE_TABLE, "get")
ROUTE_TABLE_PUT: Final = _of(NETWORK, ROUTE_TABLE, "put")
GRAPH_QUERY: Final = _of(RESOURCE_GRAPH, "resources", "query")

OPERATIONS: Final[Mapping[Use, tuple[Operation, ...]]] = {
    Use.INSTANCES: (
        VM_GET, VM_LIST, SCALE_SET_LIST, SCALE_SET_VM_GET, SCALE_SET_VM_LIST, SCALE_SET_NIC_LIST,
        SCALE_SET_IP_LIST, NIC_LIST, PUBLIC_IP_LIST,
    ),
    Use.GRAPH: (GRAPH_QUERY,),
    Use.BALANCING: (
        PUBLIC_IP_GET, PUBLIC_IP_LIST, PUBLIC_IP_PUT, PUBLIC_IP_DELETE, LOAD_BALANCER_GET,
        LOAD_BALANCER_PUT, LOAD_BALANCER_DELETE, SECURITY_GROUP_GET, SECURITY_GROUP_PUT, NIC_LIST,
        NIC_PUT, SCALE_SET_GET, SCALE_SET_LIST, SCALE_SET_PUT, SCALE_SET_VM_GET, SCALE_SET_VM_PUT,
        VM_GET, VM_LIST, LINK_GET, LINK_LIST, LINK_PUT, LINK_DELETE, LINK_CONNECTION_DELETE,
        ADDRESS_CHECK,
    ),
    Use.ROUTES: (ROUTE_TABLE_GET, ROUTE_TABLE_PUT),
    Use.VOLUMES: (DISK_GET,),
}  # fmt: skip
"""Operations by what they are for."""

JOINS: Final[Mapping[Use, tuple[str, ...]]] = {
    Use.BALANCING: (
        f"{NETWORK}/loadBalancers/backendAddressPools/join/action",
        f"{NETWORK}/loadBalancers/frontendIPConfigurations/join/action",
        f"{NETWORK}/networkInterfaces/join/action",
        f"{NETWORK}/networkSecurityGroups/join/action",
        f"{NETWORK}/publicIPAddresses/join/action",
        f"{NETWORK}/publicIPPrefixes/join/action",
        f"{NETWORK}/virtualNetworks/joinLoadBalancer/action",
        f"{NETWORK}/virtualNetworks/subnets/join/action",
    ),
}
"""The rights that Azure asks for where a resource that is written names another one."""
ROWS: Final[Mapping[Use, tuple[str, ...]]] = {
    Use.GRAPH: (
        f"{COMPUTE}/{SCALE_SET_VM}/read",
        f"{COMPUTE}/{SCALE_SET_VM}/{NIC}/read",
        f"{COMPUTE}/{SCALE_SET_VM}/{NIC}/ipConfigurations/{PUBLIC_IP}/read",
    ),
}
"""The rights without which Azure Resource Graph leaves out the rows that are asked for."""
POLL: Final = (
    f"{COMPUTE}/locations/operations/read",
    f"{NETWORK}/locations/operations/read",
    f"{NETWORK}/locations/operationResults/read",
)
"""The rights to ask how far an operation has come."""
