import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.runtime.backoff import Backoff


def test_doubles_up_to_the_cap() -> None:
    backoff = Backoff(first=5, cap=300)
    assert [backoff.delay(n) for n in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]


def test_chance_only_takes_away() -> None:
    backoff = Backoff(first=10, cap=10, jitter=0.5)
    assert backoff.delay(0, 0.0) == 10
    assert backoff.delay(0, 0.5) == 7.5


def test_factor_one_is_a_constant() -> None:
    assert Backoff(first=2, cap=300, factor=1).delay(10**9) == 2


@given(
    first=st.floats(1e-3, 1e3),
    span=st.floats(1, 1e6),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
    failures=st.integers(0, 10**12),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_is_never_above_the_cap_nor_below_what_jitter_allows(
    *, first: float, span: float, factor: float, jitter: float, failures: int, chance: float
) -> None:
    cap = first * span
    delay = Backoff(first=first, cap=cap, factor=factor, jitter=jitter).delay(failures, chance)
    assert math.isfinite(delay)
    assert first * (1 - jitter) * (1 - 1e-9) <= delay <= cap * (1 + 1e-9)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("first", {"first": 0.0, "cap": 1.0}),
        ("first", {"first": 2.0, "cap": 1.0}),
        ("factor", {"first": 1.0, "cap": 1.0, "factor": 0.5}),
        ("jitter", {"first": 1.0, "cap": 1.0, "jitter": 1.5}),
    ],
)
def test_refuses_what_is_no_backoff_and_names_the_field(
    field: str, fields: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=field):
        Backoff(**fields)
