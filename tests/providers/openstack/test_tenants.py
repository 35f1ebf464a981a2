"""Services of several namespaces and clusters in one project: what is whose, and stays so."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest, Pending, RetryAfter
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done
from proreus.controllers.service.leaks import due, leaks
from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceStatus,
)
from proreus.providers.openstack import OpenStackCloud
from proreus.testing.clock import virtual_time

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    INTERNAL,
    SUBNET,
    Balancing,
    P,
    all_there,
    balancing,
    by_id,
    known,
    lives,
    of_a_namesake,
)
from .wire import CLUSTER, Json, context, port, started, uuid

OTHER = ClusterIdentity("prod", "0b5e3a1c-0000-4000-8000-000000000002")
NAMESAKE = ClusterIdentity(CLUSTER.name, OTHER.uid)
"""Another cluster whose operator chose no other name."""
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
DNS = (ServicePort(53, "dns", node_port=30053),)
ADDRESS = "203.0.113.50"
EXTERNAL = "10000000-0000-4000-8000-0000000000ff"


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        made.wire.good_tokens = {f"token-{number}" for number in range(10)}
        yield made


def by_hand(site: Balancing) -> Json:
    """A load balancer with a floating IP that nobody's mark is on."""
    site.octavia._make_balancer({"name": "x", "tags": [], "vip_subnet_id": SUBNET})
    made = list(site.octavia.of["loadbalancers"].values())[-1]
    made["provisioning_status"] = "ACTIVE"
    kept_address(site, "mine", made["vip_port_id"])
    return made


def kept_address(site: Balancing, description: str, port: str | None = None) -> str:
    id_ = uuid(900 + len(site.octavia.of["floatingips"]))
    site.octavia.of["floatingips"][id_] = {
        "id": id_, "floating_ip_address": ADDRESS, "description": description, "port_id": port,
        "created_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return id_


def guest(site: Balancing, id_: str, namespace: str = "thief") -> Service:
    """A Service that names a load balancer."""
    name = "c" if namespace == "thief" else "b"
    return site.service(by_id(id_), name=name, namespace=namespace, ports=DNS)


def of_former_version(balancer: Json, *services: tuple[ClusterIdentity, str, bool]) -> None:
    """Tags as they were when cluster and Service were told apart."""
    tags: dict[str, None] = {}
    for cluster, name, is_owner in services:
        tags[f"proreus/cluster={cluster.name}"] = None
        tags[f"proreus/cluster-uid={cluster.uid}"] = None
        tags[f"kube_service_{cluster.name}_shop_{name}"] = None
        marks = ("proreus/service", "proreus/service-uid")
        shared = (f"proreus/shared-by=shop/{name}/uid-{name}",)
        made = tuple(f"{key}={v}" for key, v in zip(marks, (f"shop/{name}", f"uid-{name}")))  # noqa: B905
        tags.update(dict.fromkeys(made if is_owner else shared))
    balancer["tags"] = list(tags)


async def answered(site: Balancing, provider: OpenStackCloud, service: Service) -> Any:
    """What becomes of a Service once Octavia and the provider look at it no more."""
    verbs, desired = provider.load_balancers, site.desired(provider, service)
    assert verbs is not None
    while isinstance(answer := (await verbs.ensure([desired]))[desired.ref.uid], Pending):
        assert not answer.withdrawn
        await asyncio.sleep(answer.after)
    return answer


# Across namespaces


async def test_another_namespaces_load_balancer_is_refused_by_name_and_nothing_is_touched(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        await lives(site, provider, site.service(name="a"))
        id_ = site.octavia.only("loadbalancers")["id"]
        before = all_there(site)
        answer = await site.ensure(provider, guest(site, id_))
        assert isinstance(answer, InvalidRequest)
        assert "it belongs to the Service shop/a of the cluster" in str(answer)
        assert f"{P}load-balancer-id" in str(answer)
        assert await site.delete(provider, guest(site, id_)) == Done(found=False)
    assert all_there(site) == before


@pytest.mark.parametrize("namespace", ["shop", "thief"])
async def test_official_marks_are_an_owners_too(site: Balancing, namespace: str) -> None:
    made = by_hand(site)
    made |= {"name": "kube_service_test_shop_a", "tags": ["kube_service_test_shop_a"]}
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, guest(site, made["id"], namespace))
    assert isinstance(answer, Ensured if namespace == "shop" else InvalidRequest)


@pytest.mark.parametrize("cluster", ["test", "prod"])
@pytest.mark.parametrize("namespace", ["shop", "thief"])
async def test_a_load_balancer_of_an_ingress_is_its_namespaces(
    site: Balancing, namespace: str, cluster: str
) -> None:
    """octavia-ingress-controller has made it; it stays, also for a Service of the Ingress' name."""
    made = by_hand(site)
    made |= {"name": f"kube_ingress_{cluster}_shop_b"}
    floating = f"Floating IP for Kubernetes ingress b in namespace shop from cluster {cluster}"
    site.octavia.only("floatingips")["description"] = floating
    before = dict(made), dict(site.octavia.only("floatingips"))
    async with started(site.wire.config()) as provider:
        service = guest(site, made["id"], namespace)
        answer = await site.ensure(provider, service)
        if (namespace, cluster) == ("shop", "test"):
            assert isinstance(answer, Ensured), answer
            assert await site.delete(provider, known(service, ADDRESS)) == Done(found=True)
        else:
            assert isinstance(answer, InvalidRequest), answer
            assert f"it belongs to the Service shop/b (an Ingress) of the cluster {cluster}" in str(
                answer
            )
    after = site.octavia.only("loadbalancers"), site.octavia.only("floatingips")
    assert ({**after[0], "left": before[0]["left"]}, after[1]) == before
    assert not site.octavia.of["listeners"]


@pytest.mark.parametrize("tags", [[], ["kube_service_test_shop_a"]])
async def test_what_an_old_manager_made_stays_when_a_guest_leaves_it(
    site: Balancing, tags: list[str]
) -> None:
    """Old managers set no tags; its Service may not have been seen to, or be another cluster's."""
    made = by_hand(site)
    made |= {"name": "kube_service_test_shop_a", "tags": list(tags)}
    part = {"name": "listener_0_kube_service_test_shop_a", "tags": list(tags)}
    site.octavia.make("listeners", {**part, "protocol": "TCP", "protocol_port": 80}, made["id"])
    before = set(site.octavia.of["listeners"])
    async with started(site.wire.config()) as provider:
        second = await lives(site, provider, guest(site, made["id"], "shop"))
        assert isinstance(await site.delete(provider, second), Done)
    assert site.octavia.only("loadbalancers")["id"] == made["id"]
    assert set(site.octavia.of["listeners"]) == before
    assert len(site.octavia.of["floatingips"]) == 1


@pytest.mark.parametrize("name", ["kube_service_test_shared", "kube_service_test_eu_bank_db"])
async def test_one_whose_name_only_begins_as_the_clusters_do_stays_when_the_last_guest_leaves_it(
    site: Balancing, name: str
) -> None:
    """Somebody has made it by hand, or the official manager of the cluster test_eu."""
    made = by_hand(site)
    made["name"] = name
    allowed = site.wire.config(sections=f"[Tenants]\nallow = *={made['id']}\n")
    async with started(allowed) as provider:
        service = await lives(site, provider, guest(site, made["id"], "shop"))
        assert isinstance(await site.delete(provider, service), Done)
    assert site.octavia.only("loadbalancers")["id"] == made["id"]
    assert not site.octavia.of["listeners"]


async def test_a_name_and_an_annotation_are_no_proof(site: Balancing) -> None:
    """Another cluster of the same name has such a Service, under its official manager."""
    name = "kube_service_test_shop_web"
    listener = {"name": f"listener_0_{name}", "protocol": "TCP", "protocol_port": 443}
    site.octavia._make_balancer(
        {"name": name, "tags": [name], "vip_subnet_id": SUBNET, "listeners": [listener]}
    )
    made = site.octavia.only("loadbalancers")
    made["provisioning_status"] = "ACTIVE"
    before = all_there(site)
    service = site.service(by_id(made["id"]))
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert await site.delete(provider, service) == Done(found=False)
        assert all_there(site) == before
        assert isinstance(answer, InvalidRequest)
        assert "add the tag proreus/service-uid=uid-web" in str(answer)
        made["tags"].append("proreus/service-uid=uid-web")
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert len(site.octavia.of["loadbalancers"]) == 1


async def test_a_tag_with_its_name_makes_anothers_listeners_not_the_services(
    site: Balancing,
) -> None:
    """Another cluster of the same name has such a Service there, under its official manager."""
    name = "kube_service_test_shop_web"
    made = by_hand(site)
    made["tags"] = [name]
    part = {"name": f"listener_0_{name}", "tags": [name], "protocol": "TCP", "protocol_port": 443}
    site.octavia.make("listeners", part, made["id"])
    before = all_there(site)
    service = site.service(by_id(made["id"]))
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert await site.delete(provider, service) == Done(found=False)
        assert all_there(site) == before
        assert isinstance(answer, InvalidRequest)
        tag = f"proreus/shared-by={CLUSTER.uid}/shop/web/uid-web"
        assert f"add the tag {tag}" in str(answer)
        made["tags"].append(tag)
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert await site.delete(provider, service) == Done(found=True)
    assert made["id"] in site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("asks", ["hostname", "address", "address, no annotation"])
async def test_a_status_proves_nothing_of_another_once_the_own_one_is_deleted(
    site: Balancing, asks: str
) -> None:
    """The status stays until the last part is gone, and annotations are what a tenant writes."""
    theirs = of_a_namesake(site)
    before = all_there(site)["objects"]
    service = (
        site.service({f"{P}hostname": "web.example.org"})
        if asks == "hostname"
        else site.service({INTERNAL: "true"}, load_balancer_ip=theirs["vip_address"])
    )
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, Ensured)
        status = ServiceStatus(load_balancer=LoadBalancerStatus(ingress=answer.ingress))
        named = {"hostname": by_id(theirs["id"]), "address": answer.annotations}.get(asks, {})
        annotations = {**service.metadata.annotations, **named}
        metadata = msgspec.structs.replace(service.metadata, annotations=annotations)
        edited = msgspec.structs.replace(service, metadata=metadata, status=status)
        assert await site.delete(provider, edited) == Done(found=True)
        assert all_there(site)["objects"] == before


