"""Pods leave a silent node where only the manager sees to it, on real nodes."""

import json
import signal

import msgspec
import pytest

from labs.cluster import Cluster
from labs.cluster.cluster import AGNHOST_IMAGE
from labs.cluster.manager import start_manager

from .conftest import Make
from .looking import get, until

pytestmark = pytest.mark.long

UNREACHABLE = "node.kubernetes.io/unreachable"


def deploy(cluster: Cluster) -> None:
    """A Deployment of one pod that leaves a silent node after five seconds."""
    labels = {"app": "web"}
    tolerations = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 5,
        }
        for key in (UNREACHABLE, "node.kubernetes.io/not-ready")
    ]
    pod = {
        "containers": [{"name": "web", "image": AGNHOST_IMAGE, "args": ["pause"]}],
        "terminationGracePeriodSeconds": 0,
        "tolerations": tolerations,
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    meta = {"name": "web"}
    cluster.plane.apply(
        json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    )


def places(cluster: Cluster) -> set[str]:
    """The nodes on which a pod runs that is Ready and stays."""
    return {
        pod["spec"].get("nodeName", "")
        for pod in get(cluster, "pods", "--selector=app=web")["items"]
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            (one["type"], one["status"]) == ("Ready", "True")
            for one in pod["status"].get("conditions", [])
        )
    }


def taints(cluster: Cluster, name: str) -> set[tuple[str, str]]:
    found = get(cluster, "node", name)["spec"].get("taints", [])
    return {(one["key"], one["effect"]) for one in found}


def test_pods_leave_a_silent_node_and_it_returns(make: Make) -> None:
    cluster = make(nodes=2, evicts=False)
    cluster.start(start_manager)
    deploy(cluster)
    until("the pod", lambda: bool(places(cluster)))
    (lost,) = places(cluster)
    node = next(node for node in cluster.nodes if node.name == lost)

    node.machine.kill("kubelet", signal.SIGSTOP)

    until("the pod elsewhere", lambda: bool(places(cluster) - {lost}))
    assert taints(cluster, lost) == {(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")}
    (ready,) = [
        one for one in get(cluster, "node", lost)["status"]["conditions"] if one["type"] == "Ready"
    ]
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")

    node.machine.kill("kubelet", signal.SIGCONT)

    until("the node without taints", lambda: not taints(cluster, lost))
    assert not [name for name in ("node-1", "node-2") if taints(cluster, name)]


def test_a_real_controller_manager_that_does_it_is_left_to_it(make: Make) -> None:
    def both(cluster: Cluster) -> None:
        """Start a manager that evicts, beside a kube-controller-manager that does, too."""
        cluster.settings = msgspec.structs.replace(cluster.settings, evicts=False)
        start_manager(cluster)

    cluster = make(nodes=2)
    cluster.start(both)
    log = cluster.gateway.log("manager")
    assert "Another controller" not in log.read_text()

    cluster.nodes[0].machine.kill("kubelet", signal.SIGSTOP)

    until("the taint", lambda: (UNREACHABLE, "NoExecute") in taints(cluster, "node-1"))
    until("the other one's name", lambda: 'others="kube-controller-manager"' in log.read_text())
    fields = get(cluster, "node", "node-1", "--show-managed-fields")["metadata"]["managedFields"]
    writers = {one["manager"] for one in fields if "f:taints" in one["fieldsV1"].get("f:spec", {})}
    assert "kube-controller-manager" in writers
    assert "its kubelet is silent" not in log.read_text()
