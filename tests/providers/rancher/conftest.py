"""An emulated Rancher, for each test anew, of each version of the API."""

from collections.abc import AsyncIterator

import pytest

from .emulator.server import VERSIONS, Emulator, served


@pytest.fixture(params=[VERSIONS, ("v1",)], ids=["v2-beta", "v1"])
def versions(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The versions that a server has: of the two, the newer one is used."""
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
async def emulator(versions: tuple[str, ...]) -> AsyncIterator[Emulator]:
    async with served(Emulator(versions)) as running:
        yield running


@pytest.fixture
async def newest() -> AsyncIterator[Emulator]:
    """An emulator of a server that has both versions."""
    async with served() as running:
        yield running
