"""Workload identity federation: a token of another issuer is exchanged for Google's."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.providers.gce import GCECloud
from proreus.providers.gce.federation import Format, Source, subject_token

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.tokens import AUDIENCE
from .site import config_text, context, started
from .test_start import NIL, looks


class Workload:
    """A process outside of Google Cloud, with a token of its own."""

    def __init__(self, gce: Gce, directory: Path) -> None:
        self.token = directory / "token"
        self.token.write_text(f"{gce.tokens.workload}\n")
        self.file = directory / "credentials.json"
        self.account: dict[str, Any] = {
            "type": "external_account",
            "audience": AUDIENCE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{gce.endpoint}/sts",
            "credential_source": {"file": str(self.token)},
        }
        self.write()

    def write(self, **changed: Any) -> None:
        self.account |= changed
        self.file.write_text(json.dumps(self.account))


@pytest.fixture
def workload(gce: Gce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    made = Workload(gce, tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(made.file))
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    return made


async def looked(provider: GCECloud) -> None:
    assert not isinstance(await looks(provider), CloudError)


async def test_the_token_in_a_file_is_exchanged(gce: Gce, workload: Workload) -> None:
    async with started(config_text(gce, NIL)) as provider:
        await looked(provider)
        assert provider.watched_files == (str(workload.file),)
    assert gce.tokens.issued == 1


async def test_a_service_account_is_impersonated_for_as_long_as_the_file_says(
    gce: Gce, workload: Workload
) -> None:
    workload.write(
        service_account_impersonation_url=f"{gce.endpoint}/impersonate",
        service_account_impersonation={"token_lifetime_seconds": 2800},
    )
    async with started(config_text(gce, NIL)) as provider:
        await looked(provider)
    assert gce.tokens.issued == 2


async def test_the_token_is_asked_for_where_a_url_says(gce: Gce, workload: Workload) -> None:
    form = {"type": "json", "subject_token_field_name": "id_token"}
    source = {"url": f"{gce.endpoint}/workload", "headers": {"Metadata": "True"}, "format": form}
    workload.write(credential_source=source)
    async with started(config_text(gce, NIL)) as provider:
        await looked(provider)


async def test_the_url_of_the_token_is_not_told_as_it_may_be_signed(
    gce: Gce, workload: Workload
) -> None:
    form = {"type": "json", "subject_token_field_name": "access_token"}
    url = f"{gce.endpoint}/workload?signature=planted"
    workload.write(credential_source={"url": url, "headers": {"Metadata": "True"}, "format": form})
    with pytest.raises(Unauthenticated, match="credential_source") as caught:
        async with started(config_text(gce, NIL)):
            pass
    assert "planted" not in str(caught.value)


async def test_a_new_token_of_the_workload_is_read_when_google_s_ends(
    gce: Gce, workload: Workload
) -> None:
    clock = Clock()
    async with started(config_text(gce, NIL), context(clock=clock)) as provider:
        gce.tokens.workload = "workload-secret-2"
        workload.token.write_text(gce.tokens.workload)
        clock.ahead = timedelta(hours=2)
        await looked(provider)
        assert gce.tokens.issued == 2


async def test_a_token_that_google_does_not_take_is_told_without_it(
    gce: Gce, workload: Workload
) -> None:
    workload.token.write_text("stolen-secret")
    with pytest.raises(CloudError, match="subject token is not valid") as caught:
        async with started(config_text(gce, NIL)):
            pass
    assert "stolen-secret" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "", b"\xff\xfe"])
async def test_a_token_that_is_not_there_is_told_with_the_file(
    gce: Gce, workload: Workload, content: str | bytes | None
) -> None:
    if content is None:
        workload.token.unlink()
    else:
        workload.token.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Unauthenticated, match=str(workload.token)):
        async with started(config_text(gce, NIL)):
            pass


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({"audience": "", "token_url": "x"}, ("audience: is missing", "token_url: give a URL")),
        ({"credential_source": {"environment_id": "aws1", "url": "http://x"}}, ("AWS",)),
        ({"credential_source": {"executable": {"command": "x"}}}, ("executables",)),
        (
            {"credential_source": {"file": "x", "format": {"type": "json"}}},
            ("subject_token_field_name: is missing",),
        ),
        ({"credential_source": {"file": "x", "format": {"type": "xml"}}}, ("text or json",)),
        ({"credential_source": {"file": 1}}, ("Expected `str`",)),
    ],
)
async def test_a_file_that_cannot_be_used_is_told_with_all_problems(
    gce: Gce, workload: Workload, changed: Mapping[str, Any], problems: tuple[str, ...]
) -> None:
    workload.write(**changed)
    with pytest.raises(ConfigError) as caught:
        async with started(config_text(gce, NIL)):
            pass
    for problem in problems:
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("content", "token"),
    [('{"id_token": "t"}', "t"), ('{"id_token": 1}', ""), ("[]", ""), ("{", "")],
)
def test_a_token_in_a_field(content: str, token: str) -> None:
    assert subject_token(content, Format("json", "id_token")) == token


def test_a_source_does_not_show_its_headers() -> None:
    assert "secret" not in repr(Source(url="http://x", headers={"Authorization": "secret"}))
