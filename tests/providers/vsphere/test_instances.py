"""Instances: found by UUID, name and address, in one call, and absent only if all say so."""

import pytest

from labs.vsphere import Fault
from labs.vsphere.simulator import nic
from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.cloudprovider.lookups import swapped

from .site import Site, describe, node, one, shown, site, started


async def test_a_node_is_found_by_its_name(vcenter: Site) -> None:
    await vcenter.simulator.create("node-1", "node-2")
    async with started(vcenter.config()) as provider:
        found = await one(provider, node("node-1"))
    assert found == Instance(
        provider_id=vcenter.id("node-1"),
        name="node-1",
        instance_type="vsphere-vm.cpu-4.mem-8gb.os-ubuntu",
        addresses=found.addresses,
        state=InstanceState.RUNNING,
    )
    assert shown(found) == [
        ("Hostname", "node-1"), ("InternalIP", "10.0.0.2"), ("ExternalIP", "10.0.0.2"),
    ]  # fmt: skip


async def test_a_node_is_found_by_its_uuid_in_both_byte_orders_and_by_its_address(
    vcenter: Site,
) -> None:
    await vcenter.simulator.create("Guest-1", "guest-2", "guest-3")
    uuids = vcenter.simulator.uuids
    async with started(vcenter.config()) as provider:
        found = await describe(
            provider,
            node("plain", uuid=uuids["guest-2"].upper()),
            node("swapped", uuid=swapped(uuids["guest-3"])),
            node("guest-1"),
            node("10.0.0.3"),
            node("id", vcenter.id("guest-2").upper().replace("VSPHERE", "vsphere")),
        )
    assert {name: it.name for name, it in found.items()} == {
        "plain": "guest-2", "swapped": "guest-3", "guest-1": "Guest-1", "10.0.0.3": "guest-2",
        "id": "guest-2",
    }  # fmt: skip
    assert found["id"].provider_id == vcenter.id("guest-2").upper().replace("VSPHERE", "vsphere")


async def test_what_changes_is_known_at_the_next_question_which_costs_one_call(
    vcenter: Site,
) -> None:
    await vcenter.simulator.create("a", "b")
    async with started(vcenter.config()) as provider:
        nodes = [node("a", vcenter.id("a")), node("b", vcenter.id("b"))]
        await describe(provider, *nodes)
        before = vcenter.gateway.calls.copy()
        await vcenter.simulator.change("a", power="poweredOff", hostName="", nics=[])
        await vcenter.simulator.change("b", nics=[nic("10.9.9.9")])
        found = await describe(provider, *nodes)
        asked = vcenter.gateway.calls - before
        await vcenter.simulator.create("c")
        await vcenter.simulator.destroy("b")
        later = await describe(provider, nodes[0], node("c"), node("b"))
    assert found["a"].state is InstanceState.STOPPED
    assert found["a"].addresses == ()
    assert shown(found["b"])[1] == ("InternalIP", "10.9.9.9")
    assert asked == {"WaitForUpdatesEx": 1}
    assert later["c"].provider_id == vcenter.id("c")
    assert later["b"] == NotFound()


async def test_many_machines_are_read_page_by_page_once_and_then_cost_one_call(
    vcenter: Site,
) -> None:
    names = [f"n{number}" for number in range(25)]
    vcenter.gateway.page = 20
    await vcenter.simulator.create(*names)
    async with started(vcenter.config()) as provider:
        # Between them and the root stand ten objects more.
        assert vcenter.gateway.calls["WaitForUpdatesEx"] == 2
        found = await describe(provider, *(node(name, vcenter.id(name)) for name in names))
        unknown = node("x", "vsphere://00000000-0000-4000-8000-000000000001")
        assert await one(provider, unknown) == NotFound()
    assert [it.provider_id for it in found.values()] == [vcenter.id(name) for name in names]
    assert vcenter.gateway.calls["WaitForUpdatesEx"] == 4
    assert vcenter.gateway.calls["ContinueRetrievePropertiesEx"] == 1


