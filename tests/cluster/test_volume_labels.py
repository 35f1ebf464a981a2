"""Pods go where their volumes are: the scheduler follows what the webhook has written."""

import base64
import json
import sys
from typing import Any, Final

import pytest

from labs.cluster import Cluster, ClusterError, start_manager
from labs.cluster.cluster import AGNHOST_IMAGE
from labs.cluster.manager import ACCOUNT, flags
from proreus.testing.controlplane.certificates import Authority

from .conftest import Make
from .looking import get, until

pytestmark = pytest.mark.long

ZONE: Final = "topology.kubernetes.io/zone"
CLOUD: Final = "http://127.0.0.1:7070"
CONTROLLER: Final = "persistentvolume-label-controller"
WEBHOOK: Final = "persistentvolume-label"
PORT: Final = 10260


def start_cloud(cluster: Cluster) -> None:
    """Start a simulated cloud, whose volumes have zones."""
    gateway = cluster.gateway
    gateway.start(
        "cloud", sys.executable, "-m", "proreus.testing.simulated", "--token=default=token",
        f"--listen={CLOUD.removeprefix('http://')}", f"--state={gateway.directory / 'cloud.db'}",
    )  # fmt: skip
    ready = ("curl", "--silent", "--fail", "--header", "Authorization: Bearer admin")
    until("the cloud answers", lambda: bool(_tried(cluster, *ready, f"{CLOUD}/admin/settings")))


def _tried(cluster: Cluster, *command: str) -> str:
    return cluster.gateway.run("sh", "-c", '"$@" || true', "sh", *command)


def disk(cluster: Cluster, *zones: str) -> str:
    """Make a volume in the cloud; its id."""
    body = json.dumps({"volumes": [{"zones": zones}]})
    answer = cluster.gateway.run(
        "curl", "--silent", "--header", "Authorization: Bearer admin",
        "--data", body, f"{CLOUD}/admin/volumes",
    )  # fmt: skip
    found: str = json.loads(answer)["volumes"][0]["id"]
    return found


def start_webhook(cluster: Cluster) -> None:
    """Start a manager that labels volumes of the simulated cloud, and have it asked."""
    gateway, plane = cluster.gateway, cluster.plane
    config = gateway.directory / "simulated.yaml"
    config.write_text(f"global: {{endpoint: '{CLOUD}', region: sim-1, token: token}}\n")
    authority = Authority()
    certificate = authority.serving(addresses=(plane.address,))
    for name, content in zip(("tls.crt", "tls.key"), certificate, strict=True):
        (gateway.directory / name).write_bytes(content)
    program = (sys.executable, "-m", "proreus")
    chosen = [one for one in flags(cluster.families) if not one.startswith("--controllers=")]
    both = (f"--controllers=*,{CONTROLLER}", f"--webhooks={WEBHOOK}")
    plane.apply(gateway.run(*program, "roles", *chosen, *both))
    user = plane.kubeconfig_for(ACCOUNT, ["system:serviceaccounts"], "labeller")
    gateway.keep(
        "labeller", *program, "run", "--cloud-provider=simulated", f"--cloud-config={config}",
        f"--kubeconfig={user}", "--leader-elect=false", "--secure-port=0", "-v=2",
        f"--controllers={CONTROLLER}", f"--webhooks={WEBHOOK}",
        f"--webhook-secure-port={PORT}", f"--webhook-bind-address={plane.address}",
        f"--webhook-tls-cert-file={gateway.directory / 'tls.crt'}",
        f"--webhook-tls-private-key-file={gateway.directory / 'tls.key'}",
    )  # fmt: skip
    plane.apply(json.dumps(configuration(plane.address, authority)))


def configuration(address: str, authority: Authority) -> dict[str, Any]:
    """Have the API server ask the webhook, and refuse volumes while nobody answers."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK},
        "webhooks": [
            {
                "name": f"{WEBHOOK}.proreus.test",
                "clientConfig": {
                    "url": f"https://{address}:{PORT}/{WEBHOOK}",
                    "caBundle": base64.b64encode(authority.certificate).decode(),
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["persistentvolumes"],
                        "operations": ["CREATE"],
                    }
                ],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def volume(name: str, id_: str) -> list[dict[str, Any]]:
    """A volume and the claim to it."""
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **shared,
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": "csi.simulated.example", "volumeHandle": id_},
                "claimRef": {"namespace": "default", "name": name},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                **shared,
                "volumeName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ]


def pod(name: str) -> dict[str, Any]:
    """A pod with the volume of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": AGNHOST_IMAGE,
                    "args": ["pause"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        },
    }


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def is_made(cluster: Cluster, objects: list[dict[str, Any]]) -> bool:
    try:
        apply(cluster, *objects)
    except ClusterError:  # it is refused while nobody answers
        return False
    return zone(cluster, objects[0]["metadata"]["name"]) != ""


def scheduled_to(cluster: Cluster, name: str) -> str:
    """The node of a pod, when it has one."""
    until(f"{name} is scheduled", lambda: "nodeName" in get(cluster, "pod", name)["spec"])
    node: str = get(cluster, "pod", name)["spec"]["nodeName"]
    return node


def zone(cluster: Cluster, name: str) -> str:
    """The zone in a volume's node affinity, "" if it has none."""
    affinity = get(cluster, "persistentvolume", name)["spec"].get("nodeAffinity")
    for term in affinity["required"]["nodeSelectorTerms"] if affinity else ():
        for one in term["matchExpressions"]:
            if one["key"] == ZONE:
                return ",".join(one["values"])
    return ""


def test_a_pod_is_scheduled_only_into_the_zone_of_its_volume(make: Make) -> None:
    cluster = make(nodes=2)
    cluster.start(start_manager)
    zones = {"north": "node-1", "south": "node-2"}
    for place, node in zones.items():
        labels = (f"{ZONE}={place}", "topology.kubernetes.io/region=sim-1")
        cluster.plane.kubectl("label", "--overwrite", "node", node, *labels)
    start_cloud(cluster)
    disks = {f"{place}-{number}": place for place in zones for number in range(3)}

    start_webhook(cluster)
    until("the webhook answers", lambda: is_made(cluster, volume("first", disk(cluster, "north"))))
    for name, place in disks.items():
        apply(cluster, *volume(name, disk(cluster, place)))
        assert zone(cluster, name) == place
    apply(cluster, *volume("elsewhere", disk(cluster, "west")))
    apply(cluster, *volume("anywhere", disk(cluster, "north", "south")))
    assert zone(cluster, "anywhere") == "north,south"
    apply(cluster, *(pod(name) for name in (*disks, "elsewhere", "anywhere")))

    for name, place in disks.items():
        assert scheduled_to(cluster, name) == zones[place], name
    assert scheduled_to(cluster, "anywhere") in zones.values()

    def is_refused() -> bool:
        conditions = get(cluster, "pod", "elsewhere")["status"].get("conditions", [])
        return any(one.get("reason") == "Unschedulable" for one in conditions)

    until("no node is in the zone of the last volume", is_refused)
    assert "nodeName" not in get(cluster, "pod", "elsewhere")["spec"]
