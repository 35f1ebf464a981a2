"""What benchmarks read: the audit log, sockets, counters."""

import os
from pathlib import Path

import msgspec

from benchmarks.measure import AuditTail, Traffic, cloud_calls, cpu_seconds, memory
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
    now = memory(os.getpid(), "VmRSS")
    assert now > 1
    assert memory(os.getpid()) > 0.9 * now  # the kernel counts in batches
