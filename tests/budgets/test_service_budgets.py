"""What load balancers cost: calls to the cloud and writes to the API server, as counts."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proreus.controllers.service.controller import BACKOFF
from proreus.controllers.service.intake import QUIET_LIMIT, QUIET_SECONDS
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import timestamp
from proreus.testing.simulated import Fault, FaultMode

from ..apiserver.service_site import (  # noqa: TID252 - pytest imports tests by path
    ServiceSite,
    service_site,
)

SERVICES = 20
JOINING = 50
WITHIN = 5.0


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ServiceSite]:
    async with service_site(control_plane, tmp_path) as site:
        yield site


async def ready_services(site: ServiceSite, count: int) -> list[str]:
    """So many Services whose load balancers stand; what they cost is forgotten."""
    names = await asyncio.gather(*(site.create() for _ in range(count)))
    for name in names:
        await site.ready(name)
    for name in names:  # written after everything else
        await site.events(await site.get(name), settle="EnsuredLoadBalancer")
    await site.mark()
    return list(names)


async def settled(site: ServiceSite) -> None:
    """Wait until node changes have been looked at for every Service.

    A change of hosts that comes behind them shows it.
    """
    (fence,) = await site.add_machines(1)
    await site.add_node(fence)
    await site.when_all_have(set(site.machines))


async def test_services_made_together_cost_what_each_costs_alone(site: ServiceSite) -> None:
    names = await asyncio.gather(*(site.create() for _ in range(SERVICES)))

    for name in names:
        await site.ready(name)

    for name in names:
        await site.events(await site.get(name), settle="EnsuredLoadBalancer")
    assert await site.calls() == dict.fromkeys(
        (
            "resources.list",
            "addresses.create",
            "load_balancers.create",
            "firewalls.create",
            "listeners.create",
            "load_balancers.add_targets",
        ),
        SERVICES,
    )
    assert Counter(one.object_ref.name for one in site.writes()) == dict.fromkeys(names, 2)


async def test_nodes_that_join_within_seconds_cost_few_calls_for_each_load_balancer(
    site: ServiceSite,
) -> None:
    names = await ready_services(site, SERVICES)
    machines = await site.add_machines(JOINING)
    joined = []
    for machine in machines:
        await site.add_node(machine)
        joined.append(time.monotonic())
        await asyncio.sleep(WITHIN / JOINING)

    await site.when_all_have(set(site.machines))

    # On a machine that stumbles they come in several bursts, each of which may cost one update.
    pauses = sum(b - a > QUIET_SECONDS / 4 for a, b in itertools.pairwise(joined))
    bursts = 1 + pauses + int((joined[-1] - joined[0]) / QUIET_LIMIT)
    calls = await site.cloud.admin.calls()
    added = Counter(one.id for one in calls if one.operation == "load_balancers.add_targets")
    assert len(added) == SERVICES
    assert max(added.values()) <= bursts
    assert (await site.calls())["resources.list"] <= bursts * SERVICES
    assert {one.operation for one in calls} == {"resources.list", "load_balancers.add_targets"}
    assert [one for one in site.writes() if one.object_ref.name in names] == []


async def test_noise_of_nodes_costs_nothing(site: ServiceSite) -> None:
    await ready_services(site, 3)
    for beat in range(10):
        for name in ("node-1", "node-2"):
            ready = {
                "type": "Ready",
                "status": str(bool(beat % 2)),
                "lastHeartbeatTime": timestamp(datetime.now(UTC)),
            }
            await site.patch_node(name, {"status": {"conditions": [ready]}}, subresource="status")
            await site.patch_node(
                name,
                {
                    "metadata": {"labels": {"beat": str(beat)}, "annotations": {"beat": str(beat)}},
                    "spec": {"unschedulable": bool(beat % 2)},
                },
            )
        await asyncio.sleep(QUIET_SECONDS / 5)
    await asyncio.sleep(QUIET_SECONDS * 1.5)
    noise = await site.calls()

    await settled(site)

    assert noise == {}
    assert await site.calls() == {"resources.list": 3, "load_balancers.add_targets": 3}
    assert site.writes() == []


async def test_noise_of_nodes_does_not_cut_the_backoff_of_a_service_that_fails(
    site: ServiceSite,
) -> None:
    other = await site.create()
    await site.ready(other)
    await site.cloud.admin.inject(Fault(FaultMode.ERROR, operation="addresses.create", count=0))
    name = await site.create()
    await site.when_said(name, "CloudError")

    for beat in range(3):  # shorter than the first backoff
        await site.patch_node("node-1", {"metadata": {"labels": {"beat": str(beat)}}})
        await asyncio.sleep(QUIET_SECONDS * 1.2)

    calls = await site.cloud.admin.calls()
    tries = [one.time for one in calls if one.operation == "addresses.create" and one.status == 500]
    assert all(again - tries[0] >= BACKOFF.first * (1 - BACKOFF.jitter) for again in tries[1:])


async def test_nodes_that_leave_together_cost_one_call_for_each_load_balancer(
    site: ServiceSite,
) -> None:
    leaving = await site.add_machines(10)
    for machine in leaving:
        await site.add_node(machine)
    await ready_services(site, 3)
    await site.when_all_have(set(site.machines))
    await site.mark()

    site.manager.pause()  # on a machine that stumbles it would see several bursts
    await asyncio.gather(*(site.delete_node(machine.name) for machine in leaving))
    site.manager.resume()
    await site.when_all_have({"node-1", "node-2"})

    assert await site.calls() == {"resources.list": 3, "load_balancers.remove_targets": 3}
    assert site.writes() == []


async def test_a_restart_costs_one_listing_for_all_load_balancers(site: ServiceSite) -> None:
    await ready_services(site, SERVICES)

    await site.restart()
    await settled(site)

    assert await site.calls() == {
        "resources.list": 1 + SERVICES,  # one look, and one for each of the new hosts
        "load_balancers.add_targets": SERVICES,
    }
    assert site.writes() == []
