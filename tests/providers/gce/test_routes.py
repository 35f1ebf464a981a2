"""Routes, volume labels, pod CIDRs and SSH keys."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE
from proreus.providers.gce.machines import AliasRange, Interface
from proreus.providers.gce.names import is_misnamed
from proreus.providers.gce.pod_cidrs import changed_ranges
from proreus.providers.gce.routes import DESCRIPTION, route_name
from proreus.testing import objects
from proreus.testing.volumes import labels_of

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import NETWORK, PROJECT, REGION, ZONES
from .site import CLUSTER, PATIENT, config_text, context, node, node_of, started

TARGET = f"gce://{PROJECT}/{ZONES[0]}/n1"
CIDR = "10.40.1.0/24"
WANTED = Route("some-uid-ipv4", CIDR, TARGET)


async def applied(
    gce: Gce, create: tuple[Route, ...] = (), delete: tuple[Route, ...] = ()
) -> dict[Route, Any]:
    async with started(config_text(gce)) as provider:
        assert provider.routes is not None
        return dict(await provider.routes.apply(CLUSTER, [], create, delete))


async def listed(gce: Gce, cluster: ClusterIdentity = CLUSTER) -> list[Route]:
    async with started(config_text(gce)) as provider:
        assert provider.routes is not None
        return list(await provider.routes.list(cluster, []))


async def test_a_route_is_made_and_listed_and_deleted(gce: Gce) -> None:
    gce.run("n1")
    assert await applied(gce, create=(WANTED,)) == {WANTED: Done()}
    (found,) = await listed(gce)
    assert (found.destination, found.target, found.blackhole) == (CIDR, TARGET, False)
    made = gce.one("routes", found.name)
    assert (made["description"], made["priority"]) == (DESCRIPTION, 1000)
    assert found.name.startswith("test-")
    assert await applied(gce, delete=(found,)) == {found: Done()}
    assert await applied(gce, delete=(found,)) == {found: Done()}
    assert await listed(gce) == []


async def test_a_route_is_its_node_s_however_that_writes_its_instance(gce: Gce) -> None:
    """With a domain the route was replaced each time: made under its own name, and then deleted."""
    gce.run("n1")
    written = f"{TARGET}.c.{PROJECT}.internal"
    holder = objects.node("n1", written, pod_cidrs=(CIDR,))
    liar = objects.node("n2", TARGET, pod_cidrs=("10.40.2.0/24",))
    wanted = Route("some-uid-ipv4", CIDR, written)
    async with started(config_text(gce)) as provider:
        assert provider.routes is not None
        await provider.routes.apply(CLUSTER, [holder], (wanted,), ())
        (found,) = await provider.routes.list(CLUSTER, [liar, holder])
    assert found.target == written


async def test_a_route_that_is_there_is_made_once(gce: Gce) -> None:
    gce.run("n1")
    await applied(gce, create=(WANTED,))
    assert await applied(gce, create=(WANTED,)) == {WANTED: Done()}
    assert len(await listed(gce)) == 1
    await applied(gce, delete=(WANTED,))
    assert await listed(gce) == []


async def test_a_route_whose_instance_is_gone_is_a_blackhole(gce: Gce) -> None:
    gce.run("n1")
    await applied(gce, create=(WANTED,))
    gce.terminate("n1")
    (found,) = await listed(gce)
    assert found.blackhole


async def test_one_that_fails_keeps_no_other_from_being_made(gce: Gce) -> None:
    gce.run("n1")
    wrong = Route("x", "10.40.2.0/24", "aws:///a/i-1")
    gone = Route("y", "10.40.3.0/24", f"gce://{PROJECT}/{ZONES[0]}/n9")
    found = await applied(gce, create=(wrong, gone, WANTED))
    assert isinstance(found[wrong], InvalidRequest)
    assert isinstance(found[gone], CloudError)
    assert found[WANTED] == Done()


async def test_routes_of_others_are_not_listed(gce: Gce) -> None:
    gce.run("n1")
    await applied(gce, create=(WANTED,))
    official = "test-5e00aaaa-0000-4000-8000-000000000001"
    with gce.world.lock:
        for name, more in {
            "test-b-5e00aaaa000040008000000000000001": {},
            "test-default": {},
            "test-5e00aaaa000040008000000000000002": {"description": "mine"},
            official: {"destRange": "10.40.9.0/24"},
            "default-route": {"nextHopGateway": "x"},
        }.items():
            body = {"name": name, "description": DESCRIPTION, "destRange": "10.40.8.0/24"}
            path = f"projects/{PROJECT}/global/routes/{name}"
            gce.world.put(path, {**body, "network": gce.world.link(NETWORK), **more})
    names = {one.name for one in await listed(gce)}
    assert names == {official, route_name("test", CIDR, TARGET)}
    (other,) = await listed(gce, ClusterIdentity("test-b", "u"))
    assert other.name.startswith("test-b-")
    assert other.target is None


async def test_routes_of_a_cluster_whose_name_goes_on_with_digits_are_not_listed(gce: Gce) -> None:
    """Eight of them and the digits of a route's own name looked like a UID with a dash too few."""
    gce.run("n1")
    for begin in ("test-1a2b3c4d", "test-1a2b3c4d-5e6f-7a8b"):
        other = ClusterIdentity(begin, "another-uid")
        async with started(config_text(gce)) as provider:
            assert provider.routes is not None
            made = await provider.routes.apply(other, [], (WANTED,), ())
        assert made == {WANTED: Done()}
        assert len(await listed(gce, other)) == 1
    assert await listed(gce) == []


