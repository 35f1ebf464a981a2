"""How Photon Controller is reached: ages, projects by name, tokens of Lightwave, certificates."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.cloudprovider.instances import Instance, NotFound
from proreus.providers.photon.lightwave import LOGINS

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, Age, Emulator, served, write_login
from .emulator.world import World
from .site import addresses, config, describe, node, one, started


@pytest.fixture
async def guarded() -> AsyncIterator[Emulator]:
    """A Photon Controller that wants tokens, over TLS."""
    emulator = Emulator(authentication=True)
    emulator.tls = True
    async with served(emulator) as running:
        yield running


def text(emulator: Emulator, directory: Path, **keys: object) -> str:
    """A cloud-config with a login file and checked certificates."""
    authority = directory / "ca.pem"
    authority.write_bytes(emulator.authority.certificate)
    login = write_login(emulator, directory / "login")
    client = f"login-file = {login}\nca-file = {authority}\n"
    return config(emulator, client, authentication="true", **keys)


async def refusal(emulator: Emulator, text: str) -> str:
    """Why a provider does not start."""
    with pytest.raises(CloudError) as refused:
        async with started(emulator, text):
            pass
    return str(refused.value)


# Projects


@pytest.mark.parametrize("age", [Age.SYSTEM, Age.SUBNETS])
async def test_tenants_and_projects_are_found_by_name_or_id_in_pages(age: Age) -> None:
    async with served(Emulator(age)) as emulator:
        world, emulator.page = emulator.world, 2
        for number in range(3):
            tenant = world.add_tenant(f"tenant-{number}")
            world.add_project(f"project-{number}", tenant)
        wanted = world.add_project("kubernetes", tenant)
        world.add_vm("node-1", project=wanted)
        for keys in (
            {"project": wanted},
            {"tenant": "tenant-2", "project": "kubernetes"},
            {"tenant": tenant, "project": "kubernetes"},
            {"tenant": "tenant-2", "project": wanted},
        ):
            async with started(emulator, config(emulator, **keys)) as provider:
                assert addresses(await one(provider, node("node-1"))), keys
        several = await refusal(emulator, config(emulator, project="kubernetes"))
        assert "project: 2 are called kubernetes in any tenant" in several
        async with started(emulator, config(emulator, project="project-1")) as provider:
            assert await one(provider, node("node-1")) == NotFound()


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"tenant": "none"}, r"tenant: there is no none in Photon Controller, only: engineering"),
        ({"project": "none"}, r"project: there is no none in any tenant, only: kubernetes"),
        (
            {"tenant": "engineering", "project": "none"},
            "project: there is no none in the tenant engineering, only: kubernetes",
        ),
        ({"project": "../tenants"}, r"project: there is no ../tenants in any tenant"),
    ],
)
async def test_a_project_that_is_not_there_is_named_with_those_that_are(
    emulator: Emulator, keys: dict[str, Any], told: str
) -> None:
    assert told in await refusal(emulator, config(emulator, **keys))


async def test_where_no_photon_controller_is_the_target_is_named(emulator: Emulator) -> None:
    told = await refusal(emulator, config(emulator, target=f"{emulator.url}/elsewhere"))
    assert "check target" in told


# Tokens


async def test_a_token_is_issued_for_the_login_of_the_official_file(
    guarded: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guarded.world.add_vm("node-1")
    async with started(guarded, text(guarded, tmp_path)) as provider:
        assert isinstance(await one(provider, node("node-1")), Instance)
        await one(provider, node("node-1"))
    assert guarded.lightwave.calls == {"password": 1}
    assert "planted-secret" not in caplog.text


@pytest.mark.parametrize("age", Age)
async def test_each_age_says_where_tokens_are_to_be_had(age: Age, tmp_path: Path) -> None:
    async with served(Emulator(age, authentication=True)) as emulator:
        emulator.world.add_vm("node-1")
        async with started(emulator, text(emulator, tmp_path)) as provider:
            assert isinstance(await one(provider, node("node-1")), Instance)


async def test_a_token_is_renewed_before_it_ends_and_when_it_is_refused(
    guarded: Emulator, tmp_path: Path
) -> None:
    clock = Clock()
    guarded.world.add_vm("node-1")
    async with started(guarded, text(guarded, tmp_path), clock) as provider:
        clock.ahead += timedelta(seconds=guarded.lightwave.lasts - 200)
        await one(provider, node("node-1"))
        await one(provider, node("node-1"))
        assert guarded.lightwave.calls["password"] == 2
        guarded.lightwave.tokens.clear()
        assert isinstance(await one(provider, node("node-1")), Instance)
        assert guarded.lightwave.calls["password"] == 3
        for token in guarded.lightwave.tokens:
            guarded.lightwave.tokens[token] = 0.0  # each has expired by Photon Controller's clock
        assert isinstance(await one(provider, node("node-1")), Instance)
        assert guarded.lightwave.calls["password"] == 4


async def test_while_lightwave_is_down_the_token_serves_on(
    guarded: Emulator, tmp_path: Path
) -> None:
    clock = Clock()
    guarded.world.add_vm("node-1")
    async with started(guarded, text(guarded, tmp_path), clock) as provider:
        guarded.lightwave.status = 503
        clock.ahead += timedelta(seconds=guarded.lightwave.lasts - 200)
        assert isinstance(await one(provider, node("node-1")), Instance)


async def test_a_wrong_password_is_sent_once_and_locks_no_account(
    guarded: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = text(guarded, tmp_path)
    guarded.lightwave.password = "another"
    for _ in range(8):
        told = await refusal(guarded, settings)
        assert "check user and password in the login file" in told
        assert "planted-secret" not in told
    assert guarded.lightwave.wrong == 1
    monkeypatch.setattr(LOGINS, "_pause", 0.0)
    await refusal(guarded, settings)
    assert guarded.lightwave.wrong == 2
    write_login(guarded, tmp_path / "login")
    async with started(guarded, settings):
        pass


async def test_an_account_without_rights_deletes_nothing(guarded: Emulator, tmp_path: Path) -> None:
    id_ = guarded.world.add_vm("node-1")
    async with started(guarded, text(guarded, tmp_path)) as provider:
        guarded.forbidden = True
        with pytest.raises(Unauthenticated, match="security group of the project"):
            await one(provider, node("node-1", id_))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"user\n", "lacks a line"),
        (b"\npassword\n", "lacks a line"),
        (b"", "lacks a line"),
        (b"\xff\xfe", "it is not text"),
    ],
)
async def test_a_login_file_that_cannot_be_used_is_named(
    guarded: Emulator, tmp_path: Path, content: bytes | None, told: str
) -> None:
    settings = text(guarded, tmp_path)
    file = tmp_path / "login"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    refused = await refusal(guarded, settings)
    assert f"[Client] login-file: {file}" in refused
    assert told in refused


async def test_lines_may_end_as_on_windows(guarded: Emulator, tmp_path: Path) -> None:
    settings = text(guarded, tmp_path)
    user, password = guarded.lightwave.user, guarded.lightwave.password
    (tmp_path / "login").write_bytes(f"{user}\r\n{password}\r\nignored".encode())
    async with started(guarded, settings):
        pass


async def test_both_mistakes_about_authentication_are_named(
    emulator: Emulator, guarded: Emulator, tmp_path: Path
) -> None:
    without = config(guarded)
    assert "set authentication = true" in await refusal(guarded, without)
    login = write_login(emulator, tmp_path / "login")
    needless = config(emulator, f"login-file = {login}", authentication="true")
    with pytest.raises(ConfigError, match="wants no tokens: leave it out"):
        async with started(emulator, needless):
            pass


@pytest.mark.parametrize("endpoint", ["evil.example.org/a?b=", "user@h", "h#"])
async def test_a_password_goes_to_no_host_with_a_strange_name(
    guarded: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    def answer(self: Emulator, name: str, ids: object, request: object) -> tuple[int, object]:
        return 200, {"enabled": True, "endpoint": endpoint, "port": self.lightwave.port}

    monkeypatch.setattr(Emulator, "_answer", answer)
    assert "is not a name of Lightwave's host" in await refusal(guarded, text(guarded, tmp_path))
    assert not guarded.lightwave.calls


# Certificates


async def test_certificates_are_checked_where_authorities_are_named(
    guarded: Emulator, tmp_path: Path
) -> None:
    settings = text(guarded, tmp_path)
    (tmp_path / "ca.pem").write_bytes(Emulator().authority.certificate)
    assert "certificate is not trusted" in await refusal(guarded, settings)
    assert not guarded.lightwave.calls


async def test_the_official_file_alone_checks_no_certificates(
    guarded: Emulator, tmp_path: Path
) -> None:
    login = write_login(guarded, tmp_path / "login")
    settings = config(guarded, f"login-file = {login}", authentication="true")
    async with started(guarded, settings):
        pass


# Failures


@pytest.mark.parametrize("operation", ["status.get", "projects.get"])
async def test_a_start_that_fails_says_why_and_is_tried_again(
    emulator: Emulator, operation: str
) -> None:
    emulator.fail(operation, LOST, times=2)  # aiohttp sends a read twice
    assert "no answer" in await refusal(emulator, config(emulator))
    async with started(emulator):
        pass


async def test_another_photon_controller_at_the_target_says_nothing_of_its_own(
    emulator: Emulator,
) -> None:
    """Its project is not there; that is no answer about machines."""
    id_ = emulator.world.add_vm("node-1")
    nodes = [node("node-1", id_), node("node-2")]
    async with started(emulator) as provider:
        emulator.world = World()
        with pytest.raises(CloudError, match="NotFound"):
            await describe(provider, *nodes)
        with pytest.raises(CloudError, match="there is no"):
            await describe(provider, *nodes)
