"""The guide has exactly the keys, variables, refusals and requests that the code knows."""

import re

from proreus.cloudprovider import sections
from proreus.providers.rancher import RancherCloud, config

from ..guides import Guide, keys  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator
from .site import HTTP, HTTPS, describe, lb_site, started

GUIDE = Guide("rancher")


def test_the_first_sentence_says_that_the_product_has_ended() -> None:
    assert GUIDE.text.split("\n\n")[1].startswith("Rancher 1.x (Cattle) has ended:")


def test_the_tables_of_keys_have_those_that_are_read() -> None:
    rows = GUIDE.rows("key in `[Global]`")
    assert [row[0] for row in rows] == keys(config.Global)
    fields = {row[1]: f"global.{row[0].replace('-', '_')}" for row in rows}
    assert fields == dict(RancherCloud.config_environment)
    assert GUIDE.names("key in `[Client]`, of ours") == keys(sections.Client)


def test_the_variables_are_named() -> None:
    named = set(re.findall(r"CATTLE_[A-Z_]+", GUIDE.text))
    assert named == set(RancherCloud.config_environment)


async def test_the_table_of_requests_has_what_a_life_needs(emulator: Emulator) -> None:
    stacks = "stacks" if "v2-beta" in emulator.versions else "environments"
    rows = [(row[0].split("`")[0] or row[0], row[1].split(", ")) for row in GUIDE.rows("list")]
    listed = {(stacks if name.startswith("stacks") else name.split()[0], one) for name, many in rows for one in many}  # fmt: skip
    async with started(emulator) as provider:
        await describe(provider)
    async with lb_site(emulator) as site:
        seen = set(emulator.calls)
        await site.made(site.desired(HTTP))
        for one in site.world.services():
            one["description"] = None
        await site.made(site.desired(HTTP, HTTPS))
        del site.nodes[0]
        await site.made(site.desired(HTTP, HTTPS))
        await describe(site.provider, *site.nodes)
        await site.deleted(site.desired(HTTP))
        seen |= set(emulator.calls)
    sent = {(name.split()[1].partition("?")[0], name.split()[0]) for name in seen}
    known = {(name, one) for name, one in listed if name not in {"schemas", "settings"}}
    assert known <= sent
    assert sent <= listed