async def test_a_machine_that_is_gone_is_proved_by_a_listing_its_reference_and_the_index(
    vcenter: Site,
) -> None:
    await vcenter.simulator.create("stays", "goes")
    gone = node("goes", vcenter.id("goes"))
    async with started(vcenter.config()) as provider:
        await describe(provider, gone)
        await vcenter.simulator.destroy("goes")
        before = vcenter.gateway.calls.copy()
        assert await one(provider, gone) == NotFound()
        asked = vcenter.gateway.calls - before
    assert asked["FindAllByUuid"] == 1
    assert asked["RetrievePropertiesEx"] == 2


@pytest.mark.parametrize(
    "operation", ["FindAllByUuid", "RetrievePropertiesEx", "CreateContainerView"]
)
@pytest.mark.parametrize("name", ["NoPermission", "SystemError"])
async def test_a_proof_that_cannot_be_had_proves_nothing(
    vcenter: Site, operation: str, name: str
) -> None:
    await vcenter.simulator.create("goes")
    gone = node("goes", vcenter.id("goes"))
    async with started(vcenter.config()) as provider:
        await describe(provider, gone)
        await vcenter.simulator.destroy("goes")
        vcenter.gateway.fail(Fault(operation, name=name))
        assert isinstance(await one(provider, gone), CloudError)
        assert await one(provider, gone) == NotFound()


async def test_a_machine_that_its_vcenter_cannot_read_is_not_gone(vcenter: Site) -> None:
    """While its datastore is away, a vCenter shows nothing of a machine but a name."""
    await vcenter.simulator.create("lost", "other")
    id_, other = vcenter.id("lost"), vcenter.id("other")
    await vcenter.simulator.change("lost", uuid=" ", connection="inaccessible")
    async with started(vcenter.config()) as provider:
        found = await one(provider, node("lost", id_))
        assert isinstance(found, CloudError), found
        assert "lost in 127.0.0.1" in str(found)
        gone = node("other", other)
        assert isinstance(await one(provider, gone), Instance)
        await vcenter.simulator.destroy("other")
        assert await one(provider, gone) == NotFound()  # it was seen, and is not there
        await vcenter.simulator.destroy("lost")
        assert await one(provider, node("lost", id_)) == NotFound()


@pytest.mark.parametrize("is_new", [False, True], ids=["same manager", "new manager"])
async def test_a_replica_does_not_stand_in_for_a_machine_that_cannot_be_read(
    vcenter: Site, *, is_new: bool
) -> None:
    """A replica is off, has the same UUID, and is the only one with it while storage is away."""
    await vcenter.simulator.create("a")
    known = node("a", vcenter.id("a"))
    uuid = vcenter.simulator.uuids["a"]
    await vcenter.simulator.create("a-replica", uuid=uuid, hostName="a", power="poweredOff")
    async with started(vcenter.config()) as provider:
        assert (await one(provider, known)).state is InstanceState.RUNNING
        await vcenter.simulator.change("a", uuid=" ", connection="inaccessible")
        if not is_new:
            found = await one(provider, known)
    if is_new:
        async with started(vcenter.config()) as provider:
            found = await one(provider, known)
    assert isinstance(found, CloudError), found


async def test_of_two_nodes_with_one_uuid_neither_stands_in_for_the_other(vcenter: Site) -> None:
    """A clone that kept the UUID is a Node, too; it is off when the storage of the first is away."""
    await vcenter.simulator.create("a")
    known = node("a", vcenter.id("a"))
    await vcenter.simulator.create("b", uuid=vcenter.simulator.uuids["a"])
    clone = node("b", vcenter.id("b"))
    async with started(vcenter.config()) as provider:
        found = await describe(provider, known, clone)
        assert [one.name for one in found.values()] == ["a", "b"]
        await vcenter.simulator.change("b", power="poweredOff")
        await vcenter.simulator.change("a", uuid=" ", connection="inaccessible")
        found = await describe(provider, known, clone)
    assert isinstance(found["a"], CloudError), found
    assert found["b"].powered_off


THERE = {
    "folder": "/DC1/vm",
    "pool": "/DC1/host/DC1_C0/Resources",
    "host": "/DC1/host/DC1_C0/DC1_C0_H0",
}


