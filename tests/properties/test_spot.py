"""Clusters whose machines come and go, and whose cloud answers wrongly for a while.

No living machine's Node is ever deleted, and a dead one's goes within 15 minutes of right answers,
where three Ready nodes of its scope live, unless the cloud had lost it, or another, while it was
Ready. What wrong answers look like: `spot.World`.

`-m long` runs as many clusters as PROREUS_SPOT_SEEDS says, a hundred by default, from the seed
PROREUS_SPOT_FIRST on, by default a new one each time, which is printed.
"""

import os
import random
from typing import Final

import pytest

from proreus.testing.clock import run

from .spot import Kind, World

SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 40, 80, 140)
LARGE: Final = (300, 1000, 5000)


def kind(seed: int) -> Kind:
    """The cluster of a seed; a few are large, and these live for an hour."""
    chance = random.Random(f"kind of {seed}")  # noqa: S311 - repeatable, and no secret
    is_large = seed % 50 == 49
    return Kind(
        size=chance.choice(LARGE if is_large else SIZES),
        losses=chance.choice([0.001, 0.01, 0.05, 0.1, 0.3]),
        scopes=chance.choice([1, 1, 1, 2, 3]),
        tombstones=chance.random() < 0.4,
        batch_size=1000 if is_large else chance.choice([1, 2, 5, 10, 100, 100, 1000]),
        strangers=(strangers := chance.choice([0, 0, 0, 1])),
        faults=chance.choice([0, 1, 3]),
        outages=chance.choice([0, 0, 0.5]),
        silences=chance.choice([0, 0.05, 0.3]),
        restarts=chance.choice([0, 0, 0.5, 2]),
        hours=1 if is_large else chance.choice([0.5, 1, 2]),
        period=chance.choice([5.0, 10.0, 20.0]),
        lapses=0 if strangers else chance.choice([0, 0, 1]),
    )


def live(one: Kind, seed: int) -> World:
    world = World(one, seed)
    run(world.play())
    assert world.broken == [], f"seed {seed}, {one}"
    return world


@pytest.mark.parametrize("seed", range(6))
def test_no_living_machine_loses_its_node_and_no_dead_one_keeps_it(seed: int) -> None:
    small = random.Random(seed).choice([3, 4, 6, 10, 20])  # noqa: S311
    live(
        Kind(
            size=small,
            losses=0.3,
            scopes=1 + seed % 2,
            strangers=seed % 3 // 2,
            faults=3,
            silences=0.5,
            batch_size=(100, 1, 10)[seed % 3],
        ),
        seed,
    )


def test_one_node_of_another_account_holds_nothing_for_long() -> None:
    assert live(Kind(size=8, losses=0.2, strangers=1, hours=2), 1).deleted > 0


def test_a_machine_that_its_cloud_knows_no_more_keeps_its_node() -> None:
    live(Kind(size=8, losses=0.1, lapses=2, silences=2, hours=4), 0)


def test_wrong_credentials_delete_nothing_where_no_node_is_ready() -> None:
    live(Kind(size=2, losses=0.0, silences=2, faults=4, hours=4), 1)


@pytest.mark.parametrize("tombstones", [False, True])
def test_machines_that_go_one_after_another_hold_nothing(*, tombstones: bool) -> None:
    """A third of 140 nodes goes at once, and one more every 30 s."""
    world = World(Kind(size=140, losses=0.85, outages=0.01, tombstones=tombstones), 4)
    run(world.play())
    assert world.broken == []
    assert world.deleted > 60
    assert tombstones or world.most_at_once <= 40


@pytest.mark.parametrize(
    "seed",
    [2811179565, 877, 1013, 296, 396],
    ids=[
        "a few witnesses in small batches",
        "a stranger that comes back while most die",
        "most die where passes are slow",
        "others return, who are asked one by one",
        "others return",
    ],
)
def test_clusters_that_failed_once_pass(seed: int) -> None:
    live(kind(seed), seed)


@pytest.mark.long
def test_many_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    first = int(os.environ.get("PROREUS_SPOT_FIRST") or random.SystemRandom().randrange(1 << 32))
    with capsys.disabled():
        print(f"PROREUS_SPOT_FIRST={first}", flush=True)
    for seed in range(first, first + int(os.environ.get("PROREUS_SPOT_SEEDS", "100"))):
        live(kind(seed), seed)
