import asyncio

import pytest

from proreus.kube.errors import BadRequest, Unreachable
from proreus.serving.answers import TRIES, Answer, Answers, Budget, Busy, holds, tried


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Answers 1, 2, 3, ... when it is let to."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def reached(self) -> None:
        """Return when it has been asked, and all who were about to ask have."""
        while not self.asked:
            await asyncio.sleep(0)

    async def __call__(self) -> int:
        self.asked += 1
        answer = self.asked
        await self.gate.wait()
        return answer


@pytest.mark.parametrize(("now", "expected"), [(9.0, True), (10.0, False), (11.0, False)])
def test_an_answer_holds_until_its_time_and_no_longer(now: float, *, expected: bool) -> None:
    assert holds(Answer("x", 10.0), now) is expected


async def test_an_answer_is_asked_for_again_when_its_lifetime_is_over() -> None:
    clock, source = Clock(), Source()
    answers: Answers[str, int] = Answers(lambda value: 10.0 * value, now=clock)
    assert await answers.get("a", source) == 1
    clock.now += 9.0
    assert await answers.get("a", source) == 1
    clock.now += 1.0
    assert await answers.get("a", source) == 2
    clock.now += 19.0
    assert await answers.get("a", source) == 2


async def test_the_lifetime_counts_from_the_question() -> None:
    clock, source = Clock(), Source()
    answers: Answers[str, int] = Answers(lambda _: 10.0, now=clock)
    source.gate.clear()
    waiting = asyncio.create_task(answers.get("a", source))
    await source.reached()
    clock.now += 10.0
    source.gate.set()
    assert await waiting == 1
    assert await answers.get("a", source) == 2


async def test_a_lifetime_of_0_keeps_nothing() -> None:
    source = Source()
    answers: Answers[str, int] = Answers(lambda _: 0.0)
    assert [await answers.get("a", source), await answers.get("a", source)] == [1, 2]
    assert len(answers) == 0


async def test_those_who_ask_at_once_share_one_question_also_when_one_leaves() -> None:
    source = Source()
    source.gate.clear()
    answers: Answers[str, int] = Answers(lambda _: 10.0)
    waiting = [asyncio.create_task(answers.get("a", source)) for _ in range(5)]
    await source.reached()
    waiting[0].cancel()
    source.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [1] * 4
    assert source.asked == 1


async def test_a_failure_goes_to_all_who_wait_and_is_not_kept() -> None:
    gate = asyncio.Event()

    async def failing() -> int:
        await gate.wait()
        raise Unreachable("down", sent=False)

    answers: Answers[str, int] = Answers(lambda _: 10.0)
    waiting = [asyncio.create_task(answers.get("a", failing)) for _ in range(3)]
    asyncio.get_running_loop().call_soon(gate.set)
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in found] == [Unreachable] * 3
    assert await answers.get("a", Source()) == 1


async def test_the_oldest_answers_make_room() -> None:
    source = Source()
    answers: Answers[int, int] = Answers(lambda _: 10.0, limit=2)
    for key in (1, 2, 3):
        await answers.get(key, source)
    assert len(answers) == 2
    assert await answers.get(3, source) == 3
    assert await answers.get(1, source) == 4


def budget(clock: Clock) -> Budget:
    return Budget(at_once=2, per_second=0.5, burst=3.0, now=clock)


async def test_a_budget_bounds_new_questions_and_no_others() -> None:
    clock, source = Clock(), Source()
    answers: Answers[str, int] = Answers(lambda _: 10.0, renews=lambda value: value == 1, now=clock)
    allowed = budget(clock)
    for key in ("a", "b", "c", "a"):
        await answers.get(key, source, allowed)
    with pytest.raises(Busy) as busy:
        await answers.get("d", source, allowed)
    assert busy.value.after == 2.0
    assert source.asked == 3
    allowed = budget(clock)
    clock.now += 10.0
    for _ in range(3):
        allowed.take()
        allowed.give_back()
    assert await answers.get("a", source, allowed) == 4, "it was renewed"
    with pytest.raises(Busy):
        await answers.get("b", source, allowed)
    clock.now += 2.0
    assert await answers.get("b", source, allowed) == 5


async def test_a_budget_bounds_what_is_under_way_until_it_ends_in_any_way() -> None:
    clock, source = Clock(), Source()
    answers: Answers[str, int] = Answers(lambda _: 10.0, now=clock)
    allowed = budget(clock)
    source.gate.clear()

    async def failing() -> int:
        await source.gate.wait()
        raise Unreachable("down", sent=False)

    waiting = [asyncio.create_task(answers.get(key, failing, allowed)) for key in "ab"]
    shared = asyncio.create_task(answers.get("a", source, allowed))
    await asyncio.sleep(0)
    with pytest.raises(Busy) as busy:
        await answers.get("c", source, allowed)
    assert busy.value.after == 1.0
    source.gate.set()
    found = await asyncio.gather(*waiting, shared, return_exceptions=True)
    assert [type(one) for one in found] == [Unreachable] * 3
    assert await answers.get("c", source, allowed) == 1


async def test_close_ends_what_is_under_way() -> None:
    source = Source()
    source.gate.clear()
    answers: Answers[str, int] = Answers(lambda _: 10.0)
    waiting = asyncio.create_task(answers.get("a", source))
    await source.reached()
    await answers.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_api_server_that_cannot_be_reached_is_asked_again_and_a_no_is_final() -> None:
    tries = 0

    async def down() -> None:
        nonlocal tries
        tries += 1
        raise Unreachable("down", sent=True)

    async def refuses() -> None:
        nonlocal tries
        tries += 1
        raise BadRequest(400, "no")

    with pytest.raises(Unreachable):
        await tried(down)
    assert tries == TRIES
    with pytest.raises(BadRequest):
        await tried(refuses)
    assert tries == TRIES + 1