@virtual_time
async def test_one_with_the_address_of_another_is_spared_where_the_annotation_names_that() -> None:
    """Somebody has deleted the Service's own one by hand; in networks apart addresses are alike."""
    async with balancing() as site, started(site.wire.config()) as provider:
        theirs = of_a_namesake(site)
        before = all_there(site)
        service = known(site.service(by_id(uuid(998))), theirs["vip_address"])
        assert await site.delete(provider, service) == Done(found=False)
        assert all_there(site) == before


async def test_what_the_owner_left_to_a_neighbour_stays_closed_to_others(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        first = await lives(site, provider, site.service(name="a"))
        id_ = site.octavia.only("loadbalancers")["id"]
        second = await lives(site, provider, guest(site, id_, "shop"))
        assert isinstance(await site.delete(provider, first), Done)
        refused = await site.ensure(provider, guest(site, id_))
        assert isinstance(refused, InvalidRequest)
        assert isinstance(await site.delete(provider, second), Done)
    assert not any(site.octavia.of.values())


@pytest.mark.parametrize("form", ["ours", "former", "official"])
async def test_who_shares_already_goes_on_and_leaves_nothing(site: Balancing, form: str) -> None:
    made = by_hand(site)
    marks = {
        "ours": [f"proreus/made-for={CLUSTER.uid}/shop/a/uid-a",
                 f"proreus/shared-by={CLUSTER.uid}/thief/c/uid-c"],
        "former": ["proreus/service=shop/a", "proreus/service-uid=uid-a",
                   "proreus/shared-by=thief/c/uid-c"],
        "official": [],
    }[form]  # fmt: skip
    cluster = [f"proreus/cluster-uid={CLUSTER.uid}", "proreus/cluster=test"]
    official = ["kube_service_test_shop_a", "kube_service_test_thief_c"]
    made |= {
        "name": official[0],
        "tags": [*official, *marks, *(cluster if marks else ())],
    }
    before = set(made["tags"])
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, known(guest(site, made["id"]), ADDRESS))
        assert [one.ip for one in service.status.load_balancer.ingress] == [ADDRESS]
        assert f"proreus/shared-by={CLUSTER.uid}/thief/c/uid-c" in made["tags"]
        assert isinstance(await site.delete(provider, service), Done)
    gone = {"kube_service_test_thief_c", *(tag for tag in before if "shared-by" in tag)}
    assert before - set(made["tags"]) == gone
    assert not site.octavia.of["listeners"]


async def test_without_anybodys_mark_all_may_name_it_and_none_deletes_it(site: Balancing) -> None:
    made = by_hand(site)
    async with started(site.wire.config()) as provider:
        one = await lives(site, provider, site.service(by_id(made["id"]), name="a"))
        two = await lives(site, provider, guest(site, made["id"]))
        for service in (one, two):
            assert isinstance(await site.delete(provider, service), Done)
    assert made["tags"] == []
    assert len(site.octavia.of["floatingips"]) == 1


@pytest.mark.parametrize("marks", [(), ("proreus/service=shop/any",)])
async def test_nodes_take_nothing_from_a_load_balancer_by_hand_for_a_service_that_is_refused(
    site: Balancing, marks: tuple[str, ...]
) -> None:
    """It may be the API server's: its address stays in the status of who then asks for 6443.

    An operator may have marked it for a namespace.
    """
    made = by_hand(site)
    made["tags"] = list(marks)
    site.octavia.make("listeners", {"protocol": "TCP", "protocol_port": 6443}, made["id"])
    ports = (ServicePort(6443, "x", node_port=30043),)
    named = by_id(made["id"])
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service(named))
        taking = known(site.service(named, ports=ports), ADDRESS)
        refused = await site.ensure(provider, taking)
        own = await site.ensure(provider, site.service(name="own", namespace="other"))
    assert isinstance(refused, InvalidRequest)
    assert "port 6443/TCP" in str(refused)
    assert [(one.ip, one.ip_mode) for one in answer.ingress] == [(ADDRESS, "Proxy")]
    assert [one.ip_mode for one in own.ingress] == [None]


