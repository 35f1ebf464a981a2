"""Internal load balancers with a subset of the nodes: made, changed, taken down, left alone."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError, ImplementedElsewhere, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import EndpointTarget, LoadBalancer, Previews
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.gce.balancing.annotations import (
    INTERNAL_BEFORE,
    INTERNAL_CLASS,
    INTERNAL_ELSEWHERE,
    TYPE,
)
from proreus.providers.gce.balancing.subsets.names import names_of
from proreus.testing import objects

from .cloud.server import Gce
from .cloud.world import PROJECT, REGION, ZONES
from .lb_site import NAME, SECOND, Balancing, balancing
from .site import CLUSTER, PATIENT

INTERNAL = {TYPE: "Internal"}
SUBNETWORK = "subnetwork-name = default"
SECTIONS = f"{PATIENT}[LoadBalancer]\nsubsetting = true\n"
OWN = "k8s2-zbd3agd3-shop-web-8x6n6081"
"""The name of the parts of shop/web: the Service's and the cluster's digests are in it."""
RULE = OWN.replace("k8s2-", "k8s2-tcp-")
SHARED = "k8s2-zbd3agd3-l4-shared-hc"
LOCAL: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": 32000}


@pytest.fixture
async def site(gce: Gce) -> AsyncIterator[Balancing]:
    async with balancing(gce, SUBNETWORK, SECTIONS) as found:
        yield found


def attached(gce: Gce, name: str = OWN) -> dict[str, list[str]]:
    """The endpoints of a Service by zone."""
    with gce.world.lock:
        return {
            path.split("/")[3]: sorted(each["instance"] for each in one["endpoints"])
            for path, one in gce.world.of("networkEndpointGroups")
            if path.endswith(f"/{name}")
        }


def grow(site: Balancing, count: int, zones: Iterable[str] = ZONES) -> None:
    """Let many nodes join, in turn in these zones."""
    every = tuple(zones)
    for number in range(count):
        name, zone = f"node-{number + 100}", every[number % len(every)]
        site.gce.run(name, zone=zone)
        site.nodes.append(objects.node(name, f"gce://{PROJECT}/{zone}/{name}"))


def with_pods(lb: LoadBalancer, *nodes: str) -> LoadBalancer:
    """The same, while pods run on these nodes."""
    targets = tuple(EndpointTarget("", node, "IPv4") for node in nodes)
    return msgspec.structs.replace(lb, endpoints=targets)


async def test_all_parts_have_the_official_names_and_go_again(site: Balancing) -> None:
    address = await site.make(annotations=INTERNAL)
    assert site.left() == {
        "backendServices": [OWN],
        "firewalls": [f"{SHARED}-fw", OWN],
        "forwardingRules": [RULE],
        "healthChecks": [SHARED],
        "networkEndpointGroups": [OWN] * 2,
    }
    assert attached(site.gce) == {ZONES[0]: ["node-1"], ZONES[1]: ["node-2"]}
    rule = site.gce.one("forwardingRules", RULE)
    assert (rule["IPAddress"], rule["loadBalancingScheme"]) == (address, "INTERNAL")
    site.gce.requests.clear()
    assert await site.make(annotations=INTERNAL) == address
    assert site.gce.writes() == []
    assert (await site.delete()).found
    assert site.left() == {}


async def test_parts_are_described_as_officially(site: Balancing) -> None:
    await site.make(annotations=INTERNAL)
    described = '{"networking.gke.io/service-name":"shop/web","networking.gke.io/api-version":"ga"}'
    shared = (
        '{"networking.gke.io/service-name":"","networking.gke.io/api-version":"ga",'
        '"networking.gke.io/resource-description":"This resource is shared by all L4 %sServices'
        ' using ExternalTrafficPolicy: Cluster."}'
    )
    gce = site.gce
    assert gce.one("forwardingRules", RULE)["description"] == described
    service = gce.one("backendServices", OWN)
    assert service["description"] == described
    assert service["connectionDraining"] == {"drainingTimeoutSec": 30}
    assert gce.one("firewalls", OWN)["description"] == described
    assert gce.one("healthChecks", SHARED)["description"] == shared % "ILB "
    assert gce.one("firewalls", f"{SHARED}-fw")["description"] == shared % " "
    group = gce.world.objects[f"projects/{PROJECT}/zones/{ZONES[0]}/networkEndpointGroups/{OWN}"]
    assert group["description"] == (
        f'{{"cluster-uid":"{CLUSTER.uid}","namespace":"shop","service-name":"web"}}'
    )
    assert group["networkEndpointType"] == "GCE_VM_IP"


async def test_of_many_nodes_as_many_of_each_zone_are_in(site: Balancing) -> None:
    grow(site, 90)
    await site.make(annotations=INTERNAL)
    before = attached(site.gce)
    assert [len(one) for one in before.values()] == [8, 8, 8]
    # Others that join change nothing, and one that leaves is replaced.
    grow(site, 3)
    await site.make(annotations=INTERNAL)
    assert attached(site.gce) == before
    gone = before[ZONES[0]][0]
    site.gce.terminate(gone)
    site.nodes = [one for one in site.nodes if one.metadata.name != gone]
    await site.make(annotations=INTERNAL)
    after = attached(site.gce)
    assert len(after[ZONES[0]]) == 8
    assert set(before[ZONES[0]]) - {gone} < set(after[ZONES[0]])
    assert {zone: after[zone] for zone in ZONES[1:]} == {zone: before[zone] for zone in ZONES[1:]}


async def test_services_have_different_subsets(site: Balancing) -> None:
    grow(site, 60)
    await site.make(annotations=INTERNAL)
    await site.make(annotations=INTERNAL, **SECOND)
    second = names_of(site.desired(site.service(name=SECOND["name"], uid=SECOND["uid"])).ref).own
    assert attached(site.gce) != attached(site.gce, second)
    await site.delete()
    assert site.left()["healthChecks"] == [SHARED]
    await site.delete(**SECOND)
    assert site.left() == {}


async def test_with_local_traffic_the_nodes_with_pods_are_in(site: Balancing) -> None:
    grow(site, 60)
    pods = [f"node-{number + 100}" for number in range(40)]
    lb = site.desired(site.service(annotations=INTERNAL, **LOCAL))
    await site.ensured(with_pods(lb, *pods))
    assert sorted(one for zone in attached(site.gce).values() for one in zone) == sorted(pods)
    assert site.gce.one("healthChecks", OWN)["checkIntervalSec"] == 3
    assert f"{OWN}-fw" in site.left()["firewalls"]
    await site.ensured(with_pods(lb, "node-1"))
    assert attached(site.gce) == {ZONES[0]: ["node-1"], ZONES[1]: [], ZONES[2]: []}
    # Without local traffic the health check is shared again, and the own one goes.
    await site.make(annotations=INTERNAL)
    assert site.left()["healthChecks"] == [SHARED]
    assert site.left()["firewalls"] == [f"{SHARED}-fw", OWN]
    await site.delete()
    assert site.left() == {}


async def test_at_most_250_nodes_with_pods_are_in(site: Balancing) -> None:
    grow(site, 300, ZONES[:1])
    pods = [f"node-{number + 100}" for number in range(300)]
    lb = site.desired(site.service(annotations=INTERNAL, **LOCAL))
    await site.ensured(with_pods(lb, *pods))
    assert len(attached(site.gce)[ZONES[0]]) == 250


@pytest.mark.parametrize(
    "ports", [((53, "UDP"),), ((53, "TCP"), (53, "UDP")), tuple((n, "TCP") for n in range(80, 89))]
)
async def test_with_other_protocols_and_ports_the_address_stays(
    site: Balancing, ports: tuple[tuple[int, str], ...]
) -> None:
    address = await site.make(annotations=INTERNAL)
    assert await site.make(*ports, annotations=INTERNAL) == address
    left = site.left()
    assert len(left["forwardingRules"]) == 1
    assert "addresses" not in left
    assert await site.make(annotations=INTERNAL) == address
    assert site.left()["forwardingRules"] == [RULE]
    await site.delete()
    assert site.left() == {}


async def test_a_process_that_ended_between_two_rules_leaves_what_the_next_takes_up(
    site: Balancing,
) -> None:
    address = await site.make(annotations=INTERNAL)
    site.gce.fail("compute.forwardingRules.insert", status=500)
    lb = site.desired(site.service((53, "UDP"), annotations=INTERNAL))
    assert isinstance(await site.answer(lb), CloudError)
    assert "forwardingRules" not in site.left()
    assert await site.make((53, "UDP"), annotations=INTERNAL) == address
    assert "addresses" not in site.left()


async def test_between_internal_and_external_nothing_is_left(site: Balancing) -> None:
    await site.make(annotations=INTERNAL)
    await site.make()
    assert site.left()["forwardingRules"] == [NAME]
    assert not {"networkEndpointGroups", "backendServices", "healthChecks"} & site.left().keys()
    await site.make(annotations=INTERNAL)
    assert not {"targetPools", "httpHealthChecks"} & site.left().keys()
    await site.delete()
    assert site.left() == {}


async def test_what_has_instance_groups_keeps_them(gce: Gce) -> None:
    async with balancing(gce, SUBNETWORK) as before:
        address = await before.make(annotations=INTERNAL)
        left = before.left()
    async with balancing(gce, SUBNETWORK, SECTIONS) as site:
        assert await site.make(annotations=INTERNAL) == address
        assert site.left() == left
        await site.delete()
        assert site.left() == {}


async def test_what_the_official_manager_has_begun_gets_instance_groups(site: Balancing) -> None:
    await site.make(annotations=INTERNAL, finalizers=(INTERNAL_BEFORE,))
    assert "networkEndpointGroups" not in site.left()


async def test_a_service_of_the_other_controller_is_left_to_it(site: Balancing) -> None:
    await site.make(annotations=INTERNAL)
    left = site.left()
    service = site.service(annotations=INTERNAL, finalizers=(INTERNAL_ELSEWHERE,))
    lb = site.desired(service)
    assert isinstance(await site.answer(lb), ImplementedElsewhere)
    assert not (await site.deleted(lb.ref)).found
    assert site.left() == left


async def test_the_class_is_left_to_the_other_controller_unless_asked_for(gce: Gce) -> None:
    async with balancing(gce, SUBNETWORK) as site:
        answer = await site.answer(site.desired(site.service(load_balancer_class=INTERNAL_CLASS)))
        assert isinstance(answer, ImplementedElsewhere)
        assert "subsetting" in str(answer)
        assert site.left() == {}
    async with balancing(gce, SUBNETWORK, SECTIONS) as site:
        await site.make(load_balancer_class=INTERNAL_CLASS)
        assert site.left()["forwardingRules"] == [RULE]


async def test_with_subsetting_the_alpha_feature_leaves_nothing_to_others(gce: Gce) -> None:
    more = f"{SUBNETWORK}\nalpha-features = ILBSubsets"
    async with balancing(gce, more, SECTIONS) as site:
        await site.make(annotations=INTERNAL)
        assert site.left()["forwardingRules"] == [RULE]


async def test_parts_of_the_other_controller_are_taken_over_when_its_finalizer_is_gone(
    site: Balancing,
) -> None:
    """They are called and described alike; a rule without our labels gets them."""
    address = await site.make(annotations=INTERNAL)
    path = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{RULE}"
    with site.gce.changing(path) as rule:
        rule["labels"] = {}
    site.gce.requests.clear()
    assert await site.make(annotations=INTERNAL) == address
    assert set(site.gce.writes()) == {"compute.forwardingRules.setLabels"}
    assert (await site.delete()).found
    assert site.left() == {}


async def test_a_rule_with_another_s_labels_is_left(site: Balancing) -> None:
    lb = site.desired(site.service(annotations=INTERNAL))
    await site.ensured(lb)
    left = site.left()
    other = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-00000000000f")
    path = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{RULE}"
    with site.gce.changing(path) as rule:
        rule["labels"] = {
            key: value.replace(CLUSTER.uid, other.uid) for key, value in rule["labels"].items()
        }
    answer = await site.answer(lb)
    assert isinstance(answer, CloudError)
    assert "labels of another owner" in str(answer)
    assert not (await site.deleted(lb.ref)).found
    assert site.left() == left


async def test_an_address_of_the_subnetwork_may_be_asked_for(site: Balancing) -> None:
    assert await site.make(annotations=INTERNAL, load_balancer_ip="10.128.9.9") == "10.128.9.9"
    assert await site.make(annotations=INTERNAL, load_balancer_ip="10.128.9.8") == "10.128.9.8"
    assert "addresses" not in site.left()


async def test_the_status_keeps_the_address_after_the_rule_was_lost(site: Balancing) -> None:
    lb = site.desired(site.service(annotations=INTERNAL))
    await site.ensured(lb)
    with site.gce.world.lock:
        site.gce.world.drop(f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{RULE}")
    shown = LoadBalancerIngress(ip="10.128.3.233")
    ref = msgspec.structs.replace(lb.ref, last_ingress=(shown,))
    assert (await site.ensured(msgspec.structs.replace(lb, ref=ref))).ingress


async def test_a_preview_shows_the_endpoints_and_changes_nothing(site: Balancing) -> None:
    lb = site.desired(site.service(annotations=INTERNAL))
    verbs = cast("Previews", site.verbs)
    shown = (await verbs.preview([lb]))[lb.ref.uid]
    assert not isinstance(shown, CloudError)
    lines = [f"{one.action} {one.part}" for one in shown]
    assert f"create group of endpoints of {ZONES[0]}" in lines
    assert f"create group of endpoints of {ZONES[0]} host {ZONES[0]}/node-1" in lines
    assert f"create forwarding rule {RULE}" in lines
    assert site.gce.writes() == []
    await site.ensured(lb)
    assert (await verbs.preview([lb]))[lb.ref.uid] == ()


async def test_the_subnetwork_of_the_nodes_must_be_known(gce: Gce) -> None:
    with gce.changing(f"projects/{PROJECT}/global/networks/default") as network:
        network["autoCreateSubnetworks"] = False
    async with balancing(gce, "", SECTIONS) as site:
        answer = await site.answer(site.desired(site.service(annotations=INTERNAL)))
        assert isinstance(answer, InvalidRequest)
        assert "subnetwork-name" in str(answer)


@pytest.mark.parametrize("warns", [False, True])
async def test_a_zone_that_is_down_loses_no_group(site: Balancing, *, warns: bool) -> None:
    await site.make(annotations=INTERNAL)
    before = site.gce.one("backendServices", OWN)["backends"]
    site.gce.world.down, site.gce.world.warns = {ZONES[0]}, warns
    await site.answer(site.desired(site.service((81, "TCP"), annotations=INTERNAL)))
    assert site.gce.one("backendServices", OWN)["backends"] == before
    lb = site.desired(site.service(annotations=INTERNAL))
    answer = (await site.verbs.delete([lb.ref]))[lb.ref.uid]
    assert isinstance(answer, CloudError)
    site.gce.world.down = set()
    await site.deleted(lb.ref)
    assert site.left() == {}


async def test_a_process_that_ended_before_it_took_the_shared_check_away_leaves_it_to_the_next(
    site: Balancing,
) -> None:
    await site.make(annotations=INTERNAL)
    site.gce.fail("compute.healthChecks.delete", status=500)
    ref = site.desired(site.service(annotations=INTERNAL)).ref
    assert isinstance((await site.verbs.delete([ref]))[ref.uid], CloudError)
    assert site.left() == {"firewalls": [f"{SHARED}-fw"], "healthChecks": [SHARED]}
    await site.deleted(ref)
    assert site.left() == {}


async def test_the_firewall_rule_that_external_ones_share_stays(site: Balancing) -> None:
    await site.make(annotations=INTERNAL)
    check = dict(site.gce.one("healthChecks", SHARED))
    with site.gce.world.lock:
        path = f"projects/{PROJECT}/regions/{REGION}/healthChecks/{SHARED}"
        site.gce.world.put(path, check)
    await site.delete()
    assert site.left() == {"firewalls": [f"{SHARED}-fw"], "healthChecks": [SHARED]}
