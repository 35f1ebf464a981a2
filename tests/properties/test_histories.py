"""Random histories: users, kubelets, machines' owners and faults, in any order, for hours.

The manager is the real one; only its clock is virtual, and its network is in memory. So a history
determines all that happens. On the way no promise is broken, and when the faults have stopped, the
cloud becomes what the API server asks for and then stays so.
"""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from labs.network import run
from proreus.kube.requests import NODES, SERVICES

from .promises import report
from .world import PAUSES, Step, World, world

DEEDS: Final = {
    "create_service": 5,
    "edit_service": 4,
    "delete_service": 3,
    "wipe_status": 1,
    "annotate": 2,
    "let_go": 1,
    "mark_node": 2,
    "delete_node": 1,
    "boot": 4,
    "end_machine": 3,
    "switch_machine": 2,
    "mute": 2,
    "report": 3,
    "steal_part": 2,
    "spoil_cloud": 4,
    "lie": 1,
    "change_weather": 2,
    "spoil_api": 3,
    "break_watch": 2,
    "mend": 3,
    "restart": 2,
}
PATIENCE: Final = 6 * 3600.0
"""Virtual seconds after the faults, in which load balancers are compared five times."""
REST: Final = 2 * 3600.0
SEED: Final = 1
SHORT: Final = 40
AT_ONCE: Final = (
    Step("spoil_cloud", 7, 4, 3),
    Step("restart", 0, 0, 4),
    Step("restart", 0, 0, 4),
    Step("boot", 2, 1, 6),
)
"""What makes the manager write several Nodes at the same time: new ones, and no list of routes."""
ROOT: Final = Path(__file__).parents[2]
KEPT: Final = Path(__file__).with_name("histories.json")
"""Histories that have failed once, made shorter, each under what it showed."""
_HISTORIES: Final = msgspec.json.decode(KEPT.read_bytes(), type=dict[str, list[Step]])


def random_history(seed: int, length: int) -> list[Step]:
    """The history of a seed."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, and no secret
    deeds = chance.choices(list(DEEDS), list(DEEDS.values()), k=length)
    pauses = (8, 4, 6, 8, 6, 4, 1, 0.3)
    return [
        Step(
            deed,
            chance.randrange(60),
            chance.randrange(60),
            chance.choices(range(len(PAUSES)), pauses)[0],
        )
        for deed in deeds
    ]


async def live(history: Sequence[Step], state: Path) -> list[str]:
    async with world(state) as place:
        await place.play(history)
        assert place.promises.broken == []
        unkept = await place.come_to_rest(PATIENCE)
        assert place.promises.broken == []
        assert not unkept, report(unkept)
        await stay(place)
        return await place.trail()


async def stay(place: World) -> None:
    """Nothing is written any more, neither to the API server nor to the cloud."""
    await place.pass_time(1200)

    def all_there_is() -> tuple[object, ...]:
        objects = [
            stored.version
            for resource in (NODES, SERVICES)
            for stored in place.store.first_page(resource, "", lambda _: True, 0).items
        ]
        return objects, list(place.cloud.parts.all())

    before = all_there_is()
    await place.pass_time(REST)
    assert all_there_is() == before
    assert place.promises.broken == []


def lived(history: Sequence[Step]) -> list[str]:
    """The trail of a history, which is determined by its steps."""
    random.seed(0)  # the manager's jitter
    with tempfile.TemporaryDirectory() as directory:
        return run(live(history, Path(directory) / "state.db"))


def digest(trail: Sequence[str]) -> str:
    """Short for a history's end and all that was said on the way: equal where they are equal."""
    return hashlib.sha256("\n".join(trail).encode()).hexdigest()[:16]


STEPS = st.builds(
    Step,
    st.sampled_from(sorted(DEEDS)),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, len(PAUSES) - 2),
)
CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


# The same histories each time: what CI runs has been seen to pass. Few and long ones, since half of
# what a short one costs are the hours in which nothing may happen.
@settings(
    max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=CALM
)
@given(history=st.lists(STEPS, min_size=20, max_size=60))
def test_no_promise_is_broken_and_the_cloud_becomes_what_is_asked_for(
    history: list[Step],
) -> None:
    note(msgspec.json.encode(history).decode())
    lived(history)


def test_a_seed_determines_all_that_happens() -> None:
    """In another process, where text has other hashes, every request and object is the same."""
    code = "from tests.properties.test_histories import main; main()"
    command = [sys.executable, "-c", code]
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": other}
    there = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True)

    here = lived([*AT_ONCE, *random_history(SEED, SHORT)])
    assert there.stdout.decode().splitlines() == here


def main() -> None:
    """Print the trail of the history that is compared."""
    print(*lived([*AT_ONCE, *random_history(SEED, SHORT)]), sep="\n")


@pytest.mark.long
def test_long_histories(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten times a thousand steps, with seeds that are new each time and printed with a digest.

    Give PROREUS_SEED to start with the seed that failed, PROREUS_HISTORIES for more of them,
    PROREUS_STEPS for other lengths. What failed is made shorter and kept in `histories.json`.
    """
    first = int(os.environ.get("PROREUS_SEED") or random.SystemRandom().randrange(1 << 32))
    steps = int(os.environ.get("PROREUS_STEPS", "1000"))
    for seed in range(first, first + int(os.environ.get("PROREUS_HISTORIES", "10"))):
        with capsys.disabled():
            print(f"PROREUS_SEED={seed} PROREUS_STEPS={steps}", end="", flush=True)
        try:
            end = digest(lived(random_history(seed, steps)))
        except AssertionError as exc:
            exc.add_note(f"PROREUS_SEED={seed} PROREUS_STEPS={steps}")  # workers print nothing
            raise
        with capsys.disabled():
            print(f" ends as {end}")


@pytest.mark.parametrize("name", _HISTORIES)
def test_histories_that_failed_once_pass(name: str) -> None:
    lived(_HISTORIES[name])
