"""What is made of a client's attempts to reach a load balancer."""

from benchmarks.local.__main__ import table
from benchmarks.local.lab import ClientResults

RESULTS = ClientResults(
    {
        "connections": [(1.0, 0.1, True), (1.5, 1.0, False), (3.5, 1.0, False), (4.0, 0.1, True)],
        "datagrams": [(1.0, 0.1, True), (2.0, 1.0, False)],
        "streams": [],
    }
)


def test_what_was_not_answered_is_counted_by_kind() -> None:
    assert RESULTS.lost() == {
        "datagrams lost": "1 of 2",
        "new connections without an answer": "2 of 4",
        "connections broken": "0 of 0",
    }


def test_an_outage_is_distinguished_from_what_was_answered_around_it() -> None:
    assert RESULTS.last_failure(since=1.25) == 2.25
    assert RESULTS.longest_silence() == 3.0


def test_a_table_has_a_line_for_each_way() -> None:
    assert table([{"way": "a", "x": "1"}, {"way": "b", "x": "2"}]).splitlines() == [
        "| way | x |",
        "|---|---:|",
        "| a | 1 |",
        "| b | 2 |",
    ]
