"""What is left over in the cloud is reported, and deleted only if that is wanted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from .service_site import ServiceSite, answers, service_site

QUICK = "--load-balancer-resync-period=1s"
TOLD = "A cloud object is left over"


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ServiceSite]:
    async with service_site(control_plane, tmp_path) as site:
        yield site


async def test_what_a_service_left_behind_is_reported_and_deleted_on_request(
    site: ServiceSite,
) -> None:
    name, kept = await site.create(), await site.create()
    await site.ready(name)
    address = await site.ready(kept)
    gone = await site.get(name)
    parts = len(await site.parts(gone))
    await site.manager.stop()
    await site.delete_by_force(name)
    await site.restart(QUICK)

    async def told() -> bool:
        return site.manager.output().count(TOLD) >= parts

    await until("the left-over objects are told", told)
    await site.mark()

    async def looked_again() -> bool:
        return (await site.calls())["resources.list"] >= 3

    await until("three more looks", looked_again)
    assert site.manager.output().count(TOLD) == parts
    assert len(await site.parts(gone)) == parts

    await site.restart(QUICK, "--delete-leaks-after=2s")

    async def cleaned() -> bool:
        return not await site.parts(gone)

    await until("the left-over objects are deleted", cleaned)
    await answers(address)
    assert len(await site.parts(await site.get(kept))) == parts
