"""The wire of an OpenStack, for each test anew; real services only where they run."""

from collections.abc import AsyncIterator

import pytest

from labs.openstack import running

from .wire import Wire, served

# Their stage, `make test-openstack`, starts the services; no test is skipped for want of them.
collect_ignore_glob = [] if running() else ["test_real*.py"]

# Each client reads such a file, which takes longer than most tests.
_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_NOT_OURS = ("OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "OS_CCM_REGIONAL", *_AUTHORITIES)
"""Variables of the machine that runs the tests, which would change the cloud-config."""


@pytest.fixture
async def wire(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    for name in _NOT_OURS:
        monkeypatch.delenv(name, raising=False)
    async with served() as running:
        yield running
