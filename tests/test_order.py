"""The order of files lets long ones begin early and short ones fill the gaps."""

from itertools import accumulate

from .order import EARLIER, ordered

RECORDED = {f"long{number}": 60 - number for number in range(20)}
FILES = (*(f"short{number}" for number in range(2020)), *RECORDED, "long0")


def test_every_file_has_one_place() -> None:
    order = ordered(FILES, RECORDED)
    assert sorted(order) == sorted(set(FILES))


def test_long_ones_begin_longest_first_and_the_last_is_a_short_one() -> None:
    order = ordered(FILES, RECORDED)
    assert [one for one in order if one in RECORDED] == list(RECORDED)
    assert order[0] == "long0"
    assert order[-1] not in RECORDED


def test_long_and_short_ones_are_mixed_all_the_time() -> None:
    long = list(accumulate(RECORDED.get(one, 0.0) for one in ordered(FILES, RECORDED)))
    short = list(accumulate(0.0 if one in RECORDED else 0.5 for one in ordered(FILES, RECORDED)))
    apart = max(abs(a - b) for a, b in zip(long, short, strict=True))
    assert apart <= 2 * max(RECORDED.values()) + (1 - EARLIER) * sum(RECORDED.values())
