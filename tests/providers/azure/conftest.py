"""An emulator of Azure for each test."""

from collections.abc import AsyncIterator

import pytest

from .emulator.server import Emulator
from .site import emulated


@pytest.fixture
async def azure() -> AsyncIterator[Emulator]:
    async with emulated() as emulator:
        yield emulator
