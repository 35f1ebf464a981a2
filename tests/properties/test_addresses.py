"""The choice of addresses, over random clouds, node IPs and earlier states."""

from ipaddress import ip_address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.controllers.cloud_node.addresses import (
    ProvidedNodeIPInvalid,
    ProvidedNodeIPMismatch,
    desired,
    preferred,
    provided,
)
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    Node,
    NodeAddress,
    NodeStatus,
)
from proreus.testing import objects

IPS = ["10.0.0.1", "10.0.0.2", "192.0.2.1", "2001:db8::1", "2001:db8::2", "fd00::7"]
IP_TYPES = ["InternalIP", "ExternalIP"]
NAMES = st.builds(
    NodeAddress,
    st.sampled_from(["Hostname", "InternalDNS", "ExternalDNS"]),
    st.sampled_from(["n1", "n1.example"]),
)
IP_ADDRESSES = st.builds(NodeAddress, st.sampled_from(IP_TYPES), st.sampled_from(IPS))
CLOUDS = st.lists(st.one_of(IP_ADDRESSES, NAMES), max_size=8).map(tuple)
PAIRS = st.permutations(IPS).map(lambda ips: ips[:2])
NODE_IPS = st.one_of(
    st.none(), st.sampled_from(IPS), PAIRS.map(",".join), st.sampled_from(["", "x", "::"])
)


def node(annotation: str | None, addresses: tuple[NodeAddress, ...] = ()) -> Node:
    annotations = {} if annotation is None else {ANNOTATION_PROVIDED_NODE_IP: annotation}
    return objects.node(annotations=annotations, addresses=addresses)


def internal(*ips: str) -> tuple[NodeAddress, ...]:
    return tuple(NodeAddress("InternalIP", ip) for ip in ips)


@pytest.mark.parametrize(
    "annotation",
    ["10.0.0.1", "2001:db8::1", "10.0.0.1,2001:db8::1", "2001:db8::1,10.0.0.1", "::"],
)
def test_one_address_or_a_pair_of_both_families(annotation: str) -> None:
    assert provided(annotation) == tuple(map(ip_address, annotation.split(",")))


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("", "is not a list of IP addresses"),
        ("ten", "is not a list of IP addresses"),
        ("10.0.0.1,", "is not a list of IP addresses"),
        ("10.0.0.1, 2001:db8::1", "is not a list of IP addresses"),
        ("10.0.0.1,2001:db8::1,10.0.0.2", "has more than two addresses"),
        ("10.0.0.1,10.0.0.2", "has two addresses of one family"),
        ("fd00::1,fd00::2", "has two addresses of one family"),
        ("10.0.0.1,::ffff:10.0.0.2", "has two addresses of one family"),
        ("0.0.0.0,fd00::1", "pairs an unspecified address"),
        ("10.0.0.1,::", "pairs an unspecified address"),
    ],
)
def test_what_cannot_be_a_node_ip_is_named(annotation: str, problem: str) -> None:
    with pytest.raises(ProvidedNodeIPInvalid) as caught:
        provided(annotation)
    assert str(caught.value) == (
        f"annotation {ANNOTATION_PROVIDED_NODE_IP} {annotation!r} {problem}; start the kubelet "
        "with one --node-ip, or with one per family"
    )


def test_the_node_ip_is_the_only_address_of_its_type() -> None:
    external = (NodeAddress("ExternalIP", "192.0.2.1"),)
    cloud = (*internal("10.0.0.1", "10.0.0.2"), *external, NodeAddress("InternalDNS", "n1"))
    assert preferred("10.0.0.2", cloud) == (
        *internal("10.0.0.2"),
        *external,
        NodeAddress("InternalDNS", "n1"),
    )


def test_an_address_of_two_types_keeps_both() -> None:
    both = (NodeAddress("ExternalIP", "10.0.0.1"), NodeAddress("InternalIP", "10.0.0.1"))
    cloud = (NodeAddress("ExternalIP", "192.0.2.1"), *both, *internal("10.0.0.9"))
    assert preferred("10.0.0.1", cloud) == both


def test_the_order_of_a_pair_is_the_kubelets() -> None:
    cloud = internal("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2")
    assert preferred("fd00::2,10.0.0.1", cloud) == internal("fd00::2", "10.0.0.1")


