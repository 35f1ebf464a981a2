"""What a story without a kill is like here, as the measure for the moments of the kills."""

import asyncio
from collections.abc import Mapping

import pytest

from proreus.testing.controlplane import ControlPlane

from .story import stage


@pytest.fixture(scope="session")
def usual(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, float]:
    """How long each phase of the story takes when nobody is killed; such a story comes first."""

    async def rehearse() -> Mapping[str, float]:
        async with stage(control_plane, tmp_path_factory.mktemp("rehearsal")) as play:
            await play.tell(None, {})
            return play.took

    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(rehearse())
