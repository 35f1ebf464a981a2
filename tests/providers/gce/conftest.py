"""Compute Engine in a thread for the whole session; each test has an empty project."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from proreus.testing.conformance import Rule, interruptions

from .cloud.server import Gce


def tests_of(rules: Iterable[Rule]) -> frozenset[str]:
    return frozenset(f"test_{rule.id.replace('-', '_')}" for rule in rules)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the rules that break every call to the long tests."""
    long = tests_of(interruptions.RULES) | {"test_fingerprint_true"}
    here = Path(__file__).with_name("test_conformance.py")
    for item in items:
        if item.path == here and item.name in long:
            item.add_marker("long")


@pytest.fixture(scope="session")
def gce_server() -> Iterator[Gce]:
    server = Gce()
    yield server
    server.close()


@pytest.fixture
def gce(gce_server: Gce, monkeypatch: pytest.MonkeyPatch) -> Gce:
    """An empty project; the metadata server in the environment is its."""
    gce_server.reset()
    environment(monkeypatch, gce_server)
    return gce_server


def environment(monkeypatch: pytest.MonkeyPatch, server: Gce) -> None:
    """Let the environment be that of a process on a machine of this cloud."""
    monkeypatch.setenv("GCE_METADATA_HOST", server.endpoint.removeprefix("http://"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
