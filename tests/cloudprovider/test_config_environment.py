"""Fields that come from environment variables."""

from collections.abc import Mapping

import pytest

from proreus.cloudprovider.config import ConfigSection, read
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.plugins import InitCloudProvider, RegisterCloudProvider
from proreus.cloudprovider.provider import CloudProvider


class Global(ConfigSection, frozen=True):
    url: str
    secret_key: str = ""
    retries: int = 3
    zones: tuple[str, ...] = ()


class Config(ConfigSection, frozen=True):
    global_: Global
    token: str = ""
    debug: bool = False


VARIABLES = {
    "CLOUD_URL": "global.url",
    "CLOUD_SECRET_KEY": "global.secret_key",
    "CLOUD_RETRIES": "global.retries",
    "CLOUD_ZONES": "global.zones",
    "CLOUD_TOKEN": "token",
    "CLOUD_DEBUG": "debug",
}


def decoded(text: str, environment: Mapping[str, str], source: str = "c.conf") -> Config:
    return read(text, Config, source=source, variables=VARIABLES, environment=environment)


def test_without_a_file_everything_may_come_from_the_environment() -> None:
    config = decoded(
        "",
        {
            "CLOUD_URL": "https://c",
            "CLOUD_RETRIES": "7",
            "CLOUD_TOKEN": "t",
            "CLOUD_DEBUG": "yes",
            "OTHER": "x",
        },
    )
    assert config == Config(Global("https://c", retries=7), token="t", debug=True)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("[Global]\nURL = file\nzones = a\n", "c.conf"),
        ("global: {url: file, zones: [a]}\ntoken: null\n", "c.yaml"),
        ('{"global": {"url": "file", "zones": ["a"]}}', "c.json"),
        ('global.url = "file"\nglobal.zones = ["a"]\n', "c.toml"),
    ],
)
def test_the_file_wins_and_the_environment_fills_what_it_leaves_out(text: str, source: str) -> None:
    environment = {"CLOUD_URL": "env", "CLOUD_ZONES": "b", "CLOUD_TOKEN": "t", "CLOUD_RETRIES": "1"}
    config = decoded(text, environment, source)
    assert config == Config(Global("file", retries=1, zones=("a",)), token="t")


def test_an_empty_variable_does_not_count() -> None:
    assert decoded("[Global]\nurl = x", {"CLOUD_RETRIES": ""}).global_.retries == 3


def test_errors_name_the_variable_and_what_could_have_been_set() -> None:
    with pytest.raises(ConfigError) as caught:
        decoded("[Global]\nzone = a\n", {"CLOUD_RETRIES": "many", "CLOUD_DEBUG": "hunter2"})
    assert caught.value.problems == (
        "$CLOUD_RETRIES: must be a whole number",
        "$CLOUD_DEBUG: must be true or false",
        "c.conf:1: [Global] url: is required; it may also be set as $CLOUD_URL",
        "c.conf:2: [Global] zone: is unknown; did you mean zones?",
    )


def test_without_file_and_environment_the_variables_of_missing_sections_are_named() -> None:
    RegisterCloudProvider(Cloud.name, Cloud)
    with pytest.raises(ConfigError) as caught:
        InitCloudProvider(Cloud.name, "")
    assert caught.value.problems == (
        "without --cloud-config: global.url: is required; it may also be set as $CLOUD_URL",
    )


class Cloud(CloudProvider):
    name = "cloud-of-variables"
    config_type = Config
    config_environment = VARIABLES


def test_a_provider_declares_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_URL", "https://c")
    monkeypatch.setenv("CLOUD_TOKEN", "t")
    RegisterCloudProvider(Cloud.name, Cloud)
    provider = InitCloudProvider(Cloud.name, "")
    assert provider.config == Config(Global("https://c"), token="t")
