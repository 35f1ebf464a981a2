"""A site for each test: the session's API server, emptied, and a cloud of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from .memory_plane import MemoryPlane, memory_plane
from .site import Site, set_up


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as site:
        yield site


@pytest.fixture
async def in_memory(tmp_path: Path) -> AsyncIterator[MemoryPlane]:
    """An API server in memory, of this test alone."""
    async with memory_plane(tmp_path) as plane:
        yield plane


@pytest.fixture(params=["control_plane", "in_memory"])
def api_server(request: pytest.FixtureRequest) -> ControlPlane | MemoryPlane:
    """The real one, then the one in memory: what holds for one must hold for the other."""
    found: ControlPlane | MemoryPlane = request.getfixturevalue(request.param)
    return found
