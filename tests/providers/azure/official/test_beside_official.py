"""What the official manager of Azure makes, this manager makes, but for what is meant.

The official manager's pictures are in `recorded.json`. The differences that are meant are in
`expected.py`, with their rows on the page of differences.
"""

import asyncio
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from ....parity.compare import Meant  # noqa: TID252 - pytest imports tests by path
from ...beside import Recording, reasons_on_page  # noqa: TID252
from ...play import Picture  # noqa: TID252
from .expected import MEANT
from .picture import play, playing
from .record import RECORDED
from .scenarios import SCENARIOS
from .stage import reserve, staged

RECORDING: Final = Recording(RECORDED, SCENARIOS, MEANT)
SETTLED: Final = 1.0
"""Seconds for which a picture must be right: it may be so before the manager has begun."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pictures(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Picture]:
    """Ours, of the nodes and all scenarios."""

    async def played() -> dict[str, Picture]:
        async with staged(control_plane, tmp_path_factory.mktemp("ours")) as stage:
            reserve(stage.azure)
            await stage.initialise()
            turn = playing(stage, RECORDING.judged, SETTLED)
            async with stage.ours() as manager:
                await play(stage, turn, SCENARIOS)
            print(manager.output()[-8000:])
            return turn.pictures

    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(played())


@pytest.mark.parametrize("name", RECORDING.names)
def test_all_is_as_the_official_manager_makes_it_but_for_what_is_meant(
    name: str, pictures: dict[str, Picture]
) -> None:
    assert RECORDING.surprises(name, pictures) == []


def test_every_difference_that_is_meant_occurs(pictures: dict[str, Picture]) -> None:
    assert RECORDING.idle(pictures) == []


def test_every_act_of_every_scenario_is_recorded() -> None:
    assert sorted(RECORDING.acts()) == sorted(RECORDING.official)


@pytest.mark.parametrize("rule", MEANT, ids=lambda rule: f"{rule.why}-{rule.field}")
def test_a_difference_that_is_meant_is_on_the_page(rule: Meant) -> None:
    assert rule.why in reasons_on_page()
