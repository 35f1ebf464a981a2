"""What a story without a fault is like here, and the tally of what was tried."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from proreus.testing.controlplane import ControlPlane

from .boundaries import rehearse
from .relay import Call
from .story import stage
from .table import Tally

T = TypeVar("T")


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Takes down what the test tries, for the table at the end."""
    return Tally(record_property)


@pytest.fixture(scope="session")
def rehearsed(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Sequence[Call]:
    """The calls of a life in which nothing is spoilt: the boundaries, in their order."""
    return _run(rehearse(control_plane, tmp_path_factory.mktemp("rehearsed")))


@pytest.fixture(scope="session")
def usual(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, float]:
    """How long each phase of the story takes when nobody is killed; such a story comes first."""

    async def play() -> Mapping[str, float]:
        async with stage(control_plane, tmp_path_factory.mktemp("rehearsal")) as play:
            await play.tell({})
            return play.took

    return _run(play())


def _run(work: Coroutine[Any, Any, T]) -> T:
    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)
