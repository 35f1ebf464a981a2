"""Which authorities count."""

import ssl
from pathlib import Path

import pytest

from proreus.cloudprovider import authorities


def test_they_are_of_a_file_of_the_system_or_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    found = authorities.system_authorities()
    assert found in {"", *authorities.FILES}
    if found:
        assert ssl.create_default_context(cafile=found).get_ca_certs()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    assert authorities.system_authorities() == str(tmp_path / "own.pem")
