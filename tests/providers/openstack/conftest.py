"""The wire of an OpenStack, for each test anew; real services only where they run."""

from collections.abc import AsyncIterator

import pytest

from labs.openstack import running

from .wire import Wire, served

# Their stage, `make test-openstack`, starts the services; no test is skipped for want of them.
collect_ignore_glob = [] if running() else ["test_real*.py"]


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    for name in ("OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "OS_CCM_REGIONAL"):
        monkeypatch.delenv(name, raising=False)
    async with served() as running:
        yield running
