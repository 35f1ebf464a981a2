"""Two gateways with a manager each, one of which leads, and other machines beside the nodes.

They hang on the network of the nodes; the cluster's own gateway only joins that with the clients'
then, and is the control plane. It has the routes to pods, which a network plugin would make.
"""

import json
import sys
from types import MappingProxyType
from typing import Final

from labs.cluster.cluster import Cluster
from labs.cluster.machines import Machine, start_machine
from labs.cluster.manager import ACCOUNT, flags
from labs.cluster.network import IPV4, cable_commands, host_commands, router_commands
from labs.cluster.plane import Plane

GATEWAYS: Final = MappingProxyType({"gateway-a": 2, "gateway-b": 3})
"""The names of the gateways, and their numbers in the network of the nodes."""

_POOL = f"{IPV4.nodes.rpartition('.')[0]}.200-{IPV4.nodes.rpartition('.')[0]}.250"
_CLOUD_CONFIG = """\
pools: {{default: {{addresses: [{pool}]}}}}
gateway: {{interfaces: [eth0], hold: 15s{vrrp}}}
routes: {{enabled: false}}
"""
_VRRP = f", vrrp: {{enabled: true, gateways: [{', '.join(GATEWAYS)}]}}"


def start_gateways(cluster: Cluster, *, vrrp: bool = False) -> None:
    """Start both, and give their managers the rights they need.

    Args:
        cluster: Where.
        vrrp: Whether both have addresses, and notice one another by VRRP, with keepalived.

    Raises:
        ClusterError: the API server or a machine refuses.
    """
    chosen = [*flags([IPV4]), "--configure-cloud-routes=false"]
    program = (sys.executable, "-m", "proreus")
    cluster.plane.apply(cluster.gateway.run(*program, "roles", *chosen))
    for name, number in GATEWAYS.items():
        machine = join(cluster, name, number)
        config = machine.directory / "cloud.yaml"
        config.write_text(_CLOUD_CONFIG.format(pool=_POOL, vrrp=_VRRP if vrrp else ""))
        user = cluster.plane.kubeconfig_for(ACCOUNT, ["system:serviceaccounts"], name)
        files = (f"--cloud-config={config}", f"--kubeconfig={user}")
        machine.keep("manager", *program, "run", *chosen, *files, "-v=2")


def join(cluster: Cluster, name: str, number: int) -> Machine:
    """Add a machine to the network of the nodes, at the end of a cable of its name.

    Raises:
        ClusterError: it does not come up.
    """
    gateway = cluster.gateway
    machine = start_machine(gateway, name, cluster.programs.path("pause"))
    gateway.run_all(cable_commands(name, gateway.pid(f"holder-{name}"), "nodes0"))
    machine.run_all(router_commands())
    address = f"{IPV4.gateway().rpartition('.')[0]}.{number}"
    machine.run_all(host_commands([(address, IPV4.nodes, IPV4.gateway())]))
    return machine


def holder(plane: Plane) -> str:
    """Return the identity of the manager that holds the lease, "" if none does.

    Raises:
        ClusterError: there is no lease.
    """
    shown = plane.kubectl(
        *("get", "lease", "cloud-controller-manager", "--namespace=kube-system", "--output=json")
    )
    return str(json.loads(shown)["spec"].get("holderIdentity") or "")


def leader(plane: Plane) -> str:
    """Return the gateway whose manager holds the lease, "" if none does.

    Its identity begins with the machine's name.

    Raises:
        ClusterError: there is no lease.
    """
    identity = holder(plane)
    return next((name for name in GATEWAYS if identity.startswith(f"{name}_")), "")
