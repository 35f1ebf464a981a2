"""Kubelets serve with certificates that the manager has approved, and no others are trusted."""

import json
import signal
from typing import Any

import pytest

from labs.cluster import Cluster, start_manager

from .conftest import Make
from .looking import get, pods, serve, until

pytestmark = pytest.mark.long

SIGNER = "kubernetes.io/kubelet-serving"


def requests(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    """The requests of a node's kubelet for serving certificates, the latest one last."""
    found = get(
        cluster, "certificatesigningrequests", f"--field-selector=spec.signerName={SIGNER}"
    )["items"]
    mine = [one for one in found if one["spec"]["username"] == f"system:node:{node}"]
    return sorted(mine, key=lambda one: str(one["metadata"]["creationTimestamp"]))


def conditions(request: dict[str, Any]) -> list[str]:
    return [one["type"] for one in request["status"].get("conditions", [])]


def reasons(cluster: Cluster, request: dict[str, Any]) -> list[str]:
    """What the manager says about a request."""
    name = request["metadata"]["name"]
    events = get(cluster, "events", f"--field-selector=involvedObject.name={name}")["items"]
    return [one["message"] for one in events]


def refused(cluster: Cluster, node: str, why: str) -> None:
    """Wait until a request of the node's kubelet is refused for that reason."""

    def is_refused() -> bool:
        return any(
            why in said
            for request in requests(cluster, node)
            if not conditions(request)
            for said in reasons(cluster, request)
        )

    until(f"{node} is refused: {why}", is_refused)


def test_logs_are_read_with_verification_and_what_is_anothers_is_refused(make: Make) -> None:
    cluster = make(nodes=2, serving_certificates=True)
    cluster.start(start_manager)
    serve(cluster, "web")

    def logs(pod: str) -> str:
        return cluster.plane.kubectl("logs", pod)

    for pod in pods(cluster, "web"):
        assert "Started HTTP server" in logs(pod)
    for node in cluster.nodes:
        assert "Approved" in conditions(requests(cluster, node.name)[-1])

    one, other = cluster.nodes
    wanted = {"type": "InternalIP", "address": one.addresses[0]}
    had = get(cluster, "node", other.name)["status"]["addresses"]
    cluster.plane.kubectl(
        "patch",
        "node",
        other.name,
        "--subresource=status",
        "--type=merge",
        f"--patch={json.dumps({'status': {'addresses': [*had, wanted]}})}",
    )
    refused(cluster, other.name, f"the Node has {wanted['address']}")

    machine = other.machine
    machine.kill("kubelet", signal.SIGKILL)
    machine.run("sh", "-c", f"rm {machine.directory}/kubelet/pki/kubelet-server*")
    cluster.plane.kubectl("delete", "node", other.name)
    id_ = get(cluster, "node", one.name)["spec"]["providerID"]
    other.start_kubelet(cluster.plane, cluster.families, f"--provider-id={id_}", serving=True)
    refused(cluster, other.name, f"{one.name} also has the provider id {id_}")
