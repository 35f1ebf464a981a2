"""A pod and its volume leave a node whose machine has no power, on real nodes."""

import json
import signal
import sys
import time
from typing import Any

import pytest

from labs.cluster import Cluster
from labs.cluster.cluster import AGNHOST_IMAGE
from labs.cluster.manager import ACCOUNT

from .conftest import Make
from .driver import attach, attachments, built, install, offer
from .looking import get, until

pytestmark = pytest.mark.long

CLOUD = "http://127.0.0.1:7070"
TAINT = "node.kubernetes.io/out-of-service"
MOST = 60.0
"""Seconds from the taint until the pod runs elsewhere."""


def admin(cluster: Cluster, verb: str, path: str, body: object) -> dict[str, Any]:
    told = cluster.gateway.run(
        *(
            "curl",
            "--silent",
            "--fail",
            "--request",
            verb,
            "--header",
            "Authorization: Bearer admin",
        ),
        *("--header", "Content-Type: application/json", "--data", json.dumps(body)),
        f"{CLOUD}/admin/{path}",
    )
    answer: dict[str, Any] = json.loads(told)
    return answer


def start(cluster: Cluster) -> None:
    """Start the simulated cloud with a machine for each node, and a manager of it."""
    gateway = cluster.gateway
    state = gateway.directory / "cloud.db"
    program = (sys.executable, "-m", "proreus.testing.simulated")
    gateway.start(
        "cloud", *program, "--listen=127.0.0.1:7070", f"--state={state}", "--token=manager=token"
    )

    def answers() -> bool:
        log = gateway.run("sh", "-c", f"curl --silent --max-time 5 {CLOUD}/ || true")
        return bool(log)

    until("the cloud", answers)
    until("both nodes", lambda: len(get(cluster, "nodes")["items"]) == len(cluster.nodes))
    uuids = {
        node["metadata"]["name"]: node["status"]["nodeInfo"]["systemUUID"]
        for node in get(cluster, "nodes")["items"]
    }
    machines = [
        {
            "name": node.name,
            "zone": "one",
            "system_uuid": uuids[node.name],
            "addresses": [{"type": "InternalIP", "address": one} for one in node.addresses],
        }
        for node in cluster.nodes
    ]
    admin(cluster, "POST", "instances", {"instances": machines})
    region = admin(cluster, "GET", "state", {})["instances"][0]["region"]
    config = gateway.directory / "cloud.yaml"
    config.write_text(f"Global: {{endpoint: '{CLOUD}', region: {region}, token: token}}\n")
    flags = (
        "--cloud-provider=simulated",
        f"--cloud-config={config}",
        "--controllers=cloud-node,cloud-node-lifecycle,nodeipam",
        "--allocate-node-cidrs",
        f"--cluster-cidr={','.join(family.pods for family in cluster.families)}",
        "--node-deletion-interval=5s",
        "--node-out-of-service-grace=5s",
        "--node-out-of-service-taint",
    )
    manager = (sys.executable, "-m", "proreus")
    cluster.plane.apply(gateway.run(*manager, "roles", *flags))
    user = cluster.plane.kubeconfig_for(ACCOUNT, ["system:serviceaccounts"], "manager")
    alone = ("--leader-elect=false", f"--kubeconfig={user}", "-v=2")
    gateway.keep("manager", *manager, "run", *flags, *alone)


def stateful(cluster: Cluster) -> None:
    """A StatefulSet of one pod with a volume, which its claim template names."""
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "db",
                    "image": AGNHOST_IMAGE,
                    "args": ["pause"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    set_ = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 1,
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
            "volumeClaimTemplates": [claim],
        },
    }
    cluster.plane.apply(json.dumps(set_))


def place_of_pod(cluster: Cluster) -> str:
    """The node on which the pod runs; "" if it runs on none."""
    pods = get(cluster, "pods", "--selector=app=db")["items"]
    return next(
        (
            str(pod["spec"].get("nodeName", ""))
            for pod in pods
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ),
        "",
    )


def tainted(cluster: Cluster, name: str) -> bool:
    taints = get(cluster, "node", name)["spec"].get("taints", [])
    return any(one["key"] == TAINT for one in taints)


def test_a_pod_and_its_volume_leave_a_machine_without_power(make: Make) -> None:
    program = built()
    cluster = make(nodes=2)
    cluster.start(start)
    for node in cluster.nodes:
        install(cluster, node, program)
    offer(cluster, "volume", "data-db-0")
    stateful(cluster)

    def runs() -> bool:
        attach(cluster)
        return bool(place_of_pod(cluster))

    until("the pod", runs)
    lost = place_of_pod(cluster)
    assert list(attachments(cluster)) == [lost]

    # Its kubelet falls silent, and the cloud says why.
    node = next(node for node in cluster.nodes if node.name == lost)
    node.machine.kill("kubelet", signal.SIGSTOP)
    machines = admin(cluster, "GET", "state", {})["instances"]
    (id_,) = [one["id"] for one in machines if one["name"] == lost]
    admin(cluster, "PATCH", f"instances/{id_}", {"state": "stopped"})
    until("the taint", lambda: tainted(cluster, lost))
    begun = time.monotonic()

    def moved() -> bool:
        attach(cluster)
        return place_of_pod(cluster) not in {"", lost}

    until("the pod elsewhere", moved)
    taken = time.monotonic() - begun
    print(f"the pod ran elsewhere {taken:.0f} s after the taint")
    assert lost not in attachments(cluster)
    assert taken < MOST

    admin(cluster, "PATCH", f"instances/{id_}", {"state": "running"})
    assert tainted(cluster, lost)
    node.machine.kill("kubelet", signal.SIGCONT)
    until("the node in service", lambda: not tainted(cluster, lost))
