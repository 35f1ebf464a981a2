"""Plays the scripts on a manager and writes down its pictures: `python -m tests.parity.record`.

`recorded.json` is how the Go framework leaves the scripts. To be run again when scripts change.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Final

from proreus.testing.controlplane import ControlPlane

from .runner import Run, go, ours
from .scripts.waves import WAVES

RECORDED: Final = Path(__file__).parent / "recorded.json"
QUIET: Final = 10.0
"""Seconds without any change after which a picture is taken to be final."""


async def record(manager: str, file: Path, names: list[str]) -> None:
    """Play the waves with these scripts, or all."""
    waves = [wave for wave in WAVES if not names or {one.name for one in wave.scripts} & {*names}]
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane(log_dir=Path(directory))
        await plane.start()
        try:
            async with (go if manager == "go" else ours)(plane, Path(directory)) as (site, routes):
                pictures = await Run(site, routes, lambda *_: True, QUIET).play(waves)
        finally:
            await plane.stop()
    before = json.loads(file.read_text()) if names and file.exists() else {}
    file.write_text(json.dumps({**before, **pictures}, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manager", choices=("go", "ours"), default="go")
    parser.add_argument("--file", type=Path, default=RECORDED)
    parser.add_argument("scripts", nargs="*", help="only the waves of these")
    asked = parser.parse_args()
    asyncio.run(record(asked.manager, asked.file, asked.scripts))


if __name__ == "__main__":
    main()
