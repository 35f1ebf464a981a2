"""The cloud-config of the provider `rancher`: environment, file, and what is wrong with them."""

from datetime import timedelta

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.providers.rancher import RancherCloud
from proreus.providers.rancher.config import VARIABLES, RancherConfig

from .emulator.server import Emulator
from .site import cloud, context, lb_site, node, started

OFFICIAL = {
    "CATTLE_URL": "http://rancher.example.org:8080/v1",
    "CATTLE_ACCESS_KEY": "0123456789ABCDEF",
    "CATTLE_SECRET_KEY": "secret/+==",
}
FILE = """
[Global]
cattle-url = https://rancher.example.org/v2-beta/projects/1a5
cattle-access-key = key
cattle-secret-key = secret/+==
"""


def config(text: str = "", environment: dict[str, str] | None = None) -> RancherConfig:
    source = "cloud-config" if text else ""
    return read(
        text, RancherConfig, source=source, variables=VARIABLES, environment=environment or {}
    )


def test_the_official_environment_suffices() -> None:
    found = config(environment=OFFICIAL)
    assert found.global_.cattle_url == OFFICIAL["CATTLE_URL"]
    assert found.global_.cattle_access_key == OFFICIAL["CATTLE_ACCESS_KEY"]
    assert found.global_.cattle_secret_key == OFFICIAL["CATTLE_SECRET_KEY"]
    assert found.client.timeout == timedelta(seconds=30)


def test_the_file_that_the_official_code_names_is_read_and_wins() -> None:
    found = config(FILE, OFFICIAL)
    assert found.global_.cattle_access_key == "key"
    assert found.global_.places() == ("https://rancher.example.org", "/projects/1a5")


@pytest.mark.parametrize(
    ("url", "root", "project"),
    [
        ("http://r:8080", "http://r:8080", ""),
        ("http://r:8080/", "http://r:8080", ""),
        ("http://r:8080/v1", "http://r:8080", ""),
        ("http://r:8080/v1/", "http://r:8080", ""),
        ("http://r:8080/v2-beta", "http://r:8080", ""),
        ("http://r:8080/v1/schemas", "http://r:8080", ""),
        ("http://r:8080/v1/projects/1a7", "http://r:8080", "/projects/1a7"),
        ("https://r/v2-beta/projects/1a7/schemas", "https://r", "/projects/1a7"),
        ("https://r/rancher/v1/projects/1a7/", "https://r/rancher", "/projects/1a7"),
        ("https://r/rancher", "https://r/rancher", ""),
    ],
)
def test_the_address_may_name_any_version_and_an_environment(
    url: str, root: str, project: str
) -> None:
    found = config(environment={**OFFICIAL, "CATTLE_URL": url})
    assert found.global_.places() == (root, project)


def test_everything_that_is_wrong_is_told_at_once_and_names_its_key() -> None:
    with pytest.raises(ConfigError) as refused:
        config("[Global]\ncattle-ulr = x\n[Client]\ntimeout = 0s\n")
    told = "\n".join(refused.value.problems)
    for part in ("cattle-ulr", "CATTLE_URL", "cattle-access-key", "timeout: must be more"):
        assert part in told
    wrong = {"CATTLE_URL": "rancher:8080", "CATTLE_ACCESS_KEY": "a:b", "CATTLE_SECRET_KEY": " "}
    with pytest.raises(ConfigError) as refused:
        config(environment=wrong)
    told = "\n".join(refused.value.problems)
    for part in ("cattle-url: give a URL", "access-key: cannot have a colon", "secret-key: is emp"):
        assert part in told


@pytest.mark.parametrize("url", ["http://r:8080/v1?all=1", "http://user:word@r:8080/v1"])
def test_an_address_with_more_in_it_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="cattle-url: give"):
        config(environment={**OFFICIAL, "CATTLE_URL": url})


def test_without_a_config_the_provider_names_the_variables() -> None:
    with pytest.raises(ConfigError, match="CATTLE_ACCESS_KEY"):
        RancherCloud(None)


def test_no_secret_is_shown() -> None:
    assert "secret/+==" not in repr(config(FILE))


async def test_the_newest_version_that_the_server_has_is_used(emulator: Emulator) -> None:
    provider = cloud(emulator.config())
    try:
        await provider.start(context())
    finally:
        await provider.close()
    assert emulator.calls == {"GET schemas": 1}


@pytest.mark.parametrize("elsewhere", ["refused", "page", "moved"])
async def test_a_server_without_the_newer_version_is_asked_for_the_older(
    newest: Emulator, elsewhere: str
) -> None:
    newest.versions, newest.elsewhere = ("v1",), elsewhere
    newest.world.add_hosts(["node-1"])
    async with started(newest) as provider:
        assert provider.instances is not None
        assert await provider.instances.describe([node("node-1")])
    assert newest.calls == {"GET hosts": 1}


async def test_a_proxy_that_hides_the_newer_version_once_does_not_choose_the_older(
    newest: Emulator,
) -> None:
    newest.fail("GET schemas", 404)
    async with lb_site(newest) as site:
        await site.made(site.desired())
        assert site.balancer()["launchConfig"]["ports"] == ["80:80/tcp"]


@pytest.mark.parametrize("elsewhere", ["refused", "page", "moved"])
async def test_a_server_of_another_kind_is_told_from_rancher(
    newest: Emulator, elsewhere: str
) -> None:
    newest.versions, newest.elsewhere = ("v3",), elsewhere
    with pytest.raises(ConfigError, match="is it a Rancher server"):
        async with started(newest):
            pass


async def test_an_environment_that_is_not_there_is_told(newest: Emulator) -> None:
    text = newest.config().replace("/v1", "/v1/projects/1a404")
    provider = cloud(text)
    try:
        with pytest.raises(ConfigError, match="keys those of an environment"):
            await provider.start(context())
    finally:
        await provider.close()


async def test_an_environment_in_the_address_is_used(newest: Emulator) -> None:
    provider = cloud(newest.config().replace("/v1", "/v1/projects/1a5"))
    try:
        await provider.start(context())
    finally:
        await provider.close()


async def test_wrong_keys_are_told_without_the_secret(newest: Emulator) -> None:
    text = newest.config()
    secret, newest.secret = newest.secret, "another"
    provider = cloud(text)
    try:
        with pytest.raises(Unauthenticated) as refused:
            await provider.start(context())
    finally:
        await provider.close()
    assert secret not in str(refused.value)


async def test_a_server_that_fails_is_asked_again_later(newest: Emulator) -> None:
    newest.fail("GET schemas", 500, times=9)
    with pytest.raises(CloudError):
        async with started(newest):
            pass
