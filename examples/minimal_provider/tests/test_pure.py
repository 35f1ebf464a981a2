"""The pure functions, as tables."""

import msgspec
import pytest
from minimal_provider.api import Balancer, CloudRoute, Server, read_error
from minimal_provider.balancers import plan
from minimal_provider.machines import id_in, instance
from minimal_provider.routes import cloud_route, is_same, route

from proreus.cloudprovider import (
    Answer,
    CloudError,
    ClusterIdentity,
    ErrorBody,
    Frontend,
    HealthCheck,
    Host,
    Instance,
    InstanceState,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    Request,
    Route,
)
from proreus.kube.objects import NodeAddress, Service

CLUSTER = ClusterIdentity("test", "cluster-uid")


def desired(*frontends: Frontend, hosts: tuple[Host, ...] = ()) -> LoadBalancer:
    return LoadBalancer(
        ref=LoadBalancerRef(CLUSTER, "default", "web", "uid", "a-name"),
        service=Service(),
        marks={"proreus/service-uid": "uid"},
        frontends=frontends,
        hosts=hosts,
        health_check=HealthCheck(10256, "/healthz"),
        source_ranges={"IPv4": ("10.0.0.0/8",)},
    )


def test_a_desired_load_balancer_becomes_a_balancer() -> None:
    hosts = (
        Host("b", "minimal://2", {"IPv4": ("10.0.0.2",)}),
        Host("a", "minimal://1", {"IPv4": ("10.0.0.1", "10.1.0.1")}),
        Host("six", "minimal://3", {"IPv6": ("2001:db8::1",)}),
    )
    balancer, rejected = plan(desired(Frontend("TCP", 80, 30080, "IPv4"), hosts=hosts))
    assert balancer == Balancer(
        name="a-name",
        labels={"proreus/service-uid": "uid"},
        forwards={"80": 30080},
        targets=("10.0.0.1", "10.0.0.2"),
        sources=("10.0.0.0/8",),
        health="10256/healthz",
    )
    assert rejected == {"six": "no IPv4 address"}


@pytest.mark.parametrize(("protocol", "node_port"), [("UDP", 30053), ("TCP", 0)])
def test_what_the_cloud_cannot_forward_is_refused_by_its_field(
    protocol: str, node_port: int
) -> None:
    with pytest.raises(InvalidRequest, match=f"spec.ports: 53/{protocol}"):
        plan(desired(Frontend(protocol, 53, node_port, "IPv4")))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"affinity_seconds": 10800}, "spec.sessionAffinity"),
        ({"requested_address": "192.0.2.1"}, "spec.loadBalancerIP"),
    ],
)
def test_what_the_cloud_cannot_do_is_refused_by_its_field(
    fields: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field):
        plan(msgspec.structs.replace(desired(), **fields))


@pytest.mark.parametrize(
    ("check", "health"), [(HealthCheck(31000, "/healthz"), "31000/healthz"), (HealthCheck(), "")]
)
def test_the_balancer_has_the_health_check_of_the_service(check: HealthCheck, health: str) -> None:
    balancer, _ = plan(msgspec.structs.replace(desired(), health_check=check))
    assert balancer.health == health


def test_nobody_is_let_in_where_the_ranges_of_the_family_are_empty() -> None:
    balancer, _ = plan(msgspec.structs.replace(desired(), source_ranges={"IPv4": ()}))
    assert balancer.sources == ()


@pytest.mark.parametrize(
    ("provider_id", "id_"),
    [
        ("minimal://s1", "s1"),
        ("minimal://", None),
        ("minimal://s", None),
        ("minimal://s1/", None),
        ("another://s1", None),
        ("s1", None),
    ],
)
def test_only_an_id_of_the_clouds_own_form_is_read(provider_id: str, id_: str | None) -> None:
    assert id_in(provider_id) == id_


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("running", InstanceState.RUNNING),
        ("off", InstanceState.STOPPED),
        ("moving", InstanceState.UNKNOWN),
    ],
)
def test_a_server_is_an_instance(status: str, state: InstanceState) -> None:
    assert instance(Server("s1", "a", status, "small", "north", "10.0.0.1")) == Instance(
        provider_id="minimal://s1",
        name="a",
        instance_type="small",
        zone="north",
        addresses=(NodeAddress("InternalIP", "10.0.0.1"),),
        state=state,
        powered_off=status == "off",
    )


def test_a_route_is_made_with_the_mark_of_its_cluster() -> None:
    made = cloud_route(Route("r", "10.200.0.0/24", "minimal://s1"), CLUSTER)
    assert made == CloudRoute("r", {"proreus/cluster-uid": "cluster-uid"}, "10.200.0.0/24", "s1")


@pytest.mark.parametrize(
    ("mark", "server", "is_deleted"),
    [("cluster-uid", "s1", True), ("cluster-uid", "s2", False), ("another", "s1", False)],
)
def test_only_our_route_is_deleted_and_only_as_it_was_listed(
    mark: str, server: str, *, is_deleted: bool
) -> None:
    observed = CloudRoute("r", {"proreus/cluster-uid": mark}, "10.200.0.0/24", server)
    listed = Route("r", "10.200.0.0/24", "minimal://s1")
    assert is_same(observed, listed, CLUSTER) == is_deleted


def test_a_route_leads_to_a_provider_id_or_nowhere() -> None:
    found = CloudRoute("r", {}, "10.200.0.0/24", "s1", works=False)
    assert route(found) == Route("r", "10.200.0.0/24", "minimal://s1", blackhole=True)


def answer(body: bytes) -> Answer:
    return Answer(Request("servers.get", "GET", "servers/s1"), 404, {}, body)


def test_an_error_of_the_cloud_is_read() -> None:
    assert read_error(answer(b'{"error": "not found"}')) == ErrorBody(message="not found")


def test_a_404_with_another_text_is_no_absence() -> None:
    assert read_error(answer(b'{"error": "no such route"}')) is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'{"detail": "not found"}'])
def test_an_error_of_a_proxy_is_not_read_as_one_of_the_cloud(body: bytes) -> None:
    with pytest.raises(CloudError):
        read_error(answer(body))
