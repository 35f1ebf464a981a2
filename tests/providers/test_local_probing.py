"""What probes of the provider `local` prove, also where machines are in several networks."""

import asyncio
import errno
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta

import pytest

from proreus.cloudprovider import CloudError, Instance, InstanceAnswer, InstanceState, NotFound
from proreus.kube.objects import Node
from proreus.providers.local import LocalCloud
from proreus.providers.local.addresses import Hop
from proreus.providers.local.config import (
    Gateway,
    InstancesConfig,
    LocalConfig,
    Probing,
    Unreachable,
)
from proreus.providers.local.instances import LocalInstances
from proreus.providers.local.inventory import Defaults
from proreus.testing.clock import virtual_time

from .local_site import context, node
from .traffic import CLIENT, NODES, Lab, run

ONE, TWO = (addresses[0] for addresses in NODES.values())


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


async def of_silent(*nodes: Node) -> InstanceAnswer:
    """What is said of the Node `silent`; nobody listens at the port, so a machine refuses."""
    probing = Probing(
        ports=(9,), timeout=timedelta(seconds=0.3), threshold=1, unreachable=Unreachable.GONE
    )
    config = LocalConfig(instances=InstancesConfig(probing=probing), gateway=Gateway(enabled=False))
    cloud = LocalCloud(config)
    await cloud.start(context())
    assert cloud.instances is not None
    said = await cloud.instances.describe(nodes)
    await cloud.close()
    return said["silent"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS])
