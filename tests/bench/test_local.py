"""What is made of a client's attempts to reach a load balancer."""

import pytest

from benchmarks.local.__main__ import table
from benchmarks.local.lab import ClientResults
from benchmarks.local.paths import Pages, parse_pages, parse_sent_again, parse_ticks

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


WRK = """\
Running 5s test @ http://10.83.0.1:80/
  2 threads and 32 connections
  Latency Distribution
     50%  500.00us
     75%    2.20ms
     90%    1.01s
     99%    1.20m
  46544 requests in 5.00s, 3.77MB read
Requests/sec:   9308.80
"""


def test_percentiles_have_one_unit_whatever_the_client_shows() -> None:
    assert parse_pages(WRK) == Pages(rate=9308.8, answers=46544, half=0.5, slow=72_000.0)


@pytest.mark.parametrize("missing", ["Requests/sec", "requests in", "99%"])
def test_what_is_no_measurement_is_refused(missing: str) -> None:
    with pytest.raises(RuntimeError, match="wrk said"):
        parse_pages(WRK.replace(missing, "nothing"))


def test_no_answer_at_all_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="wrk said"):
        parse_pages(WRK.replace("46544", "0"))


def test_processor_time_is_that_of_programs_of_these_names() -> None:
    line = "{} ({}) S 1 1 1 0 -1 4194560 100 0 0 0 {} {} 7 7 20 0 1 0 4242"
    shown = "\n".join(
        [
            line.format(1, "haproxy", 5, 10),
            line.format(2, "haproxy", 1, 1),
            line.format(3, "a (b) c", 100, 100),
            line.format(4, "iperf3", 20, 0),
        ]
    )

    assert parse_ticks(shown, ("haproxy", "iperf3")) == 37
    assert parse_ticks(shown, ("a (b) c",)) == 200


def test_connections_that_begin_twice_are_counted() -> None:
    shown = "TcpExt: SyncookiesSent TCPSynRetrans\nTcpExt: 4 17\nIpExt: InNoRoutes\nIpExt: 0\n"

    assert parse_sent_again(shown) == 17
