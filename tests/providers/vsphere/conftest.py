"""A simulated vCenter for each test anew, and no variables of this machine's user."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .site import Site, site


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("VSPHERE_"):
            monkeypatch.delenv(name)


@pytest.fixture
async def vcenter(tmp_path: Path) -> AsyncIterator[Site]:
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the simulator of vSphere")
    async with site(tmp_path) as running:
        yield running
