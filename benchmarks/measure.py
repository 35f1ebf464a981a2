"""Measures what a manager costs by `/proc`, the audit log, its sockets and the cloud's counters."""

import asyncio
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from proreus.testing.simulated import Counters

TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024.0 * 1024.0
_SOCKET_POLL = 0.5
_SOCKET = re.compile(
    r"127\.0\.0\.1:(?P<port>\d+).*pid=(?P<pid>\d+),"
    r"(?:.*bytes_sent:(?P<sent>\d+))?(?:.*bytes_received:(?P<received>\d+))?"
)
_THROTTLED = "429"
_SUCCESS = range(200, 300)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one piece of work.

    Attributes:
        seconds: From its start to the last call or write that it needed.
        cloud_calls: Calls of the cloud's API, by operation.
        throttled: How many of them the cloud refused with 429.
        api_requests: Requests to the API server, by verb and resource; a watch counts once.
        api_failures: How many of them were answered with 4xx or 5xx.
        sent: MiB sent to the API server; 0 if this machine has no `ss`.
        received: MiB received from it.
        rss: Peak resident memory of the manager in MiB, since it was started.
        cpu: CPU seconds of the manager.
        apiserver_cpu: CPU seconds of the API server, for everybody.
        etcd_cpu: CPU seconds of etcd.
        cloud_cpu: CPU seconds of the simulated cloud, which has one core at most.
        units: The nodes, Services or routes that the work was about; 0 if it is not counted so.
        more: Figures of this kind of work alone.
    """

    seconds: float
    cloud_calls: Mapping[str, float]
    throttled: float
    api_requests: Mapping[str, float]
    api_failures: float
    sent: float
    received: float
    rss: float
    cpu: float
    apiserver_cpu: float
    etcd_cpu: float = 0.0
    cloud_cpu: float = 0.0
    units: float = 0.0
    more: Mapping[str, float] = {}

    @property
    def calls(self) -> float:
        """All calls of the cloud's API."""
        return sum(self.cloud_calls.values())

    @property
    def requests(self) -> float:
        """All requests to the API server."""
        return sum(self.api_requests.values())

    @property
    def server_ms(self) -> float:
        """CPU milliseconds of API server and etcd for each unit; 0 where units are not counted."""
        both = self.apiserver_cpu + self.etcd_cpu
        return 1000 * both / self.units if self.units else 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int, field: str = "VmHWM") -> float:
    """Resident memory of a process in MiB: the peak, or with `VmRSS` now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


class _ObjectRef(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    name: str = ""
    subresource: str = ""


class _Response(msgspec.Struct, frozen=True):
    code: int = 0


class Audited(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the audit log."""

    verb: str
    stage: str
    stage_timestamp: datetime
    object_ref: _ObjectRef = _ObjectRef()
    response_status: _Response = _Response()

    @property
    def time(self) -> float:
        """The time of the answer, in seconds since 1970."""
        return self.stage_timestamp.timestamp()


_AUDITED = msgspec.json.Decoder(Audited)
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class AuditTail:
    """A user's requests to the API server, read as they are logged.

    Attributes:
        requests: By verb and resource.
        failures: How many were refused.
        written: When each object was last written with success, by resource, subresource, name.
    """

    def __init__(self, log: Path, user: str) -> None:
        """Begin at the end of the log as it is now."""
        self.requests: Counter[str] = Counter()
        self.failures = 0
        self.written: dict[tuple[str, str], dict[str, float]] = {}
        self._log = log
        self._mark = f'"username":"{user}"'.encode()
        self._offset = log.stat().st_size

    def read(self) -> None:
        """Take in what was logged since the last time."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if self._mark in line:
                    self._take(_AUDITED.decode(line))

    def writes(self, resource: str, subresource: str = "") -> Mapping[str, float]:
        """Return when each object of a resource was last written, by name."""
        return self.written.get((resource, subresource), {})

    def last_write(self, *resources: str) -> float:
        """Return when any object of these resources was last written; 0 if never."""
        times = (
            when
            for (resource, _), by_name in self.written.items()
            if resource in resources
            for when in by_name.values()
        )
        return max(times, default=0.0)

    def _take(self, line: Audited) -> None:
        ref = line.object_ref
        name = "/".join(filter(None, (ref.resource, ref.subresource)))
        if line.verb == "watch":
            # Its first line comes when it begins, another one when it ends.
            self.requests[f"watch {name}"] += line.stage == "ResponseStarted"
            return
        if line.stage != "ResponseComplete":
            return
        self.requests[f"{line.verb} {name}"] += 1
        if line.response_status.code not in _SUCCESS:
            self.failures += 1
        elif line.verb in _WRITES:
            self.written.setdefault((ref.resource, ref.subresource), {})[ref.name] = line.time


class Traffic:
    """The bytes between a process and the API server, as the kernel counts them by connection."""

    def __init__(self, port: int, pid: int) -> None:
        """Count nothing before `run`."""
        self._port = port
        self._pid = str(pid)
        self._seen: dict[str, tuple[int, int]] = {}
        self._before = (0, 0)

    async def run(self) -> None:
        """Sample connections every half second until cancelled."""
        while shutil.which("ss") is not None:
            await self.sample()
            await asyncio.sleep(_SOCKET_POLL)

    async def sample(self) -> None:
        """Count the bytes of all connections once."""
        if shutil.which("ss") is None:
            return
        process = await asyncio.create_subprocess_exec(
            *("ss", "-tinpHO", "dst", f"127.0.0.1:{self._port}"),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        self.take(output.decode())

    def take(self, lines: str) -> None:
        """Take in what `ss` shows."""
        for line in lines.splitlines():
            found = _SOCKET.search(line)
            if found is not None and found["pid"] == self._pid:
                bytes_ = int(found["sent"] or 0), int(found["received"] or 0)
                # A port that is used again begins anew.
                before = self._seen.get(found["port"], (0, 0))
                key = found["port"]
                if bytes_[0] < before[0]:
                    self._seen[f"{key} at {time.monotonic()}"] = before
                self._seen[key] = bytes_

    def begin(self) -> None:
        """Count from here."""
        self._before = self._sums()

    @property
    def mib(self) -> tuple[float, float]:
        """MiB sent and received since `begin`."""
        sent, received = self._sums()
        return (sent - self._before[0]) / _MIB, (received - self._before[1]) / _MIB

    def _sums(self) -> tuple[int, int]:
        seen = self._seen.values()
        return sum(one[0] for one in seen), sum(one[1] for one in seen)


def cloud_calls(counters: Counters) -> tuple[dict[str, int], int]:
    """Calls by operation, and how many were throttled."""
    calls = {operation: sum(by.values()) for operation, by in counters.counters.items()}
    return calls, sum(by.get(_THROTTLED, 0) for by in counters.counters.values())
