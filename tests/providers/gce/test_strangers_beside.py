"""What has names as ours have and is not ours, and what a load balancer had in another form."""

import asyncio
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, LoadBalancer
from proreus.kube.objects import LoadBalancerIngress, Node
from proreus.providers.gce.balancing.annotations import EXTERNAL_ELSEWHERE, RBS, TYPE
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, REGION, SUBNET, ZONES
from .lb_site import Balancing, balancing, lbs
from .site import PATIENT
from .test_subsets import LOCAL, OWN, RULE, SECTIONS, SUBNETWORK, attached, with_pods

__all__ = ["lbs"]

INTERNAL = {TYPE: "Internal"}
ELSEWHERE = "europe-west1-b"
OTHER_PROJECT = "proreus-other"
OTHER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-00000000000f")
FORMER: dict[str, Any] = {"uid": "5e00cccc-0000-4000-8000-000000000003"}
SUBSET_RULE = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{RULE}"
EVERY = f"{SECTIONS}backend-services = true\n"
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "pool": (PATIENT, {}),
    "external": (EVERY, {"annotations": {RBS: "enabled"}}),
    "internal": (PATIENT, {"annotations": INTERNAL}),
    "subset": (SECTIONS, {"annotations": INTERNAL}),
}
"""The forms of load balancers, with the cloud-config and the fields that lead to them."""


def showing(lb: LoadBalancer, address: str) -> LoadBalancer:
    """The same of a Service whose status shows an address."""
    ref = msgspec.structs.replace(lb.ref, last_ingress=(LoadBalancerIngress(ip=address),))
    return msgspec.structs.replace(lb, ref=ref)


async def test_instance_groups_in_another_region_keep_their_instances(lbs: Balancing) -> None:
    """They are another cluster's, whose id was copied, or this cluster's in another cloud."""
    gce, world = lbs.gce, lbs.gce.world
    await lbs.make(annotations=INTERNAL)
    group = gce.names("instanceGroups")[0]
    gce.run("eu-1", zone=ELSEWHERE)
    zone = f"projects/{PROJECT}/zones/{ELSEWHERE}"
    path = f"{zone}/instanceGroups/{group}"
    with world.lock:
        members = [world.link(gce.machine("eu-1"))]
        world.put(path, {"name": group, "instances": members, "zone": world.link(zone)})
    before = dict(world.objects[path])
    lbs.nodes = lbs.nodes[:1]
    await lbs.make(annotations=INTERNAL)
    assert world.objects[path] == before
    await lbs.delete()
    assert world.objects[path] == before


async def test_a_shared_firewall_rule_keeps_the_tags_of_nodes_in_another_cloud(gce: Gce) -> None:
    async with (
        balancing(gce, "node-tags = west") as west,
        balancing(gce, "node-tags = east") as east,
    ):
        await west.make(annotations=INTERNAL)
        await east.make(annotations=INTERNAL, **FORMER)
        (name,) = (one for one in gce.names("firewalls") if one.endswith("-node-hc"))
        assert gce.one("firewalls", name)["targetTags"] == ["east", "west"]


async def test_two_clouds_that_change_a_shared_firewall_rule_at_once_both_get_their_tags(
    gce: Gce,
) -> None:
    """Such as after another `node-tags` in both cloud-configs; Google takes the last list."""
    async with (
        balancing(gce, "node-tags = former") as former,
        balancing(gce, "node-tags = west") as west,
        balancing(gce, "node-tags = east") as east,
    ):
        await former.make()
        (name,) = (one for one in gce.names("firewalls") if "-node-" in one)
        gce.world.latency = 0.2
        await asyncio.gather(west.make(), east.make(**FORMER))
        assert gce.one("firewalls", name)["targetTags"] == ["east", "former", "west"]


@pytest.mark.parametrize("form", [{}, {"annotations": INTERNAL}], ids=["pool", "internal"])
async def test_a_shared_firewall_rule_outlives_the_last_service_of_another_cloud(
    gce: Gce, form: dict[str, Any]
) -> None:
    """Health checks and firewall rules are of no region: clouds in two regions share them."""
    async with (
        balancing(gce, "node-tags = node") as here,
        balancing(gce, f"node-tags = node\nlocal-zone = {ELSEWHERE}") as there,
    ):
        gce.run("eu-1", zone=ELSEWHERE)
        subnetwork = {**gce.world.objects[SUBNET], "ipCidrRange": "10.132.0.0/20"}
        gce.world.put(SUBNET.replace(REGION, ELSEWHERE.removesuffix("-b")), subnetwork)
        there.nodes = [objects.node("eu-1", f"gce://{PROJECT}/{ELSEWHERE}/eu-1")]
        await here.make(**form)
        (name,) = (one for one in gce.names("firewalls") if "-node-" in one)
        gce.world.latency = 0.5  # the health check goes before its firewall rule

        async def begin() -> None:
            while gce.names("httpHealthChecks") or gce.names("healthChecks"):
                await asyncio.sleep(0.01)
            await there.make(**form, **FORMER)

        await asyncio.gather(here.delete(), begin())
        assert name in gce.names("firewalls")


