"""What many nodes cost: questions to the cloud and writes, counted at both servers."""

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from proreus.providers.simulated.config import Global
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ..apiserver.site import (  # noqa: TID252 - pytest imports tests by path
    Site,
    names,
    set_up,
)

BEATS = 2
REFRESH_SECONDS = 3
BATCH = Global(endpoint="http://unused", region="unused", token="unused").batch_size


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as site:
        yield site


@pytest.mark.parametrize(
    ("count", "batch", "size"),
    [(60, 30, 2_000), pytest.param(1000, BATCH, 12_000, marks=pytest.mark.long)],
)
async def test_many_nodes_cost_two_patches_each_few_questions_and_heartbeats_nothing(
    site: Site, count: int, batch: int, size: int
) -> None:
    fleet = names("node", count)
    a_pass = math.ceil(count / batch)  # the questions that it takes to ask about every node once
    machines = await site.machines(*fleet)
    kubelets = site.kubelets(status_period=0, object_size=size)
    await kubelets.beat()
    await kubelets.beat()
    assert not kubelets.failures
    manager = site.lone_manager(batch_size=batch)
    async with manager:
        nodes = await site.initialised(*fleet)
        await all_synced(site, count)

        assert len(await site.calls()) == a_pass
        assert site.patches() == two_each(fleet)
        assert len(site.writes("events")) == count
        assert {node.spec.provider_id for node in nodes.values()} == {
            f"simulated://sim-1/{one.id}" for one in machines
        }

        # Many minutes of heartbeats: each beat is a status and a Lease of every node.
        for _ in range(BEATS):
            await kubelets.beat()
        (new,) = await site.machines("new")
        await site.register_node(new, ready=True)
        await site.initialised("new")
        await all_synced(site, count + 1)
        assert not kubelets.failures

        assert len(await site.calls()) == a_pass + 1
        assert site.patches() == two_each([*fleet, "new"])
        assert len(site.writes("events")) == count + 1

    await site.cloud.admin.clear_calls()
    writes = len(site.writes())
    started = time.monotonic()
    manager = site.lone_manager(
        f"--node-status-update-frequency={REFRESH_SECONDS}s", batch_size=batch
    )
    async with manager:
        await kubelets.beat()
        await site.further_calls(2 * a_pass)
    passes = 1 + (time.monotonic() - started) // REFRESH_SECONDS

    assert len(await site.calls()) <= passes * math.ceil((count + 1) / batch)
    assert len(site.writes()) == writes


def two_each(fleet: Sequence[str]) -> dict[str, Counter[str]]:
    """The patches that a new node takes, of each node."""
    return {name: Counter({"status": 1, "": 1}) for name in fleet}


async def all_synced(site: Site, count: int) -> None:
    """Wait until so many nodes have had their event, each just once."""

    async def there() -> bool:
        return len(site.writes("events")) >= count

    await until(f"{count} events", there)
    events = await site.events("Synced")
    assert len({event.involved_object["name"] for event in events}) == count
    assert all(event.count == 1 for event in events)
