"""A Service moves from what the official manager does to this one and back, and keeps its parts."""

from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider import Done

from ..emulator.server import Emulator  # noqa: TID252 - pytest imports tests by path
from ..site import HTTP, HTTPS, NAME, LBSite, lb_site, started  # noqa: TID252
from .manager import build, client, delete, ensure

pytestmark = pytest.mark.long

NODES = ("node-1.example.org", "node-2.example.org")


def picture(site: LBSite) -> dict[str, Any]:
    """The services by name, with their ids, and where ports lead."""
    site.world.advance()
    ids = {one["name"]: one["id"] for one in site.world.services()}
    return {"ids": ids, "served": site.served(), "ports": site.balancer()["launchConfig"]["ports"]}


async def test_a_service_moves_there_and_back_and_keeps_its_parts(
    emulator: Emulator, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with client(program, emulator) as theirs, lb_site(emulator, NODES) as site:
        # The official calls make it; this manager keeps all of it, and writes marks only.
        address = await ensure(theirs, NAME, NODES, [HTTP])
        before = picture(site)
        site.writes()
        answer = await site.made(site.desired(HTTP))
        assert picture(site) == before
        assert site.writes() == {"PUT externalservices": 2, "PUT loadbalancerservices": 1}
        assert [point.ip for point in answer.ingress] == [address]

        # The official calls find all that they need, whoever has made it, and change nothing.
        assert await ensure(theirs, NAME, NODES, [HTTP]) == address
        assert picture(site) == before
        site.writes()
        await site.made(site.desired(HTTP))
        assert not site.writes()

        # In place here, made anew officially.
        await site.made(site.desired(HTTP, HTTPS))
        assert picture(site)["ids"] == before["ids"]
        await ensure(theirs, NAME, NODES, [HTTP])
        assert picture(site)["ids"][NAME] != before["ids"][NAME]
        assert site.served() == before["served"]

        # What one has made the other takes away, whole.
        assert await site.deleted(site.desired(HTTP)) == Done(found=True)
        await ensure(theirs, NAME, NODES, [HTTP, HTTPS])
        async with started(emulator) as another:
            site.provider = another
            await site.made(site.desired(HTTP, HTTPS))
            assert await site.deleted(site.desired(HTTP)) == Done(found=True)
        site.world.advance()
        assert not site.world.services()
        async with started(emulator) as another:
            site.provider = another
            await site.made(site.desired(HTTP))
            await delete(theirs, NAME)
            site.world.advance()
            assert not site.world.services()


async def test_a_port_less_costs_the_official_manager_a_load_balancer_and_us_one_or_two_writes(
    emulator: Emulator, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with client(program, emulator) as theirs, lb_site(emulator, NODES) as site:
        await ensure(theirs, NAME, NODES, [HTTP, HTTPS])
        site.writes()
        await ensure(theirs, NAME, NODES, [HTTP])
        official = sum(site.writes().values())
        await site.made(site.desired(HTTP, HTTPS))
        site.writes()
        await site.made(site.desired(HTTP))
        ours = sum(site.writes().values())
    assert ours in {1, 2}
    assert official > 2 * ours
