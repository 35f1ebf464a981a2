"""A simulated cloud in its process; and which rules of conformance are left to the long tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.testing.conformance import interruptions
from proreus.testing.simulated import SimulatedCloudProcess

BREAK_MANY = frozenset({"aws", "cloudstack", "gce", "nsxt"})
"""The folders of clouds of which a load balancer takes so many calls that to break each is long."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the rules that break every call, or change every object, to the long tests of some."""
    ids = (*(rule.id for rule in interruptions.RULES), "fingerprint-true")
    long = {f"test_{id_.replace('-', '_')}" for id_ in ids}
    for item in items:
        is_of = item.path.name == "test_conformance.py" and item.path.parent.name in BREAK_MANY
        if is_of and item.name in long:
            item.add_marker("long")


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[SimulatedCloudProcess]:
    async with SimulatedCloudProcess(tmp_path / "state.db") as process:
        await process.admin.configure(health_interval=0)
        yield process
