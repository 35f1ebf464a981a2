"""An emulated Photon Controller, for each test anew."""

from collections.abc import AsyncIterator

import pytest

from proreus.providers.photon.lightwave import LOGINS

from .emulator.server import Emulator, served


@pytest.fixture(autouse=True)
def _no_memory_of_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGINS, "_refused", {})


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with served() as running:
        yield running