@pytest.mark.parametrize("is_down", [False, True], ids=["seen", "zone is down"])
async def test_the_firewall_rule_of_external_backend_services_is_that_of_all_regions(
    gce: Gce, *, is_down: bool
) -> None:
    """Their health check is of a region, its firewall rule of all."""
    sections, form = FORMS["external"]
    async with (
        balancing(gce, "node-tags = node", sections) as here,
        balancing(gce, f"node-tags = node\nlocal-zone = {ELSEWHERE}", sections) as there,
    ):
        gce.run("eu-1", zone=ELSEWHERE)
        there.nodes = [objects.node("eu-1", f"gce://{PROJECT}/{ELSEWHERE}/eu-1")]
        await here.make(**form)
        (name,) = (one for one in gce.names("firewalls") if "-node-" in one)
        await there.make(**form, **FORMER)
        gce.world.down.update({ELSEWHERE} if is_down else ())
        await here.delete(**form)
        gce.world.down.clear()
        assert name in gce.names("firewalls")
        await there.delete(**form, **FORMER)
        assert there.left() == {}


@pytest.mark.parametrize("form", ["pool", "external", "internal"])
@pytest.mark.parametrize("network", ["host-project", PROJECT], ids=["of a third", "own"])
async def test_projects_that_share_a_network_keep_each_other_s_firewall_rules_of_health_checks(
    gce: Gce, network: str, form: str
) -> None:
    """Each has its own health check, and all have one firewall rule, in the network's project."""
    sections, fields = FORMS[form]
    extra = f"node-tags = node\nnetwork-project-id = {network}\nsubnetwork-name = default"
    nodes = Objects()
    with gce.world.lock:
        copied(gce, PROJECT, OTHER_PROJECT)
        if network != PROJECT:
            copied(gce, PROJECT, network)
    async with (
        balancing(gce, extra, sections, nodes=nodes) as here,
        balancing(gce, f"{extra}\nproject-id = {OTHER_PROJECT}", sections, nodes=nodes) as there,
    ):
        copied(gce, PROJECT, OTHER_PROJECT, "/instances/")
        there.nodes = [in_project(one, OTHER_PROJECT) for one in here.nodes]
        nodes.by_key = {f"{one.spec.provider_id}": one for one in (*here.nodes, *there.nodes)}
        await here.make(**fields)
        (name,) = (one for one in gce.names("firewalls") if "-node-" in one)
        await there.make(**fields, **FORMER)
        await here.delete(**fields)
        assert name in gce.names("firewalls")
        # Without nodes in the other project nothing there needs the rule.
        nodes.by_key = {f"{one.spec.provider_id}": one for one in there.nodes}
        await there.delete(**fields, **FORMER)
        assert there.left() == {}


def copied(gce: Gce, project: str, other: str, part: str = "/") -> None:
    """Give another project what a project has, or a part of it."""
    world = gce.world
    world.put(f"projects/{other}", {"name": other})
    for path, one in list(world.objects.items()):
        if path.startswith(f"projects/{project}/") and part in path:
            text = msgspec.json.encode(one).decode().replace(f"/{project}/", f"/{other}/")
            world.put(path.replace(project, other), msgspec.json.decode(text))


def in_project(node: Node, project: str) -> Node:
    """The Node of the same name in another project."""
    return objects.node(
        node.metadata.name, node.spec.provider_id.replace(f"/{PROJECT}/", f"/{project}/")
    )


async def test_an_address_that_another_cluster_holds_for_a_moment_is_refused(
    lbs: Balancing,
) -> None:
    """Nothing uses it while the forwarding rule is made anew, and the namespaces are called alike."""
    address = await lbs.make()
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    edited = lbs.desired(lbs.service(session_affinity="ClientIP"))
    assert isinstance(await lbs.answer(edited), CloudError)
    asked = lbs.service(load_balancer_ip=address, **FORMER)
    answer = await lbs.answer(lbs.desired(asked, cluster=OTHER))
    assert isinstance(answer, InvalidRequest)
    assert "shop/web" in str(answer)
    assert (await lbs.ensured(edited)).ingress[0].ip == address


