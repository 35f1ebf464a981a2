"""A reading is shared by those who ask at once, and shows what was written before they asked."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import CloudError, Throttled
from proreus.providers.vsphere.nsxt.balancing.sharing import Shared


class Cloud:
    """A value that readings take a while to see."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.written = 0
        self.reads = 0
        self.failures: list[CloudError] = []

    async def read(self) -> int:
        self.reads += 1
        self.begun.set()
        seen = self.written
        for _ in range(3):
            await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        return seen


async def test_all_who_ask_at_once_get_one_reading() -> None:
    cloud = Cloud()
    shared = Shared(cloud.read)
    assert await asyncio.gather(*(shared.get() for _ in range(9))) == [0] * 9
    assert cloud.reads == 1
    await shared.get()
    assert cloud.reads == 2


async def test_who_asks_while_one_is_under_way_gets_the_next_one() -> None:
    cloud = Cloud()
    shared = Shared(cloud.read)
    first = asyncio.create_task(shared.get())
    await cloud.begun.wait()
    cloud.written = 1
    later = [asyncio.create_task(shared.get()) for _ in range(5)]
    assert await first == 0
    assert await asyncio.gather(*later) == [1] * 5
    assert cloud.reads == 2


async def test_a_failure_is_told_to_all_who_waited_for_that_reading_and_to_nobody_later() -> None:
    cloud = Cloud()
    shared = Shared(cloud.read)
    cloud.failures = [Throttled("no")]
    answers = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in answers] == [Throttled] * 3
    assert cloud.reads == 1
    assert await shared.get() == 0


async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    cloud = Cloud()
    shared = Shared(cloud.read)
    first = asyncio.create_task(shared.get())
    others = [asyncio.create_task(shared.get()) for _ in range(3)]
    await cloud.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.gather(*others) == [0] * 3
    assert cloud.reads == 2


@given(st.lists(st.sampled_from(["write", "ask", "pass", "cancel"]), max_size=40))
def test_nobody_gets_what_is_older_than_the_question(acts: list[str]) -> None:
    async def play() -> None:
        cloud = Cloud()
        shared = Shared(cloud.read)
        asked: list[tuple[int, asyncio.Task[int]]] = []
        for act in acts:
            if act == "write":
                cloud.written += 1
            elif act == "ask":
                asked.append((cloud.written, asyncio.create_task(shared.get())))
            elif act == "cancel" and asked:
                asked.pop(len(asked) // 2)[1].cancel()
            await asyncio.sleep(0)
        for least, task in asked:
            assert await task >= least

    asyncio.run(play())
