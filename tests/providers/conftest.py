"""A simulated cloud in its process, and the provider that speaks to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.testing.simulated import SimulatedCloudProcess


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[SimulatedCloudProcess]:
    async with SimulatedCloudProcess(tmp_path / "state.db") as process:
        await process.admin.configure(health_interval=0)
        yield process