async def test_a_refused_change_of_scheme_takes_nothing_away(lbs: Balancing) -> None:
    inside: dict[str, Any] = {"load_balancer_ip": "10.128.9.9"}
    outside: dict[str, Any] = {"load_balancer_ip": "203.0.113.77"}
    for before, after in (
        ({"annotations": INTERNAL, **inside}, inside),
        ({"annotations": INTERNAL}, outside),
    ):
        await lbs.make(**before)
        left = lbs.left()
        answer = await lbs.answer(lbs.desired(lbs.service(**after)))
        assert isinstance(answer, InvalidRequest)
        assert "spec.loadBalancerIP" in str(answer)
        assert lbs.left() == left
    address = await lbs.make()
    left = lbs.left()
    service = lbs.service(annotations=INTERNAL, load_balancer_ip=address)
    assert isinstance(await lbs.answer(lbs.desired(service)), InvalidRequest)
    assert lbs.left() == left


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pool", "internal"),
        ("pool", "subset"),
        ("external", "internal"),
        ("external", "subset"),
        ("internal", "pool"),
        ("internal", "external"),
        ("subset", "pool"),
        ("subset", "external"),
    ],
)
async def test_a_process_that_ended_while_the_scheme_changed_leaves_nothing(
    gce: Gce, before: str, after: str
) -> None:
    sections, fields = FORMS[before]
    async with balancing(gce, SUBNETWORK, sections) as site:
        address = await site.make(**fields)
    _, fields = FORMS[after]
    # With the setting a new internal one would have a subset.
    subsets = "" if after == "internal" else "subsetting = true\n"
    sections = f"{PATIENT}[LoadBalancer]\nbackend-services = true\n{subsets}"
    async with balancing(gce, SUBNETWORK, sections) as site:
        for method in ("targetPools.delete", "regionBackendServices.delete"):
            gce.fail(f"compute.{method}", status=500)
        lb = showing(site.desired(site.service(**fields)), address)
        assert isinstance(await site.answer(lb), CloudError)
        assert "forwardingRules" not in site.left()
        gce.faults.clear()
        made = await site.ensured(lb)
        assert await site.ensured(showing(lb, made.ingress[0].ip)) == made
        await site.delete(**fields)
        assert site.left() == {}


@pytest.mark.parametrize("fields", [{}, LOCAL], ids=["cluster", "local"])
async def test_without_the_setting_subsets_that_there_are_go_on_and_go_with_their_services(
    gce: Gce, fields: dict[str, Any]
) -> None:
    async with balancing(gce, SUBNETWORK, SECTIONS) as site:
        lb = site.desired(site.service(annotations=INTERNAL, **fields))
        address = (await site.ensured(with_pods(lb, "node-1", "node-2"))).ingress[0].ip
        left = site.left()
    async with balancing(gce, SUBNETWORK) as site:
        lb = showing(site.desired(site.service(annotations=INTERNAL, **fields)), address)
        assert (await site.ensured(lb)).ingress[0].ip == address
        assert site.left() == left
        assert attached(gce) == {ZONES[0]: ["node-1"], ZONES[1]: ["node-2"]}
        assert await site.deleted(lb.ref) == Done()
        assert site.left() == {}


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "being made"])
async def test_the_other_controller_s_parts_outlive_a_former_service_of_the_same_name(
    gce: Gce, *, is_whole: bool
) -> None:
    """Names and descriptions do not tell one Service from another that had its name before."""
    async with balancing(gce, SUBNETWORK, SECTIONS) as site:
        await site.make(annotations=INTERNAL)
        with gce.world.lock:
            gce.world.objects[SUBSET_RULE]["labels"] = {}
            if not is_whole:
                gce.world.drop(SUBSET_RULE)
        left = site.left()
        assert OWN in left["backendServices"]
        assert await site.delete(annotations=INTERNAL, **FORMER) == Done(found=False)
        assert site.left() == left


@pytest.mark.parametrize("finalizer", EXTERNAL_ELSEWHERE)
async def test_what_the_other_controller_makes_for_an_external_service_is_left_to_it(
    gce: Gce, finalizer: str
) -> None:
    """Its parts are called as those of an internal one, and its forwarding rule comes last."""
    async with balancing(gce, SUBNETWORK, SECTIONS) as site:
        await site.make(annotations=INTERNAL)
        with gce.world.lock:
            gce.world.drop(SUBSET_RULE)
        left = site.left()
        service = site.service(annotations={RBS: "enabled"}, finalizers=(finalizer,))
        assert await site.deleted(site.desired(service).ref) == Done(found=False)
        assert site.left() == left
