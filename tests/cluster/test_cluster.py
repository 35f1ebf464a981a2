"""Real nodes, pods and clients, with the manager on the gateway and its provider `local`."""

import ipaddress

import pytest

from proreus.testing.cluster import Cluster

from .looking import address_of, ask, get, pods, serve, until

pytestmark = pytest.mark.long


def test_nodes_join_by_token_and_become_ready(cluster: Cluster) -> None:
    nodes = get(cluster, "nodes")["items"]
    requests = get(cluster, "certificatesigningrequests")["items"]

    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]
    for node in nodes:
        assert "taints" not in node["spec"]
        assert node["spec"]["providerID"].startswith("local://")
        assert node["metadata"]["labels"]["topology.kubernetes.io/region"] == "here"
        families = {ipaddress.ip_network(one).version for one in node["spec"]["podCIDRs"]}
        assert families == {4, 6}
    assert {one["spec"]["username"].rpartition(":")[0] for one in requests} == {"system:bootstrap"}


def test_pods_of_two_nodes_reach_one_another_and_find_names(cluster: Cluster) -> None:
    serve(cluster, "inside")
    (one, _), (name, other) = sorted(pods(cluster, "inside").items())

    def said(command: str) -> str:
        return cluster.plane.kubectl("exec", one, "--", "sh", "-c", command)

    assert said(f"curl --silent --max-time 20 http://{other}:8080/hostname") == name
    assert (
        said("dig +short inside.default.svc.cluster.local").strip()
        == (get(cluster, "service", "inside")["spec"]["clusterIP"])
    )


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_a_client_reaches_all_pods_by_the_address_of_a_load_balancer(
    cluster: Cluster, family: str
) -> None:
    name = f"web-{family.lower()}"
    serve(cluster, name, type="LoadBalancer", ipFamilies=[family])
    address = address_of(cluster, name)
    seen: set[str] = set()

    def all_answered() -> bool:
        seen.add(ask(cluster, f"http://{bracketed(address)}/hostname"))
        return seen >= set(pods(cluster, name))

    until(f"an answer of each pod at {address}", all_answered)


def test_a_server_sees_its_clients_address_where_traffic_stays_local(cluster: Cluster) -> None:
    serve(cluster, "kept", node="node-2", type="LoadBalancer", externalTrafficPolicy="Local")
    address = address_of(cluster, "kept")
    client = cluster.families[0].client()

    until(
        f"{client} in the answer",
        lambda: ask(cluster, f"http://{address}/clientip").rpartition(":")[0] == client,
    )


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
