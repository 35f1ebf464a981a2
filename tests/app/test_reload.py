"""Which text of the cloud-config is in use, when it changes while it is read."""

import asyncio
from types import TracebackType
from typing import Self

from proreus.app.reload import Reloader
from proreus.cloudprovider import CloudProvider, with_config
from proreus.testing.clock import virtual_time

OLD, NEW, NEWEST = "region: old", "region: new", "region: newest"


class Changing:
    """A text that is another one from a certain reading on."""

    name = "cloud.yaml"

    def __init__(self, change_at: int) -> None:
        self._left = change_at

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def read(self) -> str:
        self._left -= 1
        return NEWEST if self._left <= 0 else NEW

    async def changed(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Written(Changing):
    """A text that somebody writes in place: each of these for some seconds, the last for good."""

    def __init__(self, *texts: tuple[str, float]) -> None:
        self._texts = texts
        self._begun = asyncio.get_running_loop().time()

    def read(self) -> str:
        age = asyncio.get_running_loop().time() - self._begun
        for text, seconds in self._texts:
            age -= seconds
            if age < 0:
                return text
        return self._texts[-1][0]


def region_of(provider: CloudProvider) -> str:
    return str(getattr(provider.config, "region", ""))


@virtual_time
async def test_whenever_it_changes_the_newest_text_is_used_in_the_end() -> None:
    for change_at in range(1, 10):
        used: list[str] = []

        async def replace(provider: CloudProvider, used: list[str] = used) -> None:
            used.append(region_of(provider))

        first = with_config("local", OLD, source="cloud.yaml")
        reloader = Reloader(Changing(change_at), first, replace, lambda *_: None)
        work = asyncio.create_task(reloader.run())
        await asyncio.sleep(60)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert used[-1] == "newest", (change_at, used)
        assert len(used) <= 2


async def play(*texts: tuple[str, float]) -> tuple[list[str], list[str]]:
    """Return the regions that were used one after another, and the events."""
    used: list[str] = []
    events: list[str] = []

    async def replace(provider: CloudProvider) -> None:
        used.append(region_of(provider))

    def record(type_: str, reason: str, message: str) -> None:
        events.append(f"{type_} {reason} {message}")

    first = with_config("local", OLD, source="cloud.yaml")
    work = asyncio.create_task(Reloader(Written(*texts), first, replace, record).run())
    await asyncio.sleep(60)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return used, events


@virtual_time
async def test_a_file_that_is_empty_while_a_program_writes_it_is_no_cloud_config() -> None:
    """As with `sops -d secret > cloud.yaml`; what is empty would be valid for many providers."""
    used, events = await play((OLD, 9), ("", 9), ("\n", 9), (OLD, 0))
    assert used == []
    assert any(text.startswith("Warning CloudConfigInvalid") and "empty" in text for text in events)
    used, _ = await play((OLD, 9), ("", 9), (NEW, 0))
    assert used == ["new"]


@virtual_time
async def test_a_part_of_a_file_is_no_cloud_config_while_the_rest_is_written() -> None:
    for begin in range(8, 13):
        used, _ = await play((OLD, begin), ("zone: a", 1.9), (NEW, 0))
        assert used == ["new"]


@virtual_time
async def test_who_has_begun_without_a_cloud_config_may_go_on_so() -> None:
    used, events = await play(("", 9), (NEW, 9), ("# none", 0))
    assert used == ["", "new", ""]
    assert not any("Invalid" in text for text in events)
