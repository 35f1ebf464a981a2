"""Kubelets that run on another machine than their Node's name or provider id says.

On KVM the UUID of SMBIOS is the machine's id, as CloudStack writes it into the domain; with other
hypervisors it is no machine's.
"""

import uuid

from proreus.cloudprovider import CloudError, IdentityConflict, Instance, NotFound
from proreus.testing import objects

from .emulator.server import Emulator
from .site import describe, started

PREFIX = "external-cloudstack://"
OTHER = "2e8c1f0a-0000-4000-8000-000000000000"
"""The UUID of a machine that is none of CloudStack's."""


async def test_a_node_goes_not_with_a_former_machine_while_its_kubelet_runs_on_another_one(
    emulator: Emulator,
) -> None:
    """A machine that takes over a name goes on with the Node, and the provider id of the former."""
    world = emulator.world
    network = world.add_network()
    former, own = world.add_machines(["node-1", "node-1"], network)
    world.remove_machine(former)
    async with started(emulator) as provider:
        node = objects.node("node-1", PREFIX + former, system_uuid=own.upper())
        found = (await describe(provider, node))["node-1"]
        assert isinstance(found, IdentityConflict)
        assert own in str(found)
        for told in ("", former, OTHER):
            silent = objects.node("node-1", PREFIX + former, system_uuid=told)
            assert (await describe(provider, silent))["node-1"] == NotFound()
        project = world.add_project("elsewhere")
        world.machines[own] |= {"projectid": project, "project": "elsewhere"}
        found = (await describe(provider, node))["node-1"]
        assert isinstance(found, CloudError)
        assert "elsewhere" in str(found)
        world.remove_machine(own)
        assert (await describe(provider, node))["node-1"] == NotFound()


async def test_of_machines_of_one_name_the_kubelet_s_counts(emulator: Emulator) -> None:
    world = emulator.world
    _, own = world.add_machines(["node-1", "node-1"], world.add_network())
    async with started(emulator) as provider:
        node = objects.node("node-1.example.org", system_uuid=own)
        found = (await describe(provider, node))[node.metadata.name]
        assert isinstance(found, Instance)
        assert found.provider_id == PREFIX + own
        node = objects.node("node-1", system_uuid=str(uuid.uuid4()))
        assert isinstance((await describe(provider, node))["node-1"], IdentityConflict)


async def test_a_node_takes_no_machine_of_another_cluster_by_its_name(emulator: Emulator) -> None:
    """The part of the Node's name before a dot is enough to be called alike."""
    world = emulator.world
    theirs, own = world.add_machines(["node-1", "prod-node-1"], world.add_network())
    async with started(emulator) as provider:
        node = objects.node("node-1.example.org", system_uuid=own)
        found = (await describe(provider, node))[node.metadata.name]
        assert isinstance(found, IdentityConflict)
        assert "prod-node-1" in str(found)
        for told in ("", OTHER):
            node = objects.node("node-1", system_uuid=told)
            known = (await describe(provider, node))["node-1"]
            assert isinstance(known, Instance)
            assert known.provider_id == PREFIX + theirs


async def test_a_node_without_an_id_is_not_gone_while_its_kubelet_s_machine_is_there(
    emulator: Emulator,
) -> None:
    """Such as with `--delete-nodes-by-name`, where somebody has renamed or moved its machine."""
    world = emulator.world
    (own,) = world.add_machines(["renamed"], world.add_network())
    async with started(emulator) as provider:
        node = objects.node("node-1", system_uuid=own)
        found = (await describe(provider, node))["node-1"]
        assert isinstance(found, IdentityConflict), found
        assert "renamed" in str(found)
        project = world.add_project("elsewhere")
        world.machines[own] |= {"projectid": project, "project": "elsewhere"}
        found = (await describe(provider, node))["node-1"]
        assert isinstance(found, CloudError)
        assert "elsewhere" in str(found)
        for told in ("", OTHER):
            silent = objects.node("node-1", system_uuid=told)
            assert (await describe(provider, silent))["node-1"] == NotFound()
        world.remove_machine(own)
        assert (await describe(provider, node))["node-1"] == NotFound()
