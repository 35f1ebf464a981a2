"""Nodes go when their machine is surely gone, and never otherwise."""

import msgspec
import pytest

from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.kube import config
from proreus.kube.objects import TAINT_SHUTDOWN, has_taint
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Fault, FaultMode, Instance
from proreus.testing.waiting import until

from .api_proxy import api_proxy
from .rights import MANAGERS
from .site import Site, names

PASSES = 6
"""Questions after which whatever was to happen by mistake would have happened."""
QUICK = ("--node-monitor-period=200ms", "--node-deletion-interval=600ms")
NEVER = ("--node-monitor-period=200ms", "--node-deletion-interval=1h")


async def fleet(site: Site, count: int) -> tuple[Instance, ...]:
    """Machines with initialised nodes that are ready."""
    machines = await site.join(*names("node", count))
    async with site.lone_manager("--controllers=cloud-node"):
        await site.initialised()
    return machines


async def lose(site: Site, *machines: Instance) -> None:
    """End machines in the cloud; their kubelets fall silent."""
    for machine in machines:
        await site.cloud.admin.delete(machine.id)
    await site.silence(*(machine.name for machine in machines))


def deletions(site: Site) -> list[tuple[str, int]]:
    """The manager's DELETEs of nodes with their answers."""
    return [
        (one.object_ref.name, one.response_status.code)
        for one in site.writes()
        if one.verb == "delete"
    ]


async def pending(manager: ManagerProcess, name: str) -> None:
    """Wait until the manager has said that the node looks gone."""

    async def said() -> bool:
        return f'"The node looks gone" node="{name}"' in manager.output()

    await until(f"{name} looks gone", said)


