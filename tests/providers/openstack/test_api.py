"""Calls: tokens, errors, secrets, and one request for each."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proreus.cloudprovider.calls import Outcome
from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.refused import Refused
from proreus.providers.openstack import OpenStackCloud
from proreus.serving.selfsigned import self_signed

from .wire import Wire, cloud, context, error_of, of, said, served, started

SECRETS = ("planted", "token-1")


async def describe_one(provider: Any, wire: Wire) -> Any:
    id_ = next(iter(wire.servers), "") or wire.add(1)
    return (await provider.instances.describe(of([id_])))["n0"]


async def test_a_token_that_is_revoked_is_replaced_and_the_call_made_again(wire: Wire) -> None:
    made = context()
    async with started(wire.config(), made) as provider:
        wire.good_tokens = {"token-2"}
        found = await describe_one(provider, wire)
    assert found.name == "node-1"
    assert (wire.asked["token_create"], wire.asked["server_get"]) == (2, 2)
    assert len(made.calls) == wire.asked.total()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_authorities_of_the_machine_are_trusted(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    made = self_signed(["openstack.example"])
    certificate, key = tmp_path / "own.crt", tmp_path / "own.key"
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with served(tls=tls) as wire:
        with pytest.raises(CloudError, match="the certificate is not trusted"):
            async with started(wire.config()):
                pass
        monkeypatch.setenv(variable, str(certificate))
        async with started(wire.config()) as provider:
            await describe_one(provider, wire)


async def test_the_user_agent_has_what_the_flag_adds_the_last_first(wire: Wire) -> None:
    given = {"user-agent": ("cluster/abc-123", "team b")}
    async with started(wire.config(), context(flags=given)) as provider:
        await describe_one(provider, wire)
    assert (wire.asked["token_create"], wire.asked["server_get"]) == (1, 1)
    (said,) = wire.user_agents
    assert said.startswith("team b cluster/abc-123 proreus kubernetes-cloud-controller-manager")


@pytest.mark.parametrize("text", ["", " ", "a\r\nX-Auth-Token: b", "ü"])
def test_a_user_agent_that_no_header_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        OpenStackCloud.flags["user-agent"].parse(text)


async def test_connections_of_many_calls_at_once_are_kept(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(wire.config()) as provider:
        api = provider._api
        assert api is not None
        id_ = wire.add(1)
        path = f"servers/{id_}"
        for _ in range(3):
            await asyncio.gather(
                *(api.get("nova", "server_get", path, "server") for _ in range(30))
            )
    assert [one for one in caplog.records if one.name.startswith("urllib3")] == []


async def test_a_token_that_is_never_good_is_not_tried_for_ever(wire: Wire) -> None:
    async with started(wire.config()) as provider:
        wire.good_tokens = set()
        found = await describe_one(provider, wire)
    assert isinstance(found, Unauthenticated)
    assert wire.asked["server_get"] == 2


async def test_wrong_credentials_are_reported_at_the_start_without_secrets(wire: Wire) -> None:
    wire.fail(
        "token_create",
        said(401, {"error": {"code": 401, "title": "Unauthorized", "message": "wrong"}}),
    )
    provider = cloud(wire.config())
    with pytest.raises(Unauthenticated, match="wrong") as refused:
        await provider.start(context())
    await provider.close()
    assert not any(secret in str(refused.value) for secret in SECRETS)


async def test_a_read_that_is_throttled_is_made_again_after_the_time_that_was_asked_for(
    wire: Wire,
) -> None:
    wire.fail(
        "server_get", said(429, {"overLimit": {"code": 429, "message": "slow"}}, Retry_After="1")
    )
    made = context()
    async with started(wire.config(), made) as provider:
        found = await describe_one(provider, wire)
    assert found.name == "node-1"
    assert [one.outcome for one in made.calls if one.operation == "server_get"] == [
        Outcome.THROTTLED,
        Outcome.OK,
    ]


async def test_a_service_that_is_not_in_the_catalog_of_the_region_is_named(wire: Wire) -> None:
    text = wire.config().replace("RegionOne", "RegionNine")
    async with started(text) as provider:
        found = await describe_one(provider, wire)
    assert isinstance(found, CloudError)
    assert "RegionNine" in str(found)
    assert "compute" in str(found)


async def test_nobody_at_the_other_end_is_a_cloud_error(wire: Wire) -> None:
    provider = cloud(wire.config().replace(wire.url, "http://127.0.0.1:9"))
    with pytest.raises(CloudError, match="no answer"):
        await provider.start(context())
    await provider.close()


async def test_a_server_that_does_not_answer_in_time_is_an_unknown_outcome(wire: Wire) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    text = wire.config(sections="[Client]\ntimeout = 500ms\n").replace(wire.url, address)
    provider = cloud(text)
    try:
        with pytest.raises(CallTimeout):
            await provider.start(context())
    finally:
        await provider.close()
        server.close()


async def test_an_answer_that_is_no_json_is_a_cloud_error(wire: Wire) -> None:
    wire.fail("server_get", web.Response(text="hello"))
    async with started(wire.config()) as provider:
        assert "not JSON" in str(await describe_one(provider, wire))


def password(**more: Any) -> Any:
    user = {"name": "ccm", "password": "planted-secret", "domain": {"name": "Default"}}
    return {"methods": ["password"], "password": {"user": user}, **more}


DEMO = {"project": {"name": "demo", "domain": {"name": "Default"}}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("", {"identity": password(), "scope": DEMO}),
        (
            "trust-id = t\ntrustee-id = u\ntrustee-password = planted-two\n",
            {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"id": "u", "password": "planted-two"}},
                },
                "scope": {"OS-TRUST:trust": {"id": "t"}},
            },
        ),
        (
            "application-credential-id = i\napplication-credential-secret = planted-three\n",
            {
                "identity": {
                    "methods": ["application_credential"],
                    "application_credential": {"id": "i", "secret": "planted-three"},
                }
            },
        ),
        (
            "token = planted-four\n",
            {"identity": {"methods": ["token"], "token": {"id": "planted-four"}}, "scope": DEMO},
        ),
    ],
)
async def test_keystone_gets_the_request_for_each_sort_of_credentials(
    wire: Wire, given: str, sent: Any
) -> None:
    async with started(wire.config(given)):
        pass
    (login,) = wire.logins
    assert login["identity"]["methods"] == sent["identity"]["methods"]
    (method,) = login["identity"]["methods"]
    told, meant = login["identity"][method], sent["identity"][method]
    if method == "application_credential":
        assert {key: told[key] for key in meant} == meant
    elif "user" in meant:
        assert {key: told["user"][key] for key in meant["user"]} == meant["user"]
    else:
        assert told == meant
    assert login.get("scope") == sent.get("scope")


async def test_clouds_yaml_fills_up_what_the_cloud_config_leaves_out(
    wire: Wire, tmp_path: Path
) -> None:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(
        f"clouds: {{one: {{region_name: RegionOne, auth: {{auth_url: '{wire.url}/identity',"
        " username: other, password: planted-file, user_domain_name: Default,"
        " project_domain_name: Default, project_name: demo}}}"
    )
    text = f"[Global]\nuse-clouds = true\nclouds-file = {clouds}\ncloud = one\nusername = ccm\n"
    async with started(text) as provider:
        assert (await describe_one(provider, wire)).region == "RegionOne"
    user = wire.logins[0]["identity"]["password"]["user"]
    assert (user["name"], user["password"]) == ("ccm", "planted-file")


async def test_a_cloud_that_is_not_in_clouds_yaml_is_named(tmp_path: Path) -> None:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds: {one: {auth: {}}}")
    text = f"[Global]\nuse-clouds\nclouds-file = {clouds}\ncloud = two\n"
    with pytest.raises(ConfigError, match=r"'two' is not in clouds\.yaml, which has one"):
        await cloud(text).start(context())


async def test_a_clouds_yaml_without_credentials_is_reported(tmp_path: Path) -> None:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds: {one: {auth: {}}}")
    text = f"[Global]\nuse-clouds\nclouds-file = {clouds}\ncloud = one\n"
    with pytest.raises(ConfigError) as refused:
        await cloud(text).start(context())
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (404, '{"itemNotFound": {"code": 404, "message": "gone"}}', Refused, "itemNotFound: gone"),
        (409, '{"NeutronError": {"type": "InUse", "message": "used"}}', Refused, "InUse: used"),
        (409, '{"faultcode": "Client", "faultstring": "immutable"}', Refused, "immutable"),
        (403, '{"forbidden": {"code": 403, "message": "no right"}}', Unauthenticated, "no right"),
        (403, '{"forbidden": {"code": 403, "message": "Quota exceeded"}}', Refused, "Quota"),
        (413, '{"overLimit": {"code": 413, "message": "slow"}}', Throttled, "slow"),
        (429, "", Throttled, "no reason"),
        (502, "<html>proxy</html>", Refused, "no reason"),
        (500, "[]", Refused, "500: []"),
    ],
)
def test_each_services_errors_are_read(status: int, body: str, kind: type, told: str) -> None:
    found = error_of(status, body)
    assert type(found) is kind
    assert told in str(found)