async def test_nodes_take_nothing_from_another_clusters_load_balancer_that_is_allowed(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as theirs:
        await lives(site, theirs, site.service(name="a"), OTHER)
    id_ = site.octavia.only("loadbalancers")["id"]
    async with started(site.wire.config(sections=f"[Tenants]\nallow = shop={id_}\n")) as mine:
        answer = await site.ensure(mine, guest(site, id_, "shop"))
    assert [one.ip_mode for one in answer.ingress] == ["Proxy"]


# Across clusters


@pytest.mark.parametrize("is_official", [True, False])
async def test_nodes_take_nothing_from_another_cluster_for_the_owner_of_a_load_balancer(
    site: Balancing, *, is_official: bool
) -> None:
    """Its Service shares the load balancer, and the owner's asks for a port of that one, in vain."""
    ports = (ServicePort(80, "http", node_port=30080), ServicePort(8443, "x", node_port=30043))
    async with started(site.wire.config()) as mine:
        own = await lives(site, mine, site.service(name="a"))
        made = site.octavia.only("loadbalancers")
        if is_official:
            part = {"protocol": "TCP", "protocol_port": 8443, "tags": ["kube_service_prod_x_api"]}
            site.octavia.make("listeners", part, made["id"])
            made["tags"] += part["tags"]
        else:
            config = site.wire.config(sections=f"[Tenants]\nallow = x={made['id']}\n")
            async with started(config) as theirs:
                there: dict[str, Any] = {"name": "api", "namespace": "x", "ports": ports[1:]}
                await lives(site, theirs, site.service(by_id(made["id"]), **there), OTHER)
        asking = site.service(name="a", ports=ports)
        shown = tuple(one.ip for one in own.status.load_balancer.ingress)
        refused = await site.ensure(mine, known(asking, *shown))
        again = await site.ensure(mine, own)
    assert isinstance(refused, InvalidRequest)
    assert "port 8443/TCP" in str(refused)
    assert refused.disowns
    assert [one.ip_mode for one in again.ingress] == ["Proxy"]


@pytest.mark.parametrize("cluster", [OTHER, NAMESAKE])
async def test_another_clusters_load_balancer_is_refused_and_is_no_leak_here(
    site: Balancing, cluster: ClusterIdentity
) -> None:
    async with started(site.wire.config()) as mine, started(site.wire.config()) as theirs:
        assert mine.load_balancers is not None
        owner = await lives(site, theirs, site.service(name="a"), cluster)
        before = all_there(site)
        id_ = site.octavia.only("loadbalancers")["id"]
        for namespace in ("shop", "thief"):
            answer = await site.ensure(mine, guest(site, id_, namespace))
            assert isinstance(answer, InvalidRequest)
            assert cluster.uid in str(answer)
        assert await mine.load_balancers.list_owned(CLUSTER) == []
        assert all_there(site) == before
        assert isinstance(await site.ensure(theirs, owner, cluster=cluster), Ensured)


@pytest.mark.parametrize("owner", [OTHER, NAMESAKE])
async def test_a_load_balancer_that_two_clusters_share_is_no_leak_and_nothing_is_released(
    site: Balancing, owner: ClusterIdentity
) -> None:
    """As it was possible before: with the tags of that time."""
    async with started(site.wire.config()) as mine, started(site.wire.config()) as theirs:
        assert mine.load_balancers is not None
        assert theirs.load_balancers is not None
        first = await lives(site, theirs, site.service(name="a"), owner)
        made = site.octavia.only("loadbalancers")
        of_former_version(made, (owner, "a", True), (CLUSTER, "b", False))
        listed = await mine.load_balancers.list_owned(CLUSTER)
        found = leaks(listed, {"uid-b"}, (), NOW, 0.0)
        assert found == ()
        # Whoever takes it for a leak all the same releases nothing.
        desired = site.desired(mine, site.service(name="a"))
        gone = msgspec.structs.replace(desired.ref, service=None)
        before = all_there(site)
        assert await site.delete_ref(mine, gone) == Done(found=False)
        assert all_there(site) == before
        # Both know their own, and say so from now on.
        second = await lives(site, mine, known(guest(site, made["id"], "shop"), ADDRESS))
        assert isinstance(await site.ensure(theirs, first, cluster=owner), Ensured)
        assert {f"proreus/made-for={owner.uid}/shop/a/uid-a",
                f"proreus/shared-by={CLUSTER.uid}/shop/b/uid-b"} <= set(made["tags"])  # fmt: skip
        for provider, cluster, name in ((mine, CLUSTER, "b"), (theirs, owner, "a")):
            assert provider.load_balancers is not None
            (one,) = await provider.load_balancers.list_owned(cluster)
            assert (one.service, one.service_uid) == (f"shop/{name}", f"uid-{name}")
        assert isinstance(await site.delete(mine, second), Done)
        assert not [tag for tag in made["tags"] if CLUSTER.uid in tag or "_b" in tag]
        assert isinstance(await site.ensure(theirs, first, cluster=owner), Ensured)
        assert isinstance(await site.delete(theirs, first, owner), Done)
    assert not any(site.octavia.of.values())


async def test_what_a_service_left_behind_takes_no_listeners_from_the_next_of_its_name(
    site: Balancing,
) -> None:
    """An operator has said by a tag that the load balancer is the next one's, as the error asks."""
    made = by_hand(site)
    old = site.service(by_id(made["id"]), name="b")
    more = (*old.spec.ports, ServicePort(443, "https", node_port=30443))
    new = site.service(by_id(made["id"]), name="b", uid="uid-new", ports=more)
    async with started(site.wire.config()) as provider:
        assert provider.load_balancers is not None
        await lives(site, provider, old)
        made["tags"].append(f"proreus/shared-by={CLUSTER.uid}/shop/b/uid-new")
        new = await lives(site, provider, new)
        listeners = set(site.octavia.of["listeners"])
        assert len(listeners) == 2
        left = leaks(await provider.load_balancers.list_owned(CLUSTER), {"uid-new"}, (), NOW, 0.0)
        refs = due(left, CLUSTER, 60.0, 60.0)
        assert isinstance(await site.delete_ref(provider, refs["shop/b/uid-b"]), Done)
        assert set(site.octavia.of["listeners"]) == listeners
        assert not [tag for tag in made["tags"] if "uid-b" in tag]
        assert "kube_service_test_shop_b" in made["tags"]
        assert isinstance(await site.delete(provider, new), Done)
    assert not site.octavia.of["listeners"]
    assert made["tags"] == []


async def test_what_the_owner_left_is_found_again_when_the_other_cluster_has_left_it(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as mine, started(site.wire.config()) as theirs:
        assert theirs.load_balancers is not None
        first = await lives(site, theirs, site.service(name="a"), OTHER)
        made = site.octavia.only("loadbalancers")
        of_former_version(made, (OTHER, "a", True), (CLUSTER, "b", False))
        assert isinstance(await site.ensure(theirs, first, cluster=OTHER), Ensured)
        second = await lives(site, mine, known(guest(site, made["id"], "shop"), ADDRESS))
        assert isinstance(await site.delete(theirs, first, OTHER), Done)
        assert isinstance(await site.ensure(mine, second), Ensured)
        assert isinstance(await site.delete(mine, second), Done)
        assert site.octavia.only("loadbalancers") is made
        (left,) = await theirs.load_balancers.list_owned(OTHER)
        assert (left.kind, left.id, left.service_uid) == ("load balancer", made["id"], "uid-a")
        (leak,) = leaks([left], (), (), NOW, 0.0)
        refs = due([leak], OTHER, 60.0, 60.0)
        assert isinstance(await site.delete_ref(theirs, refs["shop/a/uid-a"]), Done)
    assert not any(site.octavia.of.values())


async def test_a_load_balancer_made_by_hand_may_serve_two_clusters(site: Balancing) -> None:
    made = by_hand(site)
    async with started(site.wire.config()) as mine, started(site.wire.config()) as theirs:
        assert mine.load_balancers is not None
        one = await lives(site, mine, site.service(by_id(made["id"]), name="a"))
        two = await lives(site, theirs, guest(site, made["id"]), OTHER)
        listed = await mine.load_balancers.list_owned(CLUSTER)
        assert [(one.kind, one.id, one.service_uid) for one in listed] == [
            ("listeners of load balancer", made["id"], "uid-a")
        ]
        assert isinstance(await site.delete(mine, one), Done)
        assert isinstance(await site.ensure(theirs, two, cluster=OTHER), Ensured)
        assert isinstance(await site.delete(theirs, two, OTHER), Done)
    assert made["tags"] == []


async def test_two_clusters_with_a_service_of_one_name_keep_their_tags_and_listeners(
    site: Balancing,
) -> None:
    made = by_hand(site)
    asked, ports = by_id(made["id"]), (ServicePort(443, "https", node_port=30443),)
    theirs = site.service(asked, ports=ports)
    metadata = msgspec.structs.replace(theirs.metadata, uid="uid-theirs")
    theirs = msgspec.structs.replace(theirs, metadata=metadata)
    tags = {"kube_service_test_shop_web", "kube_service_prod_shop_web"}
    async with started(site.wire.config()) as one, started(site.wire.config()) as two:
        first = await lives(site, one, site.service(asked))
        await lives(site, two, theirs, OTHER)
        assert set(made["tags"]) >= tags
        # The other cluster goes back to its official manager, and gets one port more.
        name = "kube_service_prod_shop_web"
        part = {"name": f"listener_1_{name}", "tags": [name], "protocol": "TCP"}
        site.octavia.make("listeners", {**part, "protocol_port": 8443}, made["id"])
        assert isinstance(await site.ensure(one, first), Ensured)
        assert set(made["tags"]) >= tags
        listeners = site.octavia.of["listeners"]
        assert {one["protocol_port"] for one in listeners.values()} == {80, 443, 8443}
        assert await site.delete(one, first) == Done()
        assert {one["protocol_port"] for one in listeners.values()} == {443, 8443}
        assert name in made["tags"]


async def test_a_network_apart_with_the_same_addresses_gets_no_load_balancer(
    site: Balancing,
) -> None:
    """Clusters of one project often have the same CIDR, each in a network of its own."""
    apart = uuid(999)
    for number in (1, 2):
        site.wire.add(900 + number)
        fixed = {"subnet_id": apart, "ip_address": f"10.0.0.{number}"}
        site.wire.ports[-1]["fixed_ips"] = [fixed]
    site.octavia.subnets[apart] = {"id": apart, "ip_version": 4}
    async with started(site.wire.config()) as provider:
        await lives(site, provider, site.service())
    made = site.octavia.only("loadbalancers")
    (members,) = site.octavia.members.values()
    assert {made["vip_subnet_id"], *(one["subnet_id"] for one in members)} == {SUBNET}


# Services that share go on side by side


async def test_no_service_waits_for_the_verbs_of_who_names_its_load_balancer(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        assert provider.load_balancers is not None
        first = await lives(site, provider, site.service(name="a"))
        id_ = site.octavia.only("loadbalancers")["id"]
        group = provider.load_balancers.group
        refs = [
            site.desired(provider, one).ref
            for one in (first, guest(site, id_), guest(site, id_, "shop"))
        ]
        assert len({group(ref) for ref in refs[:2]}) == 2
        assert [group(ref) for ref in refs] == [
            group(msgspec.structs.replace(ref, service=None)) for ref in refs
        ]


async def test_services_that_come_at_once_lose_no_tag(site: Balancing) -> None:
    made = by_hand(site)
    config = site.wire.config(sections="[LoadBalancer]\nmax-shared-lb = 9\n")
    async with started(config) as provider:
        services = [
            site.service(by_id(made["id"]), name=f"s{n}", ports=(ServicePort(n, node_port=30000),))
            for n in range(1, 6)
        ]

        async def until_done(service: Service) -> None:
            answer: Any = None
            for _ in range(400):
                assert provider.load_balancers is not None
                desired = site.desired(provider, service)
                answer = (await provider.load_balancers.ensure([desired]))[desired.ref.uid]
                if isinstance(answer, Ensured):
                    return
                assert isinstance(answer, Pending) or hasattr(answer, "after"), answer
            raise AssertionError(answer)

        await asyncio.gather(*(until_done(one) for one in services))
    shared = {tag for tag in made["tags"] if tag.startswith("proreus/shared-by=")}
    assert shared == {f"proreus/shared-by={CLUSTER.uid}/shop/s{n}/uid-s{n}" for n in range(1, 6)}


# Floating IPs


def kept_by(namespace: str, name: str, cluster: ClusterIdentity = CLUSTER, proof: str = "") -> str:
    text = f"Floating IP for Kubernetes external service {namespace}/{name} from cluster"
    return f"{text} {cluster.name}{proof or f' (uid-old {cluster.uid} keep)'}"


FOREIGN: Mapping[str, str] = {
    "another namespace": kept_by("bank", "web"),
    "another namespace, without keep": kept_by("bank", "web", proof=f" (uid-old {CLUSTER.uid})"),
    "another cluster": kept_by("shop", "web", OTHER),
    "another cluster of the name": kept_by("shop", "web", NAMESAKE),
    "another namespace, officially": "Floating IP for Kubernetes external service bank/web from"
    " cluster test",
    "another cluster, officially": "Floating IP for Kubernetes external service shop/web from"
    " cluster prod",
    "another namespace's Ingress": "Floating IP for Kubernetes ingress web in namespace bank from"
    " cluster test",
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_a_floating_address_that_another_tenant_kept_is_refused_and_stays(
    site: Balancing, name: str
) -> None:
    id_ = kept_address(site, FOREIGN[name])
    before = dict(site.octavia.of["floatingips"][id_])
    service = site.service(load_balancer_ip=ADDRESS)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, InvalidRequest)
        assert f"spec.loadBalancerIP: {ADDRESS}: it belongs to the Service" in str(answer)
        assert isinstance(await site.delete(provider, service), Done)
    assert site.octavia.only("floatingips") == before


USABLE: Mapping[str, str] = {
    "nobody's": "for the shop",
    "kept by a Service of the namespace": kept_by("shop", "web"),
    "kept officially": "Floating IP for Kubernetes external service shop/old from cluster test",
    "kept officially by a former Service of this name": "Floating IP for Kubernetes external"
    " service shop/web from cluster test",
    "kept by an Ingress of this name": "Floating IP for Kubernetes ingress web in namespace shop"
    " from cluster test",
}


@pytest.mark.parametrize("name", USABLE)
async def test_a_floating_address_that_was_not_made_for_the_service_outlives_it(
    site: Balancing, name: str
) -> None:
    id_ = kept_address(site, USABLE[name])
    born = datetime(2026, 1, 1, 1, tzinfo=UTC)
    new = site.service(load_balancer_ip=ADDRESS, creation_timestamp=born)
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, new)
        assert [one.ip for one in service.status.load_balancer.ingress] == [ADDRESS]
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert isinstance(await site.delete(provider, service), Done)
    assert set(site.octavia.of["floatingips"]) == {id_}
    assert not site.octavia.of["loadbalancers"]


async def test_a_floating_address_that_is_as_young_as_the_service_is_the_official_managers_for_it(
    site: Balancing,
) -> None:
    kept_address(site, USABLE["kept officially by a former Service of this name"])
    born = datetime(2026, 1, 1, 0, 4, tzinfo=UTC)  # the clocks differ
    new = site.service(load_balancer_ip=ADDRESS, creation_timestamp=born)
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, new)
        assert isinstance(await site.delete(provider, service), Done)
    assert not site.octavia.of["floatingips"]


async def test_of_two_namespaces_that_name_one_address_at_once_none_takes_it_from_the_other(
    site: Balancing,
) -> None:
    id_ = kept_address(site, "for whoever needs it")
    rivals = [site.service(namespace=one, name=one, load_balancer_ip=ADDRESS) for one in "ab"]
    async with started(site.wire.config()) as provider:
        first = await asyncio.gather(*(site.ensure(provider, one) for one in rivals))
        holder = site.octavia.of["floatingips"][id_]["port_id"]
        second = [await site.ensure(provider, one) for one in rivals]
    assert {type(one) for one in first} == {Ensured, RetryAfter}
    assert [type(one) for one in second] == [
        Ensured if isinstance(one, Ensured) else InvalidRequest for one in first
    ]
    assert site.octavia.of["floatingips"][id_]["port_id"] == holder


@pytest.mark.parametrize("is_listed", [False, True])
@virtual_time
async def test_an_address_of_another_namespace_is_refused_while_its_load_balancer_is_made_anew(
    *, is_listed: bool
) -> None:
    """Who deletes a load balancer frees its floating IP, and one made by hand has no mark."""
    async with balancing() as site:
        id_ = kept_address(site, "for the shop")
        own = known(site.service(load_balancer_ip=ADDRESS), ADDRESS)
        theirs = site.service(name="c", namespace="thief", load_balancer_ip=ADDRESS)
        sections = f"[Tenants]\nallow = thief={ADDRESS}\n" if is_listed else ""
        config = site.wire.config(sections=sections)
        async with started(config, context(services=[own, theirs])) as provider:
            await lives(site, provider, own)
            assert isinstance(await site.ensure(provider, theirs), InvalidRequest)
            for kind in ("loadbalancers", "listeners"):
                site.octavia.of[kind].clear()
            site.octavia.of["floatingips"][id_]["port_id"] = None
            answer = await site.ensure(provider, theirs)
            if is_listed:
                assert isinstance(answer, Ensured)
                return
            assert isinstance(answer, InvalidRequest)
            assert "it belongs to the Service shop/web" in str(answer)
            assert (await site.ensure(provider, own)).ingress[0].ip == ADDRESS


@pytest.mark.parametrize("written", [f"{ADDRESS} ", f"{ADDRESS}/32"])
async def test_what_only_a_database_takes_for_an_address_of_another_namespace_is_refused(
    site: Balancing, written: str
) -> None:
    id_ = kept_address(site, "for the shop")
    own = known(site.service(load_balancer_ip=ADDRESS), ADDRESS)
    inside = site.service({INTERNAL: "true"}, name="c", namespace="thief")
    theirs = site.service(name="c", namespace="thief", load_balancer_ip=written)
    async with started(site.wire.config(), context(services=[own, theirs])) as provider:
        await lives(site, provider, inside)
        answer = await site.ensure(provider, theirs)
        assert isinstance(answer, InvalidRequest)
        assert "is no IP address" in str(answer)
        assert site.octavia.of["floatingips"][id_]["port_id"] is None


async def test_a_floating_address_of_another_namespace_is_not_made_anew_for_a_service_that_names_it(
    site: Balancing,
) -> None:
    """Somebody has deleted it by hand, too; credentials with the role admin may choose addresses."""
    site.octavia.is_admin = True
    own = known(site.service(load_balancer_ip=ADDRESS), ADDRESS)
    theirs = site.service(name="c", namespace="thief", load_balancer_ip=ADDRESS)
    async with started(site.wire.config(), context(services=[own, theirs])) as provider:
        answer = await site.ensure(provider, theirs)
        assert isinstance(answer, InvalidRequest), answer
        assert "it belongs to the Service shop/web" in str(answer)
        assert (await site.ensure(provider, own)).ingress[0].ip == ADDRESS


async def test_an_internal_address_of_another_namespace_is_refused_while_nothing_has_it(
    site: Balancing,
) -> None:
    """Its load balancer was deleted by hand, and is made anew."""
    own = known(site.service({INTERNAL: "true"}), "10.0.0.77")
    asked = {"name": "c", "namespace": "thief", "load_balancer_ip": "10.0.0.77"}
    theirs = site.service({INTERNAL: "true"}, **asked)
    async with started(site.wire.config(), context(services=[own, theirs])) as provider:
        answer = await site.ensure(provider, theirs)
    assert isinstance(answer, InvalidRequest)
    assert "10.0.0.77: it belongs to the Service shop/web" in str(answer)
    assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("is_internal", [False, True])
@virtual_time
async def test_an_address_that_a_service_names_stays_its_own_while_it_cannot_be_made_anew(
    *, is_internal: bool
) -> None:
    """Somebody has deleted the load balancer, and the floating IP, and there is no quota by now."""
    async with balancing() as site:
        site.octavia.is_admin = True
        address = "10.0.0.77" if is_internal else ADDRESS
        asked: dict[str, Any] = {"load_balancer_ip": address}
        asked["annotations"] = {INTERNAL: "true"} if is_internal else {}
        theirs = site.service(name="c", namespace="thief", **asked)
        given, services = context(), Objects()
        given.listers = {**given.listers, "services": services}
        async with started(site.wire.config(), given) as provider:
            own = await lives(site, provider, site.service(**asked))
            assert [one.ip for one in own.status.load_balancer.ingress] == [address]
            for kind in ("loadbalancers", "listeners", "floatingips"):
                site.octavia.of[kind].clear()
            site.octavia.most_balancers = 0
            answer = await answered(site, provider, own)
            assert isinstance(answer, CloudError)
            status = ServiceStatus() if answer.disowns else own.status
            own = msgspec.structs.replace(own, status=status)
            services.by_key = {"shop/web": own, "thief/c": theirs}
            site.octavia.most_balancers = 100
            answer = await answered(site, provider, theirs)
            assert isinstance(answer, InvalidRequest), answer
            assert f"{address}: it belongs to the Service shop/web" in str(answer)
            assert (await site.ensure(provider, own)).ingress[0].ip == address


@pytest.mark.parametrize("written", ["2001:DB8::4D", "2001:db8:0:0::004d"])
async def test_an_address_of_ipv6_of_another_namespace_is_refused_in_any_form(
    site: Balancing, written: str
) -> None:
    """Neutron takes all forms of an address, and so does the API server."""
    own = known(site.service(ip_families=("IPv6",)), "2001:db8::4d")
    asked = {"name": "c", "namespace": "thief", "load_balancer_ip": written}
    theirs = site.service({INTERNAL: "true"}, ip_families=("IPv6",), **asked)
    async with started(site.wire.config(), context(services=[own, theirs])) as provider:
        answer = await site.ensure(provider, theirs)
    assert isinstance(answer, InvalidRequest)
    assert "it belongs to the Service shop/web" in str(answer)
    assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("is_internal", [False, True])
@virtual_time
async def test_an_address_of_another_namespace_is_refused_while_its_status_shows_a_host_name(
    *, is_internal: bool
) -> None:
    """Nothing has it while its load balancer, which was deleted by hand, is made anew."""
    async with balancing() as site:
        annotations = {INTERNAL: "true"} if is_internal else {}
        address = "10.0.0.77" if is_internal else ADDRESS
        if not is_internal:
            kept_address(site, "for the shop")
        named = {**annotations, f"{P}hostname": "shop.example.org"}
        shown = LoadBalancerStatus((LoadBalancerIngress(hostname="shop.example.org"),))
        own = msgspec.structs.replace(
            site.service(named, load_balancer_ip=address), status=ServiceStatus(shown)
        )
        asked = {"name": "c", "namespace": "thief", "load_balancer_ip": address}
        theirs = site.service(annotations, **asked)
        async with started(site.wire.config(), context(services=[own, theirs])) as provider:
            answer = await site.ensure(provider, theirs)
            assert isinstance(answer, InvalidRequest)
            assert f"{address}: it belongs to the Service shop/web" in str(answer)
            mine = await site.ensure(provider, own)
            assert [one.hostname for one in mine.ingress] == ["shop.example.org"]


async def test_an_address_that_the_status_shows_stays_whosesoever_it_is(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        service = site.service(load_balancer_ip=ADDRESS)
        id_ = kept_address(site, "for the shop")
        service = await lives(site, provider, service)
        site.octavia.of["floatingips"][id_]["description"] = FOREIGN["another namespace"]
        assert isinstance(await site.ensure(provider, service), Ensured)
        site.octavia.of["floatingips"][id_]["port_id"] = None
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert isinstance(await site.delete(provider, service), Done)
    assert set(site.octavia.of["floatingips"]) == {id_}


async def test_keep_floating_ip_holds_when_only_the_uid_is_known(
    site: Balancing,
) -> None:
    """The Service was made anew, or lost its finalizer, while no manager ran."""
    keep = site.service({f"{P}keep-floatingip": "true"})
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, keep)
        ref = msgspec.structs.replace(site.desired(provider, service).ref, service=None)
        assert isinstance(await site.delete_ref(provider, ref), Done)
    assert site.octavia.only("floatingips")["port_id"] is None


@pytest.mark.parametrize("official", [False, True])
async def test_keep_floating_ip_follows_the_annotation(site: Balancing, *, official: bool) -> None:
    keep = {f"{P}keep-floatingip": "true"}
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service())
        made = site.octavia.only("floatingips")
        if official:
            made["description"] = made["description"].partition(" (")[0]
        for annotations, kept in ((keep, True), ({}, False), (keep, True)):
            metadata = msgspec.structs.replace(service.metadata, annotations=annotations)
            service = msgspec.structs.replace(service, metadata=metadata)
            assert isinstance(await site.ensure(provider, service), Ensured)
            assert made["description"].endswith(" keep)") == kept
        before = site.wire.asked["floatingip_update"]
        await site.ensure(provider, service)
        assert site.wire.asked["floatingip_update"] == before


