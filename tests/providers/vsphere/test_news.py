"""A vCenter tells at once what changes: the provider waits for it, and hints."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from labs.vsphere import Fault
from labs.vsphere.simulator import nic
from proreus.cloudprovider.hints import Listener
from proreus.cloudprovider.lookups import swapped
from proreus.providers.vsphere import VSphereCloud
from proreus.providers.vsphere.machines import Machine
from proreus.providers.vsphere.news import names_of
from proreus.providers.vsphere.soap import Ref
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.waiting import until

from .site import Site, context, describe, node, site, started, two

PATIENCE = 60.0
UUID = "422e4956-ad22-1139-6d72-59cc8f26bc90"


@asynccontextmanager
async def listening(text: str, *vcenters: Site) -> AsyncIterator[tuple[VSphereCloud, Listener]]:
    """A provider that waits in each vCenter."""
    made = context()
    with made.hints.listen() as listener:
        async with started(text, made) as provider:
            for one in vcenters:
                await waiting(one)
            yield provider, listener


async def waiting(vcenter: Site) -> None:
    """Wait until it has read all that is there by the second filter."""

    async def has_begun() -> bool:
        # One of them is what `start` asked.
        return vcenter.gateway.calls["CreateFilter"] >= 2 and (
            vcenter.gateway.calls["WaitForUpdatesEx"] >= 3
        )

    await until("the provider waits in the vCenter", has_begun, PATIENCE)


async def heard(listener: Listener, name: str) -> None:
    """Wait for a hint about a machine."""
    async with asyncio.timeout(PATIENCE):
        while name.casefold() not in (await listener.next()).machines:
            pass


async def test_what_changes_is_hinted_without_being_asked_for(vcenter: Site) -> None:
    await vcenter.simulator.create("a", "b")
    gone = vcenter.id("b")
    async with listening(vcenter.config(), vcenter) as (_, listener):
        before = vcenter.gateway.calls.copy()
        # Those of a start, and what the guide says of listening.
        assert before.total() == 6 + 1 + 3 + 1 + 1
        await vcenter.simulator.change("a", power="poweredOff")
        await heard(listener, vcenter.id("a"))
        await vcenter.simulator.change("b", nics=[nic("10.9.9.9")])
        await heard(listener, gone)
        await vcenter.simulator.destroy("b")
        await heard(listener, gone)
        assert (vcenter.gateway.calls - before).keys() == {"WaitForUpdatesEx"}
        # Of this the simulator tells as if it had begun anew, so that a new filter is made.
        await vcenter.simulator.create("c")
        await heard(listener, "c")


async def test_what_matters_to_no_node_is_not_hinted(vcenter: Site) -> None:
    await vcenter.simulator.create("a", "b")
    async with listening(vcenter.config(), vcenter) as (_, listener):
        # A card that the guest alone has, as those of pods are.
        own = nic("10.0.0.2")
        await vcenter.simulator.change("a", nics=[own, {**nic("10.244.0.9"), "device": -1}])
        await vcenter.simulator.change("b", power="poweredOff")
        async with asyncio.timeout(PATIENCE):
            hint = await listener.next()
        assert vcenter.id("a") not in hint.machines
        assert vcenter.id("b") in hint.machines


async def test_while_nobody_listens_nothing_waits(vcenter: Site) -> None:
    async with started(vcenter.config()) as provider:
        await describe(provider, node("a"))
        assert vcenter.gateway.calls["CreateFilter"] == 1


async def test_what_changes_while_the_connection_is_away_is_hinted_once_it_is_back(
    vcenter: Site,
) -> None:
    await vcenter.simulator.create("a", "b")
    async with listening(vcenter.config(), vcenter) as (_, listener):
        await vcenter.gateway.__aexit__(None, None, None)  # in the middle of the wait
        await vcenter.simulator.change("a", power="poweredOff")
        await vcenter.gateway.__aenter__()
        await heard(listener, vcenter.id("a"))
        await vcenter.simulator.change("b", power="poweredOff")
        await heard(listener, vcenter.id("b"))


@pytest.mark.parametrize("name", ["NotAuthenticated", "InvalidCollectorVersion", "SystemError"])
async def test_a_session_or_filter_that_ends_is_begun_anew_and_loses_no_news(
    vcenter: Site, name: str
) -> None:
    await vcenter.simulator.create("a", "b")
    async with listening(vcenter.config(), vcenter) as (_, listener):
        vcenter.gateway.fail(Fault("WaitForUpdatesEx", name=name))
        await vcenter.simulator.change("b", power="poweredOff")  # ends the wait; the next one fails
        await heard(listener, vcenter.id("b"))
        await vcenter.simulator.change("a", power="poweredOff")
        await heard(listener, vcenter.id("a"))
        assert not vcenter.gateway.unspent()
        assert vcenter.gateway.calls["Login"] == (2 if name == "NotAuthenticated" else 1)


async def test_a_vcenter_that_hangs_holds_up_no_news_of_another_one(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with site(tmp_path_factory.mktemp("b"), Authority()) as other:
        await vcenter.simulator.create("a")
        await other.simulator.create("b")
        async with listening(two(vcenter, other), vcenter, other) as (_, listener):
            other.gateway.fail(Fault(".*", times=10**6, seconds=3600.0))
            await other.simulator.change("b", power="poweredOff")  # its next wait hangs
            await heard(listener, other.id("b"))
            await vcenter.simulator.change("a", power="poweredOff")
            await heard(listener, vcenter.id("a"))


async def test_the_wait_ends_with_the_provider(vcenter: Site) -> None:
    async with listening(vcenter.config(), vcenter):
        pass
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("vsphere-news")]
    assert tasks == []
    assert vcenter.gateway.calls["Logout"] == 1


def test_a_machine_is_named_by_all_that_a_node_may_know_it_by() -> None:
    found = Machine(Ref("VirtualMachine", "vm-1"), "vm", UUID, host_name="n1", address="10.0.0.1")
    assert names_of(found) == {f"vsphere://{UUID}", UUID, swapped(UUID), "n1", "10.0.0.1"}
    assert names_of(Machine(Ref("VirtualMachine", "vm-1"), "vm")) == set()
    assert names_of(None) == set()