async def test_a_node_goes_after_two_answers_that_are_far_enough_apart(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    async with site.lone_manager(*NEVER) as manager:
        await pending(manager, "node-0")
        await site.further_calls(PASSES)
        assert deletions(site) == []

    await site.cloud.admin.clear_calls()
    async with site.lone_manager(*QUICK):
        await site.gone("node-0")
        event = await site.event("DeletingNode", "node-0")

    assert (event.type, event.count) == ("Normal", 1)
    assert deletions(site) == [("node-0", 200)]
    # The refresh at the start, and two answers at least.
    assert len(await site.calls()) >= 3
    assert (await site.nodes()).keys() == {"node-1", "node-2", "node-3", "node-4"}


async def test_one_answer_is_enough_where_the_operator_configures_it(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    async with site.lone_manager(*NEVER, "--node-deletion-confirmations=1"):
        await site.gone("node-0")

    assert deletions(site) == [("node-0", 200)]


async def test_a_tombstone_needs_no_second_answer(site: Site) -> None:
    machines = await fleet(site, 5)
    await site.cloud.admin.configure(tombstone=3600.0)
    await lose(site, machines[0])
    async with site.lone_manager(*NEVER):
        await site.gone("node-0")
        event = await site.event("DeletingNode", "node-0")

    assert "terminated" in event.message


async def test_a_ready_node_that_the_cloud_does_not_know_is_named_and_stops_deletions(
    site: Site,
) -> None:
    machines = await fleet(site, 10)
    await site.cloud.admin.delete(machines[0].id)  # or it runs in another account
    await lose(site, machines[2], machines[3])
    async with site.lone_manager(*QUICK):
        event = await site.event("InstanceUnknown", "node-0")
        await site.further_calls(PASSES)
        assert deletions(site) == []

        # An operator knows better.
        word = Patch(PatchType.MERGE, {"metadata": {"annotations": {ANNOTATION_GONE: "true"}}})
        await site.client.patch(NODES, "node-0", word)
        await site.client.patch(NODES, "node-2", word)
        await site.gone("node-2")

    assert event.type == "Warning"
    assert f"simulated://sim-1/{machines[0].id}" in event.message
    assert deletions(site) == [("node-2", 200)]
    assert len(await site.nodes()) == 9


async def test_without_a_ready_node_only_an_operators_word_deletes(site: Site) -> None:
    machines = await fleet(site, 2)
    await lose(site, *machines)
    async with site.lone_manager(*QUICK):
        for machine in machines:
            event = await site.event("NodeDeletionHeld", machine.name)
            assert f"{ANNOTATION_GONE}=true" in event.message
        await site.further_calls(PASSES)
        assert deletions(site) == []
        word = Patch(PatchType.MERGE, {"metadata": {"annotations": {ANNOTATION_GONE: "true"}}})
        await site.client.patch(NODES, "node-1", word)
        await site.gone("node-1")

    assert deletions(site) == [("node-1", 200)]


async def test_a_stopped_machine_taints_its_node_until_it_runs_again(site: Site) -> None:
    machines = await fleet(site, 4)
    await site.cloud.admin.stop(machines[0].id)
    await site.silence("node-0")
    async with site.lone_manager(*QUICK):

        async def tainted() -> bool:
            return has_taint(await site.existing("node-0"), TAINT_SHUTDOWN)

        async def untainted() -> bool:
            return not await tainted()

        await until("the shutdown taint is set", tainted)
        before = len(site.writes())
        await site.further_calls(PASSES)
        assert len(site.writes()) == before

        # Running again is enough: the kubelet may take a while.
        await site.cloud.admin.start(machines[0].id)
        await until("the taint is removed", untainted)
        await site.cloud.admin.stop(machines[0].id)
        await until("the shutdown taint is set again", tainted)
        await site.cloud.admin.start(machines[0].id)
        await site.register(machines[:1])
        await until("the taint is removed from a ready node", untainted)

    assert deletions(site) == []


async def test_wrong_credentials_delete_nothing(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    async with site.lone_manager(*QUICK, token="revoked"):
        await site.further_calls(PASSES)
    assert deletions(site) == []
    assert {call.status for call in (await site.calls())[-PASSES:]} == {401}

    async with site.lone_manager(*QUICK):
        await site.gone("node-0")


@pytest.mark.parametrize(
    "mode",
    [
        FaultMode.MISSING,
        FaultMode.ERROR,
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in (FaultMode.DROP, FaultMode.GARBAGE, FaultMode.CUT_AFTER)
        ),
    ],
)
async def test_a_cloud_that_finds_no_machine_or_fails_deletes_nothing(
    site: Site, mode: FaultMode
) -> None:
    machines = await fleet(site, 6)
    await site.silence("node-0", "node-1")  # both machines run
    fault = Fault(mode=mode, operation="instances.*", count=0)
    await site.cloud.admin.inject(fault)
    async with site.lone_manager(*QUICK):
        await site.further_calls(PASSES)
        assert deletions(site) == []

        # The evidence of the time when nothing was found does not count afterwards.
        await site.cloud.admin.clear_faults()
        await site.further_calls(2)
        await lose(site, machines[0])
        await site.gone("node-0")

    assert deletions(site) == [("node-0", 200)]


async def test_many_machines_that_vanish_at_once_stop_all_deletions_until_an_operator_resumes_them(
    site: Site,
) -> None:
    machines = await fleet(site, 10)
    await lose(site, *machines[:5])
    manager = site.lone_manager(*QUICK)
    async with manager:
        for machine in machines[:5]:
            event = await site.event("NodeDeletionHeld", machine.name)
            assert event.type == "Warning"
        await site.further_calls(PASSES)
        assert deletions(site) == []

        # Who starts anew remembers nothing, and must be no less careful.
        await manager.kill()
        await manager.start()
        await site.further_calls(PASSES)
    assert deletions(site) == []
    assert len(await site.nodes()) == 10

    async with site.lone_manager(*QUICK, "--node-deletion-resume"):
        await site.gone(*(machine.name for machine in machines[:5]))
    assert len(await site.nodes()) == 5


async def test_nodes_that_the_autoscaler_removes_are_not_held(site: Site) -> None:
    machines = await fleet(site, 10)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    for machine in machines[:5]:
        body = Patch(PatchType.MERGE, {"spec": {"taints": [taint]}})
        await site.client.patch(NODES, machine.name, body)
    await lose(site, *machines[:5])
    async with site.lone_manager(*QUICK):
        await site.gone(*(machine.name for machine in machines[:5]))

    assert await site.events("NodeDeletionHeld") == []


async def test_a_name_that_a_new_machine_takes_over_gets_a_new_node(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    (new,) = await site.machines("node-0")  # it boots: there is no kubelet yet
    old = await site.existing("node-0")
    async with site.lone_manager(*QUICK):
        await site.gone("node-0")
        await site.register([new])
        node = (await site.initialised("node-0"))["node-0"]

    assert node.metadata.uid != old.metadata.uid
    assert node.spec.provider_id == f"simulated://sim-1/{new.id}"
    assert deletions(site) == [("node-0", 200)]


async def test_a_node_that_is_being_deleted_is_left_to_who_holds_it(site: Site) -> None:
    machines = await fleet(site, 6)
    held = Patch(PatchType.MERGE, {"metadata": {"finalizers": ["example.com/holds"]}})
    await site.client.patch(NODES, "node-0", held)
    await site.client.delete(NODES, "node-0")
    await lose(site, machines[0], machines[1])
    try:
        async with site.lone_manager(*QUICK):
            await site.gone("node-1")
            await site.event("DeletingNode", "node-1")
            writes = [one for one in site.writes() if one.object_ref.name == "node-0"]
            node = await site.existing("node-0")
    finally:
        free = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
        await site.client.patch(NODES, "node-0", free)

    assert node.metadata.deletion_timestamp is not None
    assert len(writes) == 2  # its initialisation
    assert deletions(site) == [("node-1", 200)]


async def test_kill_and_restart_between_the_two_answers_delete_the_node_later(site: Site) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    manager = site.lone_manager(*NEVER)
    async with manager:
        await pending(manager, "node-0")
        await manager.kill()
    manager = site.lone_manager(*QUICK)
    async with manager:
        await site.gone("node-0")

    assert deletions(site) == [("node-0", 200)]


async def test_a_node_registered_anew_while_the_old_one_is_deleted_survives(
    site: Site, control_plane: ControlPlane
) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    old = await site.existing("node-0")
    user = control_plane.kubeconfig_for("manager", [MANAGERS])
    async with (
        api_proxy(config.load(str(user), env={}), requests={"DELETE"}) as proxy,
        site.lone_manager(*QUICK, api_server=proxy.url),
    ):

        async def decided() -> bool:
            return bool(proxy.held)

        await until("the manager decides to delete the node", decided)
        await site.client.delete(NODES, "node-0")
        await site.join("node-0")
        proxy.release()
        node = (await site.initialised("node-0"))["node-0"]
        await site.quiet(lambda: len(site.writes()))

    assert proxy.held[0]["preconditions"] == {
        "uid": old.metadata.uid,
        "resourceVersion": old.metadata.resource_version,
    }
    assert deletions(site) == [("node-0", 409)]
    assert await site.existing("node-0") == msgspec.structs.replace(
        node, metadata=(await site.existing("node-0")).metadata
    )
    assert await site.events("DeletingNode") == []


async def test_a_kubelet_that_comes_back_at_the_last_moment_keeps_its_node(
    site: Site, control_plane: ControlPlane
) -> None:
    machines = await fleet(site, 5)
    await lose(site, machines[0])
    user = control_plane.kubeconfig_for("manager", [MANAGERS])
    async with (
        api_proxy(config.load(str(user), env={}), requests={"DELETE"}) as proxy,
        site.lone_manager(*QUICK, api_server=proxy.url),
    ):

        async def decided() -> bool:
            return bool(proxy.held)

        await until("the manager decides to delete the node", decided)
        await site.register(machines[:1])
        proxy.release()
        await site.quiet(lambda: len(site.writes()))

    assert deletions(site) == [("node-0", 409)]
    assert "node-0" in await site.nodes()


async def test_a_node_that_was_never_initialised_waits_for_the_grace(site: Site) -> None:
    machines = await fleet(site, 5)
    ours = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    lost = msgspec.structs.replace(machines[0], id="i-00000000dead", name="lost")
    provider_id = f"simulated://sim-1/{lost.id}"
    await site.register_node(lost, providerID=provider_id, taints=[ours])
    async with site.lone_manager(*QUICK):
        await site.cloud_condition("lost", "InstanceNotFound")
        await site.silence("node-1")  # it makes the manager ask
        await site.further_calls(PASSES)
        assert deletions(site) == []

    async with site.lone_manager(*QUICK, "--node-startup-grace=0"):
        await site.gone("lost")


async def test_a_node_without_provider_id_stays_unless_names_are_trusted(site: Site) -> None:
    machines = await fleet(site, 5)
    nameless = msgspec.structs.replace(machines[0], id="i-00000000dead", name="nameless")
    await site.register_node(nameless)
    quick = (*QUICK, "--node-startup-grace=0")
    async with site.lone_manager(*quick):
        await site.silence("node-1")
        await site.further_calls(PASSES)
        assert deletions(site) == []

    async with site.lone_manager(*quick, "--delete-nodes-by-name"):
        await site.gone("nameless")

    assert deletions(site) == [("nameless", 200)]
