"""What keeps a flood of events small: client-go's numbers, as tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.runtime.correlation import (
    BURST,
    REFILL,
    REPEAT,
    SIMILAR,
    SIMILAR_WITHIN,
    Aggregator,
    Recent,
    SpamFilter,
    is_repeat,
)


@pytest.mark.parametrize(
    ("texts", "gap", "combined"),
    [
        ([str(number) for number in range(SIMILAR - 1)], 1.0, 0),
        ([str(number) for number in range(SIMILAR)], 1.0, 1),
        ([str(number) for number in range(25)], 1.0, 25 - SIMILAR + 1),
        (["same"] * 100, 1.0, 0),
        ([str(number % (SIMILAR - 1)) for number in range(100)], 1.0, 0),
        ([str(number) for number in range(25)], SIMILAR_WITHIN, 25 - SIMILAR + 1),
        ([str(number) for number in range(25)], SIMILAR_WITHIN + 1, 0),
    ],
)
def test_so_many_of_these_texts_are_combined(texts: list[str], gap: float, combined: int) -> None:
    aggregator = Aggregator()
    found = [aggregator.is_combined("g", text, at * gap) for at, text in enumerate(texts)]
    assert sum(found) == combined


def test_the_texts_that_came_first_stay_events_of_their_own() -> None:
    aggregator = Aggregator()
    for number in range(20):
        aggregator.is_combined("g", str(number), 0.0)
    assert not aggregator.is_combined("g", "3", 1.0)
    assert aggregator.is_combined("g", "15", 1.0)


def test_groups_do_not_count_for_one_another() -> None:
    aggregator = Aggregator()
    assert not any(aggregator.is_combined(n % 3, str(n), 0.0) for n in range(3 * (SIMILAR - 1)))


@pytest.mark.parametrize(
    ("times", "admitted"),
    [
        ([0.0] * 30, BURST),
        ([float(second) for second in range(30)], BURST),
        ([0.0] * 25 + [REFILL - 1], BURST),
        ([0.0] * 25 + [REFILL], BURST + 1),
        ([0.0] * 25 + [REFILL, REFILL + 1, 2 * REFILL], BURST + 2),
        ([0.0] * 25 + [1000 * REFILL] * 30, 2 * BURST),
        ([REFILL * at for at in range(200)], 200),
    ],
)
def test_so_many_events_of_a_source_are_admitted(times: list[float], admitted: int) -> None:
    spam = SpamFilter()
    assert sum(spam.admits("s", now) for now in times) == admitted


@given(st.lists(st.floats(0, 400), max_size=200))
def test_no_source_exceeds_the_burst_and_the_refill(gaps: list[float]) -> None:
    spam, now, admitted = SpamFilter(), 0.0, 0
    for gap in gaps:
        now += gap
        admitted += spam.admits("s", now)
        spam.admits("other", now)
        assert admitted <= BURST + now / REFILL + 1e-6


@pytest.mark.parametrize(
    ("is_warning", "is_latest", "seconds", "repeats"),
    [
        (True, True, 0.0, True),
        (True, True, REPEAT - 1, True),
        (True, True, REPEAT, False),
        (True, False, 0.0, False),
        (False, True, 0.0, False),
    ],
)
def test_only_a_lasting_error_is_a_repeat(
    seconds: float, *, is_warning: bool, is_latest: bool, repeats: bool
) -> None:
    said = is_repeat(is_warning=is_warning, is_latest=is_latest, last=50.0, now=50.0 + seconds)
    assert said is repeats


def test_what_is_not_used_is_forgotten_first() -> None:
    recent: Recent[str, int] = Recent(limit=2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
    recent.put("a", 4)
    assert (recent.get("a"), recent.get("c")) == (4, 3)
