"""A new Node gets no machine that another Node has, whoever was asked about that one."""

import asyncio
from typing import Any

from msgspec.structs import replace

from proreus.app.clouds.several import Several
from proreus.cloudprovider.instances import Instance, Ownership
from proreus.controllers.cloud_node.plan import CONDITION
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node, condition
from proreus.kube.requests import NODES
from proreus.providers.openstack.names import ownership
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading
from .test_hints import HOUR, LIFECYCLE, NODE, Cloud, Cluster, Machines, add


class OneByOne(Machines):
    """A cloud that describes one machine a call."""

    batch_size = 1


async def waits_for(holder: str, client: Client, made: Cluster) -> None:
    """The Node `new` says whose machine c is, and gets it once that Node is gone."""
    await asyncio.sleep(HOUR)
    new = (await made.nodes())["new"]
    told = condition(new.status.conditions, CONDITION)
    assert (new.spec.provider_id, told and told.reason) == ("", "IdentityConflict")
    assert told is not None
    assert f"node new and node {holder} are both cloud://c" in told.message

    await client.delete(NODES, holder)
    await asyncio.sleep(HOUR)
    assert (await made.nodes())["new"].spec.provider_id == "cloud://c"


@virtual_time
async def test_a_machine_stays_that_of_its_node_when_another_one_has_its_name_at_a_start() -> None:
    """The new one is asked about first."""
    machines = OneByOne()
    machines.machines["new"] = machines.machine("c")  # which was renamed
    cloud = Cloud(machines)
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, machines, cloud.hints)
        for name in "abc":
            await add(client, name, "True", is_initialised=True)
        await made.add("new")
        async with leading(server.url, cloud, NODE):
            await waits_for("c", client, made)


class OfTwoForms(Cloud):
    """A cloud whose former manager wrote one more slash."""

    @staticmethod
    def machine_of(provider_id: str) -> str:
        return provider_id.replace(":///", "://")


@virtual_time
async def test_a_machine_stays_that_of_a_node_with_another_form_of_its_provider_id() -> None:
    """The host was renamed, and another one has the former name."""
    machines = OneByOne()
    machines.machines["new"] = machines.machine("c")
    cloud = OfTwoForms(machines)
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, machines, cloud.hints)
        await client.create(
            NODES, {"metadata": {"name": "renamed"}, "spec": {"providerID": "cloud:///c"}}
        )
        await made.add("new")
        async with leading(server.url, cloud, NODE):
            await waits_for("renamed", client, made)


class Prefixed(Machines):
    """One of several clouds."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix
        self.machines = {}

    def owns(self, node: Node) -> Ownership:
        if not node.spec.provider_id:
            return Ownership.UNKNOWN
        is_ours = node.spec.provider_id.startswith(self._prefix)
        return Ownership.YES if is_ours else Ownership.NO


@virtual_time
async def test_a_node_of_which_no_cloud_is_known_gets_no_machine_of_another_node() -> None:
    east, west = Prefixed("cloud:"), Prefixed("west:")
    clouds = {"east": Cloud(east), "west": Cloud(west)}
    for name in ("a", "b", "c"):
        east.change(name)
    east.machines["new"] = east.machine("c")
    names = "east=cloud,west=cloud"
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, east, clouds["east"].hints)
        for name in "abc":
            await add(client, name, "True", is_initialised=True)
        async with leading(server.url, Several(clouds), NODE, cloud_provider=names):
            await asyncio.sleep(HOUR)
            await made.add("new")
            await waits_for("c", client, made)


@virtual_time
async def test_nor_does_it_get_the_machine_of_a_node_that_had_two_names_for_some_time() -> None:
    """Its host was renamed, and the Node of the former name deleted."""
    east, west = Prefixed("cloud:"), Prefixed("west:")
    clouds = {"east": Cloud(east), "west": Cloud(west)}
    for name in ("a", "c"):
        east.change(name)
    names = "east=cloud,west=cloud"
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, east, clouds["east"].hints)
        for name in "ac":
            await add(client, name, "True", is_initialised=True)
        async with leading(server.url, Several(clouds), NODE, cloud_provider=names):
            await asyncio.sleep(HOUR)
            east.machines["renamed"] = east.machine("c")
            await client.create(
                NODES, {"metadata": {"name": "renamed"}, "spec": {"providerID": "cloud://c"}}
            )
            await asyncio.sleep(HOUR)
            await client.delete(NODES, "c")
            await asyncio.sleep(HOUR)
            await made.add("c")
            await asyncio.sleep(HOUR)
            new = (await made.nodes())["c"]
            told = condition(new.status.conditions, CONDITION)
            assert (new.spec.provider_id, told and told.reason) == ("", "IdentityConflict")


class Regional(Machines):
    """OpenStack as one of several clouds: an id without a region may be of any."""

    def __init__(self, region: str) -> None:
        super().__init__()
        self._region = region
        self.machines = {}

    def machine(self, name: str, /, **more: Any) -> Instance:
        return replace(super().machine(name, **more), provider_id=f"openstack:///{UUIDS[name]}")

    def owns(self, node: Node) -> Ownership:
        return ownership(node, self._region)

    def scope(self, node: Node) -> str:
        return ""


UUIDS = {name: f"2e8c1f0a-0000-4000-8000-00000000000{name}" for name in "abc"}


@virtual_time
async def test_a_node_stays_of_which_another_cloud_cannot_tell_whether_it_is_its_own() -> None:
    """The only region of the one is not named, and the id does not say that it is the other's."""
    east, west = Regional(""), Regional("west")
    clouds = {"east": Cloud(east), "west": Cloud(west)}
    for name in "ab":
        east.change(name)
    west.change("c")
    names = "east=cloud,west=cloud"
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, east, clouds["east"].hints)
        for name in "abc":
            condition = {"type": "Ready", "status": "False" if name == "c" else "True"}
            spec = {"providerID": f"openstack:///{UUIDS[name]}"}
            body = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition]}}
            await client.create(NODES, body)
        async with leading(server.url, Several(clouds), NODE, LIFECYCLE, cloud_provider=names):
            await asyncio.sleep(HOUR)
            assert set(await made.nodes()) == set("abc")

            del east.machines["b"]  # which its label says to be of this cloud
            await made.silence("b")
            await asyncio.sleep(HOUR)
            assert set(await made.nodes()) == set("ac")
