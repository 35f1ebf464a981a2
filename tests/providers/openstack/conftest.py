"""The wire of an OpenStack, for each test anew."""

from collections.abc import AsyncIterator

import pytest

from .wire import Wire, served


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    for name in ("OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "OS_CCM_REGIONAL"):
        monkeypatch.delenv(name, raising=False)
    async with served() as running:
        yield running