@pytest.mark.parametrize("was_on", [False, True], ids=["off", "on before"])
async def test_a_replica_does_not_stand_in_for_a_machine_in_a_datacenter_that_is_not_named(
    tmp_path_factory: pytest.TempPathFactory, *, was_on: bool
) -> None:
    """The machine was moved there; a new manager has never seen it, only what was made of it."""
    async with site(tmp_path_factory.mktemp("two"), datacenters=2) as two:
        await two.simulator.create("a", **THERE)
        known, uuid = node("a", two.id("a")), two.simulator.uuids["a"]
        power = "poweredOn" if was_on else "poweredOff"
        await two.simulator.create("a-replica", uuid=uuid, hostName="x", power=power)
        async with started(two.config(datacenters="DC0")) as provider:
            if was_on:
                assert (await one(provider, known)).state is InstanceState.RUNNING
                await two.simulator.change("a-replica", power="poweredOff")
            found = await one(provider, known)
            assert isinstance(found, CloudError), found
            assert "not in the cloud-config's datacenters" in str(found)
            two.gateway.fail(Fault("FindAllByUuid", name="NoPermission"))
            assert isinstance(await one(provider, known), CloudError)
            await two.simulator.destroy("a")
            assert (await one(provider, known)).powered_off
            before = two.gateway.calls.copy()
            assert (await one(provider, known)).powered_off
            assert (two.gateway.calls - before)["FindAllByUuid"] == 0, "it is known by now"


async def test_a_machine_that_was_registered_anew_is_the_same(vcenter: Site) -> None:
    await vcenter.simulator.create("a")
    known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
    async with started(vcenter.config()) as provider:
        await describe(provider, known)
        await vcenter.simulator.destroy("a")
        await vcenter.simulator.create("a", uuid=uuid, power="poweredOff")
        assert (await one(provider, known)).powered_off


async def test_a_machine_that_was_registered_anew_is_not_gone_while_it_cannot_be_read(
    vcenter: Site,
) -> None:
    """As where its host is removed and added again, while the datastore is away."""
    await vcenter.simulator.create("a")
    known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
    async with started(vcenter.config()) as provider:
        await describe(provider, known)
        await vcenter.simulator.destroy("a")
        await vcenter.simulator.create("a", uuid=" ", connection="inaccessible")
        for _ in range(2):
            found = await one(provider, known)
            assert isinstance(found, CloudError), found
            assert "a in 127.0.0.1" in str(found)
        await vcenter.simulator.change("a", uuid=uuid, connection="connected")
        assert isinstance(await one(provider, known), Instance)


async def test_a_replica_does_not_stand_in_for_a_machine_that_was_registered_anew(
    vcenter: Site,
) -> None:
    """Nor is the machine gone with its replica."""
    await vcenter.simulator.create("a")
    known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
    await vcenter.simulator.create("a-replica", uuid=uuid, hostName="a", power="poweredOff")
    async with started(vcenter.config()) as provider:
        assert (await one(provider, known)).state is InstanceState.RUNNING
        await vcenter.simulator.destroy("a")
        await vcenter.simulator.create("a", uuid=" ", connection="inaccessible")
        assert isinstance(await one(provider, known), CloudError)
        await vcenter.simulator.destroy("a-replica")
        for _ in range(2):
            assert isinstance(await one(provider, known), CloudError)


@pytest.mark.parametrize("is_another", [False, True], ids=["deleted", "with another UUID"])
async def test_a_machine_that_cannot_be_read_is_not_gone_with_a_copy_that_ran_in_its_place(
    vcenter: Site, *, is_another: bool
) -> None:
    """A backup is started while the datastore is away, and removed before that is back."""
    await vcenter.simulator.create("a")
    known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
    async with started(vcenter.config()) as provider:
        await describe(provider, known)
        await vcenter.simulator.change("a", uuid=" ", connection="inaccessible")
        for _ in range(2):
            await vcenter.simulator.create("a-copy", uuid=uuid, hostName="a")
            assert (await one(provider, known)).name == "a-copy"
            await vcenter.simulator.destroy("a-copy")
            for _ in range(2):
                found = await one(provider, known)
                assert isinstance(found, CloudError), found
                assert "exists" in str(found)
        if is_another:
            other = "00000000-0000-4000-8000-000000000001"
            await vcenter.simulator.change("a", uuid=other, connection="connected")
        else:
            await vcenter.simulator.destroy("a")
        for _ in range(2):
            assert await one(provider, known) == NotFound()


