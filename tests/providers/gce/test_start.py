"""The start: credentials, what the metadata server tells, and what is wrong."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.providers.gce import GCECloud

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import NUMBER, PROJECT, ZONES
from .site import config_text, context, node_of, started

NIL = 'token-url = nil\nlocal-zone = us-central1-a\nproject-id = "proreus-test"\nnetwork-name = default'


@pytest.fixture
def key(gce: Gce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = gce.write_key(tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    return file


async def looks(provider: GCECloud, name: str = "n1") -> object:
    assert provider.instances is not None
    return (await provider.instances.describe([node_of(name)]))[name]


async def test_without_a_config_the_metadata_server_tells_everything(gce: Gce) -> None:
    async with started(f"[global]\napi-endpoint = {gce.api}") as provider:
        await looks(provider)
    assert gce.tokens.issued == 1
    assert gce.calls == ["compute.instances.get"]


async def test_a_key_file_needs_no_metadata_server(
    gce: Gce, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    async with started(config_text(gce, NIL)) as provider:
        await looks(provider)
        assert provider.watched_files == (str(key),)
    assert gce.tokens.issued == 1


async def test_a_token_url_is_asked_with_a_token_of_the_metadata_server(gce: Gce) -> None:
    extra = f"token-url = {gce.endpoint}/alternative\ntoken-body = secret-body"
    async with started(config_text(gce, extra)) as provider:
        await looks(provider)
    assert gce.tokens.issued == 2


async def test_a_token_is_renewed_before_it_ends(gce: Gce) -> None:
    clock = Clock()
    async with started(config_text(gce), context(clock=clock)) as provider:
        await looks(provider)
        clock.ahead = timedelta(hours=2)
        await looks(provider)
        assert gce.tokens.issued == 2


async def test_a_token_that_counts_no_more_is_replaced(gce: Gce) -> None:
    async with started(config_text(gce)) as provider:
        gce.tokens.revoke()
        await looks(provider)
        assert gce.tokens.issued == 2


async def test_a_project_by_its_number_is_known_by_its_name(gce: Gce) -> None:
    gce.run("n1")
    async with started(config_text(gce, f"project-id = {NUMBER}")) as provider:
        found = await looks(provider)
        assert getattr(found, "provider_id", found) == f"gce://{PROJECT}/{ZONES[0]}/n1"


async def test_a_metadata_server_that_does_not_answer_is_named_with_the_remedy(
    gce: Gce, monkeypatch: pytest.MonkeyPatch, key: Path
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    with pytest.raises(CloudError, match="give project-id, local-zone and network-name"):
        async with started(config_text(gce, "token-url = nil")):
            pass


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a file of Google's credentials"),
        ('{"type": "gdch_service_account"}', "credentials of the type 'gdch_service_account'"),
        (
            '{"type": "service_account", "client_email": "a@b", "private_key": "x"}',
            "private_key cannot be read",
        ),
    ],
)
async def test_a_key_file_that_cannot_be_used(gce: Gce, key: Path, text: str, problem: str) -> None:
    key.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        async with started(config_text(gce, NIL)):
            pass


async def test_a_key_file_that_is_not_there(gce: Gce, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(ConfigError, match=r"GOOGLE_APPLICATION_CREDENTIALS: /nowhere/key\.json"):
        async with started(config_text(gce, NIL)):
            pass


async def test_a_user_s_token_serves_as_well(gce: Gce, key: Path) -> None:
    key.write_text(
        '{"type": "authorized_user", "refresh_token": "r-secret", "client_id": "c",'
        f'"client_secret": "s-secret", "token_uri": "{gce.endpoint}/token"}}'
    )
    # The emulator knows service accounts only; what counts is what was asked, and the error.
    with pytest.raises(CloudError, match="unsupported_grant_type") as caught:
        async with started(config_text(gce, NIL)):
            pass
    assert "secret" not in str(caught.value)


async def test_no_secret_is_logged_or_told(
    gce: Gce, key: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with started(config_text(gce, NIL)) as provider:
        gce.granted = frozenset()
        refused = await looks(provider)
    assert isinstance(refused, Unauthenticated)
    assert "Required 'compute.instances.get'" in str(refused)
    told = caplog.text + repr(refused)
    assert "ya29" not in told
    assert "PRIVATE" not in told
