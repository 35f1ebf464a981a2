"""Measures what a start costs: `python -m benchmarks.startup --help`."""

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from proreus.testing.memory.kubeconfig import write_kubeconfig
from proreus.testing.ports import free_port

CONFIGS: Final[Mapping[str, str]] = {
    "simulated": '[Global]\nendpoint = "http://127.0.0.1:9"\nregion = sim-1\ntoken = token\n',
    "aws": "",
    "openstack": "[Global]\nauth-url = http://127.0.0.1:9/v3\nusername = u\npassword = p\n"
    "tenant-name = t\ndomain-name = Default\nregion = r\n",
    "local": "",
    "gce": "[Global]\nproject-id = p\nlocal-zone = z-a\n",
    "azure": '{"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "l",'
    ' "aadClientId": "i", "aadClientSecret": "p"}',
    "vsphere": '[Global]\nuser = u\npassword = p\n[VirtualCenter "127.0.0.1"]\ndatacenters = d\n',
    "cloudstack": "[Global]\napi-url = http://127.0.0.1:9/client/api\n"
    "api-key = k\nsecret-key = s\n",
}
"""The providers, and what they are told. None of these clouds is there: it is asked later."""

_FIRST_REQUEST_SECONDS: Final = 60.0
_NANO: Final = 1e9


class Start(msgspec.Struct, frozen=True):
    """A start, as the kernel saw it when the API server got its first byte.

    Attributes:
        seconds: From exec.
        cpu: Seconds of CPU time, of all threads.
        rss: MiB of memory, at the most.
    """

    seconds: float
    cpu: float
    rss: float


def start(flags: Sequence[str], directory: Path) -> Start:
    """Start a manager, and kill it at its first request.

    Args:
        flags: What is to be measured; how to reach the API server is added.
        directory: For its kubeconfig and its log.

    Raises:
        TimeoutError: There is no request. The log in the directory tells why.
    """
    kubeconfig = directory / "kubeconfig.yaml"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        (directory / "manager.log").open("wb") as log,
    ):
        listener.settimeout(_FIRST_REQUEST_SECONDS)
        write_kubeconfig(f"http://127.0.0.1:{listener.getsockname()[1]}", kubeconfig)
        command = [sys.executable, "-m", "proreus", "run", f"--kubeconfig={kubeconfig}", *flags]
        began = time.perf_counter()
        manager = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_FIRST_REQUEST_SECONDS)
                connection.recv(1)
                seconds = time.perf_counter() - began
                return Start(seconds, _cpu(manager.pid), _peak(manager.pid))
        finally:
            manager.kill()
            manager.wait()


def _cpu(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / _NANO


def _peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def variants(directory: Path) -> Mapping[str, tuple[str, ...]]:
    """Return what is measured, by title.

    Each provider without servers, one with the secure port.
    """
    found = {}
    for provider, config in CONFIGS.items():
        file = directory / f"{provider}.conf"
        file.write_text(config)
        given = (f"--cloud-config={file}",) if config else ()
        found[provider] = (f"--cloud-provider={provider}", *given, "--secure-port=0")
    *rest, _ = found["simulated"]
    port = free_port()
    found["simulated, secure port"] = (
        *rest,
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={directory}",
    )
    return found


def _table(starts: Mapping[str, list[Start]]) -> str:
    lines = [
        "| provider | seconds | CPU seconds | MiB |",
        "|---|---:|---:|---:|",
    ]
    for title, found in starts.items():
        seconds, cpu, rss = (
            statistics.median(getattr(one, name) for one in found)
            for name in ("seconds", "cpu", "rss")
        )
        lines.append(f"| {title} | {seconds:.2f} | {cpu:.2f} | {rss:.0f} |")
    return "\n".join(lines)


def main() -> int:
    """Read the command line and run what it says; answers the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description="Measure managers from exec to their first request to the API server.",
    )
    parser.add_argument("--repeat", type=int, default=10, help="starts of each (default: 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        directory = Path(name)
        measured = variants(directory)
        for flags in measured.values():  # writes bytecode, and reads all files once
            start(flags, directory)
        starts: dict[str, list[Start]] = {title: [] for title in measured}
        for _ in range(options.repeat):  # in turns, so that all have the same noise
            for title, flags in measured.items():
                starts[title].append(start(flags, directory))
    print(_table(starts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