async def test_a_machine_that_could_not_be_asked_is_not_gone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The manager is short of file descriptors or memory: socket(2), connect(2)."""
    del lab
    connect = asyncio.open_connection

    async def short(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if address == ONE:
            raise OSError(number, os.strerror(number))
        return await connect(address, port)

    monkeypatch.setattr(asyncio, "open_connection", short)
    with pytest.raises(CloudError, match=f"cannot probe {ONE}: {os.strerror(number)}"):
        await of_silent(node("silent", ONE, is_ready=False), node("beside", TWO))


async def test_machines_behind_a_broken_network_are_not_gone_while_another_network_works(
    lab: Lab,
) -> None:
    """Whether a machine in that, or what a kubelet says is its machine, such as a pod here."""
    silent, beside = node("silent", ONE, is_ready=False), node("beside", TWO)
    lab.unplug("one")
    assert await of_silent(silent, beside) == NotFound()
    lab.unplug("two")
    for others in ((CLIENT,), (CLIENT, TWO)):
        said = await of_silent(silent, beside, node("elsewhere", *others))
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN


async def test_machines_are_not_gone_whose_network_is_sought_behind_another_networks_router(
    lab: Lab,
) -> None:
    """With an interface its route is lost; then the default router has what comes for it."""
    run("ip", "link", "set", "nodes0", "down")
    run("ip", "route", "add", "default", "via", CLIENT)
    said = await of_silent(node("silent", ONE, is_ready=False), node("beside", CLIENT))
    assert isinstance(said, Instance), said
    assert said.state is InstanceState.UNKNOWN


class Routes:
    """The ways by which machines are reached, which answer only by their own."""

    CABLE, ROUTER = (3, ""), (2, "192.0.2.254")

    def __init__(self) -> None:
        self.ways: dict[str, Hop] = {"10.1.0.1": self.CABLE, "198.51.100.1": self.ROUTER}
        self.right = dict(self.ways)

    async def find(self, addresses: Collection[str]) -> Mapping[str, Hop]:
        return {one: self.ways[one] for one in addresses if one in self.ways}

    async def probe(self, addresses: Sequence[str]) -> bool:
        return any(self.ways.get(one) == self.right.get(one, ()) for one in addresses)

    def instances(self) -> LocalInstances:
        settings = Probing(ports=(22,), threshold=1, unreachable=Unreachable.GONE)
        return LocalInstances(None, Defaults(), self.probe, settings, ways=self.find)


FAR = node("far", "198.51.100.1")
RACK = node("rack", "10.1.0.1")
SILENT = node("rack", "10.1.0.1", is_ready=False)


async def said_of_rack(instances: LocalInstances, rack: Node) -> InstanceAnswer:
    return (await instances.describe([rack, FAR]))["rack"]


@pytest.mark.parametrize("is_noticed", [True, False], ids=["while Ready", "later"])
async def test_machines_whose_cable_is_out_are_not_gone_while_nodes_beyond_the_router_answer(
    *, is_noticed: bool
) -> None:
    """Whoever configures the interface takes its addresses and routes along."""
    routes = Routes()
    instances = routes.instances()
    await said_of_rack(instances, RACK)
    routes.ways["10.1.0.1"] = Routes.ROUTER
    for _ in range(2 * is_noticed):
        await said_of_rack(instances, RACK)
    for _ in range(3):
        said = await said_of_rack(instances, SILENT)
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN
    routes.ways["10.1.0.1"] = Routes.CABLE
    found = await said_of_rack(instances, SILENT)
    assert isinstance(found, Instance)
    assert found.state is InstanceState.RUNNING


@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_machine_that_has_answered_by_another_way_is_gone_when_it_is_silent_there(
    *, is_ready: bool
) -> None:
    """Such as after it was moved to another network of the gateway, or behind another router."""
    routes = Routes()
    instances = routes.instances()
    await said_of_rack(instances, RACK)
    routes.ways["10.1.0.1"] = routes.right["10.1.0.1"] = Routes.ROUTER
    assert isinstance(await said_of_rack(instances, RACK if is_ready else SILENT), Instance)
    del routes.right["10.1.0.1"]
    assert await said_of_rack(instances, SILENT) == NotFound()


async def test_a_machine_that_a_new_manager_has_not_seen_ready_counts_as_it_is_reached_now() -> (
    None
):
    routes = Routes()
    routes.ways["10.1.0.1"] = Routes.ROUTER
    assert await said_of_rack(routes.instances(), SILENT) == NotFound()


@virtual_time
async def test_a_machine_that_does_not_answer_while_its_node_is_ready_is_not_gone_when_that_is_not() -> (
    None
):
    """Such as one whose firewall drops the probes, and whose kubelet has failed."""
    routes = Routes()
    routes.ways["10.1.0.1"] = Routes.ROUTER
    del routes.right["10.1.0.1"]
    instances = routes.instances()
    for _ in range(2):
        await said_of_rack(instances, RACK)
        await asyncio.sleep(300)
    for _ in range(3):
        said = await said_of_rack(instances, SILENT)
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN
    routes.right["10.1.0.1"] = Routes.ROUTER
    assert isinstance(await said_of_rack(instances, RACK), Instance)
    del routes.right["10.1.0.1"]
    assert await said_of_rack(instances, SILENT) == NotFound()


@virtual_time
@pytest.mark.parametrize("is_heard_elsewhere", [False, True])
async def test_a_machine_that_has_stopped_to_answer_while_its_node_was_ready_is_not_gone_later(
    *, is_heard_elsewhere: bool
) -> None:
    """Such as one whose firewall drops the probes since, or that somebody has given another address.

    Also if it has a second address, by a way that does not work when its kubelet fails.
    """
    routes = Routes()
    routes.ways |= dict.fromkeys(("10.1.0.2", "10.1.0.3"), Routes.CABLE)
    routes.right |= {"10.1.0.2": Routes.CABLE, "10.1.0.3": Routes.CABLE}
    routes.ways["2001:db8::2"] = routes.right["2001:db8::2"] = Routes.ROUTER
    instances, near = routes.instances(), node("near", "10.1.0.3")
    addresses = ("10.1.0.2", *["2001:db8::2"] * is_heard_elsewhere)

    async def said_of_rack(*, is_ready: bool) -> InstanceAnswer:
        rack = node("rack", *addresses, is_ready=is_ready)
        return (await instances.describe([rack, near]))["rack"]

    await said_of_rack(is_ready=True)
    del routes.right["10.1.0.2"]
    for _ in range(2):
        await said_of_rack(is_ready=True)
        await asyncio.sleep(300)
    del routes.right["2001:db8::2"]
    for _ in range(3):
        said = await said_of_rack(is_ready=False)
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN
    routes.right["10.1.0.2"] = Routes.CABLE
    assert isinstance(await said_of_rack(is_ready=True), Instance)
    del routes.right["10.1.0.2"]
    assert await said_of_rack(is_ready=False) == NotFound()


@virtual_time
@pytest.mark.parametrize(
    ("address", "uuid"), [("10.1.0.1", "next"), ("10.1.0.2", "former")], ids=["address", "machine"]
)
async def test_a_machine_is_not_gone_that_never_answers_where_the_former_one_of_its_name_has(
    address: str, uuid: str
) -> None:
    """Such as one that was put in the place of another, with a firewall that drops the probes."""
    routes = Routes()
    routes.ways["10.1.0.2"] = routes.right["10.1.0.2"] = Routes.CABLE
    routes.ways["10.1.0.3"] = routes.right["10.1.0.3"] = Routes.CABLE
    instances, near = routes.instances(), node("near", "10.1.0.3")

    async def said_of(rack: Node) -> InstanceAnswer:
        return (await instances.describe([rack, near]))["rack"]

    await said_of(node("rack", address, uuid=uuid))
    del routes.right["10.1.0.2"]
    for _ in range(2):
        await said_of(node("rack", "10.1.0.2", uuid="next"))
        await asyncio.sleep(300)
    for _ in range(3):
        said = await said_of(node("rack", "10.1.0.2", uuid="next", is_ready=False))
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN


async def test_a_machine_is_not_gone_that_is_silent_at_an_address_which_it_had_never_while_ready() -> (
    None
):
    """Somebody writes another one to the inventory, which it has not yet, or by mistake."""
    routes = Routes()
    routes.ways |= dict.fromkeys(("10.1.0.2", "10.1.0.3"), Routes.CABLE)
    routes.right["10.1.0.3"] = Routes.CABLE
    instances, near = routes.instances(), node("near", "10.1.0.3")
    ready = node("rack", "10.1.0.1", uuid="one")
    assert isinstance((await instances.describe([ready, near]))["rack"], Instance)
    silent = node("rack", "10.1.0.2", uuid="one", is_ready=False)
    for _ in range(3):
        said = (await instances.describe([silent, near]))["rack"]
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN


@virtual_time
async def test_a_machine_that_dies_before_it_was_asked_is_gone_though_its_node_was_ready_a_while() -> (
    None
):
    """A Node is Ready for up to a minute after its machine has died, or as long as is set."""
    routes = Routes()
    routes.ways["10.1.0.1"] = Routes.ROUTER
    del routes.right["10.1.0.1"]
    instances = routes.instances()
    for _ in range(4):
        await said_of_rack(instances, RACK)
        await asyncio.sleep(60)
    assert await said_of_rack(instances, SILENT) == NotFound()


BOTH = ("10.1.0.1", "2001:db8::1")


@pytest.mark.parametrize("is_sought", [True, False], ids=["cable out", "switch down"])
async def test_a_machine_is_not_gone_that_never_answers_by_the_way_that_still_works(
    *, is_sought: bool
) -> None:
    """Such as one that drops the probes by IPv6, where IPv4 does not work any more."""
    routes = Routes()
    routes.ways[BOTH[1]] = Routes.ROUTER
    instances = routes.instances()
    await said_of_rack(instances, node("rack", *BOTH))
    del routes.right["10.1.0.1"]
    if is_sought:
        routes.ways["10.1.0.1"] = Routes.ROUTER
    silent = node("rack", *BOTH, is_ready=False)
    for _ in range(3):
        said = await said_of_rack(instances, silent)
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN
