"""The manager as pods, from the chart, on nodes that wait for it; the leader's node is a gateway."""

import json
import subprocess
import sys
from typing import Any

import pytest

from labs.cluster import Cluster
from labs.cluster.manager import flags
from labs.cluster.node import load_image

from ..deploy.charts import ROOT, Programs  # noqa: TID252 - tests are no package
from .conftest import Make
from .image import manager_image
from .looking import addresses_of, ask, get, pods, serve, until

pytestmark = pytest.mark.long

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
POOL = "10.80.0.200-10.80.0.209"
"""In the network of the nodes: there is no gateway beside them that addresses could be routed to."""


@pytest.fixture(scope="session")
def chart() -> Programs:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "manifests.py", "programs"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Programs(type(ROOT)(done.stdout.strip()))


def values(cluster: Cluster, image: str) -> dict[str, Any]:
    repository, _, tag = image.rpartition(":")
    given = (flag.removeprefix("--").partition("=") for flag in flags(cluster.families))
    args = {name: value or True for name, _, value in given if name != "cloud-provider"}
    config = {
        "pools": {"default": {"addresses": [POOL]}},
        "gateway": {"interfaces": ["eth0"], "hold": "15s"},
    }
    return {
        "cloudProvider": "local",
        "cloudConfig": {"content": json.dumps(config)},
        "netAdmin": True,
        "image": {"repository": repository, "tag": tag},
        "apiServer": {"host": cluster.plane.address},
        "args": {"v": 2, **args},
    }


def test_pods_of_the_chart_untaint_their_nodes_and_are_a_gateway(
    make: Make, chart: Programs
) -> None:
    seen: list[dict[str, Any]] = []

    def deploy(cluster: Cluster) -> None:
        until("both nodes", lambda: len(get(cluster, "nodes")["items"]) == 2)
        seen.extend(get(cluster, "nodes")["items"])
        archive, image = manager_image(cluster.directory)
        for node in cluster.nodes:
            load_image(node.machine, archive)
        rendered = chart.render(**values(cluster, image))
        cluster.plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered}))

    cluster = make(nodes=2)
    cluster.start(deploy)

    for node in seen:
        assert TAINT in [taint["key"] for taint in node["spec"]["taints"]]
        assert "podCIDR" not in node["spec"]
        assert "providerID" not in node["spec"]
    for node in get(cluster, "nodes")["items"]:
        assert "taints" not in node["spec"]
        assert node["spec"]["providerID"].startswith("local://")

    def replicas() -> int:
        deployment = get(cluster, "deployment", "--namespace=kube-system")["items"][0]
        ready: int = deployment["status"].get("readyReplicas", 0)
        return ready

    until("both replicas", lambda: replicas() == 2)

    serve(cluster, "web", type="LoadBalancer")
    (address,) = addresses_of(cluster, "web")
    seen_pods: set[str] = set()

    def all_answered() -> bool:
        seen_pods.add(ask(cluster, f"http://{address}/hostname"))
        return seen_pods >= set(pods(cluster, "web"))

    until(f"an answer of each pod at {address}", all_answered)