async def test_many_routes_are_listed_on_all_pages(gce: Gce) -> None:
    gce.world.page = 3
    gce.run("n1")
    routes = tuple(Route(f"r{n}", f"10.40.{n}.0/24", TARGET) for n in range(10))
    assert set((await applied(gce, create=routes)).values()) == {Done()}
    assert len(await listed(gce)) == 10


async def test_an_operation_that_takes_long_is_pending(gce: Gce) -> None:
    gce.run("n1")
    sections = "[Client]\noperation-timeout = 100ms\n"
    async with started(config_text(gce, "", sections)) as provider:
        assert provider.routes is not None
        gce.world.latency = 1.0
        answers = await provider.routes.apply(CLUSTER, [], [WANTED], [])
        assert isinstance(answers[WANTED], Pending)


# Volumes


def disk(gce: Gce, name: str, zone: str = "", zones: tuple[str, ...] = ()) -> None:
    with gce.world.lock:
        place = f"zones/{zone}" if zone else f"regions/{REGION}"
        links = [gce.world.link(f"projects/{PROJECT}/zones/{one}") for one in zones]
        more = {"replicaZones": links} if links else {}
        gce.world.put(f"projects/{PROJECT}/{place}/disks/{name}", {"name": name, **more})


async def labels(gce: Gce, source: Mapping[str, object], **metadata: Any) -> dict[str, str]:
    async with started(config_text(gce)) as provider:
        return dict(await labels_of(provider, source, **metadata))


async def test_a_zonal_disk(gce: Gce) -> None:
    disk(gce, "pd", ZONES[1])
    expected = {LABEL_ZONE: ZONES[1], LABEL_REGION: REGION}
    assert await labels(gce, {"gcePersistentDisk": {"pdName": "pd"}}) == expected
    handle = f"projects/{PROJECT}/zones/{ZONES[1]}/disks/pd"
    csi = {"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": handle}}
    assert await labels(gce, csi) == expected


async def test_a_regional_disk_has_its_zones_in_one_label(gce: Gce) -> None:
    disk(gce, "pd", zones=(ZONES[2], ZONES[0]))
    expected = {LABEL_ZONE: f"{ZONES[0]}__{ZONES[2]}", LABEL_REGION: REGION}
    assert await labels(gce, {"gcePersistentDisk": {"pdName": "pd"}}) == expected
    handle = f"projects/UNSPECIFIED/regions/{REGION}/disks/pd"
    csi = {"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": handle}}
    assert await labels(gce, csi) == expected


@pytest.mark.parametrize(
    "source",
    [
        {"cinder": {"volumeID": "x"}},
        {"gcePersistentDisk": {"pdName": "placeholder-for-provisioning"}},
        {"csi": {"driver": "other", "volumeHandle": "x"}},
    ],
)
async def test_other_volumes_have_no_labels(gce: Gce, source: Mapping[str, object]) -> None:
    assert await labels(gce, source) == {}


