"""Releases of CloudStack that leave its tags on a public address which is released.

So its next owner has them (apache/cloudstack, issue 6620). These releases take no sources for a
rule that is made; what the official manager has made is looked after.
"""

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import MARK_SERVICE, MARK_SERVICE_UID
from proreus.cloudprovider.load_balancers import Done, LoadBalancer

from .emulator.refusals import Refusal
from .emulator.server import LOST, Emulator
from .lb_site import NAME, UID, LBSite, lb_site
from .site import CLUSTER

OLD = "4.17.0.0"
IP = "203.0.113.7"


@contextlib.asynccontextmanager
async def adopted(emulator: Emulator) -> AsyncIterator[tuple[LBSite, LoadBalancer]]:
    """A site with what the official manager has made, with our marks by now."""
    emulator.world.version = OLD
    async with lb_site(emulator) as site:
        id_ = site.give(IP)
        site.official_rule(id_, f"{NAME}-tcp-80", 80, 30080)
        desired = site.desired(shown=IP)
        await site.made(desired)
        assert site.world.tags["PublicIpAddress", id_][MARK_SERVICE_UID] == UID
        yield site, desired


def former_address(site: LBSite) -> str:
    """The id of one more address with the Service's marks, which it is to let go."""
    former, tags = site.give("203.0.113.8"), site.world.tags
    tags["PublicIpAddress", former] = dict(tags["PublicIpAddress", site.address(IP)["id"]])
    return former


def refuse_release(id_: str) -> None:
    raise Refusal(530, f"the address {id_} cannot be released")


@pytest.mark.parametrize("is_leak", [False, True])
async def test_an_address_that_was_released_is_theirs_who_acquire_it_where_tags_stay(
    emulator: Emulator, *, is_leak: bool
) -> None:
    """The Service is gone for good, or was of another type for a while."""
    async with adopted(emulator) as (site, desired):
        await site.deleted(desired)
        assert not site.allocated()
        theirs = site.give(IP, allocated="2027")
        assert not await site.balancers.list_owned(CLUSTER)
        if is_leak:
            gone = msgspec.structs.replace(desired.ref, service=None, last_ingress=())
            assert (await site.balancers.delete([gone]))[UID] == Done(found=False)
        else:
            await site.settled(site.desired())
            await site.deleted(site.desired())
        assert site.allocated() == {IP}
        assert not site.world.tags.get(("PublicIpAddress", theirs))


@pytest.mark.parametrize("code", [530, LOST])
@pytest.mark.parametrize("command", ["disassociateIpAddress", "deleteTags"])
async def test_an_address_whose_tags_would_stay_is_released_in_spite_of_failures(
    emulator: Emulator, command: str, code: int
) -> None:
    async with adopted(emulator) as (site, desired):
        emulator.fail(command, code)
        assert isinstance(await site.deleted(desired), CloudError)
        assert site.allocated()
        assert await site.deleted(desired) == Done()
        assert site.is_empty()


async def test_an_address_whose_tags_would_stay_is_released_by_slow_jobs(
    emulator: Emulator,
) -> None:
    async with adopted(emulator) as (site, desired):
        emulator.world.works = 1.2
        assert await site.deleted(desired) == Done()
        assert site.is_empty()


async def test_an_address_whose_release_had_no_answer_is_theirs_who_acquire_it_next(
    emulator: Emulator,
) -> None:
    async with adopted(emulator) as (site, desired):
        emulator.fail("disassociateIpAddress", LOST, after_effect=True)
        assert isinstance(await site.deleted(desired), CloudError)
        site.give(IP, allocated="2027")
        assert await site.deleted(desired) == Done()
        assert site.allocated() == {IP}


@pytest.mark.parametrize("works", [0.0, 1.2])
async def test_a_former_address_that_is_never_released_keeps_a_service_only_from_its_end(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, works: float
) -> None:
    async with adopted(emulator) as (site, desired):
        former_address(site)
        site.world.works = works
        with monkeypatch.context() as refused:
            refused.setattr(site.world, "release", refuse_release)
            await site.settled(desired)  # which may say so once
            for ids in (site.machines[:1], site.machines):
                await site.made(site.desired(shown=IP, ids=ids))
                assert site.rules()[f"{NAME}-tcp-80"]["members"] == set(ids)
            assert isinstance(await site.deleted(desired), CloudError)
        assert site.allocated() >= {"203.0.113.8"}
        assert isinstance(await site.deleted(desired), Done)
        assert site.is_empty()


async def test_a_former_address_that_is_reserved_for_others_by_now_is_not_released(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has tagged it while CloudStack did not release it."""
    async with adopted(emulator) as (site, desired):
        former, tags = former_address(site), site.world.tags
        with monkeypatch.context() as refused:
            refused.setattr(site.world, "release", refuse_release)
            await site.settled(desired)
            assert not tags.get(("PublicIpAddress", former))
        tags["PublicIpAddress", former] = {MARK_SERVICE: "bank/api"}
        await site.made(site.desired(shown=IP, ids=site.machines[:1]))
        assert await site.deleted(desired) == Done()
        assert site.allocated() == {"203.0.113.8"}
