"""AWS behind the strict layer, in one process for the whole session."""

from collections.abc import Iterator

import pytest

from .strict.keys import KEY
from .strict.process import StrictAWS


@pytest.fixture(scope="session")
def strict_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictAWS]:
    process = StrictAWS(tmp_path_factory.mktemp("aws"))
    yield process
    process.close()


@pytest.fixture
def aws(strict_process: StrictAWS, monkeypatch: pytest.MonkeyPatch) -> StrictAWS:
    """An empty AWS; the credentials and the metadata service in the environment are its."""
    strict_process.reset()
    credentials(monkeypatch, strict_process)
    return strict_process


def credentials(monkeypatch: pytest.MonkeyPatch, process: StrictAWS) -> None:
    """Let the environment be that of a process in this AWS."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", process.endpoint)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