async def test_a_disk_that_is_not_there_or_in_two_zones(gce: Gce) -> None:
    with pytest.raises(InvalidRequest, match="there is no persistent disk pd in the region"):
        await labels(gce, {"gcePersistentDisk": {"pdName": "pd"}})
    disk(gce, "pd", ZONES[0])
    disk(gce, "pd", ZONES[1])
    with pytest.raises(InvalidRequest, match="several persistent disks pd, in us-central1-a, us"):
        await labels(gce, {"gcePersistentDisk": {"pdName": "pd"}})
    labelled = {LABEL_ZONE: ZONES[1]}
    found = await labels(gce, {"gcePersistentDisk": {"pdName": "pd"}}, labels=labelled)
    assert found[LABEL_ZONE] == ZONES[1]
    with pytest.raises(InvalidRequest, match="is not a persistent disk"):
        await labels(gce, {"gcePersistentDisk": {"pdName": "a/../b"}})


# Pod CIDRs


async def test_google_s_blocks_are_read_in_bulk(gce: Gce) -> None:
    gce.run(*(f"n{number}" for number in range(10)))
    with gce.changing(gce.machine("n1")) as machine:
        nic = machine["networkInterfaces"][0]
        nic.update(aliasIpRanges=[{"ipCidrRange": CIDR}], ipv6Address="fd20:0:0:1:2:3:4:5")
    async with started(config_text(gce)) as provider:
        assert provider.pod_cidrs is not None
        gce.calls.clear()
        nodes = [*(node_of(f"n{number}") for number in range(10)), node("else", "aws:///a/b")]
        found = await provider.pod_cidrs.describe(nodes)
        assert found["n1"] == (CIDR, "fd20::1:2:3:4:0/112")
        assert found["n2"] == ()
        assert "else" not in found
        assert gce.calls == ["compute.instances.aggregatedList"]


async def test_blocks_are_assigned_beside_others_and_released(gce: Gce) -> None:
    gce.run("n1")
    with gce.changing(gce.machine("n1")) as machine:
        kept = {"ipCidrRange": "10.41.0.0/24", "subnetworkRangeName": "pods"}
        machine["networkInterfaces"][0]["aliasIpRanges"] = [kept]
    async with started(config_text(gce, "secondary-range-name = pods")) as provider:
        assert provider.pod_cidrs is not None
        for _ in range(2):
            await provider.pod_cidrs.assign(node_of("n1"), (CIDR, "fd00::/112"))
        found = await provider.pod_cidrs.describe([node_of("n1")])
        assert found["n1"] == ("10.41.0.0/24", CIDR)
        assert gce.writes() == ["compute.instances.updateNetworkInterface"]
        for _ in range(2):
            await provider.pod_cidrs.release(node_of("n1"), (CIDR,))
        assert (await provider.pod_cidrs.describe([node_of("n1")]))["n1"] == ("10.41.0.0/24",)
        gce.terminate("n1")
        await provider.pod_cidrs.release(node_of("n1"), (CIDR,))
        with pytest.raises(InvalidRequest):
            await provider.pod_cidrs.assign(node_of("n1"), (CIDR,))


async def test_an_instance_with_another_name_than_its_node_keeps_its_blocks(gce: Gce) -> None:
    """A kubelet can name any instance of the project, such as another service's."""
    gce.run("n1", "n2", "database")
    with gce.changing(gce.machine("database")) as machine:
        theirs = {"ipCidrRange": "10.41.0.0/24", "subnetworkRangeName": "pods"}
        machine["networkInterfaces"][0]["aliasIpRanges"] = [theirs]
    liar = node("n3", node_of("database").spec.provider_id)
    nodes = Objects([node_of("n1"), node_of("n2"), liar])
    async with started(config_text(gce), context(nodes=nodes)) as provider:
        assert provider.pod_cidrs is not None
        with pytest.raises(InvalidRequest, match="database"):
            await provider.pod_cidrs.assign(liar, (CIDR,))
        del nodes.by_key["n3"]
        await provider.pod_cidrs.release(liar, ("10.41.0.0/24",))
        assert gce.writes() == []
        await provider.pod_cidrs.assign(node_of("n1"), (CIDR,))
    tenants = "[Tenants]\nallow = *=database\n"
    text = config_text(gce, sections=PATIENT + tenants)
    async with started(text, context(nodes=Objects([*nodes.all(), liar]))) as provider:
        assert provider.pod_cidrs is not None
        await provider.pod_cidrs.assign(liar, ("10.42.0.0/24",))
        found = await provider.pod_cidrs.describe([liar])
        assert found["n3"] == ("10.41.0.0/24", "10.42.0.0/24")


