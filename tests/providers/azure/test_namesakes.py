"""Machines of one name: the UUID that the kubelet reports says which one is the Node's.

A machine's `vmId` is its UUID of SMBIOS:
https://azure.microsoft.com/blog/accessing-and-using-azure-vm-unique-id/
"""

import pytest

from proreus.cloudprovider import IdentityConflict, Instance
from proreus.cloudprovider.lookups import swapped
from proreus.testing import objects

from .emulator import seed
from .emulator.server import Emulator
from .site import started
from .test_instances import describe

OTHER = "2e8c1f0a-0000-4000-8000-000000000000"


async def test_a_node_takes_no_machine_of_another_cluster_by_its_name(azure: Emulator) -> None:
    """Such as one of another cluster in the resource group, while lists lack the Node's own."""
    id_ = seed.machine(azure.store, "worker-1")
    own = azure.store.of[id_.lower()]["properties"]["vmId"]
    async with started(azure) as provider:
        for told in (OTHER, OTHER.upper()):
            node = objects.node("worker-1", system_uuid=told)
            found = (await describe(provider, node))["worker-1"]
            assert isinstance(found, IdentityConflict)
            assert OTHER in str(found)
            assert "worker-1" in str(found)
        for told in (own.upper(), swapped(own), ""):
            node = objects.node("worker-1", system_uuid=told)
            assert isinstance((await describe(provider, node))["worker-1"], Instance)


@pytest.mark.parametrize("swap", [False, True], ids=["as it is", "swapped"])
async def test_of_machines_of_one_name_the_kubelet_s_counts(azure: Emulator, *, swap: bool) -> None:
    """Scale sets of one group may give computers the same names."""
    ids = []
    for name in ("a", "b"):
        set_ = seed.scale_set(azure.store, name)
        profile = azure.store.of[set_.lower()]["properties"]["virtualMachineProfile"]
        profile["osProfile"]["computerNamePrefix"] = "worker-"
        seed.set_machine(azure.store, name, 0, name="worker-0")
        ids.append(f"{set_}/virtualMachines/0")
    uuid = azure.store.of[ids[1].lower()]["properties"]["vmId"]
    node = objects.node("worker-0", system_uuid=swapped(uuid) if swap else uuid)
    async with started(azure) as provider:
        found = (await describe(provider, node))["worker-0"]
        assert isinstance(found, Instance)
        assert found.provider_id.lower().endswith("/virtualmachinescalesets/b/virtualmachines/0")


@pytest.mark.parametrize("power", ["stopped", "deallocated", "running"])
async def test_no_node_is_off_with_a_machine_whose_name_another_one_has_got(
    power: str, azure: Emulator
) -> None:
    """The former one is kept for a while, and the Node's kubelet runs on the new one."""
    id_ = seed.machine(azure.store, "worker-1")
    properties = azure.store.of[id_.lower()]["properties"]
    properties["instanceView"] = seed.view(power)
    own = properties["vmId"]
    async with started(azure) as provider:
        node = objects.node("worker-1", f"azure://{id_}", system_uuid=OTHER)
        found = (await describe(provider, node))["worker-1"]
        assert isinstance(found, Instance if power == "running" else IdentityConflict)
        for told in (own.upper(), swapped(own), ""):
            node = objects.node("worker-1", f"azure://{id_}", system_uuid=told)
            found = (await describe(provider, node))["worker-1"]
            assert isinstance(found, Instance)
            assert found.powered_off is (power != "running")
