"""A CSI driver on real nodes, and the attacher beside it."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from labs.cluster import Cluster
from labs.cluster.node import Node
from proreus.testing.controlplane.assets import cache
from proreus.testing.controlplane.build import run

from .looking import get

SOURCE = Path(__file__).with_name("csi")
DRIVER = "csi.proreus.test"
FINALIZER = "external-attacher/csi-proreus-test"


def built() -> Path:
    """The driver's program; some minutes the first time."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no `go` on the PATH builds the driver")
    program = cache(os.environ, "csi") / "driver"
    program.parent.mkdir(parents=True, exist_ok=True)
    flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    environ = {**os.environ, "CGO_ENABLED": "0"}
    asyncio.run(run((go, "build", *flags, "-o", str(program), "."), SOURCE, environ))
    return program


def install(cluster: Cluster, node: Node, program: Path) -> None:
    """Start the driver on a node; its kubelet finds it."""
    node.machine.start("csi", str(program), node.name, str(node.machine.directory / "kubelet"))


def offer(cluster: Cluster, name: str, claim: str) -> None:
    """Make the driver known, and a volume of it for one claim."""
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": True, "podInfoOnMount": False},
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": claim},
        },
    }
    cluster.plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [driver, volume]}))


def attachments(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The VolumeAttachments by their nodes."""
    found = get(cluster, "volumeattachments")["items"]
    return {one["spec"]["nodeName"]: one for one in found}


def attach(cluster: Cluster) -> None:
    """Do once what the external attacher does: attach what is wanted, detach what goes."""
    for one in attachments(cluster).values():
        name, meta = one["metadata"]["name"], one["metadata"]
        if "deletionTimestamp" in meta:
            _patch(cluster, name, {"metadata": {"finalizers": None}})
        elif not one.get("status", {}).get("attached"):
            _patch(cluster, name, {"metadata": {"finalizers": [FINALIZER]}})
            _patch(cluster, name, {"status": {"attached": True}}, "--subresource=status")


def _patch(cluster: Cluster, name: str, body: dict[str, Any], *how: str) -> None:
    given = ("patch", "volumeattachment", name, "--type=merge", f"--patch={json.dumps(body)}", *how)
    cluster.plane.kubectl(*given)
