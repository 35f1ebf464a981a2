"""The kubelet player and the node monitor against a real API server."""

import asyncio
import contextlib
import gc
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.errors import NotFound
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Taint,
    condition,
    has_taint,
)
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import LEASE_NAMESPACE, KubeletPlayer, node_body
from proreus.testing.nodemonitor import (
    TAINT_NOT_READY,
    TAINT_UNREACHABLE,
    NodeMonitor,
    tainted,
)
from proreus.testing.simulated import Address, Instance, SimulatedCloudProcess

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Site:
    """Machines that a test changes as it likes, and clocks that it moves."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.machines: tuple[Instance, ...] = ()
        self.now = NOW
        self.seconds = 0.0

    async def running(self) -> Sequence[Instance]:
        return self.machines

    def player(self, **options: Any) -> KubeletPlayer:
        return KubeletPlayer(
            self.client, self.running, status_period=0, now=lambda: self.now, **options
        )

    def monitor(self) -> NodeMonitor:
        return NodeMonitor(self.client, grace=50, now=lambda: self.now, clock=lambda: self.seconds)

    async def node(self) -> Node:
        return await self.client.get(NODES, self.machines[0].name)

    async def ready(self) -> Condition:
        found = condition((await self.node()).status.conditions, "Ready")
        assert found is not None
        return found

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds


def machine(name: str, *, state: Any = "running") -> Instance:
    return Instance(
        name=name,
        id=f"i-{uuid.uuid4().hex[:12]}",
        system_uuid=str(uuid.uuid4()),
        addresses=(Address("InternalIP", "10.0.0.5"), Address("ExternalIP", "192.0.2.5")),
        state=state,
    )


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(config.load(str(control_plane.kubeconfig))) as made:
        yield made
        for node in (await made.list(NODES)).items:
            await made.delete(NODES, node.metadata.name)


@pytest.fixture
async def site(client: Client) -> Site:
    site = Site(client)
    site.machines = (machine("kubelet-0"),)
    return site


async def test_a_node_is_registered_as_a_kubelet_without_cloud_knowledge_does(site: Site) -> None:
    await site.player().beat()
    node = await site.node()
    assert node.spec.provider_id == ""
    assert [(a.type, a.address) for a in node.status.addresses] == [("Hostname", "kubelet-0")]
    assert Taint(TAINT_UNINITIALIZED, "NoSchedule", "true") in node.spec.taints
    assert has_taint(node, TAINT_NOT_READY), "the API server adds it"
    assert ANNOTATION_PROVIDED_NODE_IP not in node.metadata.annotations
    labels = node.metadata.labels
    assert (labels["kubernetes.io/hostname"], labels["kubernetes.io/os"]) == ("kubelet-0", "linux")
    assert node.status.node_info.system_uuid == site.machines[0].system_uuid
    assert (await site.ready()).status == "False"


async def test_a_given_node_ip_is_an_address_and_an_annotation(site: Site) -> None:
    await site.player(node_ip=True).beat()
    node = await site.node()
    assert [(a.type, a.address) for a in node.status.addresses] == [
        ("InternalIP", "10.0.0.5"),
        ("Hostname", "kubelet-0"),
    ]
    assert node.metadata.annotations[ANNOTATION_PROVIDED_NODE_IP] == "10.0.0.5"


async def test_the_second_beat_is_ready_and_renews_the_lease(site: Site) -> None:
    player = site.player()
    await player.beat()
    await player.beat()
    assert (await site.ready()).status == "True"
    first = await site.client.get_lease(LEASE_NAMESPACE, "kubelet-0")
    assert first["spec"]["holderIdentity"] == "kubelet-0"
    assert first["metadata"]["ownerReferences"][0]["uid"] == (await site.node()).metadata.uid
    site.pass_time(10)
    await player.beat()
    second = await site.client.get_lease(LEASE_NAMESPACE, "kubelet-0")
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert player.failures == 0


async def test_heartbeats_leave_addresses_and_labels_of_others_alone(site: Site) -> None:
    player = site.player()
    await player.beat()
    before = await site.node()
    site.pass_time(10)
    await player.beat()
    after = await site.node()
    assert after.status.addresses == before.status.addresses
    assert (after.metadata.labels, after.spec) == (before.metadata.labels, before.spec)


async def test_status_is_written_only_when_its_period_is_over(site: Site) -> None:
    player = KubeletPlayer(site.client, site.running, status_period=3600)
    await player.beat()
    await player.beat()
    version = (await site.node()).metadata.resource_version
    await player.beat()
    assert (await site.node()).metadata.resource_version == version


async def test_a_deleted_node_is_registered_again_while_its_machine_runs(site: Site) -> None:
    player = site.player()
    await player.beat()
    first = await site.node()
    await site.client.delete(NODES, "kubelet-0")
    await player.beat()
    again = await site.node()
    assert again.metadata.uid != first.metadata.uid
    assert has_taint(again, TAINT_UNINITIALIZED)


async def test_a_deleted_node_stays_away_when_its_machine_is_gone(site: Site) -> None:
    player = site.player()
    await player.beat()
    await site.client.delete(NODES, "kubelet-0")
    gone, site.machines = site.machines, ()
    await player.beat()
    site.machines = gone
    with pytest.raises(NotFound):
        await site.node()


async def test_a_machine_under_an_old_name_takes_the_node_over(site: Site) -> None:
    player = site.player()
    await player.beat()
    before = await site.node()
    site.machines = (machine("kubelet-0"),)
    await player.beat()
    await player.beat()
    after = await site.node()
    assert after.metadata.uid == before.metadata.uid
    assert after.status.node_info.system_uuid == site.machines[0].system_uuid


async def test_a_silent_kubelet_becomes_unknown_after_the_grace_and_recovers(site: Site) -> None:
    player, monitor = site.player(), site.monitor()
    await player.beat()
    await player.beat()
    await monitor.check_nodes()
    node = await site.node()
    assert not has_taint(node, TAINT_NOT_READY)
    assert has_taint(node, TAINT_UNINITIALIZED), "that one is the cloud's"
    site.machines = (msgspec.structs.replace(site.machines[0], state="stopped"),)
    site.pass_time(49)
    await player.beat()
    await monitor.check_nodes()
    assert (await site.ready()).status == "True"
    site.pass_time(1)
    await monitor.check_nodes()
    ready = await site.ready()
    assert (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown")
    assert ready.last_transition_time == site.now
    taints = {(t.key, t.effect) for t in (await site.node()).spec.taints}
    assert {(TAINT_UNREACHABLE, "NoSchedule"), (TAINT_UNREACHABLE, "NoExecute")} <= taints
    site.machines = (msgspec.structs.replace(site.machines[0], state="running"),)
    await player.beat()
    await player.beat()
    await monitor.check_nodes()
    assert (await site.ready()).status == "True"
    assert not has_taint(await site.node(), TAINT_UNREACHABLE)


async def test_a_renewed_lease_alone_keeps_a_node_alive(site: Site) -> None:
    player = KubeletPlayer(site.client, site.running, status_period=3600, now=lambda: site.now)
    monitor = site.monitor()
    await player.beat()
    for _ in range(4):
        await player.beat()
        await monitor.check_nodes()
        site.pass_time(30)
    assert (await site.ready()).status == "True"


async def test_a_beat_that_fails_is_counted_and_tried_again(site: Site) -> None:
    player = site.player()
    site.machines = (machine("Not A Valid Name"), *site.machines)
    await player.beat()
    assert player.failures == 1
    assert (await site.client.get(NODES, "kubelet-0")).metadata.uid
    site.machines = site.machines[1:]
    await player.beat()
    assert player.failures == 1


async def test_the_machines_of_the_simulated_cloud_become_nodes(
    client: Client, cloud: SimulatedCloudProcess
) -> None:
    await cloud.admin.create(Instance(name=f"sim-{n:03d}") for n in range(100))
    player = KubeletPlayer(client, cloud.admin.instances)
    await player.beat()
    await player.beat()
    nodes = (await client.list(NODES)).items
    assert sorted(node.metadata.name for node in nodes) == [f"sim-{n:03d}" for n in range(100)]
    ready = [condition(node.status.conditions, "Ready") for node in nodes]
    assert {one.status for one in ready if one is not None} == {"True"}
    assert player.failures == 0


def test_objects_have_the_size_asked_for() -> None:
    body = node_body(machine("big"), now=NOW, object_size=12_000)
    assert 12_000 <= len(msgspec.json.encode(body)) <= 12_300
    assert "images" not in node_body(machine("small"), now=NOW)["status"]


def test_taints_follow_readiness_and_leave_others_alone() -> None:
    other = Taint("example.com/mine", "NoSchedule")
    stale = Taint(TAINT_NOT_READY, "NoSchedule", time_added="2026-01-01T00:00:00Z")
    assert tainted((stale, other), "True") == (other,)
    assert tainted((stale, other), "False") == (stale, other, Taint(TAINT_NOT_READY, "NoExecute"))
    assert tainted((stale,), "Unknown") == (
        Taint(TAINT_UNREACHABLE, "NoSchedule"),
        Taint(TAINT_UNREACHABLE, "NoExecute"),
    )


async def test_a_beat_that_is_broken_off_at_once_leaves_nothing_behind(client: Client) -> None:
    site = Site(client)
    site.machines = tuple(machine(f"never-{number}") for number in range(4))
    player = site.player()
    for turns in range(4):
        beat = asyncio.create_task(player.beat())
        for _ in range(turns):
            await asyncio.sleep(0)
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)
    gc.collect()  # what was begun and never awaited shows now
    for one in site.machines:
        with contextlib.suppress(NotFound):
            await client.delete(NODES, one.name)
