"""Records how the official manager leaves things: `python -m tests.providers.azure.official.record`.

`recorded.json` is what it leaves after each act. To be run again when scenarios change.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from proreus.testing.controlplane import ControlPlane

from ...beside import record  # noqa: TID252 - pytest imports tests by path
from ...play import Picture, Scenario  # noqa: TID252
from .picture import play, playing
from .scenarios import SCENARIOS
from .stage import build, reserve, staged

RECORDED: Final = Path(__file__).parent / "recorded.json"
QUIET: Final = 4.0
"""Seconds without any change after which a picture is taken to be final."""


async def recorded(manager: str, scenarios: Sequence[Scenario]) -> Mapping[str, Picture]:
    """The pictures of these scenarios, and of the nodes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        plane = ControlPlane(log_dir=directory)
        await plane.start()
        try:
            async with staged(plane, directory) as stage:
                reserve(stage.azure)
                turn = playing(stage, lambda *_: True, QUIET)
                await stage.initialise()
                program = await build(directory) if manager == "official" else Path()
                async with stage.official(program) if program.name else stage.ours():
                    await play(stage, turn, scenarios)
        finally:
            await plane.stop()
    return turn.pictures


if __name__ == "__main__":
    record(__doc__, RECORDED, SCENARIOS, recorded)
