"""kill -9 of the manager while a load balancer comes and goes: the story ends the same."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from .story import play_with_a_kill

SEEDS = range(25, 25 + 25)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_manager_killed_while_a_load_balancer_comes_and_goes_loses_nothing(
    control_plane: ControlPlane, usual: Mapping[str, float], tmp_path: Path, seed: int
) -> None:
    await play_with_a_kill(control_plane, tmp_path, usual, seed, phases=("serve", "delete"))
