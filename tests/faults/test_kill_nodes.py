"""kill -9 of the manager while nodes come and go: after a restart the story ends the same."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from .story import play_with_a_kill

SEEDS = range(0 + 25)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_manager_killed_while_nodes_come_and_go_loses_nothing(
    control_plane: ControlPlane, usual: Mapping[str, float], tmp_path: Path, seed: int
) -> None:
    await play_with_a_kill(control_plane, tmp_path, usual, seed, phases=("initialise", "lose"))