@pytest.mark.parametrize("is_anew", [False, True], ids=["same", "registered anew"])
async def test_a_machine_that_cannot_be_read_is_not_off_with_a_copy_that_ran_in_its_place(
    vcenter: Site, *, is_anew: bool
) -> None:
    """A backup is started while the datastore is away, and shut down before that is back."""
    await vcenter.simulator.create("a")
    known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
    async with started(vcenter.config()) as provider:
        await describe(provider, known)
        if is_anew:
            await vcenter.simulator.destroy("a")
            await vcenter.simulator.create("a", uuid=" ", connection="inaccessible")
        else:
            await vcenter.simulator.change("a", uuid=" ", connection="inaccessible")
        await vcenter.simulator.create("a-copy", uuid=uuid, hostName="a")
        assert (await one(provider, known)).name == "a-copy"
        await vcenter.simulator.change("a-copy", power="poweredOff")
        for _ in range(2):
            found = await one(provider, known)
            assert isinstance(found, CloudError), found
        await vcenter.simulator.destroy("a-copy")
        await vcenter.simulator.create("a-replica", uuid=uuid, hostName="a", power="poweredOff")
        assert isinstance(await one(provider, known), CloudError)
        await vcenter.simulator.destroy("a")
        for _ in range(2):
            assert (await one(provider, known)).powered_off


async def test_a_machine_registered_anew_is_not_gone_with_a_copy_that_ran_beside_it(
    vcenter: Site,
) -> None:
    """Its host was removed and added again while the copy ran, and the datastore is still away."""
    await vcenter.simulator.create("a")
    known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
    async with started(vcenter.config()) as provider:
        await describe(provider, known)
        await vcenter.simulator.destroy("a")
        await vcenter.simulator.create("a", uuid=" ", connection="inaccessible")
        await vcenter.simulator.create("a-copy", uuid=uuid, hostName="a")
        for _ in range(2):
            assert (await one(provider, known)).name == "a-copy"
        await vcenter.simulator.destroy("a-copy")
        await vcenter.simulator.create("a-replica", uuid=uuid, hostName="a", power="poweredOff")
        assert isinstance(await one(provider, known), CloudError)
        await vcenter.simulator.destroy("a-replica")
        for _ in range(2):
            found = await one(provider, known)
            assert isinstance(found, CloudError), found
            assert "a in 127.0.0.1" in str(found)
        await vcenter.simulator.destroy("a")
        for _ in range(2):
            assert await one(provider, known) == NotFound()


async def test_a_node_takes_no_machine_of_another_cluster_by_its_name(vcenter: Site) -> None:
    """Clusters in one vCenter often have nodes of one name; its own machine is not shown."""
    await vcenter.simulator.create("node-1")
    own = "00000000-0000-4000-8000-000000000001"
    async with started(vcenter.config()) as provider:
        found = await one(provider, node("node-1", uuid=own))
    assert isinstance(found, CloudError), found
    assert own in str(found)


async def test_a_node_whose_kubelet_runs_on_a_machine_of_another_uuid_is_not_gone(
    vcenter: Site,
) -> None:
    """A new manager has not seen the machine before its UUID was changed."""
    await vcenter.simulator.create("a")
    uuid = vcenter.simulator.uuids["a"]
    known = node("a", "vsphere://00000000-0000-4000-8000-000000000001", uuid=swapped(uuid))
    async with started(vcenter.config()) as provider:
        found = await one(provider, known)
        assert isinstance(found, CloudError), found
        assert "delete the Node" in str(found)
        await vcenter.simulator.destroy("a")
        assert await one(provider, known) == NotFound()


