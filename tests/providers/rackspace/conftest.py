"""An emulated Rackspace, for each test anew."""

from collections.abc import AsyncIterator

import pytest

from .emulator.server import Emulator, served


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with served() as running:
        yield running
