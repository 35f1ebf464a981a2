"""Instances: found by UUID, name and address, in one call, and absent only if all say so."""

from proreus.cloudprovider.instances import Instance, InstanceState, NotFound

from .site import Site, describe, node, one, shown, started


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