async def test_keep_floating_ip_that_was_set_last_holds_though_it_is_not_written_yet(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service())
        annotations = {**service.metadata.annotations, f"{P}keep-floatingip": " True\n"}
        metadata = msgspec.structs.replace(service.metadata, annotations=annotations)
        late = msgspec.structs.replace(service, metadata=metadata)
        assert isinstance(await site.delete(provider, late), Done)
    assert len(site.octavia.of["floatingips"]) == 1


@pytest.mark.parametrize("kept", [False, True])
async def test_the_address_of_who_left_goes_with_the_load_balancer_unless_it_is_kept(
    site: Balancing, *, kept: bool
) -> None:
    annotations = {f"{P}keep-floatingip": "true"} if kept else {}
    async with started(site.wire.config()) as provider:
        first = await lives(site, provider, site.service(annotations, name="a"))
        id_ = site.octavia.only("loadbalancers")["id"]
        second = await lives(site, provider, guest(site, id_, "shop"))
        for one in (first, second):
            assert isinstance(await site.delete(provider, one), Done)
    assert not site.octavia.of["loadbalancers"]
    assert len(site.octavia.of["floatingips"]) == int(kept)


# Ports, networks, certificates


async def test_a_port_that_is_in_use_is_refused(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        await lives(site, provider, site.service(name="a"))
        vip = site.octavia.only("loadbalancers")["vip_port_id"]
        of_node = site.wire.ports[0]["id"] = uuid(801)
        before = all_there(site)
        for port, text in ((vip, "Service shop/a of"), (of_node, "in use by compute:nova")):
            thief = site.service({f"{P}port-id": port}, name="b", namespace="thief")
            answer = await site.ensure(provider, thief)
            assert isinstance(answer, InvalidRequest)
            assert f"{P}port-id" in str(answer)
            assert text in str(answer)
    assert all_there(site) == before


@pytest.mark.parametrize("is_in_trunk", [True, False])
async def test_a_port_in_a_trunk_is_refused(site: Balancing, *, is_in_trunk: bool) -> None:
    """A server has it, by a VLAN of its own port, but Neutron names no device."""
    owner = "trunk:subport" if is_in_trunk else ""
    sub = port(uuid(802), "", "10.0.9.9", device_owner=owner)
    site.wire.ports.append(sub)
    named = site.service({INTERNAL: "true", f"{P}port-id": sub["id"]}, namespace="thief")
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, named)
    assert isinstance(answer, InvalidRequest if is_in_trunk else Ensured), answer
    if is_in_trunk:
        assert f"{P}port-id: port {sub['id']} is in use by trunk:subport" in str(answer)
        assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("spell", [str.lower, str.upper], ids=["alike", "in capitals"])
