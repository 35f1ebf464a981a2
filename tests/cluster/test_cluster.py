"""Real nodes, pods and clients, with the manager on the gateway and its provider `local`."""

import ipaddress

import pytest

from labs.cluster import Cluster

from .looking import addresses_of, ask, get, pods, serve, until

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
    (address,) = addresses_of(cluster, name)
    seen: set[str] = set()

    def all_answered() -> bool:
        seen.add(ask(cluster, f"http://{bracketed(address)}/hostname"))
        return seen >= set(pods(cluster, name))

    until(f"an answer of each pod at {address}", all_answered)


def test_a_server_sees_its_clients_address_where_traffic_stays_local(cluster: Cluster) -> None:
    serve(
        cluster,
        "kept",
        node="node-2",
        type="LoadBalancer",
        externalTrafficPolicy="Local",
        ipFamilyPolicy="RequireDualStack",
    )

    for address, family in zip(addresses_of(cluster, "kept"), cluster.families, strict=True):
        url, client = f"http://{bracketed(address)}/clientip", bracketed(family.client())

        def sees(url: str = url, client: str = client) -> bool:
            return ask(cluster, url).rpartition(":")[0] == client

        until(f"{client} in the answer from {address}", sees)


def test_what_a_load_balancer_cannot_have_is_one_event_of_its_service(cluster: Cluster) -> None:
    serve(cluster, "first", type="LoadBalancer", loadBalancerIP="10.83.0.99")
    assert addresses_of(cluster, "first") == ["10.83.0.99"]
    serve(cluster, "second", type="LoadBalancer", loadBalancerIP="10.83.0.99")

    def warnings() -> list[str]:
        events = get(cluster, "events", "--field-selector=involvedObject.name=second,type=Warning")
        return [one["message"] for one in events["items"]]

    until("an event", lambda: bool(warnings()))
    (said,) = warnings()
    assert "10.83.0.99" in said
    assert "belongs to the Service default/first" in said


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
