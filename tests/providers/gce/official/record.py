"""Records how the official manager leaves things: `python -m tests.providers.gce.official.record`.

`recorded.json` is what it leaves after each act. To be run again when scenarios change.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from ...beside import record  # noqa: TID252 - pytest imports tests by path
from ...play import Picture, Scenario  # noqa: TID252
from ..cloud.server import Gce  # noqa: TID252
from ..conftest import environment  # noqa: TID252
from .managers import build, official, ours
from .picture import playing
from .scenarios import SCENARIOS
from .stage import staged

RECORDED: Final = Path(__file__).parent / "recorded.json"
QUIET: Final = 3.0
"""Seconds without any change after which a picture is taken to be final."""


async def play(manager: str, scenarios: Sequence[Scenario]) -> Mapping[str, Picture]:
    """The pictures of these scenarios, and of the nodes."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        directory = Path(name)
        gce = Gce()
        plane = ControlPlane(log_dir=directory)
        environment(patch, gce)
        await plane.start()
        try:
            async with staged(plane, gce, directory) as stage:
                turn = playing(stage, lambda *_: True, QUIET)
                program = await build(directory) if manager == "official" else Path()
                async with official(stage, program) if manager == "official" else ours(stage):
                    await turn.nodes()
                    await turn.all(scenarios)
        finally:
            gce.close()
            await plane.stop()
    return turn.pictures


if __name__ == "__main__":
    record(__doc__, RECORDED, SCENARIOS, play)
