"""What benchmarks read: the audit log, sockets, counters; and what they make of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from benchmarks import report
from benchmarks.contestants import GO_DEFAULT, GO_TUNED, PROREUS
from benchmarks.measure import AuditTail, Figures, Traffic, cloud_calls, cpu_seconds, memory
from proreus.testing.simulated import Counters


def line(verb: str, name: str, code: int = 200, user: str = "manager", **more: str) -> bytes:
    """A line of the audit log."""
    body = {
        "verb": verb,
        "stage": more.get("stage", "ResponseComplete"),
        "user": {"username": user},
        "objectRef": {"resource": "nodes", "name": name, "subresource": more.get("sub", "")},
        "responseStatus": {"code": code},
        "stageTimestamp": more.get("at", "2026-01-01T00:00:00.500000Z"),
    }
    return msgspec.json.encode(body) + b"\n"


def test_the_audit_log_is_counted_from_where_it_was_and_for_one_user(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_bytes(line("patch", "before"))
    tail = AuditTail(log, "manager")
    unfinished = line("patch", "c")
    with log.open("ab") as file:
        file.write(line("patch", "a", at="2026-01-01T00:00:01.000000Z"))
        file.write(line("patch", "a", sub="status"))
        file.write(line("patch", "b", code=409))
        file.write(line("patch", "d", user="somebody"))
        file.write(line("watch", "", stage="ResponseStarted"))
        file.write(line("watch", "", stage="ResponseComplete"))
        file.write(unfinished[:20])
    tail.read()

    assert dict(tail.requests) == {"patch nodes": 2, "patch nodes/status": 1, "watch nodes": 1}
    assert tail.failures == 1
    assert tail.writes("nodes").keys() == {"a"}
    assert tail.last_write("nodes") - tail.writes("nodes", "status")["a"] == 0.5

    with log.open("ab") as file:
        file.write(unfinished[20:])
    tail.read()
    assert tail.writes("nodes").keys() == {"a", "c"}


def socket(port: int, pid: int, sent: int, received: int) -> str:
    """A line of `ss -tinpHO`, shortened."""
    return (
        f'ESTAB 0 0 127.0.0.1:{port} 127.0.0.1:6443 users:(("python",pid={pid},fd=9)) cubic '
        f"rto:204 bytes_sent:{sent} bytes_acked:{sent} bytes_received:{received} segs_out:4"
    )


def test_traffic_is_summed_over_connections_also_those_that_closed() -> None:
    mib = 1 << 20
    traffic = Traffic(6443, pid=7)
    traffic.take("\n".join((socket(1001, 7, mib, 0), socket(1002, 8, mib, mib))))
    traffic.begin()
    traffic.take("\n".join((socket(1001, 7, 2 * mib, 4 * mib), socket(1003, 7, mib, 0))))
    traffic.take(socket(1001, 7, mib // 2, mib))  # the port is used anew

    assert traffic.mib == (2.5, 5.0)


def test_counters_become_calls_and_refusals() -> None:
    counters = Counters({"a.get": {"200": 3, "429": 2}, "b.list": {"429": 1}}, {})

    assert cloud_calls(counters) == ({"a.get": 5, "b.list": 1}, 3)


def test_this_process_has_used_time_and_memory() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert memory(os.getpid()) >= memory(os.getpid(), "VmRSS") > 1


def figures(seconds: float, calls: Mapping[str, int], **more: float) -> Figures:
    return Figures(
        seconds=seconds,
        cloud_calls=calls,
        throttled=0,
        api_requests={"patch nodes": 10},
        api_failures=0,
        sent=0.5,
        received=0.5,
        rss=50,
        cpu=1.0,
        apiserver_cpu=2.0,
        more=more,
    )


REPORT = report.Report(
    "2026-01-01T00:00+00:00",
    "a machine",
    {"Proreus": "0"},
    [
        report.Row("a <job>", one.key, one.title, made)
        for one, made in (
            (GO_DEFAULT, figures(100, {"x": 50})),
            (GO_TUNED, figures(2, {"x": 50})),
            (PROREUS, figures(1, {}, after_the_last_join=0.25)),
        )
    ],
)


def test_the_table_says_how_many_times_the_reference_it_is() -> None:
    text = report.markdown(REPORT, GO_TUNED.key)

    rows = [one for one in text.splitlines() if one.startswith("| ") and "seconds" not in one]
    assert [one.split(" | ")[:3] for one in rows] == [
        ["| Go, default flags", "100.0 (50×)", "50 (1×)"],  # noqa: RUF001 - as it is written
        ["| Go, tuned", "2.0", "50"],
        ["| Proreus", "1.0 (0.5×)", "0"],  # noqa: RUF001 - the same
    ]
    assert "Proreus: after the last join 0.25 s." in text


def test_the_drawing_is_svg_with_a_mark_for_every_ratio() -> None:
    root = ET.fromstring(report.drawing(REPORT, GO_TUNED.key))  # noqa: S314 - ours

    svg = "{http://www.w3.org/2000/svg}"
    marks = [one.findtext(f"{svg}title") for one in root.iter(f"{svg}circle")]
    assert [mark for mark in marks if mark and mark.startswith("Proreus")] == [
        "Proreus: 1.0",  # seconds; there were no cloud calls
        "Proreus: 1.0",
        "Proreus: 50",
    ]
    places = {
        one.get("cx") for one in root.iter(f"{svg}circle") if one.find(f"{svg}title") is not None
    }
    assert all(380 <= float(place or 0) <= 380 + 4 * 174 for place in places)
    assert "a <job>" in {one.text for one in root.iter(f"{svg}text")}