async def test_of_two_namespaces_that_name_one_port_at_once_the_first_one_has_it(
    site: Balancing, spell: Callable[[str], str]
) -> None:
    """Octavia itself makes two load balancers at one port."""
    id_ = "2e8c1f0a-0000-4000-8000-00000000000a"
    free = {**site.wire.ports[0], "id": id_, "device_id": "", "device_owner": ""}
    site.wire.ports.append(free)
    rivals = [
        site.service({f"{P}port-id": named}, name=one, namespace=one)
        for one, named in (("a", id_), ("b", spell(id_)))
    ]
    async with started(site.wire.config()) as provider:
        first = await asyncio.gather(*(site.ensure(provider, one) for one in rivals))
        second = [await site.ensure(provider, one) for one in rivals]
    assert {type(one) for one in first} == {Ensured, RetryAfter}
    assert [type(one) for one in second] == [
        Ensured if isinstance(one, Ensured) else InvalidRequest for one in first
    ]
    assert site.octavia.only("loadbalancers")["vip_port_id"] == free["id"]


@pytest.mark.parametrize("kept", ["another tenant's", "nobody's", "nobody's, but shown", "own"])
async def test_a_port_with_a_floating_address_of_others_is_refused(
    site: Balancing, kept: str
) -> None:
    """A port that was given outlives its load balancer, and a floating IP that is kept stays on."""
    free = {**site.wire.ports[0], "id": uuid(802), "device_id": "", "device_owner": ""}
    site.wire.ports.append(free)
    text = {"another tenant's": kept_by("bank", "db"), "own": kept_by("shop", "old")}
    id_ = kept_address(site, text.get(kept, "for whoever needs it"), free["id"])
    before = dict(site.octavia.of["floatingips"][id_])
    theirs = known(site.service(name="db", namespace="bank"), ADDRESS)
    services = [theirs] if kept == "nobody's, but shown" else []
    async with started(site.wire.config(), context(services=services)) as provider:
        answer = await site.ensure(provider, site.service({f"{P}port-id": free["id"]}))
    if kept in {"nobody's", "own"}:
        assert [one.ip for one in answer.ingress] == [ADDRESS]
        return
    assert isinstance(answer, InvalidRequest)
    assert f"{P}port-id" in str(answer)
    assert "it belongs to the Service bank/db" in str(answer)
    assert not site.octavia.of["loadbalancers"]
    assert site.octavia.only("floatingips") == before


