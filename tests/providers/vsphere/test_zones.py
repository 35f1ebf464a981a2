"""Zones and regions: by the tags above a machine, in few requests."""

import pytest

from labs.vsphere import Fault
from proreus.cloudprovider.errors import CloudError
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE
from proreus.providers.vsphere.config import Labels
from proreus.providers.vsphere.machines import Machine
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.zones import Marks, merged, zone_of

from .site import Site, describe, node, one, started

LABELS = '[Labels]\nzone = "k8s-zone"\nregion = "k8s-region"\n'
HOST, CLUSTER, CENTER, POOL, FOLDER, VM, ROOT = (
    Ref(kind, kind.lower())
    for kind in (
        "HostSystem",
        "Cluster",
        "Datacenter",
        "ResourcePool",
        "Folder",
        "VirtualMachine",
        "Root",
    )
)
PARENTS = {HOST: CLUSTER, CLUSTER: CENTER, POOL: CLUSTER, VM: FOLDER, FOLDER: CENTER, CENTER: ROOT}
MACHINE = Machine(VM, places=(HOST, POOL, VM))


@pytest.mark.parametrize(
    ("tagged", "expected"),
    [
        ({HOST: Marks("z", "r")}, Marks("z", "r")),
        ({CLUSTER: Marks(zone="z"), CENTER: Marks(region="r")}, Marks("z", "r")),
        ({POOL: Marks(zone="z"), CENTER: Marks(region="r")}, Marks("z", "r")),
        ({VM: Marks(zone="z"), FOLDER: Marks(region="r")}, Marks("z", "r")),
        ({HOST: Marks("near", "r"), CENTER: Marks("far", "r2")}, Marks("near", "r")),
        # As officially: the last one on the way to where both are known.
        ({HOST: Marks(zone="near"), CENTER: Marks("far", "r")}, Marks("far", "r")),
        ({HOST: Marks(zone="host"), CLUSTER: Marks(zone="near"), CENTER: Marks(region="r")}, Marks("near", "r")),
    ],
)  # fmt: skip
def test_zone_and_region_are_found_on_one_way_upwards(
    tagged: dict[Ref, Marks], expected: Marks
) -> None:
    assert zone_of(MACHINE, PARENTS, tagged, Labels()) == expected


@pytest.mark.parametrize(
    "tagged", [{}, {HOST: Marks(zone="z")}, {HOST: Marks(zone="z"), VM: Marks(region="r")}]
)
def test_what_has_only_one_of_them_says_what_to_tag(tagged: dict[Ref, Marks]) -> None:
    found = zone_of(MACHINE, PARENTS, tagged, Labels(zone="k8s-zone", region="k8s-region"))
    assert isinstance(found, CloudError)
    assert "k8s-zone" in str(found)
    assert "k8s-region" in str(found)


def test_a_ring_of_places_ends() -> None:
    ring = {HOST: CLUSTER, CLUSTER: HOST}
    assert isinstance(zone_of(MACHINE, ring, {}, Labels()), CloudError)


def test_of_several_tags_of_one_category_the_first_in_the_alphabet_counts() -> None:
    marks = [(HOST, "zone", "b"), (HOST, "zone", "a"), (HOST, "region", "r")]
    assert merged(marks) == {HOST: Marks("a", "r")}


async def tag_all(vcenter: Site) -> None:
    await vcenter.simulator.tag("k8s-region", "eu", "/DC0")
    await vcenter.simulator.tag("k8s-zone", "eu-1", "/DC0/host/DC0_C0")
    await vcenter.simulator.tag("other", "x", "/DC0/host/DC0_C0")


@pytest.mark.parametrize("has_api", [True, False], ids=["api", "rest"])
async def test_tags_are_read_once_for_all_nodes(vcenter: Site, *, has_api: bool) -> None:
    vcenter.gateway.has_api = has_api
    await tag_all(vcenter)
    await vcenter.simulator.create("a", "b")
    async with started(vcenter.config(LABELS)) as provider:
        found = await describe(provider, node("a"), node("b"))
        again = await describe(provider, node("a"), node("b"))
    assert {(it.zone, it.region) for it in (*found.values(), *again.values())} == {("eu-1", "eu")}
    calls = {
        name: count
        for name, count in vcenter.gateway.calls.items()
        if not name[0].isupper() or "/" in name
    }
    assert calls == {
        "session.create": 1, "category.list": 1, "category.get": 3, "tag.list": 2, "tag.get": 2,
        "tag.attached": 1,
    } | ({} if has_api else {"POST /api/session": 1})  # fmt: skip


async def test_a_zone_on_a_pool_or_a_folder_counts_where_the_host_has_none(vcenter: Site) -> None:
    await vcenter.simulator.do("add", kind="pool", parent="/DC0/host/DC0_C0/Resources", name="rp")
    await vcenter.simulator.do("add", kind="folder", parent="/DC0/vm", name="f")
    for category, tag in (("k8s-zone", "z"), ("k8s-region", "r")):
        await vcenter.simulator.tag(category, f"{tag}-pool", "/DC0/host/DC0_C0/Resources/rp")
        await vcenter.simulator.tag(category, f"{tag}-folder", "/DC0/vm/f")
    await vcenter.simulator.create("a", pool="/DC0/host/DC0_C0/Resources/rp", folder="/DC0/vm/f")
    await vcenter.simulator.create("b", folder="/DC0/vm/f")
    async with started(vcenter.config(LABELS)) as provider:
        found = await describe(provider, node("a"), node("b"))
    assert [(it.zone, it.region) for it in found.values()] == [
        ("z-pool", "r-pool"),
        ("z-folder", "r-folder"),
    ]


async def test_a_node_keeps_its_zone_while_nothing_tells_it(vcenter: Site) -> None:
    await tag_all(vcenter)
    await vcenter.simulator.create("a")
    known = node("a", **{LABEL_ZONE: "old", LABEL_REGION: "eu"})
    async with started(vcenter.config(LABELS)) as provider:
        vcenter.gateway.fail(Fault("session.create", times=2, status=503))
        waiting = await one(provider, node("a"))
        kept = await one(provider, known)
        told = await one(provider, known)
    assert isinstance(waiting, CloudError)
    assert (kept.zone, kept.region) == ("old", "eu")
    assert (told.zone, told.region) == ("eu-1", "eu")


async def test_a_session_of_the_rest_api_that_ends_is_begun_anew(
    vcenter: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proreus.providers.vsphere.instances.FRESH", -1.0)
    await tag_all(vcenter)
    await vcenter.simulator.create("a")
    async with started(vcenter.config(LABELS)) as provider:
        await one(provider, node("a"))
        vcenter.gateway.fail(Fault("tag.attached", status=401))
        assert (await one(provider, node("a"))).zone == "eu-1"
    assert vcenter.gateway.calls["session.create"] == 2


async def test_without_both_categories_no_tag_is_read(vcenter: Site) -> None:
    await tag_all(vcenter)
    await vcenter.simulator.create("a")
    async with started(vcenter.config('[Labels]\nzone = "k8s-zone"\n')) as provider:
        assert (await one(provider, node("a"))).zone == ""
    assert not any("." in name for name in vcenter.gateway.calls)


async def test_an_untagged_machine_is_not_initialised(vcenter: Site) -> None:
    await vcenter.simulator.create("a")
    async with started(vcenter.config(LABELS)) as provider:
        assert isinstance(await one(provider, node("a")), CloudError)
