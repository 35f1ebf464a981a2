"""Hints reach who listens, from any thread, and at a pace that no flood changes."""

import asyncio
import itertools
import threading

import pytest

from proreus.cloudprovider.hints import BETWEEN, MOST, Hint, Hints, Pace
from proreus.testing import objects
from proreus.testing.clock import virtual_time


@virtual_time
async def test_the_first_hint_comes_at_once_and_the_next_ones_together_a_second_later() -> None:
    hints, loop = Hints(), asyncio.get_running_loop()
    with hints.listen() as listener:
        hints.changed("cloud://A", "a")
        begun = loop.time()
        assert await listener.next() == Hint(frozenset({"cloud://a", "a"}))
        assert loop.time() == begun
        hints.changed("b")
        hints.scope_changed("east")
        hints.changed("c", "")
        assert await listener.next() == Hint(frozenset({"b", "c"}), frozenset({"east"}))
        assert loop.time() == begun + BETWEEN


@virtual_time
async def test_a_flood_is_one_hint_a_second_and_names_at_most_so_many_machines() -> None:
    hints = Hints()

    async def flood() -> None:
        for number in range(3 * MOST):
            hints.changed(f"m{number}")
            if number % 300 == 0:
                await asyncio.sleep(0.01)

    with hints.listen() as listener:
        flooding = asyncio.create_task(flood())
        assert (await listener.next()).machines
        await flooding
        assert await listener.next() == Hint(everything=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await listener.next()


@virtual_time
async def test_a_thread_may_hint() -> None:
    hints = Hints()
    with hints.listen() as listener:
        thread = threading.Thread(target=hints.changed, args=("a",))
        thread.start()
        thread.join()
        assert (await listener.next()).machines == {"a"}


@virtual_time
async def test_who_watches_a_cloud_waits_until_somebody_listens() -> None:
    hints = Hints()
    heard = asyncio.create_task(hints.heard())
    await asyncio.sleep(1)
    assert not heard.done()
    with hints.listen(), hints.listen():
        await heard
    assert not asyncio.create_task(hints.heard()).done()
    hints.changed("nobody hears it")


@pytest.mark.parametrize(
    ("names", "is_meant"),
    [
        ({"cloud://i-a"}, True),
        ({"node-a"}, True),
        ({"4c4c4544"}, True),
        ({"cloud://i-b", "a"}, False),
        (set(), False),
    ],
)
def test_a_node_is_meant_by_its_id_its_uuid_or_its_name(names: set[str], is_meant: bool) -> None:  # noqa: FBT001
    node = objects.node("node-a", "cloud://i-A", system_uuid="4C4C4544")
    assert Hint(frozenset(names)).names(node) is is_meant


def test_looks_become_rarer_while_hints_keep_coming_and_are_prompt_again_after_a_pause() -> None:
    pace, looks, now = Pace(1.0, 30.0), [], 100.0
    while now < 400.0:  # a hint every 10 ms for five minutes
        due = round(now + pace.delay("a", now), 2)
        if due not in looks:
            looks.append(due)
        now += 0.01
    gaps = [round(after - before) for before, after in itertools.pairwise(looks)]
    assert gaps[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert len(looks) < 17
    assert pace.delay("b", now) == 0.0
    assert pace.delay("a", looks[-1] + 30.0) == 0.0
    pace.forget("a")
    assert pace.delay("a", looks[-1] + 30.0) == 0.0