async def test_a_node_whose_provider_id_has_the_uuid_in_the_other_byte_order_is_not_gone(
    vcenter: Site,
) -> None:
    """As a kubelet gives it whose `--provider-id` is made of what its kernel reports."""
    await vcenter.simulator.create("a")
    uuid = vcenter.simulator.uuids["a"]
    async with started(vcenter.config()) as provider:
        for reported in (uuid, swapped(uuid)):
            found = await one(provider, node("a", f"vsphere://{swapped(uuid)}", uuid=reported))
            assert isinstance(found, IdentityConflict), found
            assert "delete the Node" in str(found)
            assert isinstance(
                await one(provider, node("a", vcenter.id("a"), uuid=reported)), Instance
            )
        await vcenter.simulator.destroy("a")
        for named in (uuid, swapped(uuid)):
            of = node("a", f"vsphere://{named}", uuid=uuid)
            assert await one(provider, of) == NotFound()


async def test_a_node_goes_on_with_a_new_machine_while_the_former_one_is_off(
    vcenter: Site,
) -> None:
    """The kubelet of a machine that takes over a name goes on with the Node, and its provider id."""
    await vcenter.simulator.create("old", power="poweredOff")
    await vcenter.simulator.create("new", hostName="node-1")
    known = node("node-1", vcenter.id("old"), uuid=vcenter.simulator.uuids["new"])
    async with started(vcenter.config()) as provider:
        found = await one(provider, known)
    assert isinstance(found, CloudError), found
    assert "delete the Node" in str(found)


async def test_a_node_whose_kubelets_machine_is_in_another_datacenter_is_not_gone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with site(tmp_path_factory.mktemp("two"), datacenters=2) as two:
        await two.simulator.create("a", **THERE)
        own = two.simulator.uuids["a"]
        known = node("a", "vsphere://00000000-0000-4000-8000-000000000001", uuid=own)
        async with started(two.config(datacenters="DC0")) as provider:
            assert "datacenter" in str(await one(provider, known))


async def test_a_node_without_a_provider_id_is_not_gone_while_an_index_knows_its_machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Nor is one whose machine a filter has lost: with --delete-nodes-by-name it would go."""
    async with site(tmp_path_factory.mktemp("two"), datacenters=2) as two:
        await two.simulator.create("a", **THERE)
        uuid = two.simulator.uuids["a"]
        async with started(two.config(datacenters="DC0")) as provider:
            for reported in (uuid, swapped(uuid)):
                found = await one(provider, node("a", uuid=reported))
                assert isinstance(found, CloudError), found
                assert "not in the datacenters of the cloud-config" in str(found)
            two.gateway.fail(Fault("FindAllByUuid", name="NoPermission"))
            assert isinstance(await one(provider, node("a", uuid=uuid)), CloudError)
            await two.simulator.destroy("a")
            before = two.gateway.calls.copy()
            assert await one(provider, node("a", uuid=uuid)) == NotFound()
            asked = two.gateway.calls - before
    assert (asked["FindAllByUuid"], asked["RetrievePropertiesEx"]) == (2, 1)


async def test_a_machine_whose_uuid_was_changed_is_not_gone(vcenter: Site) -> None:
    await vcenter.simulator.create("a")
    known = node("a", vcenter.id("a"))
    async with started(vcenter.config()) as provider:
        await describe(provider, known)
        await vcenter.simulator.change("a", uuid="00000000-0000-4000-8000-000000000001")
        found = await one(provider, known)
    assert isinstance(found, CloudError)
    assert "00000000-0000-4000-8000-000000000001" in str(found)


async def test_a_machine_in_another_datacenter_than_those_that_are_named_is_not_gone(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with site(tmp_path_factory.mktemp("two"), datacenters=2) as two:
        await two.simulator.create("here")
        await two.simulator.create("there", **THERE)
        nodes = [node(name, two.id(name)) for name in ("here", "there")]
        for datacenters in ("DC0", "/DC0", " DC0 , "):
            async with started(two.config(datacenters=datacenters)) as provider:
                found = await describe(provider, *nodes)
                assert isinstance(found["here"], Instance)
                assert "datacenter" in str(found["there"])
        for datacenters in ("", "DC0,DC1"):
            async with started(two.config(datacenters=datacenters)) as provider:
                found = await describe(provider, *nodes)
                assert isinstance(found["there"], Instance)


@pytest.mark.parametrize(("has_id", "was_here"), [(True, False), (True, True), (False, False)])
async def test_a_machine_in_another_datacenter_is_not_gone_while_it_cannot_be_read(
    tmp_path_factory: pytest.TempPathFactory, *, has_id: bool, was_here: bool
) -> None:
    """The index does not know it then, and the listing does not show that datacenter's machines."""
    async with site(tmp_path_factory.mktemp("two"), datacenters=2) as two:
        await two.simulator.create("a", **THERE)
        uuid = two.simulator.uuids["a"]
        known = node("a", two.id("a") if has_id else "", uuid=uuid)
        async with started(two.config(datacenters="DC0")) as provider:
            if was_here:  # it is registered anew there
                await two.simulator.create("here", uuid=uuid, hostName="a")
                assert isinstance(await one(provider, known), Instance)
                await two.simulator.destroy("here")
            assert "datacenter" in str(await one(provider, known))
            await two.simulator.change("a", uuid=" ", connection="inaccessible")
            for _ in range(2):
                found = await one(provider, known)
                assert isinstance(found, CloudError), found
                assert "exists" in str(found)
            wrong, before = "ManagedObjectNotFound", has_id + was_here
            two.gateway.fail(Fault("RetrievePropertiesEx", name=wrong, skipped=before))
            assert await one(provider, known) == NotFound()
            assert "exists" in str(await one(provider, known)), "one wrong word is no two"
            await two.simulator.change("a", uuid=uuid, connection="connected")
            assert "datacenter" in str(await one(provider, known))
            await two.simulator.destroy("a")
            assert await one(provider, known) == NotFound()


