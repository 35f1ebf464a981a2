"""The cloud-config of the provider `photon`: files of both ages, and what is wrong with them."""

from datetime import timedelta
from pathlib import Path

import pytest

from proreus.app import command_line, run
from proreus.app.options import Options
from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.photon import PhotonCloud
from proreus.providers.photon.config import LOGIN_FILE, PhotonConfig

from ...app.test_cli import CLUSTER  # noqa: TID252 - pytest imports tests by path

LATER = """
[Global]
target = https://192.0.2.29:443
project = 2e8c1f0a-0000-4000-8000-000000000000
overrideIP = true
vmID = 7b1e3c55-0000-4000-8000-000000000001
authentication = true
"""
EARLIER = """
[Global]
    target = "http://192.0.2.29:28080"
    ignoreCertificate = true
    tenant = "eng tenant"
    project = "kube"
    overrideIP = false
"""


def parsed(text: str) -> PhotonConfig:
    return read(text, PhotonConfig, source="cloud-config")


def test_the_file_of_later_in_tree_providers_is_read_unmodified() -> None:
    found = parsed(LATER)
    assert found.global_.target == "https://192.0.2.29:443"
    assert found.global_.project == "2e8c1f0a-0000-4000-8000-000000000000"
    assert found.global_.override_ip
    assert found.global_.vm_id.startswith("7b1e")
    assert found.global_.authentication
    assert found.client.login_file == LOGIN_FILE
    assert found.client.timeout == timedelta(seconds=30)


def test_the_file_of_earlier_in_tree_providers_is_read_unmodified() -> None:
    found = parsed(EARLIER)
    assert (found.global_.tenant, found.global_.project) == ("eng tenant", "kube")
    assert not found.global_.override_ip
    assert found.global_.ignore_certificate is True


@pytest.mark.parametrize(
    ("lines", "verifies"),
    [
        ("", False),
        ("ignoreCertificate = false", True),
        ("ignoreCertificate = true", False),
        ("tenant = t", True),
        ("tenant = t\nignoreCertificate = true", False),
        ("[Client]\nca-file = /etc/ca.pem", True),
    ],
)
def test_certificates_are_checked_as_by_the_in_tree_provider_of_that_age(
    lines: str, *, verifies: bool
) -> None:
    """Later ones never checked any; a file that names authorities is ours, and means it."""
    assert parsed(f"[Global]\ntarget = https://h\nproject = p\n{lines}\n").verifies is verifies


def test_everything_that_is_wrong_is_told_at_once_and_names_its_key() -> None:
    text = """
[Global]
target = 192.0.2.29
project = " "
authentication = perhaps
tentant = x
[Client]
timeout = 0s
login-file = ""
"""
    with pytest.raises(ConfigError) as refused:
        parsed(text)
    told = "\n".join(refused.value.problems)
    for part in ("authentication: must be true", "tentant: is unknown", "timeout: must be more",
                 "login-file: is empty"):  # fmt: skip
        assert part in told
    with pytest.raises(ConfigError) as refused:
        parsed('[Global]\ntarget = 192.0.2.29\nproject = " "\n')
    told = "\n".join(refused.value.problems)
    for part in ("target: give a URL", "project: is empty"):
        assert part in told


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("https://h?a=b", "without what begins"),
        ("https://user:planted-secret@h", "login-file"),
        ("ftp://h", "give a URL"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused(target: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        parsed(f'[Global]\ntarget = "{target}"\nproject = p\n')
    assert "planted-secret" not in str(refused.value)


def test_authorities_and_no_checks_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="ignoreCertificate is true"):
        parsed("[Global]\ntarget=https://h\nproject=p\nignoreCertificate\n[Client]\nca-file=/c\n")


def test_without_a_config_the_provider_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="--cloud-config"):
        PhotonCloud(None)


def test_files_that_the_config_names_are_watched() -> None:
    assert PhotonCloud(parsed(LATER)).watched_files == (LOGIN_FILE,)
    named = parsed("[Global]\ntarget=https://h\nproject=p\n[Client]\nca-file=/etc/ca.pem\n")
    assert PhotonCloud(named).watched_files == ("/etc/ca.pem",)


def test_the_name_inside_old_kubernetes_configures_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "cloud-config"
    kubeconfig.write_text(CLUSTER)
    file.write_text(EARLIER)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    args = ["--cloud-provider=photon", f"--cloud-config={file}"]
    options = command_line.parse(Options, args, "ccm", run.DESCRIPTION).options
    provider, _ = run._configured(options)
    assert isinstance(provider, PhotonCloud)
