"""Measures how the manager grows with its cluster: `python -m benchmarks.scale --help`."""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.crowd import Crowd, Manager, gathered, managed
from benchmarks.measure import cpu_seconds, memory
from proreus.kube.requests import NAMESPACES

_BATCH = 500
_IDLE_SECONDS = 20.0


class Row(msgspec.Struct, frozen=True):
    """The result for one size of a cluster.

    Attributes:
        nodes: Nodes of the cluster.
        listed: Seconds from the start of the process until all nodes are in its cache.
        initialised: Seconds until all nodes have all that a manager gives them.
        initialised_cpu: CPU seconds of that.
        pass_seconds: Seconds from the start of the next process until it has checked all nodes.
        pass_cpu: CPU seconds of that.
        pass_calls: Cloud calls of that.
        rss: MiB that the next process then has.
        peak: The most that it has had.
        idle: Share of a core that it needs without heartbeats.
        beats: Heartbeats a second that the API server really had.
        busy: Share of a core that it needs with them.
    """

    nodes: int
    listed: float
    initialised: float
    initialised_cpu: float
    pass_seconds: float
    pass_cpu: float
    pass_calls: int
    rss: float
    peak: float
    idle: float
    beats: float
    busy: float


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="Measure the manager on clusters of growing size, in one run.",
    )
    parser.add_argument(
        "--nodes", type=int, action="append", help="a size; repeatable (default: 1000, 5000)"
    )
    parser.add_argument("--services", type=int, default=0, help="Services (default: a tenth)")
    parser.add_argument(
        "--load-balancers", type=int, default=0, help="Services of type LoadBalancer (default: 0)"
    )
    parser.add_argument(
        "--initialised", action="store_true", help="begin with initialised nodes: the restart only"
    )
    parser.add_argument("--real", action="store_true", help="on etcd and kube-apiserver")
    parser.add_argument("--heartbeats", type=float, default=330.0, help="a second (default: 330)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of heartbeats (default: 60)")
    return parser.parse_args()


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


async def _initialise(crowd: Crowd, directory: Path, nodes: int) -> tuple[float, float, float]:
    async with managed(crowd, directory) as manager:
        listed = await _listed(manager, nodes)
        _say(f"    listed after {listed:.1f} s")
        seconds = await manager.until(
            "all nodes are initialised", lambda now: now.get("proreus_nodes_uninitialized") == 0
        )
        cpu = cpu_seconds(manager.process.pid)
        _say(f"    initialised after {seconds:.1f} s, {cpu:.1f} CPU s")
        return listed, seconds, cpu


async def _listed(manager: Manager, nodes: int) -> float:
    return await manager.until(
        "all nodes are listed",
        lambda now: now.get("proreus_informer_objects/nodes", 0) >= nodes,
    )


async def _load(process: Manager, seconds: float) -> float:
    """Return the share of a core that it needs for the next seconds."""
    before, began = cpu_seconds(process.process.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(process.process.pid) - before) / (time.monotonic() - began)


async def _measure(
    crowd: Crowd, directory: Path, names: Sequence[str], options: argparse.Namespace
) -> Row:
    listed, initialised, initialised_cpu = 0.0, 0.0, 0.0
    if not options.initialised:
        listed, initialised, initialised_cpu = await _initialise(crowd, directory, len(names))
    await crowd.cloud.admin.clear_calls()
    async with managed(crowd, directory) as manager:
        pid = manager.process.pid
        relisted = await _listed(manager, len(names))
        listed = listed or relisted
        _say(f"    listed after {relisted:.1f} s")
        while (await crowd.calls())[0] < -(-len(names) // _BATCH):
            manager.process.check()
            await asyncio.sleep(0.1)
        pass_seconds, pass_cpu = time.monotonic() - manager.began, cpu_seconds(pid)
        _say(f"    checked after {pass_seconds:.1f} s, {pass_cpu:.1f} CPU s")
        await asyncio.sleep(5)
        pass_calls, _ = await crowd.calls()
        idle = await _load(manager, _IDLE_SECONDS)
        rss, peak = memory(pid, "VmRSS"), memory(pid)
        _say(f"    {rss:.0f} MiB, idle {idle:.1%}")
        beating = asyncio.create_task(crowd.heartbeats(names, options.heartbeats))
        versions = await _version(crowd)
        busy = await _load(manager, options.seconds)
        beats = (await _version(crowd) - versions) / options.seconds
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        _say(f"    busy {busy:.1%} at {beats:.0f} heartbeats/s")
        figures = (pass_seconds, pass_cpu, pass_calls, rss, peak, idle, beats, busy)
        return Row(len(names), listed, initialised, initialised_cpu, *figures)


async def _version(crowd: Crowd) -> int:
    """Return the version that the API server has reached."""
    return int((await crowd.client.list(NAMESPACES)).resource_version)


async def _run(options: argparse.Namespace) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        directory = Path(name)
        for nodes in options.nodes or (1000, 5000):
            async with gathered(directory, real=options.real) as crowd:
                _say(f"{nodes:,} nodes")
                names = await crowd.add_nodes(0, nodes, initialised=options.initialised)
                services = options.services or nodes // 10
                await crowd.add_services(services, balanced=options.load_balancers)
                _say(f"    registered; API server {memory(crowd.server_pid):.0f} MiB")
                rows.append(await _measure(crowd, directory, names, options))
            (directory / "memory.kubeconfig").unlink(missing_ok=True)
    return rows


def _table(rows: Sequence[Row]) -> str:
    titles: tuple[tuple[str, Callable[[Row], str]], ...] = (
        ("nodes", lambda row: f"{row.nodes:,}"),
        ("listed after", lambda row: f"{row.listed:.1f} s"),
        ("initialised after", lambda row: f"{row.initialised:.1f} s"),
        ("CPU of that", lambda row: f"{row.initialised_cpu:.1f} s"),
        ("restart: all checked after", lambda row: f"{row.pass_seconds:.1f} s"),
        ("CPU of that", lambda row: f"{row.pass_cpu:.1f} s"),
        ("cloud calls of that", lambda row: f"{row.pass_calls:,}"),
        ("memory then", lambda row: f"{row.rss:.0f} MiB"),
        ("peak", lambda row: f"{row.peak:.0f} MiB"),
        ("a core, idle", lambda row: f"{row.idle:.1%}"),
        ("heartbeats/s", lambda row: f"{row.beats:.0f}"),
        ("a core, with these", lambda row: f"{row.busy:.1%}"),
    )
    lines = [" | ".join(title for title, _ in titles), "|".join("---:" for _ in titles)]
    lines += [" | ".join(show(row) for _, show in titles) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def main() -> int:
    """Read the command line and run what it says; answers the exit status."""
    try:
        rows = asyncio.run(_run(_options()))
    except KeyboardInterrupt:
        return 130
    print(_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
