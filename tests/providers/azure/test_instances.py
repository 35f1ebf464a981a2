"""Nodes of Azure: which machine is a node's, how it is described, what the look-ups cost."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

from proreus.cloudprovider import (
    CloudError,
    IdentityConflict,
    Instance,
    InstanceAnswer,
    InstanceState,
    InvalidRequest,
    NotFound,
    Ownership,
)
from proreus.kube.objects import Node
from proreus.providers.azure import AzureCloud
from proreus.providers.azure.machines import is_powered_off

from ..guides import Guide  # noqa: TID252 - pytest imports tests by path
from .emulator import seed
from .emulator.server import Emulator, Fault
from .emulator.store import GROUP, LOCATION, SUBSCRIPTION, compute, network
from .site import ID, node, started

GUIDE = Guide("azure")


async def describe(provider: AzureCloud, *nodes: Node) -> dict[str, InstanceAnswer]:
    assert provider.instances is not None
    return dict(await provider.instances.describe(nodes))


def addresses(answer: InstanceAnswer) -> Sequence[tuple[str, str]]:
    assert isinstance(answer, Instance), answer
    return [(one.type, one.address) for one in answer.addresses]


async def test_a_machine_alone_is_described_as_officially(azure: Emulator) -> None:
    seed.machine(azure.store, "node-1", families=("IPv4", "IPv6"))
    async with started(azure) as provider:
        found = (await describe(provider, node("node-1")))["node-1"]
    assert isinstance(found, Instance)
    assert found.provider_id == f"{ID}/virtualMachines/node-1"
    assert found.instance_type == "Standard_D2s_v5"
    assert (found.zone, found.region) == (f"{LOCATION}-1", LOCATION)
    assert found.state is InstanceState.RUNNING
    assert addresses(found) == [
        ("InternalIP", "10.0.0.4"),
        ("InternalIP", "fd00:10::4"),
        ("Hostname", "node-1"),
    ]


async def test_machines_of_scale_sets_have_their_computers_names(azure: Emulator) -> None:
    seed.scale_set(azure.store, "pool")
    seed.scale_set(azure.store, "flex", "Flexible")
    name = seed.set_machine(azure.store, "pool", 41)
    id_ = seed.machine(azure.store, "flex_8f2c", set_="flex")
    azure.store.of[id_.lower()]["properties"]["osProfile"]["computerName"] = "FLEX-8F"
    async with started(azure) as provider:
        found = await describe(provider, node(name), node("flex-8f"), node("flex_8f2c"))
    assert name == "pool000015"
    uniform, flexible = found[name], found["flex-8f"]
    assert isinstance(uniform, Instance)
    assert isinstance(flexible, Instance)
    assert uniform.provider_id == f"{ID}/virtualMachineScaleSets/pool/virtualMachines/41"
    assert uniform.instance_type == "Standard_D4s_v5"
    assert flexible.provider_id == f"{ID}/virtualMachines/flex_8f2c"
    assert found["flex_8f2c"] == NotFound()


@pytest.mark.parametrize("count", [4, 40])
async def test_nodes_cost_pages_and_not_a_call_each(azure: Emulator, count: int) -> None:
    seed.scale_set(azure.store, "pool")
    names = [seed.set_machine(azure.store, "pool", number) for number in range(count)]
    for number in range(count):
        seed.machine(azure.store, f"node-{number}")
    ids = [
        *(node(f"node-{n}", f"{ID}/virtualMachines/node-{n}") for n in range(count)),
        *(
            node(name, f"{ID}/virtualMachineScaleSets/pool/virtualMachines/{n}")
            for n, name in enumerate(names)
        ),
    ]
    async with started(azure) as provider:
        found = await describe(provider, *ids)
        by_id = azure.counted()
        await describe(provider, *(node(one.metadata.name) for one in ids))
        by_name = azure.counted()
    assert all(isinstance(one, Instance) for one in found.values())
    # Machines, their statuses, interfaces; a scale set's machines and interfaces.
    assert by_id.total() == 5
    assert by_name.total() == 6  # and the list of scale sets


@pytest.mark.long
@pytest.mark.parametrize(("sets", "each"), [(1, 1000), (10, 100), (50, 20)])
async def test_the_guide_has_the_requests_for_a_thousand_machines_in_scale_sets(
    azure: Emulator, sets: int, each: int
) -> None:
    nodes = []
    for pool in (f"pool{number}" for number in range(sets)):
        seed.scale_set(azure.store, pool)
        below = f"{ID}/virtualMachineScaleSets/{pool}/virtualMachines"
        for number in range(each):
            name = seed.set_machine(azure.store, pool, number)
            nodes.append(node(name, f"{below}/{number}"))
    async with started(azure) as provider:
        assert provider.instances is not None
        size = provider.instances.batch_size
        for start in range(0, len(nodes), size):
            found = await describe(provider, *nodes[start : start + size])
            assert all(isinstance(one, Instance) for one in found.values())
        counted = azure.counted()
    assert counted.total() == 2 * sets  # its machines and their interfaces
    shown = next(row for row in GUIDE.rows("machines") if row[0] == _in_sets(sets, each))
    assert shown[1] == str(counted.total())


def _in_sets(sets: int, each: int) -> str:
    return f"{sets * each:,} in {sets} set{'s' if sets > 1 else ''}"


async def test_fault_domains_stand_for_zones_and_are_asked_for_once(azure: Emulator) -> None:
    for number in range(5):
        seed.machine(azure.store, f"node-{number}", zone="")
    nodes = [node(f"node-{number}") for number in range(5)]
    async with started(azure, vmType="standard") as provider:
        found = await describe(provider, *nodes)
        first = azure.counted()
        await describe(provider, *nodes)
        again = azure.counted()
    assert {one.zone for one in found.values() if isinstance(one, Instance)} == {"1"}
    assert (first.total(), again.total()) == (8, 3)


async def test_absence_is_what_azure_says_of_that_very_machine(azure: Emulator) -> None:
    seed.scale_set(azure.store, "pool")
    seed.set_machine(azure.store, "pool", 0)
    here = [seed.machine(azure.store, f"node-{n}") for n in range(6)]
    seed.remove_machine(azure.store, here[0])
    gone = {
        "machine": f"{ID}/virtualMachines/node-0",
        "number": f"{ID}/virtualMachineScaleSets/pool/virtualMachines/7",
        "set": f"{ID}/virtualMachineScaleSets/other/virtualMachines/0",
        "group": f"{ID.replace(GROUP.lower(), 'gone')}/virtualMachines/node-0",
    }
    alive = [node(f"node-{n}", f"{ID}/virtualMachines/node-{n}") for n in range(1, 6)]
    async with started(azure) as provider:
        found = await describe(provider, *(node(k, v) for k, v in gone.items()), *alive)
    assert {found[name] for name in gone} == {NotFound()}
    assert all(isinstance(found[one.metadata.name], Instance) for one in alive)


@pytest.mark.parametrize(
    ("status", "code"),
    [(404, "SubscriptionNotFound"), (404, "InvalidResourceType"), (403, "AuthorizationFailed"),
     (409, "OperationNotAllowed"), (410, "Gone"), (500, "InternalServerError")],
)  # fmt: skip
async def test_no_other_error_is_absence(azure: Emulator, status: int, code: str) -> None:
    azure.faults.append(Fault("GET", "virtualMachines", status=status, code=code, times=9))
    async with started(azure) as provider:
        with pytest.raises(CloudError, match=code):
            await describe(provider, node("a", f"{ID}/virtualMachines/a"))


async def test_what_a_gateway_answers_is_no_absence(azure: Emulator) -> None:
    """Some write an error in the form in which Entra ID does."""

    def refuse(method: str, path: str) -> None:
        text = '{"status": 404, "error": "Not Found"}'
        raise web.HTTPNotFound(text=text, content_type="application/json")

    azure.hooks.append(refuse)
    async with started(azure) as provider:
        with pytest.raises(CloudError, match="404 Not Found"):
            await describe(provider, node("a", f"{ID}/virtualMachines/a"))


async def test_a_list_that_fails_costs_only_its_own_nodes(azure: Emulator) -> None:
    seed.scale_set(azure.store, "pool")
    names = [seed.set_machine(azure.store, "pool", number) for number in range(5)]
    seed.machine(azure.store, "alone")
    sets = f"{ID}/virtualMachineScaleSets/pool/virtualMachines"
    asked = [node(name, f"{sets}/{number}") for number, name in enumerate(names)]
    kind = "virtualMachineScaleSets/virtualMachines"
    azure.faults.append(Fault("GET", kind, status=503, times=99))
    async with started(azure) as provider:
        found = await describe(provider, *asked, node("alone", f"{ID}/virtualMachines/alone"))
    assert isinstance(found["alone"], Instance)
    assert all(isinstance(found[name], CloudError) for name in names)


@pytest.mark.parametrize(
    ("power", "provisioning", "expected"),
    [
        ("running", "Succeeded", InstanceState.RUNNING),
        ("starting", "Updating", InstanceState.RUNNING),
        ("stopping", "Succeeded", InstanceState.UNKNOWN),
        ("stopped", "Succeeded", InstanceState.STOPPED),
        ("deallocating", "Succeeded", InstanceState.STOPPED),
        ("deallocated", "Succeeded", InstanceState.STOPPED),
        ("deallocated", "Updating", InstanceState.UNKNOWN),
        ("unknown", "Succeeded", InstanceState.UNKNOWN),
        ("running", "Deleting", InstanceState.TERMINATING),
    ],
)
async def test_power_states(
    azure: Emulator, power: str, provisioning: str, expected: InstanceState
) -> None:
    seed.scale_set(azure.store, "pool")
    name = seed.set_machine(azure.store, "pool", 0)
    ids = [seed.machine(azure.store, "node-1")]
    ids.append(compute("virtualMachineScaleSets", "pool") + "/virtualMachines/0")
    for id_ in ids:
        properties = azure.store.of[id_.lower()]["properties"]
        properties |= {"instanceView": seed.view(power), "provisioningState": provisioning}
    async with started(azure) as provider:
        found = await describe(provider, node("node-1"), node(name))
    for one in found.values():
        assert isinstance(one, Instance)
        assert one.state is expected
        is_settled = provisioning == "Succeeded"
        assert one.powered_off is (is_settled and power in {"stopped", "deallocated"})


async def test_public_addresses_are_external(azure: Emulator) -> None:
    seed.machine(azure.store, "node-1")
    public = network("publicIPAddresses", "node-1")
    azure.store.put(
        seed.resource("Microsoft.Network/publicIPAddresses", public, {"ipAddress": "198.51.100.7"})
    )
    nic = azure.store.of[network("networkInterfaces", "node-1-nic").lower()]
    nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] = {"id": public}
    async with started(azure) as provider:
        found = await describe(provider, node("node-1"))
    assert addresses(found["node-1"])[-1] == ("ExternalIP", "198.51.100.7")


async def test_machines_in_other_groups_are_found_by_the_label(azure: Emulator) -> None:
    azure.store.groups.add("more")
    id_ = seed.machine(azure.store, "node-1")
    other: dict[str, Any] = azure.store.of.pop(id_.lower())
    other["id"] = id_.replace(GROUP, "More")
    azure.store.put(other)
    async with started(azure) as provider:
        labels = {"kubernetes.azure.com/resource-group": "more"}
        found = await describe(provider, node("node-1", labels=labels))
        assert provider.instances is not None
        scopes = [provider.instances.scope(one) for one in (node("a"), node("a", labels=labels))]  # type: ignore[attr-defined]
    assert isinstance(found["node-1"], Instance)
    assert scopes == [GROUP.lower(), "more"]


async def test_two_machines_of_one_name_are_nobodys(azure: Emulator) -> None:
    seed.scale_set(azure.store, "pool")
    name = seed.set_machine(azure.store, "pool", 0)
    seed.machine(azure.store, name)
    async with started(azure) as provider:
        found = await describe(provider, node(name))
    assert isinstance(found[name], IdentityConflict)


async def test_who_owns_a_node(azure: Emulator) -> None:
    own = f"{ID.upper().replace('AZURE:', 'azure:')}/virtualMachines/a"
    other = f"{ID.replace(SUBSCRIPTION, 'another')}/virtualMachines/a"
    unmanaged = {"kubernetes.azure.com/managed": "false"}
    cases = {
        own: Ownership.YES,
        other: Ownership.NO,
        "aws:///eu-central-1a/i-1": Ownership.NO,
        f"{ID}/virtualMachines/": Ownership.NO,
        "": Ownership.UNKNOWN,
    }
    async with started(azure) as provider:
        assert provider.instances is not None
        for id_, expected in cases.items():
            assert provider.instances.owns(node("a", id_)) is expected, id_
        assert provider.instances.owns(node("a", own, unmanaged)) is Ownership.NO
        found = await describe(provider, node("a", other), node("b", "azure://b"))
    assert all(isinstance(one, InvalidRequest) for one in found.values())


async def test_without_rights_to_the_subscription_machines_are_asked_for_one_by_one(
    azure: Emulator,
) -> None:
    for number in range(5):
        seed.machine(azure.store, f"node-{number}")
    azure.readers_of_group_only = True
    async with started(azure, vmType="standard") as provider:
        found = await describe(provider, *(node(f"node-{n}") for n in range(5)))
    assert {one.state for one in found.values() if isinstance(one, Instance)} == {
        InstanceState.RUNNING
    }


def test_a_hibernated_machine_is_deallocated_but_not_powered_off() -> None:
    machine = {"properties": {"provisioningState": "Succeeded"}}
    off = seed.view("deallocated")
    asleep = {"statuses": [*off["statuses"], {"code": "HibernationState/Hibernated"}]}
    assert is_powered_off(machine, off)
    assert not is_powered_off(machine, asleep)
    assert not is_powered_off(machine, None)


@pytest.mark.parametrize("zone", ["1", ""])
async def test_that_a_machine_is_hibernated_is_read_of_itself(azure: Emulator, zone: str) -> None:
    """The list of statuses need not tell it: volumes would leave a machine that goes on later."""
    nodes = [node(f"node-{n}", f"{ID}/virtualMachines/node-{n}") for n in range(6)]
    for one in nodes:
        id_ = seed.machine(azure.store, one.metadata.name, zone=zone).lower()
        azure.store.of[id_]["properties"]["additionalCapabilities"] = {"hibernationEnabled": True}
    async with started(azure, vmType="standard") as provider:
        await describe(provider, *nodes)
        azure.counted()
        for one in nodes[:2]:
            id_ = f"{ID}/virtualMachines/{one.metadata.name}".removeprefix("azure://").lower()
            azure.store.of[id_]["properties"]["instanceView"] = seed.view("deallocated")
        statuses = azure.store.of[id_]["properties"]["instanceView"]["statuses"]
        statuses.append({"code": "HibernationState/Hibernated", "level": "Info"})
        found = await describe(provider, *nodes)
        counted = azure.counted()
    off = [one.powered_off for one in found.values() if isinstance(one, Instance)]
    assert off == [True, False, False, False, False, False]
    assert counted.total() == 3 + 2
