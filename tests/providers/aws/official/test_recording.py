"""The recording of the official manager is what it does."""

import asyncio
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ....parity.compare import differences  # noqa: TID252 - pytest imports tests by path
from ...play import Picture  # noqa: TID252
from ..conftest import credentials  # noqa: TID252
from ..strict.process import StrictAWS  # noqa: TID252
from .managers import build, official
from .picture import playing
from .scenarios import SCENARIOS
from .stage import staged
from .test_beside_official import RECORDING, SETTLED

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def seen(
    control_plane: ControlPlane,
    strict_process: StrictAWS,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Picture]:
    directory: Path = tmp_path_factory.mktemp("official")

    def judged(name: str, picture: Picture) -> bool:
        return RECORDING.official[name] == picture

    async def play() -> dict[str, Picture]:
        program = await build(directory)
        async with staged(control_plane, strict_process, directory) as stage:
            async with official(stage, program):
                turn = playing(stage, judged, SETTLED)
                await turn.nodes()
                await turn.all(SCENARIOS)
            print((directory / "official.log").read_text(errors="replace")[-8000:])
            return turn.pictures

    with (
        pytest.MonkeyPatch.context() as patch,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        credentials(patch, strict_process)
        return runner.run(play())


@pytest.mark.parametrize("name", RECORDING.official)
def test_the_official_manager_still_does_what_is_recorded_of_it(
    name: str, seen: dict[str, Picture]
) -> None:
    assert [str(one) for one in differences(name, RECORDING.official[name], seen[name])] == []