@virtual_time
async def test_a_port_of_another_namespace_is_refused_while_its_status_shows_a_host_name() -> None:
    """A port that was given outlives its load balancer: somebody has deleted that by hand."""
    async with balancing() as site:
        free = {**site.wire.ports[0], "id": uuid(802), "device_id": "", "device_owner": ""}
        site.wire.ports.append(free)
        named = {INTERNAL: "true", f"{P}port-id": free["id"]}
        shown = LoadBalancerStatus((LoadBalancerIngress(hostname="shop.example.org"),))
        own = msgspec.structs.replace(
            site.service({**named, f"{P}hostname": "shop.example.org"}),
            status=ServiceStatus(shown),
        )
        theirs = site.service(named, name="c", namespace="thief")
        async with started(site.wire.config(), context(services=[own, theirs])) as provider:
            answer = await site.ensure(provider, theirs)
            assert isinstance(answer, InvalidRequest)
            assert "it belongs to the Service shop/web" in str(answer)
            mine = await site.ensure(provider, own)
            assert [one.hostname for one in mine.ingress] == ["shop.example.org"]
        assert site.octavia.only("loadbalancers")["vip_port_id"] == free["id"]


MARKED: Mapping[str, tuple[list[str], bool]] = {
    "nobody's": ([], True),
    "the cluster's": ([f"proreus/cluster-uid={CLUSTER.uid}"], True),
    "the namespace's": (["proreus/service=shop/a", f"proreus/cluster-uid={CLUSTER.uid}"], True),
    "another namespace's": (["proreus/service=bank/a"], False),
    "another cluster's": ([f"proreus/cluster-uid={OTHER.uid}"], False),
}


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("kind", ["network-id", "subnet-id", "member-subnet-id", "port-id"])
async def test_marks_on_networks_subnets_and_ports_are_respected(
    site: Balancing, kind: str, name: str
) -> None:
    tags, is_usable = MARKED[name]
    id_, network = uuid(510), uuid(511)
    site.octavia.subnets[id_] = {"id": id_, "ip_version": 4, "network_id": network, "tags": tags}
    site.wire.networks[network] = "lan"
    site.wire.network_tags[network] = tags
    free = {**site.wire.ports[0], "id": uuid(802), "device_id": "", "device_owner": "",
            "tags": tags}  # fmt: skip
    site.wire.ports.append(free)
    named = {"network-id": network, "port-id": free["id"]}.get(kind, id_)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service({f"{P}{kind}": named}))
    assert isinstance(answer, Ensured if is_usable else InvalidRequest), answer
    if not is_usable:
        assert f"annotation {P}{kind}: it belongs to" in str(answer)
        assert not any(site.octavia.of.values())


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("subnet-id", "network"),
        ("member-subnet-id", "network"),
        ("port-id", "network"),
        ("port-id", "subnet"),
    ],
)
async def test_marks_on_a_network_are_respected_for_what_is_in_it(
    site: Balancing, kind: str, at: str, name: str
) -> None:
    """But what is in it may be reserved for somebody else."""
    tags, is_usable = MARKED[name]
    id_, network = uuid(510), uuid(511)
    site.wire.networks[network] = "lan"
    place = {"id": id_, "ip_version": 4, "network_id": network}
    site.octavia.subnets[id_] = place
    free = {**site.wire.ports[0], "id": uuid(802), "device_id": "", "device_owner": "",
            "network_id": network, "fixed_ips": [{"subnet_id": id_, "ip_address": "10.0.9.9"}]}  # fmt: skip
    site.wire.ports.append(free)
    if at == "network":
        site.wire.network_tags[network] = tags
    else:
        place["tags"] = tags
    named = site.service({f"{P}{kind}": free["id"] if kind == "port-id" else id_})
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, named)
        if not is_usable:
            assert f"annotation {P}{kind}: it belongs to" in str(answer)
            assert not any(site.octavia.of.values())
            for one in (place, free):
                one["tags"] = ["proreus/service=shop/any"]
            assert isinstance(await site.ensure(provider, named), Ensured)
    assert isinstance(answer, Ensured if is_usable else InvalidRequest), answer


