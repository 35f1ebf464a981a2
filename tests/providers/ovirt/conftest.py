"""An emulated engine of oVirt, for each test anew, and no variables of this machine's user."""

import os
from collections.abc import AsyncIterator

import pytest

from proreus.providers.ovirt import engine as client

from .emulator.server import Engine, served


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OVIRT_"):
            monkeypatch.delenv(name)
    client.LOGINS._refused.clear()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with served() as running:
        yield running
