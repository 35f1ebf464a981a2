"""What the official manager of GCE makes, this manager makes, but for what is meant.

The official manager's pictures are in `recorded.json`. The differences that are meant are in
`expected.py`, with their rows on the page of differences.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from ....parity.compare import (  # noqa: TID252 - pytest imports tests by path
    Meant,
    differences,
    idle,
    surprises,
)
from ..cloud.server import Gce  # noqa: TID252
from ..conftest import environment  # noqa: TID252
from .expected import MEANT
from .managers import ours
from .picture import Picture
from .play import NODES, Play
from .record import RECORDED
from .scenarios import SCENARIOS
from .stage import staged

PAGE: Final = Path(__file__).parents[4] / "docs" / "explanation" / "differences.md"
OFFICIAL: Final[Mapping[str, Picture]] = json.loads(RECORDED.read_text())
SETTLED: Final = 1.0
"""Seconds for which a picture must be right: it may be so before the manager has begun."""

pytestmark = pytest.mark.long


def judged(name: str, picture: Picture) -> bool:
    return not surprises(name, OFFICIAL[name], picture, MEANT)


@pytest.fixture(scope="module")
def pictures(
    control_plane: ControlPlane, gce_server: Gce, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Picture]:
    """Ours, of the nodes and all scenarios."""

    async def play() -> dict[str, Picture]:
        directory = tmp_path_factory.mktemp("ours")
        async with staged(control_plane, gce_server, directory) as stage:
            manager = ours(stage)
            async with manager:
                turn = Play(stage, judged, SETTLED)
                await turn.nodes()
                await turn.all(SCENARIOS)
            print(manager.output()[-8000:])
            return turn.pictures

    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with (
        pytest.MonkeyPatch.context() as patch,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        gce_server.reset()
        environment(patch, gce_server)
        return runner.run(play())


def found(scenario: str, pictures: Mapping[str, Picture]) -> list[str]:
    """What is not as it is meant to be in any act."""
    acts = [name for name in OFFICIAL if name.startswith(f"{scenario}: ") or name == scenario]
    assert acts
    return [one for name in acts for one in surprises(name, OFFICIAL[name], pictures[name], MEANT)]


@pytest.mark.parametrize("name", [NODES, *(one.name for one in SCENARIOS)])
def test_all_is_as_the_official_manager_makes_it_but_for_what_is_meant(
    name: str, pictures: dict[str, Picture]
) -> None:
    assert found(name, pictures) == []


def test_every_difference_that_is_meant_occurs(pictures: dict[str, Picture]) -> None:
    seen = [
        one
        for name, picture in pictures.items()
        for one in differences(name, OFFICIAL[name], picture)
    ]
    assert idle(MEANT, seen) == []


def acts() -> Iterator[str]:
    """The names of all pictures."""
    yield NODES
    for one in SCENARIOS:
        yield from (f"{one.name}: {act.name}" for act in one.acts)
        yield f"{one.name}: deleted"


def test_every_act_of_every_scenario_is_recorded() -> None:
    assert sorted(acts()) == sorted(OFFICIAL)


@pytest.mark.parametrize("rule", MEANT, ids=lambda rule: f"{rule.why}-{rule.field}")
def test_a_difference_that_is_meant_is_on_the_page(rule: Meant) -> None:
    cells = {line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines()}
    assert rule.why in cells
