"""Rackspace's identity: who asks, the catalog and its regions, tokens that end."""

import json
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import CloudError, ConfigError, Throttled, Unauthenticated
from proreus.cloudprovider.instances import Instance
from proreus.providers.rackspace.config import Global, RackspaceConfig
from proreus.providers.rackspace.identity import (
    SERVICES,
    Answer,
    auth_body,
    endpoint,
    identity_url,
)

from .emulator.server import REGION, Emulator
from .site import cloud, context, describe, node, started


def settings(text: str) -> Global:
    return read(f"[Global]\n{text}\n", RackspaceConfig, source="cloud-config").global_


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", "https://identity.api.rackspacecloud.com/v2.0"),
        ("auth-url = https://lon.identity.example.org/v2.0/", "https://lon.identity.example.org/v2.0"),
        ("auth-url = https://lon.identity.example.org", "https://lon.identity.example.org/v2.0"),
    ],
)  # fmt: skip
def test_the_url_of_identity(given: str, url: str) -> None:
    assert identity_url(settings(f"{given}\nusername = u\napi-key = k")) == url


def test_an_api_key_goes_before_a_password_and_the_tenant_with_both() -> None:
    both = settings("username = u\napi-key = k\npassword = p\ntenant-id = 7\ntenant-name = n")
    assert auth_body(both) == {
        "auth": {
            "RAX-KSKEY:apiKeyCredentials": {"username": "u", "apiKey": "k"},
            "tenantId": "7",
            "tenantName": "n",
        }
    }
    one = settings("username = u\npassword = p")
    assert auth_body(one) == {
        "auth": {"passwordCredentials": {"username": "u", "password": "p"}}
    }  # fmt: skip


def catalog(*entries: dict[str, Any]) -> Answer:
    token = {"id": "planted-token", "expires": "2026-11-23T22:31:51.999-05:00"}
    body = {"access": {"token": token, "serviceCatalog": entries}}
    return msgspec.json.decode(json.dumps(body), type=Answer)


def test_the_service_of_a_type_is_chosen_by_name_and_region() -> None:
    here, there = {"region": "ORD", "publicURL": "https://ord/"}, {"publicURL": "https://all"}
    access = catalog(
        {"type": "compute", "name": "aaa", "endpoints": [{**here, "publicURL": "https://a"}]},
        {"type": "compute", "name": "cloudServers", "endpoints": [there]},
        {"type": "compute", "name": "cloudServersOpenStack", "endpoints": [here]},
        {"type": "volume", "name": "cinder", "endpoints": [here]},
    ).access
    assert endpoint(access, SERVICES["nova"], "ORD") == "https://ord"
    assert endpoint(access, SERVICES["cbs"], "ORD") == "https://ord"
    with pytest.raises(CloudError, match="rax:load-balancer in region ORD"):
        endpoint(access, SERVICES["clb"], "ORD")
    assert "planted-token" not in repr(access)


@pytest.mark.parametrize("region", ["", "XYZ"])
async def test_a_region_that_the_account_lacks_is_refused_with_those_it_has(
    emulator: Emulator, region: str
) -> None:
    provider = cloud(emulator.config(region=region))
    with pytest.raises(ConfigError, match=f"give one of DFW, {REGION}"):
        await provider.start(context())
    await provider.close()


async def test_wrong_credentials_are_told_at_the_start_without_the_key(emulator: Emulator) -> None:
    provider = cloud(emulator.config())
    emulator.key = "another-key"
    with pytest.raises(Unauthenticated, match="api key is invalid") as refused:
        await provider.start(context())
    assert "planted" not in str(refused.value)
    await provider.close()


async def test_a_password_serves_as_well_as_an_api_key(emulator: Emulator) -> None:
    emulator.add_servers(["node-1"])
    text = emulator.config().replace(f"api-key = {emulator.key}", f"password = {emulator.password}")
    provider = cloud(text)
    await provider.start(context())
    assert isinstance((await describe(provider, node("node-1")))["node-1"], Instance)
    await provider.close()


async def test_a_token_that_is_refused_is_replaced_once(emulator: Emulator) -> None:
    emulator.add_servers(["node-1"])
    async with started(emulator) as provider:
        emulator.tokens.clear()
        assert isinstance((await describe(provider, node("node-1")))["node-1"], Instance)
    assert emulator.calls == {"POST tokens": 1, "GET servers/detail": 2}


async def test_something_else_than_identity_is_told_to_be_that(emulator: Emulator) -> None:
    provider = cloud(emulator.config().replace("/identity/v2.0/", "/elsewhere"))
    with pytest.raises(CloudError):
        await provider.start(context())
    await provider.close()


async def test_a_rate_is_throttling_and_a_limit_is_none(emulator: Emulator) -> None:
    emulator.add_servers(["node-1"])
    async with started(emulator) as provider:
        emulator.fail("GET servers/detail", 413)
        answers = provider.instances.describe([node("node-1")])  # type: ignore[union-attr]
        with pytest.raises(CloudError) as refused:
            await answers
    assert not isinstance(refused.value, Throttled)
