"""What a start imports: nothing heavy that the flags do not need. Real processes, as users run them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import startup

PROVIDERS = {"botocore", "kazoo", "keystoneauth1", "openstack", "pyroute2"}
SERVERS = {"aiohttp.web", "cryptography"}
Start = Callable[[str], set[str]]
CLIENT = {"aiohttp", "asyncio", "msgspec", "prometheus_client", "yaml"}


def imported(importtime: str) -> set[str]:
    """The modules that Python says it has imported."""
    lines = importtime.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a manager, and says what it has imported at its first request."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")

    def start(title: str) -> set[str]:
        startup.start(startup.variants(tmp_path)[title], tmp_path)
        return imported((tmp_path / "manager.log").read_text())

    return start


def test_a_manager_that_serves_nothing_has_no_servers_and_no_other_provider(manager: Start) -> None:
    found = manager("simulated")
    assert found >= {*CLIENT, "proreus.providers.simulated.api"}
    assert not found & (PROVIDERS | SERVERS)
    assert not {name for name in found if name.startswith("proreus.testing")}


def test_a_manager_with_a_secure_port_has_servers(manager: Start) -> None:
    found = manager("simulated, secure port")
    assert found >= SERVERS
    assert not found & PROVIDERS


def test_openstack_without_clouds_yaml_has_only_the_library_of_tokens(manager: Start) -> None:
    found = manager("openstack")
    assert found >= {"keystoneauth1"}
    assert not found & (PROVIDERS - {"keystoneauth1"})


def test_help_imports_no_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "proreus", "--help"]
    found = imported(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
    assert "proreus.app.cli" in found
    assert not found & (PROVIDERS | SERVERS | CLIENT)
