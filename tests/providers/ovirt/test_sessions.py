"""Single sign-on: tokens are renewed and revoked; wrong passwords are sent once."""

import asyncio
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.instances import Instance
from proreus.providers.ovirt.engine import LOGINS

from ..tls import server_tls  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, Engine, served
from .site import PREFIX, cloud, context, describe, node, one, started


async def test_one_token_serves_for_all_and_is_revoked_in_the_end(engine: Engine) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        for _ in range(3):
            await describe(provider, node("node-1", PREFIX + id_))
        assert len(engine.tokens) == 1
    assert engine.tokens == {}
    assert engine.calls == {"vms.list": 3, "sso.revoke": 1}


async def test_a_session_that_has_ended_is_begun_anew(engine: Engine) -> None:
    (id_,) = engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        engine.end_tokens()
        found = await one(provider, node("node-1", PREFIX + id_))
        assert isinstance(found, Instance)
        assert engine.calls == {"vms.list": 2, "sso.token": 1}


async def test_a_token_that_ends_is_renewed_before(engine: Engine) -> None:
    engine.lifetime = 2.0
    (id_,) = engine.world.add_vms(["node-1"])
    async with started(engine) as provider:
        await asyncio.sleep(1.2)
        await describe(provider, node("node-1", PREFIX + id_))
        await asyncio.sleep(0.2)
        await describe(provider, node("node-1", PREFIX + id_))
    assert engine.calls["sso.token"] == 1
    assert engine.calls["vms.list"] == 2


async def test_a_wrong_password_is_refused_with_the_remedy_sent_once_and_not_shown(
    engine: Engine,
) -> None:
    text = engine.config()
    engine.password = "another"
    for _ in range(7):
        provider = cloud(text)
        with pytest.raises(Unauthenticated, match="check username and password") as refused:
            await provider.start(context())
        await provider.close()
        assert "planted-password" not in str(refused.value)
    assert engine.rejected == 1
    assert engine.calls == {"sso.token": 1}
    # The account is not locked, and another password is sent at once.
    async with started(engine):
        pass


async def test_an_engine_that_does_not_answer_is_no_refused_password(engine: Engine) -> None:
    for status in (503, LOST, 401):
        engine.fail("sso.token", status)
        provider = cloud(engine.config())
        with pytest.raises(CloudError):
            await provider.start(context())
        await provider.close()
    assert not LOGINS._refused
    async with started(engine):
        pass


async def test_what_no_engine_answers_is_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_document", lambda *_: ET.Element("html"))
    provider = cloud(engine.config())
    with pytest.raises(CloudError, match="is uri in the cloud-config right"):
        await provider.start(context())
    await provider.close()


async def test_a_lost_farewell_does_no_harm(engine: Engine) -> None:
    async with started(engine):
        engine.fail("sso.revoke", LOST)


async def test_the_certificate_is_checked_by_the_file_of_authorities(tmp_path: Path) -> None:
    tls, ca = server_tls(tmp_path)
    async with served(tls=tls) as engine:
        (id_,) = engine.world.add_vms(["node-1"])
        for extra in (f"cafile = {ca}", "insecure = true"):
            async with started(engine, extra) as provider:
                found = await one(provider, node("node-1", PREFIX + id_))
            assert isinstance(found, Instance)
        provider = cloud(engine.config())
        with pytest.raises(CloudError, match="certificate"):
            await provider.start(context())
        await provider.close()