@pytest.mark.parametrize("zones", ["", "multizone = true"])
async def test_an_instance_of_the_node_s_name_in_another_zone_keeps_its_blocks(
    gce: Gce, zones: str
) -> None:
    """Such as another cluster's; with several zones it may be the node's."""
    gce.run("n1", "n2")
    gce.run("n3", zone=ZONES[1])
    liar = node_of("n3", ZONES[1])
    nodes = Objects([node_of("n1"), node_of("n2"), liar])
    text = config_text(gce).replace("multizone = true", zones or f"local-zone = {ZONES[0]}")
    async with started(text, context(nodes=nodes)) as provider:
        assert provider.pod_cidrs is not None
        if zones:
            await provider.pod_cidrs.assign(liar, (CIDR,))
            return
        with pytest.raises(InvalidRequest, match="n3"):
            await provider.pod_cidrs.assign(liar, (CIDR,))
        await provider.pod_cidrs.release(liar, (CIDR,))
        assert gce.writes() == []
    tenants = "[Tenants]\nallow = *=n3\n"
    async with started(f"{text}{tenants}", context(nodes=nodes)) as provider:
        assert provider.pod_cidrs is not None
        await provider.pod_cidrs.assign(liar, (CIDR,))


def test_names_tell_only_where_most_nodes_have_that_of_their_instance() -> None:
    liar = node("n3", node_of("database").spec.provider_id)
    long = node("n1.example.org", node_of("n1").spec.provider_id)
    assert is_misnamed(liar, [long, node_of("n2"), liar], ZONES)
    assert is_misnamed(liar, [long, node_of("n2")], ZONES), "it is gone"
    assert not is_misnamed(long, [long, node_of("n2"), liar], ZONES)
    assert not is_misnamed(liar, [long, liar], ZONES), "of two nobody knows"
    there = node_of("n3", ZONES[1])
    assert is_misnamed(there, [long, node_of("n2"), there], ZONES[:1])
    assert not is_misnamed(there, [long, node_of("n2", ZONES[1]), there], ZONES[:1])
    assert not is_misnamed(node("else", "aws:///a/b"), [long], ZONES)


@pytest.mark.parametrize("written", [CIDR, "10.40.1.7/24"])
async def test_a_node_takes_no_block_from_another_node_of_its_instance(
    gce: Gce, written: str
) -> None:
    """Provider ids of one instance can be written in several ways."""
    gce.run("n1")
    living = objects.node("n1", node_of("n1").spec.provider_id, pod_cidrs=(written,))
    gone = objects.node("n1.example.org", f"{living.spec.provider_id}.example.org")
    nodes = Objects([living])
    async with started(config_text(gce), context(nodes=nodes)) as provider:
        assert provider.pod_cidrs is not None
        await provider.pod_cidrs.assign(living, (CIDR,))
        await provider.pod_cidrs.release(gone, (CIDR,))
        assert (await provider.pod_cidrs.describe([living]))["n1"] == (CIDR,)
        del nodes.by_key["n1"]
        await provider.pod_cidrs.release(gone, (CIDR,))
        assert (await provider.pod_cidrs.describe([living]))["n1"] == ()


def test_ranges_of_an_interface() -> None:
    nic = Interface(alias_ip_ranges=(AliasRange("10.0.0.0/24"),))
    assert changed_ranges(nic, ["10.0.0.0/24", "fd00::/112"], (), "pods") is None
    changed = changed_ranges(nic, ["10.0.1.0/24"], ["10.0.0.0/24"], "pods")
    assert changed == (AliasRange("10.0.1.0/24", "pods"),)
    assert msgspec.to_builtins(changed) == (
        {"ipCidrRange": "10.0.1.0/24", "subnetworkRangeName": "pods"},
    )


# SSH keys


async def test_a_key_is_added_once(gce: Gce) -> None:
    async with started(config_text(gce)) as provider:
        assert provider.ssh_keys is not None
        for user in ("me", "me", "you"):
            await provider.ssh_keys.add_to_all_instances(user, "ssh-rsa AAAA\n")
    items = gce.world.objects[f"projects/{PROJECT}"]["commonInstanceMetadata"]["items"]
    lines = "me:ssh-rsa AAAA me@me\nyou:ssh-rsa AAAA you@you"
    assert items == [{"key": "sshKeys", "value": lines}]
    assert len(gce.writes()) == 2
