"""What the Go framework makes of event scripts, this manager makes of them, but for what is meant.

The Go framework's final pictures are in `recorded.json`; `test_recording.py` shows that they are
its. The differences that are meant are in `expected.py`, with their rows on the page of
differences.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from .compare import Meant, differences, idle, surprises
from .expected import MEANT
from .picture import Picture
from .record import RECORDED
from .runner import Run, ours
from .scripts.script import Wave
from .scripts.waves import WAVES

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "differences.md"
GO: Final[Mapping[str, Picture]] = json.loads(RECORDED.read_text())
ALL: Final = tuple(one.name for wave in WAVES for one in wave.scripts)


def names(*, quick: bool) -> list[str]:
    return [one.name for wave in WAVES if wave.quick is quick for one in wave.scripts]


def judged(name: str, picture: Picture) -> bool:
    return not surprises(name, GO[name], picture, MEANT)


def played(plane: ControlPlane, directory: Path, *, quick: bool) -> dict[str, Picture]:
    """The final pictures of all scripts that are `quick`, or of the others."""
    waves: list[Wave] = [wave for wave in WAVES if wave.quick is quick]

    async def play() -> dict[str, Picture]:
        async with ours(plane, directory) as (site, routes):
            return await Run(site, routes, judged).play(waves)

    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(play())


@pytest.fixture(scope="module")
def quick(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Picture]:
    return played(control_plane, tmp_path_factory.mktemp("quick"), quick=True)


@pytest.fixture(scope="module")
def slow(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Picture]:
    return played(control_plane, tmp_path_factory.mktemp("slow"), quick=False)


@pytest.mark.long
@pytest.mark.parametrize("name", names(quick=True))
def test_a_script_ends_as_on_go_but_for_what_is_meant(name: str, quick: dict[str, Picture]) -> None:
    assert surprises(name, GO[name], quick[name], MEANT) == []


@pytest.mark.long
@pytest.mark.parametrize("name", names(quick=False))
def test_a_script_of_failures_ends_as_on_go_but_for_what_is_meant(
    name: str, slow: dict[str, Picture]
) -> None:
    assert surprises(name, GO[name], slow[name], MEANT) == []


@pytest.mark.long
def test_every_difference_that_is_meant_occurs(quick: dict[str, Picture]) -> None:
    found = [one for name in quick for one in differences(name, GO[name], quick[name])]
    general = [rule for rule in MEANT if not set(rule.scripts) & set(names(quick=False))]
    assert idle(general, found) == []


def test_there_are_scripts_of_every_kind_and_each_has_its_own_name() -> None:
    assert len(ALL) >= 40
    assert len(set(ALL)) == len(ALL)
    assert set(ALL) == GO.keys()


@pytest.mark.parametrize("rule", MEANT, ids=lambda rule: f"{rule.why}-{rule.field}")
def test_a_difference_that_is_meant_is_on_the_page_and_of_scripts_that_exist(rule: Meant) -> None:
    cells = {line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines()}
    assert rule.why in cells
    assert set(rule.scripts) <= {*ALL, "*"}
