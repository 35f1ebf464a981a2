"""Kubelets that run on another server than their Node's name or provider id says.

Of a server on libvirt the UUID of SMBIOS is its id, as Nova writes it into the domain; others, such
as bare metal, have one that is no server's.
"""

import pytest

from proreus.cloudprovider import CloudError, IdentityConflict, Instance, NotFound
from proreus.cloudprovider.lookups import swapped
from proreus.testing import objects

from .test_instances import failure, one
from .wire import Wire, said, started, uuid

METAL = "2e8c1f0a-0000-4000-8000-000000000000"
"""The UUID of a machine that is no server's id."""
OFF = {"status": "SHUTOFF", "OS-EXT-STS:power_state": 4}


async def test_a_node_goes_not_with_a_former_server_while_its_kubelet_runs_on_another_one(
    wire: Wire,
) -> None:
    """A server that takes over a name goes on with the Node, and the provider id of the former."""
    wire.add(2, "node-1")
    former = f"openstack:///{uuid(1)}"
    async with started(wire.config()) as provider:
        for told in (uuid(2), uuid(2).upper(), swapped(uuid(2))):
            found = await one(provider, objects.node("node-1", former, system_uuid=told))
            assert isinstance(found, IdentityConflict)
            assert uuid(2) in str(found)
        for told in ("", uuid(1), METAL, "4c4c4544-0042-3510-8056-b4c04f4e5131"):
            found = await one(provider, objects.node("node-1", former, system_uuid=told))
            assert found == NotFound()
        node = objects.node("node-1", former, system_uuid=uuid(2))
        absent = {"itemNotFound": {"code": 404, "message": "Instance could not be found."}}
        wire.fail("server_get", said(404, absent), failure())
        assert isinstance(await one(provider, node), CloudError)
        del wire.servers[uuid(2)]
        assert await one(provider, node) == NotFound()


async def test_a_former_server_that_is_kept_and_off_says_nothing_of_a_node_that_another_one_has(
    wire: Wire,
) -> None:
    id_ = f"openstack:///{wire.add(1, 'node-1', **OFF)}"
    wire.add(2, "node-1")
    async with started(wire.config()) as provider:
        for told in (uuid(1), METAL, ""):
            found = await one(provider, objects.node("node-1", id_, system_uuid=told))
            assert isinstance(found, Instance)
            assert found.powered_off
        found = await one(provider, objects.node("node-1", id_, system_uuid=uuid(2)))
        assert isinstance(found, IdentityConflict)
        wire.servers[uuid(1)] |= {"status": "ACTIVE"}
        found = await one(provider, objects.node("node-1", id_, system_uuid=uuid(2)))
        assert isinstance(found, Instance), "who runs is believed"


async def test_of_servers_of_one_name_the_kubelet_s_counts(wire: Wire) -> None:
    wire.add(1, "worker-1")
    wire.add(2, "Worker-1")
    async with started(wire.config()) as provider:
        found = await one(provider, objects.node("worker-1", system_uuid=uuid(2)))
        assert isinstance(found, Instance)
        assert found.provider_id == f"openstack:///{uuid(2)}"
        assert wire.asked["server_get"] == 0
        found = await one(provider, objects.node("worker-1", system_uuid=METAL))
        assert isinstance(found, IdentityConflict)


@pytest.mark.parametrize("told", [METAL, ""])
async def test_a_node_takes_no_server_of_another_cluster_by_its_name(wire: Wire, told: str) -> None:
    """Such as where clusters share the project, and one's servers are not called as their Nodes."""
    wire.add(1, "worker-1")
    wire.add(2, "prod-worker-1")
    async with started(wire.config()) as provider:
        found = await one(provider, objects.node("worker-1", system_uuid=uuid(2)))
        assert isinstance(found, IdentityConflict)
        assert "prod-worker-1" in str(found)
        assert isinstance(await one(provider, objects.node("worker-1", system_uuid=told)), Instance)
        wire.fail("server_get", failure())
        found = await one(provider, objects.node("worker-1", system_uuid=uuid(2)))
        assert isinstance(found, CloudError)


async def test_a_new_node_waits_while_its_server_may_be_in_a_cell_that_is_down(wire: Wire) -> None:
    """Lists by name leave that out, and another cluster's server of the name would be taken."""
    wire.add(1, "worker-1")
    wire.down.add(wire.add(2, "worker-1"))
    async with started(wire.config()) as provider:
        for told in (METAL, uuid(2)):
            found = await one(provider, objects.node("worker-1", system_uuid=told))
            assert isinstance(found, CloudError)
        found = await one(provider, objects.node("worker-1", system_uuid=uuid(1)))
        assert isinstance(found, Instance)
        wire.down.clear()
        del wire.servers[uuid(1)]
        found = await one(provider, objects.node("worker-1", system_uuid=METAL))
        assert isinstance(found, Instance)
        assert found.provider_id == f"openstack:///{uuid(2)}"


async def test_a_node_without_an_id_is_not_gone_while_its_kubelet_s_server_is_there(
    wire: Wire,
) -> None:
    """Such as with `--delete-nodes-by-name`: it was renamed, or its cell is down."""
    wire.add(1, "renamed")
    async with started(wire.config()) as provider:
        node = objects.node("worker-1", system_uuid=uuid(1))
        found = await one(provider, node)
        assert isinstance(found, IdentityConflict), found
        assert "renamed" in str(found)
        for told in ("", METAL):
            silent = objects.node("worker-1", system_uuid=told)
            assert await one(provider, silent) == NotFound()
            wire.down.add(wire.add(2, "worker-1"))
            assert isinstance(await one(provider, silent), CloudError)
            del wire.servers[uuid(2)]
            wire.down.clear()
        wire.fail("server_get", failure())
        assert isinstance(await one(provider, node), CloudError)
        del wire.servers[uuid(1)]
        assert await one(provider, node) == NotFound()
