"""The guide has exactly the keys, requests and calls that the code knows."""

from pathlib import Path

import pytest

from proreus.providers.photon import config as known
from proreus.providers.photon.operations import OPERATIONS

from ..guides import Guide, keys  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Age, Emulator, served, write_login
from .site import cloud, config, context

GUIDE = Guide("photon")


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[Global]`", keys(known.Global)),
        ("key in `[Client]`, of ours", keys(known.Client)),
    ],
)
def test_the_tables_of_keys_have_those_that_are_read(header: str, section: list[str]) -> None:
    assert sorted(GUIDE.names(header)) == sorted(section)


def test_the_table_of_requests_has_all() -> None:
    assert {row[0]: row[1] for row in GUIDE.rows("request")} == dict(OPERATIONS)


def test_it_says_at_once_that_the_product_has_ended() -> None:
    first = GUIDE.text.split("\n\n")[1]
    assert first.startswith("VMware Photon Controller has ended")


@pytest.mark.parametrize(
    ("age", "authentication", "calls"),
    [(Age.SYSTEM, False, 2), (Age.SYSTEM, True, 4), (Age.NETWORKS, False, 4)],
)
async def test_a_start_costs_the_calls_that_the_guide_says(
    tmp_path: Path, age: Age, *, authentication: bool, calls: int
) -> None:
    emulator = Emulator(age, authentication=authentication)
    async with served(emulator):
        login = write_login(emulator, tmp_path / "login")
        on = "true" if authentication else "false"
        provider = cloud(config(emulator, f"login-file = {login}", authentication=on))
        given = context()
        try:
            await provider.start(given)
        finally:
            await provider.close()
        assert len(given.calls) == calls
