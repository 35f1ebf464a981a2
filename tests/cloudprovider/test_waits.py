"""Each Service is tried again soon at first, and later while nothing happens."""

from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.waits import Waits


def test_delays_grow_for_each_service_by_itself_and_the_last_one_stays() -> None:
    waits = Waits((1.0, 3.0))
    assert [waits.pending("a", "busy") for _ in range(3)] == [
        Pending(1.0, "busy"), Pending(3.0, "busy"), Pending(3.0, "busy"),
    ]  # fmt: skip
    assert waits.pending("b", "busy").after == 1.0
    assert waits.has_waited("a")
    assert not waits.has_waited("b")


def test_delays_begin_anew_after_progress_and_when_a_service_is_done() -> None:
    waits = Waits((1.0, 3.0, 9.0))
    for _ in range(2):
        waits.pending("a", "busy")
    assert waits.pending("a", "busy", is_moving=True).after == 1.0
    assert waits.pending("a", "busy").after == 3.0
    waits.done("a")
    assert waits.pending("a", "busy").after == 1.0
