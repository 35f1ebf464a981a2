"""Records how the official manager leaves things: `python -m tests.providers.gce.official.record`.

`recorded.json` is what it leaves after each act. To be run again when scenarios change.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from ..cloud.server import Gce  # noqa: TID252 - pytest imports tests by path
from ..conftest import environment  # noqa: TID252
from .managers import build, official, ours
from .play import Play
from .scenarios import SCENARIOS
from .stage import staged

RECORDED: Final = Path(__file__).parent / "recorded.json"
QUIET: Final = 3.0
"""Seconds without any change after which a picture is taken to be final."""


async def record(manager: str, file: Path, names: list[str]) -> None:
    """Play these scenarios, or all."""
    scenarios = [one for one in SCENARIOS if not names or one.name in names]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        directory = Path(name)
        gce = Gce()
        plane = ControlPlane(log_dir=directory)
        environment(patch, gce)
        await plane.start()
        try:
            async with staged(plane, gce, directory) as stage:
                play = Play(stage, lambda *_: True, QUIET)
                program = await build(directory) if manager == "official" else Path()
                async with official(stage, program) if manager == "official" else ours(stage):
                    await play.nodes()
                    await play.all(scenarios)
        finally:
            gce.close()
            await plane.stop()
    before = json.loads(file.read_text()) if names and file.exists() else {}
    file.write_text(json.dumps({**before, **play.pictures}, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manager", choices=("official", "ours"), default="official")
    parser.add_argument("--file", type=Path, default=RECORDED)
    parser.add_argument("scenarios", nargs="*", help="only these")
    asked = parser.parse_args()
    asyncio.run(record(asked.manager, asked.file, asked.scenarios))


if __name__ == "__main__":
    main()
