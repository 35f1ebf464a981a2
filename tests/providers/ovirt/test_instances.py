"""Machines of oVirt as instances: ids, names, addresses, states, places; pages and refusals."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from proreus.cloudprovider.errors import (
    CloudError,
    ConfigError,
    IdentityConflict,
    InvalidRequest,
    Unauthenticated,
)
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.cloudprovider.lookups import swapped
from proreus.kube.objects import NodeAddress
from proreus.providers.ovirt import places

from .emulator.server import LOST, Engine
from .emulator.world import Device, Nic
from .site import PREFIX, cloud, context, describe, node, one, started

GONE = "2e8c1f0a-0000-4000-8000-000000000000"


def machine(answers: Mapping[str, object], name: str) -> Instance:
    found = answers[name]
    assert isinstance(found, Instance), found
    return found


async def test_a_machine_is_described_with_its_place_and_type(engine: Engine) -> None:
    kind = engine.world.type_called("Large")
    (id_,) = engine.world.add_vms(["node-1"], instance_type=kind)
    async with started(engine) as provider:
        found = await one(provider, node("node-1"))
    assert found == Instance(
        provider_id=f"{PREFIX}{id_}",
        name="node-1",
        instance_type="Large",
        zone="rack-1",
        region="north",
        addresses=(NodeAddress("InternalIP", "10.0.0.2"),),
    )


async def test_a_machine_whose_size_is_its_own_has_no_type(engine: Engine) -> None:
    engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        assert machine({"it": await one(provider, node("node-1"))}, "it").instance_type == ""


async def test_new_nodes_get_the_provider_id_of_the_manager_whose_file_it_is(
    engine: Engine,
) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    text = engine.config().replace("uri =", "url =")
    async with started(engine, text=text) as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
    assert found.provider_id == f"ovirt-cloud-provider://{id_}"


@pytest.mark.parametrize("form", [PREFIX, "ovirt://", "ovirt-cloud-provider://", ""])
async def test_every_age_of_provider_ids_is_understood_and_kept(engine: Engine, form: str) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        assert provider.instances is not None
        of = node("another-name", f"{form}{id_}")
        found = machine(await describe(provider, of), "another-name")
        assert provider.instances.owns(of) is Ownership.YES
    assert found.provider_id == f"{form}{id_}"


async def test_a_provider_id_of_another_cloud_is_never_looked_up(engine: Engine) -> None:
    engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        assert provider.instances is not None
        of = node("node-1", "aws:///eu-1a/i-0123456789")
        answer = await one(provider, of)
        assert provider.instances.owns(of) is Ownership.NO
        assert provider.instances.owns(node("node-1")) is Ownership.UNKNOWN
        assert not engine.calls
    assert isinstance(answer, InvalidRequest)


async def test_a_node_is_found_by_domain_name_by_name_and_by_the_uuid_that_its_kubelet_reports(
    engine: Engine,
) -> None:
    (whole,) = engine.world.add_vms(["vm-1"], fqdn="Node-1.example.org")
    (named,) = engine.world.add_vms(["Node-2"], fqdn="localhost.localdomain")
    (known,) = engine.world.add_vms(["vm-3"], fqdn="localhost.localdomain")
    nodes = node("node-1.example.org"), node("node-2"), node("node-3", uuid=known.upper())
    async with started(engine) as provider:
        answers = await describe(provider, *nodes)
    assert [machine(answers, of.metadata.name).provider_id for of in nodes] == [
        PREFIX + whole, PREFIX + named, PREFIX + known
    ]  # fmt: skip


async def test_a_node_takes_no_machine_of_another_cluster_by_its_name(engine: Engine) -> None:
    (theirs,) = engine.world.add_vms(["worker-1"])
    async with started(engine) as provider:
        found = await one(provider, node("worker-1", uuid=GONE))
        assert isinstance(found, IdentityConflict)
        assert theirs in str(found)
        assert GONE in str(found)
        # A kubelet that does not tell, and one on an old kernel, which swaps bytes.
        for told in ("", "Not Settable", swapped(theirs)):
            machine({"it": await one(provider, node("worker-1", uuid=told))}, "it")


async def test_a_node_is_not_gone_while_its_kubelet_s_machine_is_there(engine: Engine) -> None:
    # Such as one that was exported and imported as a clone: its disk knows the Node's name.
    former, now = engine.world.add_vms(["worker-1", "clone-of-worker-1"])
    engine.world.remove(former)
    async with started(engine) as provider:
        for told in (now.upper(), swapped(now)):
            found = await one(provider, node("worker-1", PREFIX + former, uuid=told))
            assert isinstance(found, IdentityConflict)
            assert now in str(found)
        for told in (former, swapped(former), "", GONE):
            of = node("worker-1", PREFIX + former, uuid=told)
            assert await one(provider, of) == NotFound()
        for told in (now, swapped(now)):  # a provider id in the other byte order
            found = await one(provider, node("worker-1", PREFIX + swapped(now), uuid=told))
            assert isinstance(found, IdentityConflict)
            assert now in str(found)
        engine.fail("vms.get", 500, skip=1, times=9)
        found = await one(provider, node("worker-1", PREFIX + former, uuid=GONE))
        assert isinstance(found, CloudError)


async def test_of_machines_with_one_name_the_one_that_runs_counts_and_two_are_a_conflict(
    engine: Engine,
) -> None:
    ids = engine.world.add_vms(["original", "copy", "third"], fqdn="node-1")
    engine.world.vms[ids[1]].status = engine.world.vms[ids[2]].status = "paused"
    async with started(engine) as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
        assert found.provider_id == PREFIX + ids[0]
        engine.world.vms[ids[1]].status = "up"
        conflict = await one(provider, node("node-1"))
    assert isinstance(conflict, IdentityConflict)
    assert all(id_ in str(conflict) for id_ in ids)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("up", InstanceState.RUNNING),
        ("powering_up", InstanceState.RUNNING),
        ("powering_down", InstanceState.RUNNING),
        ("reboot_in_progress", InstanceState.RUNNING),
        ("wait_for_launch", InstanceState.RUNNING),
        ("migrating", InstanceState.RUNNING),
        ("down", InstanceState.STOPPED),
        *((status, InstanceState.UNKNOWN) for status in (
            "paused", "suspended", "saving_state", "restoring_state", "unknown", "not_responding",
            "unassigned", "image_locked", "image_illegal", "something_new",
        )),
    ],
)  # fmt: skip
async def test_states(engine: Engine, status: str, expected: InstanceState) -> None:
    (id_,) = engine.world.add_vms(["node-1"], status=status)
    async with started(engine) as provider:
        found = machine(await describe(provider, node("node-1", PREFIX + id_)), "node-1")
    assert found.state is expected
    # Engines say `down` of a machine that boots, too, where they lost its host meanwhile.
    assert not found.powered_off


async def test_a_machine_that_is_off_is_stopped_and_not_gone_although_it_reports_nothing(
    engine: Engine,
) -> None:
    (id_,) = engine.world.add_vms(["vm-1"], fqdn="node-1")
    engine.world.stop(id_)
    async with started(engine) as provider:
        found = machine(await describe(provider, node("node-1", PREFIX + id_)), "node-1")
    assert found.state is InstanceState.STOPPED
    assert found.addresses == ()
    assert (found.zone, found.region) == ("rack-1", "north")


async def test_machines_of_a_host_in_maintenance_run_elsewhere_and_are_the_same(
    engine: Engine,
) -> None:
    ids = engine.world.add_vms(["node-1", "node-2"])
    nodes = [node(f"node-{n + 1}", PREFIX + id_) for n, id_ in enumerate(ids)]
    async with started(engine) as provider:
        before = await describe(provider, *nodes)
        host = engine.world.vms[ids[0]].host
        engine.world.vms[ids[0]].status = "migrating"
        engine.world.maintain(host)
        assert engine.world.hosts[host].status == "maintenance"
        assert await describe(provider, *nodes) == before
        engine.world.vms[ids[0]].status = "up"
        assert await describe(provider, *nodes) == before


async def test_machines_of_a_host_that_does_not_answer_are_neither_running_nor_stopped(
    engine: Engine,
) -> None:
    ids = engine.world.add_vms(["node-1", "node-2"])
    nodes = [node(f"node-{n + 1}", PREFIX + id_) for n, id_ in enumerate(ids)]
    engine.world.fail_host(engine.world.vms[ids[0]].host)
    async with started(engine) as provider:
        answers = await describe(provider, *nodes)
    assert machine(answers, "node-1").state is InstanceState.UNKNOWN
    assert machine(answers, "node-2").state is InstanceState.RUNNING


async def test_the_search_of_the_cloud_config_says_which_machines_may_become_nodes(
    engine: Engine,
) -> None:
    ids = engine.world.add_vms(["node-1"], tags=["kubernetes"])
    ids += engine.world.add_vms(["node-2", "other"], tags=["desktops"])
    async with started(engine, sections="[filters]\nvms = tag=kubernetes") as provider:
        answers = await describe(
            provider, node("node-1"), node("node-2", PREFIX + ids[1]), node("other")
        )
    assert machine(answers, "node-1").provider_id == PREFIX + ids[0]
    # A Node's machine stays it whatever becomes of its tags.
    assert machine(answers, "node-2").provider_id == PREFIX + ids[1]
    assert answers["other"] == NotFound()


async def test_a_node_without_an_id_is_not_gone_while_its_kubelet_s_machine_is_there(
    engine: Engine,
) -> None:
    """Such as with `--delete-nodes-by-name`, where somebody has taken the tag from its machine."""
    engine.world.add_vms(["node-1"], tags=["kubernetes"])
    (hidden,) = engine.world.add_vms(["node-2"])
    async with started(engine, sections="[filters]\nvms = tag=kubernetes") as provider:
        for told in (hidden.upper(), swapped(hidden)):
            found = await one(provider, node("node-2", uuid=told))
            assert isinstance(found, IdentityConflict), found
            assert hidden in str(found)
            assert "[Filters] vms" in str(found)
        engine.calls.clear()
        nodes = node("node-2", uuid=GONE), node("node-3", uuid=swapped(GONE)), node("node-4")
        assert set((await describe(provider, *nodes)).values()) == {NotFound()}
        assert engine.calls == {"vms.list": 2, "vms.get": 2}
        for operation, skip in (("vms.get", 0), ("vms.list", 1)):
            engine.fail(operation, 500, skip=skip)
            answers = await describe(provider, *nodes)
            assert isinstance(answers["node-2"], CloudError)
            assert answers["node-4"] == NotFound()


async def test_a_search_that_the_engine_cannot_read_makes_nothing_absent(engine: Engine) -> None:
    (id_,) = engine.world.add_vms(["node-1", "node-2"])[:1]
    async with started(engine, sections="[filters]\nvms = colour=blue") as provider:
        answers = await describe(provider, node("node-1", PREFIX + id_), node("node-2"))
    assert machine(answers, "node-1").provider_id == PREFIX + id_
    told = answers["node-2"]
    assert isinstance(told, CloudError)
    assert "[Filters] vms" in str(told)


async def test_some_nodes_cost_one_search_and_many_as_many_as_there_are_pages(
    engine: Engine,
) -> None:
    names = [f"node-{number:04}" for number in range(450)]
    ids = engine.world.add_vms(names)
    nodes = [node(name, PREFIX + id_) for name, id_ in zip(names, ids, strict=True)]
    async with started(engine) as provider:
        answers = await describe(provider, *nodes[:40])
        assert all(isinstance(found, Instance) for found in answers.values())
        assert engine.calls == {"vms.list": 1}
        answers = await describe(provider, *nodes, *map(node, names[:3]))
        assert engine.calls == {"vms.list": 1 + 3}
    assert all(isinstance(found, Instance) for found in answers.values())


async def test_the_engine_need_not_keep_a_search_for_each_batch(engine: Engine) -> None:
    ids = engine.world.add_vms([f"node-{number}" for number in range(9)])
    async with started(engine) as provider:
        for at in range(9):
            await describe(provider, *(node(f"n{i}", PREFIX + i) for i in ids[at:]))
        await describe(provider, node("node-1"))
    assert engine.kept == {"sortby name asc page 1"}


async def test_a_machine_that_slips_through_between_pages_is_looked_up_by_its_id(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"node-{number:04}" for number in range(250)]
    ids = engine.world.add_vms(names)
    nodes = [node(name, PREFIX + id_) for name, id_ in zip(names, ids, strict=True)]
    found = engine._found

    def shrinking(request: object) -> object:
        shown = found(request)  # type: ignore[arg-type]
        if ids[0] in engine.world.vms:
            engine.world.remove(ids[0])  # so that the second page begins one later
        return shown

    monkeypatch.setattr(engine, "_found", shrinking)
    async with started(engine) as provider:
        answers = await describe(provider, *nodes)
        assert engine.calls == {"vms.list": 3}
    assert all(isinstance(one, Instance) for one in answers.values())


async def test_what_is_gone_is_proved_by_a_search_for_its_id_and_by_its_own_url(
    engine: Engine,
) -> None:
    (there,) = engine.world.add_vms(["there"])
    nodes = node("gone", PREFIX + GONE), node("there", PREFIX + there), node("unnamed")
    async with started(engine) as provider:
        answers = await describe(provider, *nodes)
        assert engine.calls == {"vms.list": 2, "vms.get": 1}
    assert {name for name, found in answers.items() if found == NotFound()} == {"gone", "unnamed"}
    assert isinstance(answers["there"], Instance)


@dataclass
class Doubt:
    """A failure of the engine, and what the answer about a machine that looks gone says."""

    name: str
    status: int
    detail: str
    told: str


DOUBTS = (
    Doubt("vms.get", 500, "out of order", "500"),
    Doubt("vms.get", LOST, "", "no answer"),
    Doubt("vms.get", 400, "Query execution failed due to insufficient permissions.", "permissions"),
    Doubt("vms.get", 503, "", "503"),
)


@pytest.mark.parametrize("doubt", DOUBTS, ids=lambda doubt: f"{doubt.name} {doubt.status}")
async def test_what_the_engine_does_not_tell_is_not_gone(engine: Engine, doubt: Doubt) -> None:
    engine.world.add_vms(["there"])
    async with started(engine) as provider:
        engine.fail(doubt.name, doubt.status, doubt.detail, times=9)
        found = await one(provider, node("gone", PREFIX + GONE))
    assert isinstance(found, CloudError)
    assert doubt.told in str(found)
    assert GONE in str(found)


async def test_a_machine_that_a_search_lacks_and_its_own_url_shows_is_not_gone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    monkeypatch.setattr(engine, "_found", lambda request: [])
    async with started(engine) as provider:
        found = await one(provider, node("node-1", PREFIX + id_))
    assert isinstance(found, CloudError)
    assert "exists" in str(found)


async def test_when_some_searches_by_id_fail_the_others_count(engine: Engine) -> None:
    engine.world.add_vms(["there"])
    nodes = [node(f"gone-{number}", PREFIX + str(uuid.uuid4())) for number in range(100)]
    async with started(engine) as provider:
        engine.fail("vms.list", 500, skip=1)
        answers = await describe(provider, *nodes)
        assert engine.calls == {"vms.list": 1 + 3, "vms.get": 60}
    assert list(answers.values()).count(NotFound()) == 60
    assert sum(isinstance(found, CloudError) for found in answers.values()) == 40


async def test_when_all_searches_by_id_fail_the_batch_fails(engine: Engine) -> None:
    async with started(engine) as provider:
        engine.fail("vms.list", 500, times=9)
        with pytest.raises(CloudError, match=r"vms\.list: 500"):
            await describe(provider, node("gone", PREFIX + GONE))


async def test_a_list_that_is_not_there_proves_no_absence(engine: Engine) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        engine.fail("vms.list", 404, times=9)
        with pytest.raises(CloudError):
            await describe(provider, node("node-1", PREFIX + id_))


async def test_a_user_who_is_no_administrator_is_told_what_is_missing(engine: Engine) -> None:
    engine.is_admin = False
    provider = cloud(engine.config())
    with pytest.raises(Unauthenticated, match="insufficient permissions"):
        await provider.start(context())
    await provider.close()


async def test_an_engine_that_is_too_old_is_refused(engine: Engine) -> None:
    engine.version = (4, 1)
    provider = cloud(engine.config())
    with pytest.raises(ConfigError, match=r"oVirt 4\.1; 4\.2 is needed"):
        await provider.start(context())
    await provider.close()


# Clusters and data centers


async def test_a_machine_in_a_new_cluster_gets_its_zone_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "FRESH", 0.0)
    async with started(engine) as provider:
        center = engine.world.add_center("south hall")
        cluster = engine.world.add_cluster("rack 2", center)
        engine.world.add_vms(["node-1"], cluster=cluster)
        found = machine(await describe(provider, node("node-1")), "node-1")
    assert (found.zone, found.region) == ("rack-2", "south-hall")
    assert engine.calls["clusters.list"] == 1


async def test_a_cluster_that_is_not_shown_is_an_error_of_new_nodes_only(engine: Engine) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    labels = {"topology.kubernetes.io__zone": "rack-1", "topology.kubernetes.io__region": "north"}
    async with started(engine) as provider:
        engine.world.vms[id_].cluster = engine.world.add_cluster("x", engine.world.center)
        engine.world.hidden.add(engine.world.vms[id_].cluster)
        new = await one(provider, node("node-1"))
        known = await one(provider, node("node-1", PREFIX + id_, **labels))
    assert isinstance(new, CloudError)
    assert "cluster" in str(new)
    assert isinstance(known, Instance)
    assert (known.zone, known.region) == ("rack-1", "north")


async def test_names_that_were_read_serve_while_they_cannot_be_read_anew(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        monkeypatch.setattr(places, "AGE", 0.0)
        engine.fail("clusters.list", 500, times=9)
        found = machine(await describe(provider, node("node-1")), "node-1")
        assert engine.calls["clusters.list"] == 1
    assert found.zone == "rack-1"


async def test_names_that_cannot_be_read_leave_nodes_the_labels_that_they_have(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "FRESH", 0.0)
    labels = {
        "topology.kubernetes.io__zone": "z", "topology.kubernetes.io__region": "r",
        "node.kubernetes.io__instance-type": "Large",
    }  # fmt: skip
    async with started(engine) as provider:
        cluster = engine.world.add_cluster("late", engine.world.center)
        (id_,) = engine.world.add_vms(["node-1"], cluster=cluster)
        engine.fail("clusters.list", 500, times=9)
        kept = await one(provider, node("node-1", PREFIX + id_, **labels))
        new = await one(provider, node("node-1"))
    assert isinstance(kept, Instance)
    assert (kept.instance_type, kept.zone, kept.region) == ("Large", "z", "r")
    assert isinstance(new, CloudError)
    assert "clusters.list" in str(new)


# Addresses


def seen(found: Instance) -> list[str]:
    return [f"{at.type} {at.address}" for at in found.addresses]


CARDS = {
    "nics": [
        Nic("3", "nic10", "56:6f:00:00:00:0a"),
        Nic("2", "nic2", "56:6f:00:00:00:02"),
        Nic("1", "nic1", "56:6F:00:00:00:01"),
    ],
    "devices": [
        Device("docker0", "02:42:00:00:00:01", ["172.17.0.1"]),
        Device("eth2", "56:6f:00:00:00:0a", ["192.0.2.10"]),
        Device("lo", "00:00:00:00:00:00", ["127.0.0.1", "::1"]),
        Device("eth0", "56:6f:00:00:00:01", ["10.1.0.9", "fd00::9", "fe80::1", "10.1.0.1"]),
        Device("eth1", "56:6f:00:00:00:02", ["169.254.0.1", "10.2.0.1"]),
    ],
}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "",
            ["InternalIP 10.1.0.9", "InternalIP 10.1.0.1", "InternalIP fd00::9",
             "InternalIP 10.2.0.1", "InternalIP 192.0.2.10"],
        ),
        (
            "external = 192.0.2.0/24\nexcluded = 10.1.0.9/32, fd00::/8",
            ["InternalIP 10.1.0.1", "InternalIP 10.2.0.1", "ExternalIP 192.0.2.10"],
        ),
        ("order = in-tree", ["InternalIP 172.17.0.1", "ExternalIP 172.17.0.1"]),
        (
            "order = in-tree\nexcluded = 172.17.0.0/16",
            ["InternalIP 192.0.2.10", "ExternalIP 192.0.2.10"],
        ),
        (
            "order = external",
            ["ExternalIP 10.1.0.9", "ExternalIP 10.1.0.1", "ExternalIP fd00::9",
             "ExternalIP 10.2.0.1", "ExternalIP 192.0.2.10"],
        ),
    ],
)  # fmt: skip
async def test_addresses_are_those_of_network_cards_in_their_order(
    engine: Engine, section: str, expected: list[str]
) -> None:
    engine.world.add_vms(["node-1"], **CARDS)
    async with started(engine, sections=f"[addresses]\n{section}") as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
    assert seen(found) == expected


async def test_a_machine_that_runs_without_an_address_is_an_error_of_its_node(
    engine: Engine,
) -> None:
    engine.world.add_vms(
        ["node-1"], devices=[Device("docker0", "02:42:00:00:00:01", ["172.17.0.1"])]
    )
    async with started(engine) as provider:
        found = await one(provider, node("node-1"))
    assert isinstance(found, CloudError)
    assert "guest agent" in str(found)
