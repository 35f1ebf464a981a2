"""What tests see of a cluster."""

import json
from functools import partial
from typing import Any

from labs.cluster import Cluster, ClusterError, find
from labs.cluster.cluster import AGNHOST_IMAGE
from proreus.testing.waiting import block_until

until = partial(block_until, patience=600.0, pause=0.5)
"""Real nodes and pods take their time."""


def get(cluster: Cluster, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.plane.kubectl("get", *what, "-o", "json"))
    return found


def serve(cluster: Cluster, name: str, *, node: str = "", **service: object) -> None:
    """Start a server that tells its host name, one pod or, without a node, two; and its Service."""
    labels = {"app": name}
    container = {"name": "server", "image": AGNHOST_IMAGE, "args": ["netexec"]}
    pod: dict[str, object] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if node:
        pod["nodeName"] = node
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1 if node else 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {**pod, **({} if node else {"topologySpreadConstraints": [spread]})},
            },
        },
    }
    exposed = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "selector": labels,
            "ports": [{"port": 80, "targetPort": 8080}],
            **service,
        },
    }
    cluster.plane.apply(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment, exposed]})
    )
    replicas = 1 if node else 2
    until(
        f"{replicas} ready pods of {name}",
        lambda: get(cluster, "deployment", name)["status"].get("readyReplicas", 0) == replicas,
    )


def pods(cluster: Cluster, name: str) -> dict[str, str]:
    """The pods of a server and their addresses."""
    found = get(cluster, "pods", "--selector", f"app={name}")["items"]
    return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in found}


def addresses_of(cluster: Cluster, name: str) -> list[str]:
    """The addresses of a load balancer, when they are in its status."""

    def status() -> list[dict[str, str]]:
        found: list[dict[str, str]] = get(cluster, "service", name)["status"]["loadBalancer"].get(
            "ingress", []
        )
        return found

    until(f"an address of {name}", lambda: bool(status()))
    return [one["ip"] for one in status()]


def ask(cluster: Cluster, url: str, *, on: str = "client") -> str:
    """The answer, "" if there is none."""
    machine = find(cluster.settings.name, cluster.programs)[on]
    try:
        return machine.run("curl", "--silent", "--globoff", "--max-time", "5", url)
    except ClusterError:
        return ""
