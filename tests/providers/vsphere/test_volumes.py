"""Labels of volumes: the zones of the hosts that mount their datastore."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from labs.vsphere import Fault
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE
from proreus.providers.vsphere.datastores import Datastore, Volume, named_volume, zone_labels
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.zones import Marks, shared_zones
from proreus.testing.volumes import labels_of, persistent_volume

from .site import Site, site, started

LABELS = '[Labels]\nzone = "k8s-zone"\nregion = "k8s-region"\n'
CLUSTER = "/DC0/host/DC0_C0"
HOSTS = tuple(f"{CLUSTER}/DC0_C0_H{number}" for number in range(2))
DRIVER = "csi.vsphere.vmware.com"


def disk(store: str) -> dict[str, object]:
    return {"vsphereVolume": {"volumePath": f"[{store}] kubevols/disk.vmdk", "fsType": "ext4"}}


def csi(handle: str) -> dict[str, object]:
    return {"csi": {"driver": DRIVER, "volumeHandle": handle}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (disk("fast"), Volume(store="fast")),
        (disk("cluster/fast"), Volume(store="fast")),
        ({"vsphereVolume": {"volumePath": "[a b (1)] x.vmdk"}}, Volume(store="a b (1)")),
        (csi("6a1b"), Volume(id="6a1b")),
        (csi("file:6a1b"), None),
        ({"csi": {"driver": "other", "volumeHandle": "6a1b"}}, None),
        ({"nfs": {"server": "s", "path": "/"}}, None),
    ],
)
def test_what_a_persistent_volume_names(source: dict[str, object], expected: Volume | None) -> None:
    assert named_volume(persistent_volume(source)) == expected


@pytest.mark.parametrize("path", ["", "disk.vmdk", "[] x", "[fast]", "[fast"])
def test_a_path_without_a_datastore_is_refused(path: str) -> None:
    found = named_volume(persistent_volume({"vsphereVolume": {"volumePath": path}}))
    assert found is not None
    assert "[datastore] path" in found.problem


CENTER, ONE, TWO, THREE = (
    Ref("Datacenter", "dc"),
    *(Ref("HostSystem", f"host-{number}") for number in range(3)),
)
PARENTS = dict.fromkeys((ONE, TWO, THREE), CENTER)
TAGGED = {CENTER: Marks(region="eu"), ONE: Marks("a"), TWO: Marks("a"), THREE: Marks("b")}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((ONE, TWO), [Marks("a", "eu")]),
        ((ONE,), []),
        ((THREE,), [Marks("b", "eu")]),
        ((ONE, THREE), [Marks("b", "eu")]),
        ((ONE, TWO, THREE), [Marks("a", "eu"), Marks("b", "eu")]),
        ((), []),
    ],
)
def test_a_datastore_is_in_each_zone_of_which_all_hosts_mount_it(
    hosts: tuple[Ref, ...], expected: list[Marks]
) -> None:
    assert shared_zones(hosts, PARENTS, TAGGED) == expected


def test_hosts_without_a_zone_do_not_matter() -> None:
    other = Ref("HostSystem", "host-9")
    assert shared_zones((THREE,), {**PARENTS, other: Ref("Folder", "x")}, TAGGED) == [
        Marks("b", "eu")
    ]


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        ([], {}),
        ([Marks("a", "eu")], {LABEL_ZONE: "a", LABEL_REGION: "eu"}),
        ([Marks("a", "eu"), Marks("b", "eu")], {LABEL_ZONE: "a__b", LABEL_REGION: "eu"}),
        ([Marks("z", "eu"), Marks("a", "us")], {LABEL_ZONE: "z", LABEL_REGION: "eu"}),
    ],
)
def test_a_label_names_the_zones_of_one_region(
    zones: list[Marks], expected: dict[str, str]
) -> None:
    assert zone_labels(zones) == expected


def test_zones_that_are_too_many_for_a_label_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="10 zones: too many"):
        zone_labels([Marks(f"zone-{number}", "eu") for number in range(10)])


def test_a_datastore_without_mounts_has_no_hosts() -> None:
    assert Datastore(CENTER, "a", "b").hosts == frozenset()


@pytest.fixture
async def zoned(vcenter: Site) -> Site:
    """A vCenter with a zone for each host, and datastores of one host and of both."""
    await vcenter.simulator.tag("k8s-region", "eu", "/DC0")
    for number, host in enumerate(HOSTS):
        await vcenter.simulator.tag("k8s-zone", f"eu-{number}", host)
        await vcenter.simulator.datastore(f"local-{number}", host)
    await vcenter.simulator.datastore("shared", *HOSTS)
    return vcenter


async def labels(at: Site, source: dict[str, object], **keys: Any) -> Mapping[str, str]:
    async with started(at.config(LABELS, **keys)) as provider:
        return await labels_of(provider, source)


async def test_virtual_disks_are_in_the_zones_of_their_datastores_hosts(zoned: Site) -> None:
    one = {LABEL_ZONE: "eu-1", LABEL_REGION: "eu"}
    both = {LABEL_ZONE: "eu-0__eu-1", LABEL_REGION: "eu"}
    assert await labels(zoned, disk("local-1")) == one
    assert await labels(zoned, disk("shared"), datacenters="DC0") == both


async def test_volumes_of_the_csi_driver_are_in_the_zones_of_their_datastores_hosts(
    zoned: Site,
) -> None:
    for number in range(2):
        id_ = await zoned.simulator.volume(f"/DC0/datastore/local-{number}")
        expected = {LABEL_ZONE: f"eu-{number}", LABEL_REGION: "eu"}
        assert await labels(zoned, csi(id_)) == expected


async def test_a_datastore_without_a_whole_zone_has_no_labels(vcenter: Site) -> None:
    await vcenter.simulator.tag("k8s-region", "eu", "/DC0")
    await vcenter.simulator.tag("k8s-zone", "eu-0", "/DC0/host/DC0_C0")
    await vcenter.simulator.datastore("half", HOSTS[0])
    assert await labels(vcenter, disk("half")) == {}


@pytest.mark.parametrize(
    ("source", "what"), [(disk("gone"), "datastore 'gone'"), (csi("6a1b"), "volume 6a1b")]
)
async def test_what_no_vcenter_has_is_refused(
    zoned: Site, source: dict[str, object], what: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"none of the configured .* has the {what}"):
        await labels(zoned, source)


async def test_a_name_that_datastores_of_different_zones_have_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, datacenters=2) as at:
        for number in range(2):
            host = f"/DC{number}/host/DC{number}_C0/DC{number}_C0_H0"
            await at.simulator.tag("k8s-region", f"r-{number}", f"/DC{number}")
            await at.simulator.tag("k8s-zone", "z", f"/DC{number}")
            await at.simulator.datastore("twice", host, host.replace("H0", "H1"))
        with pytest.raises(InvalidRequest, match="'twice' may be any of Datastore:"):
            await labels(at, disk("twice"))
        assert await labels(at, disk("twice"), datacenters="DC1") == {
            LABEL_ZONE: "z",
            LABEL_REGION: "r-1",
        }


async def test_a_vcenter_that_does_not_tell_is_an_error_and_no_absence(zoned: Site) -> None:
    async with started(zoned.config(LABELS)) as provider:
        zoned.gateway.fail(Fault("RetrievePropertiesEx", times=9, name="NoPermission"))
        with pytest.raises(CloudError) as error:
            await labels_of(provider, disk("shared"))
        assert not isinstance(error.value, InvalidRequest)


async def test_without_categories_of_zones_there_are_no_labels_of_volumes(vcenter: Site) -> None:
    async with started(vcenter.config()) as provider:
        assert provider.volumes is None


async def test_labels_of_a_volume_cost_the_calls_that_the_guide_says(zoned: Site) -> None:
    id_ = await zoned.simulator.volume("/DC0/datastore/local-0")
    async with started(zoned.config(LABELS)) as provider:
        await labels_of(provider, disk("shared"))
        for source, calls in ((disk("shared"), 3 + 1), (csi(id_), 3 + 1 + 1)):
            zoned.gateway.calls.clear()
            await labels_of(provider, source)
            assert zoned.gateway.calls.total() == calls, zoned.gateway.calls
