"""An emulated cluster of Mesos, for each test anew."""

from collections.abc import AsyncIterator

import pytest

from .emulator import Cluster, served


@pytest.fixture
async def mesos() -> AsyncIterator[Cluster]:
    async with served(3) as running:
        yield running