@pytest.mark.parametrize(
    ("annotation", "address"),
    [
        ("2001:db8::1", "2001:DB8:0:0:0:0:0:1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_addresses_compare_as_addresses(annotation: str, address: str) -> None:
    assert preferred(annotation, internal("10.0.0.9", address)) == internal(address)


def test_an_address_that_the_cloud_does_not_give_is_named_with_those_it_does() -> None:
    with pytest.raises(ProvidedNodeIPMismatch) as caught:
        preferred("10.0.0.1,fd00::1", (*internal("10.0.0.1"), NodeAddress("InternalDNS", "n1")))
    assert str(caught.value) == (
        "the kubelet's --node-ip fd00::1 (annotation alpha.kubernetes.io/provided-node-ip) is not "
        "among the addresses the cloud gives: InternalIP 10.0.0.1, InternalDNS n1; "
        "correct one of the two"
    )
    with pytest.raises(ProvidedNodeIPMismatch, match="the cloud gives: none; correct"):
        preferred("10.0.0.1", ())


def test_a_nodes_host_name_stays_where_the_cloud_gives_none() -> None:
    named = node(None, (NodeAddress("Hostname", "old"), *internal("10.0.0.9")))
    cloud = internal("10.0.0.1")
    assert desired(named, cloud) == (*cloud, NodeAddress("Hostname", "old"))
    own = (*cloud, NodeAddress("Hostname", "new"))
    assert desired(named, own) == own


def test_a_host_name_that_looks_like_an_address_is_no_match() -> None:
    named = node("10.0.0.1", (NodeAddress("Hostname", "10.0.0.1"),))
    with pytest.raises(ProvidedNodeIPMismatch):
        desired(named, internal("10.0.0.2"))


def test_a_cloud_without_addresses_clears_none() -> None:
    before = (*internal("10.0.0.1"), NodeAddress("Hostname", "n1"))
    assert desired(node(None, before), ()) == before


@given(cloud=CLOUDS, annotation=NODE_IPS, before=CLOUDS)
def test_a_second_pass_changes_nothing(
    cloud: tuple[NodeAddress, ...], annotation: str | None, before: tuple[NodeAddress, ...]
) -> None:
    old = node(annotation, before)
    try:
        once = desired(old, cloud)
    except (ProvidedNodeIPInvalid, ProvidedNodeIPMismatch):
        return
    new = msgspec.structs.replace(old, status=NodeStatus(addresses=once))
    assert desired(new, cloud) == once


@given(cloud=CLOUDS.filter(bool), annotation=NODE_IPS, before=CLOUDS)
def test_every_address_comes_from_the_cloud_or_is_the_nodes_host_name_and_stands_once(
    cloud: tuple[NodeAddress, ...], annotation: str | None, before: tuple[NodeAddress, ...]
) -> None:
    try:
        result = desired(node(annotation, before), cloud)
    except (ProvidedNodeIPInvalid, ProvidedNodeIPMismatch):
        return
    assert len(set(result)) == len(result)
    hostnames = {address for address in before if address.type == "Hostname"}
    assert set(result) <= {*cloud, *hostnames}
    from_cloud = [address for address in result if address in cloud]
    if annotation is None:
        assert from_cloud[: len(set(cloud))] == list(dict.fromkeys(cloud))
    if any(address.type == "Hostname" for address in cloud):
        assert set(result) <= set(cloud)
    else:
        assert hostnames <= set(result)


@given(cloud=CLOUDS, annotation=st.one_of(st.sampled_from(IPS), PAIRS.map(",".join)))
def test_claimed_types_have_claimed_addresses_only(
    cloud: tuple[NodeAddress, ...], annotation: str
) -> None:
    try:
        result = preferred(annotation, cloud)
    except (ProvidedNodeIPInvalid, ProvidedNodeIPMismatch):
        return
    ips = annotation.split(",")
    assert next(address.address for address in result if address.address in ips) == ips[0]
    claimed = {address.type for address in cloud if address.address in ips}
    for address in result:
        assert (address.address in ips) == (address.type in claimed)
    assert {a for a in cloud if a.type not in claimed} <= set(result)
