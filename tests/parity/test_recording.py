"""The recording of the Go framework is what it does."""

import asyncio
import shutil
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from .compare import differences
from .picture import Picture
from .runner import Run, go
from .scripts.waves import WAVES
from .test_parity import ALL, GO

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def seen(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Picture]:
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the other manager")
    directory: Path = tmp_path_factory.mktemp("go")

    def judged(name: str, picture: Picture) -> bool:
        return GO[name] == picture

    async def play() -> dict[str, Picture]:
        async with go(control_plane, directory) as (site, routes):
            return await Run(site, routes, judged).play(WAVES)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(play())


@pytest.mark.parametrize("name", ALL)
def test_go_still_does_what_is_recorded_of_it(name: str, seen: dict[str, Picture]) -> None:
    assert [str(one) for one in differences(name, GO[name], seen[name])] == []
