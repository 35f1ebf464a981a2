"""What Python's garbage collector is kept away from."""

import gc
from collections.abc import Iterator

import pytest

from proreus.runtime.collector import YOUNG, for_good


@pytest.fixture
def settings() -> Iterator[None]:
    """Leave the collector of the tests as it was."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("settings")
def test_what_is_made_for_good_is_not_looked_through_and_the_rest_seldom() -> None:
    frozen, rest = gc.get_freeze_count(), gc.get_threshold()[1:]
    with for_good():
        assert not gc.isenabled()
        kept = [[number] for number in range(1000)]

    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(kept)
    assert gc.get_threshold() == (YOUNG, *rest)
