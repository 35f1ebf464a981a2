"""Nodes that rows of Azure Resource Graph confirm, and all that they must not confirm."""

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider import ConfigError, Instance, confirmed_by
from proreus.kube.objects import (
    LABEL_INSTANCE_TYPE,
    LABEL_REGION,
    LABEL_ZONE,
    TAINT_SHUTDOWN,
    Condition,
    Node,
    NodeAddress,
    has_taint,
)
from proreus.providers.azure import AzureCloud
from proreus.testing import objects, simulated
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ..guides import Guide  # noqa: TID252
from .emulator import seed
from .emulator.graph import KIND
from .emulator.server import Emulator, Fault
from .emulator.store import compute
from .site import ID, config, node, settings, started

READY = (Condition(type="Ready", status="True"),)
QUERY = ("POST", KIND)
GUIDE = Guide("azure")


def machines(azure: Emulator, sets: int, each: int, zone: str = "2") -> list[Node]:
    """Machines in scale sets, and Nodes that nobody has initialised."""
    made = []
    for pool in (f"pool{number}" for number in range(sets)):
        seed.scale_set(azure.store, pool)
        below = f"{ID}/virtualMachineScaleSets/{pool}/virtualMachines"
        for number in range(each):
            name = seed.set_machine(azure.store, pool, number, zone=zone)
            made.append(node(name, f"{below}/{number}"))
    return made


async def initialised(provider: AzureCloud, nodes: Sequence[Node]) -> list[Node]:
    """The Nodes as they are once their machines have been described, and are Ready."""
    assert provider.instances is not None
    found = await provider.instances.describe(nodes)
    done = []
    for one in nodes:
        machine = found[one.metadata.name]
        assert isinstance(machine, Instance)
        labels = {
            LABEL_ZONE: machine.zone,
            LABEL_REGION: machine.region,
            LABEL_INSTANCE_TYPE: machine.instance_type,
        }
        done.append(
            objects.node(
                one.metadata.name, one.spec.provider_id,
                labels=labels, addresses=machine.addresses, conditions=READY,
            )
        )  # fmt: skip
    return done


async def confirmed(provider: AzureCloud, nodes: Sequence[Node]) -> Collection[str]:
    assert provider.instances is not None
    return set(await confirmed_by(provider.instances, nodes))


def names(nodes: Sequence[Node]) -> set[str]:
    return {one.metadata.name for one in nodes}


@pytest.mark.parametrize("zone", ["2", ""])
async def test_two_queries_confirm_all_nodes_of_which_the_rows_say_the_same(
    azure: Emulator, zone: str
) -> None:
    bare = machines(azure, 4, 4, zone)
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        assert azure.counted().total() == 8
        assert await confirmed(provider, nodes) == names(nodes)
        assert azure.counted() == {QUERY: 2}
        # The next batch of the same round has rows already.
        assert await confirmed(provider, nodes[:5]) == names(nodes[:5])
        assert not azure.counted()


def _address(azure: Emulator, id_: str) -> None:
    nic = azure.store.of[f"{id_}/networkinterfaces/nic"]
    nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] = "10.0.9.9"


def _power(azure: Emulator, id_: str) -> None:
    azure.store.of[id_]["properties"]["instanceView"] = seed.view("deallocated")


def _size(azure: Emulator, id_: str) -> None:
    azure.store.of[id_]["sku"]["name"] = "Standard_D64s_v5"


def _zone(azure: Emulator, id_: str) -> None:
    azure.store.of[id_]["zones"] = ["3"]


def _gone(azure: Emulator, id_: str) -> None:
    seed.remove_machine(azure.store, id_)


def _unlinked(azure: Emulator, id_: str) -> None:
    azure.store.delete(f"{id_}/networkInterfaces/nic")


def _renamed(azure: Emulator, id_: str) -> None:
    azure.store.of[id_]["properties"]["osProfile"]["computerName"] = "another"


@pytest.mark.parametrize("act", [_address, _power, _size, _zone, _gone, _unlinked, _renamed])
async def test_a_node_of_which_the_rows_say_anything_else_is_not_confirmed(
    azure: Emulator, act: Callable[[Emulator, str], None]
) -> None:
    bare = machines(azure, 3, 2)
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        act(azure, f"{compute('virtualMachineScaleSets', 'pool1')}/virtualMachines/0".lower())
        assert await confirmed(provider, nodes) == names(nodes) - {nodes[2].metadata.name}


