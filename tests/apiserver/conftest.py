"""A site for each test: the session's API server, emptied, and a cloud of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from .site import Site, set_up


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as site:
        yield site
