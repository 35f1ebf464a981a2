"""The cloud-config of the provider `cloudstack`: the official file, and what is wrong with it."""

from datetime import timedelta

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.cloudstack import CloudStackCloud
from proreus.providers.cloudstack.config import CloudStackConfig

OFFICIAL = """
[Global]
api-url = "https://cloud.example.org/client/api"
api-key = key
secret-key = secret/+==
project-id = 2e8c1f0a-0000-4000-8000-000000000000
zone = zone-1
region = north
ssl-no-verify = true
"""


def test_the_official_file_is_read_unmodified() -> None:
    found = read(OFFICIAL, CloudStackConfig, source="cloud-config")
    assert found.global_.api_url == "https://cloud.example.org/client/api"
    assert (found.global_.api_key, found.global_.secret_key) == ("key", "secret/+==")
    assert found.global_.project_id == "2e8c1f0a-0000-4000-8000-000000000000"
    assert (found.global_.zone, found.global_.region) == ("zone-1", "north")
    assert found.global_.ssl_no_verify
    assert found.client.timeout == timedelta(seconds=30)
    assert not found.route.vpc_id


def test_everything_that_is_wrong_is_told_at_once_and_names_its_key() -> None:
    text = """
[Global]
api-url = cloud.example.org
api-key =
project-id = shop
[Client]
timeout = 0s
[Route]
vpc-id = mine
"""
    with pytest.raises(ConfigError) as refused:
        read(text, CloudStackConfig, source="cloud-config")
    told = "\n".join(refused.value.problems)
    for part in ("secret-key", "timeout: must be more", "vpc-id: give the id"):
        assert part in told
    with pytest.raises(ConfigError) as refused:
        read(text + "[Global]\nsecret-key = x\n", CloudStackConfig, source="cloud-config")
    told = "\n".join(refused.value.problems)
    for part in ("api-url: give a URL", "api-key: is empty", "project-id: give the id"):
        assert part in told


def test_a_key_that_the_official_manager_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="api-ulr"):
        read(OFFICIAL + "api-ulr = x\n", CloudStackConfig, source="cloud-config")


def test_without_a_config_the_provider_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"\[Global\]"):
        CloudStackCloud(None)


def test_no_secret_is_shown() -> None:
    found = read(OFFICIAL, CloudStackConfig, source="cloud-config")
    assert "secret/+==" not in repr(found)
