"""Pictures of how the official manager of a cloud leaves things, and what this one's lack."""

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..parity.compare import (  # noqa: TID252 - pytest imports tests by path
    Meant,
    differences,
    idle,
    surprises,
)
from .play import END, NODES, Picture, Scenario

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "differences.md"


class Recording:
    """The official manager's pictures, and the differences from them that are meant."""

    def __init__(
        self, file: Path, scenarios: Sequence[Scenario], meant: Sequence[Meant] = ()
    ) -> None:
        self.official: Mapping[str, Picture] = json.loads(file.read_text())
        self.scenarios = scenarios
        self.meant = meant

    @property
    def names(self) -> list[str]:
        """The nodes, and all scenarios."""
        return [NODES, *(scenario.name for scenario in self.scenarios)]

    def judged(self, name: str, picture: Picture) -> bool:
        """Whether a picture is as it is meant to be."""
        return not surprises(name, self.official[name], picture, self.meant)

    def surprises(self, scenario: str, pictures: Mapping[str, Picture]) -> list[str]:
        """What is not as it is meant to be in any act."""
        acts = [
            name for name in self.official if name.startswith(f"{scenario}: ") or name == scenario
        ]
        assert acts
        return [
            surprise
            for name in acts
            for surprise in surprises(name, self.official[name], pictures[name], self.meant)
        ]

    def idle(self, pictures: Mapping[str, Picture]) -> list[Meant]:
        """The differences that are meant and do not occur."""
        seen = [
            difference
            for name, picture in pictures.items()
            for difference in differences(name, self.official[name], picture)
        ]
        return idle(self.meant, seen)

    def acts(self) -> Iterator[str]:
        """The names that all pictures should have."""
        yield NODES
        for scenario in self.scenarios:
            yield from (f"{scenario.name}: {act.name}" for act in scenario.acts)
            yield f"{scenario.name}: {END}"


def reasons_on_page() -> set[str]:
    """The first cells of the tables of differences."""
    return {line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines()}


def record(
    doc: str | None,
    recorded: Path,
    scenarios: Sequence[Scenario],
    play: Callable[[str, Sequence[Scenario]], Coroutine[Any, Any, Mapping[str, Picture]]],
) -> None:
    """Read the command line, play scenarios on a manager, and write down the pictures."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--manager", choices=("official", "ours"), default="official")
    parser.add_argument("--file", type=Path, default=recorded)
    parser.add_argument("scenarios", nargs="*", help="only these")
    given = parser.parse_args()
    names: list[str] = given.scenarios
    chosen = [scenario for scenario in scenarios if not names or scenario.name in names]
    pictures = asyncio.run(play(given.manager, chosen))
    before = json.loads(given.file.read_text()) if names and given.file.exists() else {}
    given.file.write_text(json.dumps({**before, **pictures}, indent=1, sort_keys=True) + "\n")
