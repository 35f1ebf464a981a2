"""What the cloud has is compared with what is desired: after a restart, and in every pass."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.kube.objects import LoadBalancerIngress, LoadBalancerStatus
from proreus.kube.patch import status
from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from .service_site import NAMESPACE, ServiceSite, ask, service_site

WRITES = ("create", "update", "delete", "add_targets", "remove_targets")


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ServiceSite]:
    async with service_site(control_plane, tmp_path) as site:
        yield site


async def test_a_restart_with_all_in_place_costs_one_list_and_no_write(site: ServiceSite) -> None:
    names = [await site.create() for _ in range(10)]
    for name in names:
        await site.ready(name)
    await site.manager.stop()
    await site.mark()
    await site.manager.start()

    last = await site.create()
    await site.ready(last)

    assert (await site.calls())["load_balancers.create"] == 1
    # One list of all, and one read for the ensure of the new Service.
    assert (await site.calls())["resources.list"] == 2
    assert {one.object_ref.name for one in site.writes()} == {last}


async def test_what_was_changed_while_no_manager_ran_is_repaired_at_the_start(
    site: ServiceSite,
) -> None:
    name, other = await site.create(), await site.create()
    address = await site.ready(name)
    await site.ready(other)
    await site.manager.stop()
    await site.cloud.admin.remove((await site.part(await site.get(name), "listener"))["id"])
    await site.mark()
    await site.manager.start()

    await until("the address answers", lambda: ask(address))

    calls = await site.calls()
    assert calls["listeners.create"] == 1
    assert sum(n for name, n in calls.items() if name.endswith(WRITES)) == 1


async def test_each_pass_repairs_what_somebody_changed_and_nothing_else(site: ServiceSite) -> None:
    names = [await site.create() for _ in range(5)]
    for name in names:
        await site.ready(name)
    await site.restart("--load-balancer-resync-period=2s")
    service = await site.get(names[2])
    await site.mark()

    await site.cloud.admin.remove((await site.part(service, "firewall"))["id"])

    async def repaired() -> bool:
        return any(one["kind"] == "firewall" for one in await site.parts(service))

    await until("the firewall is back", repaired)
    calls = await site.calls()
    assert {name: n for name, n in calls.items() if name.endswith(WRITES)} == {
        "firewalls.create": 1
    }
    assert site.writes() == []


async def test_passes_over_what_is_as_desired_write_nothing(site: ServiceSite) -> None:
    names = [await site.create() for _ in range(3)]
    for name in names:
        await site.ready(name)
    await site.restart("--load-balancer-resync-period=1s")
    await site.mark()

    async def three_passes() -> bool:
        return (await site.calls())["resources.list"] >= 3

    await until("three passes", three_passes)
    assert set(await site.calls()) == {"resources.list"}
    assert site.writes() == []


async def test_an_address_that_was_changed_while_no_manager_ran_is_put_right(
    site: ServiceSite,
) -> None:
    name = await site.create()
    address = await site.ready(name)
    await site.manager.stop()
    service = await site.get(name)
    wrong = LoadBalancerStatus((LoadBalancerIngress(ip="192.0.2.7", ip_mode="VIP"),))
    patch = status(service.metadata.uid, load_balancer=wrong)
    await site.client.patch(SERVICES, name, patch, NAMESPACE, subresource="status")
    await site.manager.start()

    await site.when(name, lambda one: one.status.load_balancer.ingress[0].ip == address)