@pytest.mark.parametrize("name", MARKED)
async def test_marks_on_a_subnet_are_respected_where_octavia_chooses_it(
    site: Balancing, name: str
) -> None:
    """It does so where the Service names only the network, whosesoever that is."""
    tags, is_usable = MARKED[name]
    reserved, free, network = uuid(510), uuid(512), uuid(511)
    site.wire.networks[network] = "lan"
    site.wire.network_tags[network] = ["proreus/service=shop/any"]
    place = {"ip_version": 4, "network_id": network}
    site.octavia.subnets[reserved] = {**place, "id": reserved, "tags": tags}
    site.octavia.subnets[free] = {**place, "id": free}
    asked = {INTERNAL: "true", f"{P}network-id": network}
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service(asked))
        if not is_usable:
            assert f"annotation {P}network-id: Octavia may choose" in str(answer)
            assert not any(site.octavia.of.values())
            named = site.service({**asked, f"{P}subnet-id": free})
            assert isinstance(await site.ensure(provider, named), Ensured)
    assert isinstance(answer, Ensured if is_usable else InvalidRequest), answer


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("kind", ["floating-network-id", "floating-subnet-id"])
async def test_marks_are_respected_where_a_floating_address_comes_later(
    site: Balancing, kind: str, name: str
) -> None:
    """What was refused with the load balancer is refused once it stands, too."""
    tags, is_usable = MARKED[name]
    subnet, network = uuid(510), uuid(511)
    site.wire.external[network] = "dmz"
    site.wire.network_tags[network] = tags
    site.octavia.subnets[subnet] = {"id": subnet, "network_id": network, "tags": tags}
    named = {f"{P}{kind}": network if kind == "floating-network-id" else subnet}
    config = site.wire.config(sections=f"[LoadBalancer]\nfloating-network-id = {EXTERNAL}\n")
    async with started(config) as provider:
        internal = await lives(site, provider, site.service({INTERNAL: "true"}))
        answer = await site.ensure(provider, known(site.service(named), "10.0.0.200"))
        assert isinstance(internal, Service)
    assert isinstance(answer, Ensured if is_usable else InvalidRequest), answer
    if not is_usable:
        assert f"annotation {P}{kind}: it belongs to" in str(answer)
        assert site.octavia.of["floatingips"] == {}


