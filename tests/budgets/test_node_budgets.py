"""What a thousand nodes cost: questions to the cloud and writes, counted at both servers."""

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from proreus.providers.simulated.config import Global
from proreus.testing.controlplane import ControlPlane

from ..apiserver.site import (  # noqa: TID252 - pytest imports tests by path
    Site,
    names,
    set_up,
    until,
)

FLEET = 1000
OBJECT_SIZE = 12_000
BEATS = 2
REFRESH_SECONDS = 3
BATCH = Global(endpoint="http://unused", region="unused", token="unused").batch_size
A_PASS = math.ceil(FLEET / BATCH)
"""How many questions it takes to ask about every node once."""


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as site:
        yield site


async def test_a_thousand_nodes_cost_two_patches_each_few_questions_and_heartbeats_nothing(
    site: Site,
) -> None:
    fleet = names("node", FLEET)
    machines = await site.machines(*fleet)
    kubelets = site.kubelets(status_period=0, object_size=OBJECT_SIZE)
    await kubelets.beat()
    await kubelets.beat()
    assert not kubelets.failures
    manager = site.lone_manager()
    async with manager:
        nodes = await site.initialised(*fleet)
        await all_synced(site, FLEET)

        assert len(await site.calls()) == A_PASS
        assert site.patches() == two_each(fleet)
        assert len(site.writes("events")) == FLEET
        assert {node.spec.provider_id for node in nodes.values()} == {
            f"simulated://sim-1/{one.id}" for one in machines
        }

        # Many minutes of heartbeats: each beat is a status and a Lease of every node.
        for _ in range(BEATS):
            await kubelets.beat()
        (new,) = await site.machines("new")
        await site.register_node(new, ready=True)
        await site.initialised("new")
        await all_synced(site, FLEET + 1)
        assert not kubelets.failures

        assert len(await site.calls()) == A_PASS + 1
        assert site.patches() == two_each([*fleet, "new"])
        assert len(site.writes("events")) == FLEET + 1

    await site.cloud.admin.clear_calls()
    writes = len(site.writes())
    started = time.monotonic()
    manager = site.lone_manager(f"--node-status-update-frequency={REFRESH_SECONDS}s")
    async with manager:
        await kubelets.beat()
        await site.further_calls(2 * A_PASS)
    passes = 1 + (time.monotonic() - started) // REFRESH_SECONDS

    assert len(await site.calls()) <= passes * math.ceil((FLEET + 1) / BATCH)
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
