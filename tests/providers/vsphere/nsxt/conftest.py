"""An emulated NSX manager, and a plain client of it, for each test anew."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .client import Client, connected
from .emulator.server import Emulator, served


@pytest.fixture
async def nsxt(tmp_path: Path) -> AsyncIterator[Emulator]:
    async with served(tmp_path) as running:
        yield running


@pytest.fixture
async def client(nsxt: Emulator) -> AsyncIterator[Client]:
    async with connected(nsxt) as made:
        yield made
