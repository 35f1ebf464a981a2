"""The manager as a process of the gateway, with the provider `local` and the rights it needs."""

import json
import sys
from collections.abc import Sequence

from labs.cluster.cluster import Cluster
from labs.cluster.network import Family

ACCOUNT = "system:serviceaccount:kube-system:cloud-controller-manager"
"""The user that the manager is; its rights are those of `proreus roles`."""

_EVICTING = ",nodelifecycle"

_CLOUD_CONFIG = """\
region: here
zone: one
pools:
  default: {{addresses: [{pools}], avoid-buggy-ips: true}}
gateway: {{enabled: true, interfaces: [clients0, nodes0]}}
"""
_APPROVING = ",kubelet-serving"
"""What `--controllers` also names where kubelets ask for serving certificates."""


def cloud_config(used: Sequence[Family]) -> str:
    """Return the cloud-config of the gateway's manager."""
    return _CLOUD_CONFIG.format(pools=", ".join(f'"{family.load_balancers}"' for family in used))


def flags(used: Sequence[Family]) -> list[str]:
    """Return what decides which rights the manager needs."""
    masks = (
        [
            f"--node-cidr-mask-size-{'ipv6' if ':' in family.pods else 'ipv4'}"
            f"={family.pods_of_a_node}"
            for family in used
        ]
        if len(used) > 1
        else [f"--node-cidr-mask-size={used[0].pods_of_a_node}"]
    )
    return [
        "--cloud-provider=local",
        "--controllers=*",
        "--allocate-node-cidrs",
        f"--cluster-cidr={','.join(family.pods for family in used)}",
        f"--service-cluster-ip-range={','.join(family.services for family in used)}",
        *masks,
    ]


def inventory(cluster: Cluster) -> str:
    """Return an inventory of the cluster's machines, whose ids are SN-1, SN-2 and so on."""
    machines = [
        {"name": node.name, "id": f"SN-{number}", "addresses": list(node.addresses)}
        for number, node in enumerate(cluster.nodes, 1)
    ]
    return json.dumps({"machines": machines})


def start_manager(cluster: Cluster) -> None:
    """Give the manager its rights and start it.

    Raises:
        ClusterError: the API server or the machine refuses.
    """
    machine, plane, used = cluster.gateway, cluster.plane, cluster.families
    config = machine.directory / "cloud.yaml"
    chosen = [*flags(used), f"--cloud-config={config}"]
    known = ""
    if cluster.settings.serving_certificates:
        machines = machine.directory / "machines.yaml"
        machines.write_text(inventory(cluster))
        known = f"instances: {{inventory: {machines}}}\n"
        chosen = [one + _APPROVING * one.startswith("--controllers=") for one in chosen]
    if not cluster.settings.evicts:
        chosen = [one + _EVICTING * one.startswith("--controllers=") for one in chosen]
    config.write_text(cloud_config(used) + known)
    program = (sys.executable, "-m", "proreus")
    plane.apply(machine.run(*program, "roles", *chosen))
    user = plane.kubeconfig_for(ACCOUNT, ["system:serviceaccounts"], "manager")
    # There is no other: an election would only make it end when the machine stalls.
    alone = ("--leader-elect=false", f"--kubeconfig={user}", "-v=2")
    machine.keep("manager", *program, "run", *chosen, *alone)