async def test_a_datacenter_that_is_not_there_is_a_mistake_in_the_config(vcenter: Site) -> None:
    with pytest.raises(CloudError, match="no datacenter 'DC9'"):
        async with started(vcenter.config(datacenters="DC9")):
            pass


async def test_a_running_machine_without_addresses_says_why(vcenter: Site) -> None:
    await vcenter.simulator.create("a", nics=[])
    async with started(vcenter.config()) as provider:
        found = await one(provider, node("a"))
        assert isinstance(found, CloudError)
        assert "VMware Tools" in str(found)
        await vcenter.simulator.change("a", nics=[nic("10.1.1.1"), nic("10.2.2.2", device=-1)])
        assert shown(await one(provider, node("a")))[1:] == [
            ("InternalIP", "10.1.1.1"), ("ExternalIP", "10.1.1.1"),
        ]  # fmt: skip


async def test_addresses_that_cloud_init_sets_come_first(vcenter: Site) -> None:
    metadata = "bmV0d29yazoge2V0aGVybmV0czoge2E6IHthZGRyZXNzZXM6IFsxMC4yLjIuMi8yNF19fX0="
    extra = {"guestinfo.metadata": metadata, "guestinfo.metadata.encoding": "base64"}
    await vcenter.simulator.create("a", nics=[nic("10.1.1.1", "10.2.2.2")], extra=extra)
    async with started(vcenter.config()) as provider:
        assert shown(await one(provider, node("a")))[1] == ("InternalIP", "10.2.2.2")


async def test_a_node_of_another_cloud_is_not_ours(vcenter: Site) -> None:
    async with started(vcenter.config()) as provider:
        assert provider.instances is not None
        foreign = node("a", "aws:///eu/i-1")
        assert provider.instances.owns(foreign) is Ownership.NO
        assert provider.instances.owns(node("a")) is Ownership.UNKNOWN
        assert isinstance(await one(provider, foreign), InvalidRequest)


async def test_a_machine_that_was_seen_is_gone_twice_while_another_one_cannot_be_read(
    vcenter: Site,
) -> None:
    """A Node is deleted by two answers; the other machine was never this one."""
    await vcenter.simulator.create("a")
    await vcenter.simulator.create("b")
    known = node("a", vcenter.id("a"))
    async with started(vcenter.config()) as provider:
        assert isinstance(await one(provider, known), Instance)
        await vcenter.simulator.change("b", uuid=" ", connection="inaccessible")
        await vcenter.simulator.destroy("a")
        for _ in range(2):
            assert await one(provider, known) == NotFound()