async def test_rows_of_yesterday_do_not_confirm_a_node_that_has_changed_since(
    azure: Emulator,
) -> None:
    bare = machines(azure, 3, 1)
    azure.graph.lag()
    _address(azure, f"{compute('virtualMachineScaleSets', 'pool1')}/virtualMachines/0".lower())
    late = seed.set_machine(azure.store, "pool2", 7)
    below = f"{ID}/virtualMachineScaleSets/pool2/virtualMachines"
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, [*bare, node(late, f"{below}/7")])
        found = await confirmed(provider, nodes)
    assert found == {bare[0].metadata.name, bare[2].metadata.name}


async def test_public_addresses_cost_one_more_query(azure: Emulator) -> None:
    bare = machines(azure, 3, 1)
    nic = f"{compute('virtualMachineScaleSets', 'pool1')}/virtualMachines/0/networkInterfaces/nic"
    public = f"{nic}/ipConfigurations/ipconfig1/publicIPAddresses/public"
    kind = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces"
    kind += "/ipConfigurations/publicIPAddresses"
    azure.store.put(seed.resource(kind, public, {"ipAddress": "198.51.100.7"}))
    one = azure.store.of[nic.lower()]["properties"]["ipConfigurations"][0]["properties"]
    one["publicIPAddress"] = {"id": public}
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        assert NodeAddress("ExternalIP", "198.51.100.7") in nodes[1].status.addresses
        azure.counted()
        assert await confirmed(provider, nodes) == names(nodes)
        assert azure.counted() == {QUERY: 3}
        azure.store.delete(public)
    async with started(azure, resourceGraph=True) as provider:
        assert await confirmed(provider, nodes) == names(nodes) - {nodes[1].metadata.name}


async def test_few_scale_sets_and_machines_alone_are_not_asked_about(azure: Emulator) -> None:
    bare = machines(azure, 2, 5)
    seed.machine(azure.store, "alone")
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, [*bare, node("alone", f"{ID}/virtualMachines/alone")])
        azure.counted()
        assert not await confirmed(provider, nodes)
        assert not azure.counted()


async def test_without_the_key_no_query_is_sent(azure: Emulator) -> None:
    bare = machines(azure, 3, 1)
    async with started(azure) as provider:
        nodes = await initialised(provider, bare)
        azure.counted()
        assert not await confirmed(provider, nodes)
        assert not azure.counted()


async def test_what_a_provider_id_says_ends_no_string_of_a_query(azure: Emulator) -> None:
    """Kubelets choose the provider ids of their Nodes."""
    bare = machines(azure, 3, 1)
    evil = [
        node(f"evil-{number}", f"{ID}/virtualMachineScaleSets/{name}/virtualMachines/0")
        for number, name in enumerate(["x')|join(y", "x'", 'x"', "x\\"])
    ]
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        assert await confirmed(provider, [*evil, *nodes]) == names(nodes)
        assert not await confirmed(provider, evil)
    assert not azure.refused


@pytest.mark.parametrize("page", [2, 7])
async def test_all_pages_are_read_and_the_quota_is_waited_for(azure: Emulator, page: int) -> None:
    bare = machines(azure, 4, 5)
    azure.graph.page, azure.graph.quota = page, (4, 1.0)
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        assert await confirmed(provider, nodes) == names(nodes)
    assert not azure.graph.throttled


def _throttled(azure: Emulator) -> None:
    azure.graph.quota = (0, 5.0)


def _failing(azure: Emulator) -> None:
    azure.faults.append(Fault("POST", KIND, status=500))


def _forbidden(azure: Emulator) -> None:
    assert azure.actions is not None
    azure.actions.remove(f"{KIND}/read")


@pytest.mark.parametrize(
    "act", [pytest.param(_throttled, marks=pytest.mark.long), _failing, _forbidden]
)
async def test_a_graph_that_does_not_answer_confirms_nothing_and_is_left_alone_for_a_while(
    azure: Emulator, act: Callable[[Emulator], None]
) -> None:
    bare = machines(azure, 3, 1)
    act(azure)
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        azure.counted()
        assert not await confirmed(provider, nodes)
        assert azure.counted().keys() == {QUERY}
        assert not await confirmed(provider, nodes)
        assert not azure.counted()
        assert provider.instances is not None
        found = await provider.instances.describe(nodes)
        assert all(isinstance(one, Instance) for one in found.values())


