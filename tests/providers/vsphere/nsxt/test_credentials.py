"""Credentials of NSX-T that the emulator has not: a token of VMware Cloud; a Secret that is wrong."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proreus.cloudprovider import CloudError, ConfigError
from proreus.providers.vsphere.nsxt.config import Nsxt
from proreus.providers.vsphere.nsxt.credentials import CloudToken
from proreus.testing.controlplane.certificates import Authority

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from ..site import context  # noqa: TID252
from .emulator.server import Emulator
from .site import started


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """TLS of a server that this process trusts, as it does public ones."""
    authority = Authority()
    certificate, key = authority.serving()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "pair.pem").write_bytes(certificate + key)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(tmp_path / "pair.pem")
    return made


async def test_a_refresh_token_is_exchanged_for_the_one_that_requests_bear(
    tls: ssl.SSLContext,
) -> None:
    asked: list[object] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append((request.path, dict(await request.post())))
        return web.json_response({"access_token": "t1", "expires_in": 1799} if asked[1:] else {})

    async with listening(handle, tls=tls) as url:
        place = f"{url.removeprefix('https://')}/csp/authorize"
        config = Nsxt(host="nsx", vmc_access_token="r/1", vmc_auth_host=place)
        token = CloudToken(config, context(), timeout=10.0)
        with pytest.raises(CloudError, match="no access_token"):
            await token.credential.get()
        assert token.credential.headers(await token.credential.get()) == {"csp-auth-token": "t1"}
        await token.close()
    assert asked == [("/csp/authorize", {"refresh_token": "r/1"})] * 2


async def test_a_secret_that_is_not_mounted_is_told_at_the_start(
    nsxt: Emulator, tmp_path: Path
) -> None:
    secret: dict[str, Any] = {
        "secret_name": "s",
        "secret_namespace": "n",
        "secrets_directory": str(tmp_path),
    }
    with pytest.raises(ConfigError, match="username cannot be read, mount the Secret there"):
        async with started(nsxt, user="", password="", **secret):
            pass
    (tmp_path / "username").write_text("\n")
    with pytest.raises(ConfigError, match="username is empty"):
        async with started(nsxt, user="", password="", **secret):
            pass
