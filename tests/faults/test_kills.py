"""kill -9 of the manager while nodes and a load balancer come and go: the story ends the same.

The quick test kills in each phase of one story; the long ones once in a story, at any moment.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from .story import after, at_call, stage

SEEDS: Final = {("initialise", "lose"): range(25), ("serve", "delete"): range(25, 50)}


async def test_a_manager_killed_in_each_phase_of_a_story_loses_nothing(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Nodes are half initialised, parts of a load balancer there, a first answer is known."""
    calls = {"initialise": 3, "serve": 2, "lose": 1, "delete": 3}
    async with stage(control_plane, tmp_path) as play:
        await play.tell({phase: at_call(number) for phase, number in calls.items()})


@pytest.mark.long
@pytest.mark.parametrize(
    ("phases", "seed"), [(phases, seed) for phases, seeds in SEEDS.items() for seed in seeds]
)
async def test_a_manager_killed_at_any_moment_of_a_story_loses_nothing(
    control_plane: ControlPlane,
    usual: Mapping[str, float],
    tmp_path: Path,
    phases: tuple[str, str],
    seed: int,
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable, and no secret
    phase, share = chance.choice(phases), chance.random()
    print(f"{phase}: {share}; usual: {usual}")
    async with stage(control_plane, tmp_path) as play:
        await play.tell({phase: after(share * usual[phase])})
