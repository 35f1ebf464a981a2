"""The provider in use is exchanged only for one that works, and every one is closed once."""

import asyncio
from typing import Any

import pytest

from proreus.app.cloud import Cloud
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    Context,
)
from proreus.containment.faults import Faults
from proreus.testing.clock import virtual_time


class Silent:
    """Takes events about nothing."""

    def event(self, *about: Any) -> None:
        raise AssertionError(about)


class Provider(CloudProvider):
    """Notes what is done with it; its start raises what it is given, one after the other."""

    name = "noting"

    def __init__(self, label: str, *fails: Exception, seconds: float = 0.0) -> None:
        super().__init__(None)
        self.label = label
        self.fails = list(fails)
        self.seconds = seconds
        self.starts = 0
        self.closes = 0

    async def start(self, context: Context) -> None:
        self.starts += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise self.fails.pop(0)

    async def close(self) -> None:
        self.closes += 1


class Site:
    """A cloud whose changes are noted."""

    def __init__(self, first: Provider, *, allow_untagged: bool = True) -> None:
        self.told: list[Exception | None] = []
        self.cloud = Cloud(
            first, Faults("noting", Silent()), allow_untagged=allow_untagged, on_crash=self.told.append
        )  # fmt: skip
        self.changes = 0

    async def start(self) -> None:
        await self.cloud.start(
            Context(ClusterIdentity("c", "u"), now=_never, events=Silent(), listers={})
        )

    async def replace(self, provider: Provider) -> None:
        async def change(started: CloudProvider) -> None:
            assert started is not provider, "the controllers get the guarded one"
            self.changes += 1

        await self.cloud.replace(provider, (), change)


def _never() -> Any:
    raise AssertionError("nobody asks for the time")


@virtual_time
async def test_a_start_that_the_cloud_refuses_is_tried_again() -> None:
    first = Provider("first", CloudError("not now"), CloudError("not yet"))
    site = Site(first)
    await site.start()
    assert first.starts == 3
    assert [str(error) for error in site.told if error] == ["not now", "not yet"]
    assert site.told[-1] is None


@virtual_time
async def test_a_new_provider_takes_over_and_the_old_one_is_closed() -> None:
    first, second = Provider("first"), Provider("second")
    site = Site(first)
    await site.start()
    await site.replace(second)
    assert (site.changes, first.closes, second.starts, second.closes) == (1, 1, 1, 0)
    await site.cloud.close()
    assert (first.closes, second.closes) == (1, 1)


@virtual_time
@pytest.mark.parametrize("error", [CloudError("no"), ConfigError(("wrong",)), RuntimeError("bug")])
async def test_a_new_provider_that_does_not_start_is_closed_and_the_old_one_stays(
    error: Exception,
) -> None:
    first, second = Provider("first"), Provider("second", error)
    site = Site(first)
    await site.start()
    with pytest.raises(CloudError):
        await site.replace(second)
    assert (site.changes, first.closes, second.closes) == (0, 0, 1)
    assert site.cloud.provider is first


@virtual_time
async def test_a_new_provider_without_cluster_id_is_refused_unless_that_is_allowed() -> None:
    untagged = Provider("second")
    untagged.has_cluster_id = False
    site = Site(Provider("first"), allow_untagged=False)
    await site.start()
    with pytest.raises(ConfigError, match="--allow-untagged-cloud"):
        await site.replace(untagged)


@virtual_time
async def test_before_the_first_start_has_succeeded_the_newest_provider_is_started() -> None:
    refused = [CloudError("old token")] * 9
    first, second, third = Provider("1", *refused), Provider("2", *refused), Provider("3")
    site = Site(first)
    start = asyncio.create_task(site.start())
    await asyncio.sleep(0.5)  # between two tries
    await site.replace(second)
    assert first.closes == 1
    second.seconds = 10.0
    await asyncio.sleep(5)  # amid a try
    await site.replace(third)
    assert second.closes == 0
    await start
    assert (first.closes, second.closes, third.starts) == (1, 1, 1)
    assert site.cloud.provider is third
    assert site.changes == 0