def _scrubbed(azure: Emulator) -> None:
    azure.graph.scrubbed.add("osProfile.computerName")


def _unreadable(azure: Emulator) -> None:
    assert azure.actions is not None
    below = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
    azure.actions.remove(f"{below}/networkInterfaces/read")


def _without_machines(azure: Emulator) -> None:
    azure.graph.types = frozenset({one for one in azure.graph.types if one.endswith("addresses")})


@pytest.mark.parametrize("hide", [_scrubbed, _unreadable, _without_machines])
async def test_what_the_graph_does_not_show_is_not_confirmed(
    azure: Emulator, hide: Callable[[Emulator], None]
) -> None:
    """It removes what it takes for personal, and some clouds of Azure have no machines in it."""
    bare = machines(azure, 3, 1)
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        hide(azure)
        assert not await confirmed(provider, nodes)


def test_an_azure_stack_hub_has_no_graph() -> None:
    with pytest.raises(ConfigError, match="resourceGraph: an Azure Stack Hub has no"):
        config("https://stack.example.org", resourceGraph=True, disableAzureStackCloud=False)


@pytest.mark.long
@pytest.mark.parametrize(("sets", "each"), [(1, 1000), (10, 100), (50, 20)])
async def test_the_guide_has_the_requests_for_a_thousand_nodes_that_rows_confirm(
    azure: Emulator, sets: int, each: int
) -> None:
    bare = machines(azure, sets, each)
    async with started(azure, resourceGraph=True) as provider:
        nodes = await initialised(provider, bare)
        azure.counted()
        same = await confirmed(provider, nodes)
        rest = [one for one in nodes if one.metadata.name not in same]
        if rest:
            await initialised(provider, rest)
        counted = azure.counted().total()
    name = f"{sets * each:,} in {sets} set{'s' if sets > 1 else ''}"
    shown = next(row for row in GUIDE.rows("machines") if row[0] == name)
    assert shown[2] == str(counted)


@pytest.mark.long
async def test_a_manager_looks_after_nodes_by_rows_and_takes_nothing_from_them(
    azure: Emulator, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Rows never catch up here: machines stop and go, and Azure itself says so."""
    bare = machines(azure, 4, 3)
    file = tmp_path / "azure.json"
    file.write_text(json.dumps(settings(azure.url, resourceGraph=True, routeTableName=None)))
    azure.graph.quota = (1000, 5.0)
    azure.graph.lag()
    async with set_up(control_plane, tmp_path) as site:
        for one in bare:
            name = one.metadata.name
            await site.register_node(simulated.Instance(name=name, id=name, zone="1"), ready=True)
        manager = site.lone_manager(
            "--cloud-provider=azure", "--cluster-name=test", f"--cloud-config={file}",
            "--node-monitor-period=1s", "--node-deletion-interval=2s",
            "--node-status-update-frequency=2s", "--controllers=cloud-node,cloud-node-lifecycle",
        )  # fmt: skip
        async with manager:
            await site.initialised(*names(bare))
            await _by_rows_alone(azure)
            stopped, gone = bare[0].metadata.name, bare[4].metadata.name
            _power(azure, _id(bare[0]))
            await site.silence(stopped)

            async def is_tainted() -> bool:
                return has_taint(await site.existing(stopped), TAINT_SHUTDOWN)

            await until("the node of the stopped machine is tainted", is_tainted, 60.0)
            _gone(azure, _id(bare[4]))
            await site.silence(gone)
            await site.gone(gone)
            nodes = await site.nodes()
            assert names(bare) - nodes.keys() == {gone}


def _id(one: Node) -> str:
    return one.spec.provider_id.removeprefix("azure://").lower()


async def _by_rows_alone(azure: Emulator) -> None:
    """Wait until rounds of all nodes are answered by rows, which are read once a minute."""

    async def quiet() -> bool:
        azure.counted()
        await asyncio.sleep(5.0)  # two rounds
        counted: dict[tuple[str, str], Any] = dict(azure.counted())
        counted.pop(QUERY, None)
        return not counted

    await until("two rounds ask Azure itself nothing", quiet, 60.0)
