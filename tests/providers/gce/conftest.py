"""Compute Engine in a thread for the whole session; each test has an empty project."""

from collections.abc import Iterator

import pytest

from .cloud.server import Gce


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