@pytest.mark.parametrize("name", ["floating-subnet", "floating-subnet-tags"])
async def test_a_subnet_with_anothers_mark_is_not_found_by_name_or_tag(
    site: Balancing, name: str
) -> None:
    marks = MARKED["another namespace's"][0]
    site.octavia.subnets |= {
        "a": {"id": "a", "name": "dmz-1", "network_id": EXTERNAL, "tags": ["dmz", *marks]},
        "b": {"id": "b", "name": "dmz-2", "network_id": EXTERNAL, "tags": ["dmz"]},
    }
    value = "dmz-*" if name == "floating-subnet" else "dmz"
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service({f"{P}{name}": value}))
    assert isinstance(answer, Ensured), answer
    assert site.octavia.only("floatingips")["subnet_id"] == "b"


Names = Callable[[Balancing], tuple[Service, str]]


def a_balancer(site: Balancing) -> tuple[Service, str]:
    id_ = by_hand(site)["id"]
    return site.service(by_id(id_)), id_


def an_address(site: Balancing) -> tuple[Service, str]:
    kept_address(site, "for everybody")
    return site.service(load_balancer_ip=ADDRESS), ADDRESS


def a_certificate(site: Balancing) -> tuple[Service, str]:
    ref = "https://barbican/v1/containers/one"
    return site.service({f"{P}default-tls-container-ref": ref}), ref


def a_subnet(site: Balancing) -> tuple[Service, str]:
    return site.service({f"{P}subnet-id": SUBNET}), SUBNET


def a_member_subnet(site: Balancing) -> tuple[Service, str]:
    return site.service({f"{P}member-subnet-id": SUBNET}), SUBNET


@pytest.mark.parametrize(
    "names", [a_balancer, an_address, a_certificate, a_subnet, a_member_subnet]
)
@pytest.mark.parametrize("mode", ["unmarked", "same-namespace", "listed"])
async def test_the_cloud_config_may_be_stricter_and_list_what_is_allowed(
    site: Balancing, names: Names, mode: str
) -> None:
    service, object_ = names(site)
    others = f"[Tenants]\nnamed-objects = {mode}\nallow = bank={object_}\n"
    async with started(site.wire.config(sections=others)) as provider:
        answer = await site.ensure(provider, service)
    if mode != "unmarked":
        assert isinstance(answer, InvalidRequest), answer
        assert "[Tenants]" in str(answer)
        ours = f"[Tenants]\nnamed-objects = {mode}\nallow = bank={object_}\nallow=shop={object_}\n"
        async with started(site.wire.config(sections=ours)) as provider:
            answer = await site.ensure(provider, service)
    assert isinstance(answer, Ensured), answer
    # What is there stays, when the operator becomes stricter.
    service = known(service, *(one.ip for one in answer.ingress))
    async with started(site.wire.config(sections=others)) as provider:
        assert isinstance(await site.ensure(provider, service, nodes=1), Ensured)


async def test_the_cloud_configs_own_objects_need_not_be_listed(site: Balancing) -> None:
    text = f"[Tenants]\nnamed-objects = listed\n[LoadBalancer]\nsubnet-id = {SUBNET}\n"
    async with started(site.wire.config(sections=text)) as provider:
        named = site.service({f"{P}subnet-id": SUBNET})
        assert isinstance(await site.ensure(provider, named), Ensured)


async def test_an_operator_may_let_a_namespace_use_anothers_load_balancer(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        await lives(site, provider, site.service(name="a"))
    id_ = site.octavia.only("loadbalancers")["id"]
    text = site.wire.config(sections=f"[Tenants]\nallow = guests={id_}\n")
    async with started(text) as provider:
        for namespace, kind in (("thief", InvalidRequest), ("guests", Ensured)):
            service = guest(site, id_, namespace)
            assert isinstance(await site.ensure(provider, service), kind)
        assert isinstance(await site.delete(provider, guest(site, id_, "guests")), Done)
    assert len(site.octavia.of["loadbalancers"]) == len(site.octavia.of["listeners"]) == 1


# Without cascade


async def broken(site: Balancing, provider: OpenStackCloud, parts: int) -> Any:
    """What becomes of a load balancer in an error that has some of its parts."""
    site.octavia._make_balancer({
        "name": "kube_service_test_shop_web", "tags": ["proreus/service-uid=uid-web",
        f"proreus/cluster-uid={CLUSTER.uid}"], "vip_subnet_id": SUBNET,
    })  # fmt: skip
    made = site.octavia.only("loadbalancers")
    for _ in range(parts):
        part = {"name": "x", "protocol": "TCP", "protocol_port": 80,
                "tags": ["proreus/service-uid=uid-web"]}  # fmt: skip
        site.octavia.make("listeners", part, made["id"])
    made["provisioning_status"] = "ERROR"
    return made["id"], await site.ensure(provider, site.service())


SERIAL = "[LoadBalancer]\ncascade-delete = false\nprovider-requires-serial-api-calls = true\n"


async def test_a_failed_one_is_deleted_without_cascade_where_the_provider_has_none(
    site: Balancing,
) -> None:
    site.octavia.no_cascade = True
    async with started(site.wire.config(sections=SERIAL)) as provider:
        id_, answer = await broken(site, provider, 0)
        assert isinstance(answer, Ensured), answer
        assert site.octavia.only("loadbalancers")["id"] != id_


async def test_a_failed_one_that_can_only_go_in_parts_is_reported(site: Balancing) -> None:
    """Octavia takes no part from a load balancer in an error."""
    site.octavia.no_cascade = True
    async with started(site.wire.config(sections=SERIAL)) as provider:
        _, answer = await broken(site, provider, 1)
        assert "repair or delete it" in str(answer)
        assert "repair or delete it" in str(await site.delete(provider, site.service()))


async def test_duplicates_go_in_parts_where_the_provider_has_no_cascade(site: Balancing) -> None:
    site.octavia.no_cascade = True
    async with started(site.wire.config(sections=SERIAL)) as provider:
        await site.ensure(provider, site.service())
        first = dict(site.octavia.only("loadbalancers"))
        site.octavia._make_balancer(
            {"name": first["name"], "tags": first["tags"], "vip_subnet_id": SUBNET}
        )
        second = next(id_ for id_ in site.octavia.of["loadbalancers"] if id_ != first["id"])
        part = {"name": "x", "tags": first["tags"], "protocol": "TCP", "protocol_port": 80}
        site.octavia.make("listeners", part, second)
        for _ in range(4):
            assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert list(site.octavia.of["loadbalancers"]) == [first["id"]]
    assert len(site.octavia.of["listeners"]) == 1
