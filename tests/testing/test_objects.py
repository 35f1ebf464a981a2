"""Builders of Nodes and Services: what is not given is as on a plain object, mistakes are refused."""

from typing import Any

import pytest

from proreus.kube.objects import (
    LoadBalancerIngress,
    NodeAddress,
    NodeSystemInfo,
    ServicePort,
)
from proreus.testing.objects import changed, node, service


def test_a_node_has_its_name_and_what_is_given() -> None:
    hostname = NodeAddress("Hostname", "n1")
    made = node(
        "n1", "sim://n1", addresses=["10.0.0.1", hostname], system_uuid="ab", labels={"a": "b"},
        pod_cidrs=("10.1.0.0/24", "fd00::/64"), unschedulable=True,
    )  # fmt: skip
    assert (made.metadata.name, made.metadata.uid, made.metadata.labels) == (
        "n1", "uid-n1", {"a": "b"},
    )  # fmt: skip
    assert (made.spec.provider_id, made.spec.unschedulable) == ("sim://n1", True)
    assert (made.spec.pod_cidr, made.spec.pod_cidrs[1]) == ("10.1.0.0/24", "fd00::/64")
    assert made.status.addresses == (NodeAddress("InternalIP", "10.0.0.1"), hostname)
    assert made.status.node_info == NodeSystemInfo("ab")
    assert (node().spec.provider_id, node().spec.pod_cidr, node().spec.taints) == ("", "", ())


def test_a_service_is_a_load_balancer_unless_it_is_given_otherwise() -> None:
    made = service()
    assert (made.metadata.namespace, made.metadata.uid) == ("default", "uid-web")
    assert (made.spec.type, made.spec.ports) == (
        "LoadBalancer",
        (ServicePort(80, node_port=30080),),
    )
    assert made.status.load_balancer.ingress == ()
    point = LoadBalancerIngress(hostname="lb.example")
    other = service("db", type="ClusterIP", uid="u", ports=(), ingress=["192.0.2.1", point])
    assert (other.metadata.uid, other.spec.type, other.spec.ports) == ("u", "ClusterIP", ())
    assert other.status.load_balancer.ingress == (LoadBalancerIngress("192.0.2.1"), point)


def test_a_change_leaves_all_other_fields() -> None:
    before = node("n1", "sim://n1", labels={"a": "b"})
    after = changed(before, uid="u", unschedulable=True)
    assert (after.metadata.uid, after.spec.unschedulable) == ("u", True)
    assert changed(after, uid="uid-n1", unschedulable=False) == before


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: node(cidrs=()), "Node has no field cidrs"),
        (lambda: node(ports=(), zone="a"), "Node has no field ports, zone"),
        (lambda: service(taints=()), "Service has no field taints"),
    ],
)
def test_a_field_that_is_not_there_is_refused(build: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        build()
