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
