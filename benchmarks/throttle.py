"""A quota of the cloud that nobody tells the manager: `python -m benchmarks.throttle --help`."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from benchmarks.crowd import Crowd, Manager, gathered, managed
from proreus.kube.objects import TAINT_UNINITIALIZED, has_taint
from proreus.kube.requests import NODES

_JOIN_EVERY = 5.0


class Row(msgspec.Struct, frozen=True):
    """The result for one quota.

    Attributes:
        quota: Calls a second that the cloud admits.
        calls: Calls that were needed.
        seconds: How long they took.
        refused: How many more the cloud refused.
        joined: Seconds that each new node waited for its initialisation meanwhile.
    """

    quota: float
    calls: int
    seconds: float
    refused: int
    joined: tuple[float, ...]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throttle",
        description="Let a manager check all nodes of a cloud that has a quota and no bulk reads, "
        "while new nodes join.",
    )
    parser.add_argument(
        "--quota", type=float, action="append", help="calls a second; repeatable (default: 20)"
    )
    parser.add_argument(
        "--burst", type=float, default=0.0, help="calls at once (default: a second's)"
    )
    parser.add_argument("--nodes", type=int, default=2000, help="default: 2000")
    return parser.parse_args()


async def _joined(crowd: Crowd, first: int) -> list[float]:
    """Let nodes join one after another until cancelled; how long each has waited."""
    waits: list[float] = []
    try:
        while True:
            await asyncio.sleep(_JOIN_EVERY)
            (name,) = await crowd.add_nodes(first + len(waits), first + len(waits) + 1)
            began = time.monotonic()
            while has_taint(await crowd.client.get(NODES, name), TAINT_UNINITIALIZED):
                await asyncio.sleep(0.05)
            waits.append(time.monotonic() - began)
    except asyncio.CancelledError:
        return waits


async def _measure(directory: Path, quota: float, burst: float, nodes: int) -> Row:
    async with gathered(directory) as crowd:
        await crowd.add_nodes(0, nodes)
        async with managed(crowd, directory) as manager:
            await manager.until("all are initialised", _initialised(nodes))
        await crowd.cloud.admin.configure(read_rate=quota, read_burst=burst or max(1.0, quota))
        await crowd.cloud.admin.clear_calls()
        async with managed(crowd, directory, batch_size=1) as manager:
            began = await _first_call(crowd, manager)
            joining = asyncio.create_task(_joined(crowd, nodes))
            while (await _admitted(crowd)) < nodes:
                manager.process.check()
                await asyncio.sleep(0.1)
            seconds = time.monotonic() - began
            joining.cancel()
            waits = await joining
            calls, refused = await crowd.calls()
    return Row(quota, calls - refused, seconds, refused, tuple(waits))


def _initialised(nodes: int) -> Callable[[Mapping[str, float]], bool]:
    return lambda now: (
        now.get("proreus_informer_objects/nodes", 0) >= nodes
        and now.get("proreus_nodes_uninitialized") == 0
    )


async def _first_call(crowd: Crowd, manager: Manager) -> float:
    while not (await crowd.calls())[0]:
        manager.process.check()
        await asyncio.sleep(0.01)
    return time.monotonic()


async def _admitted(crowd: Crowd) -> int:
    calls, refused = await crowd.calls()
    return calls - refused


def _table(rows: list[Row]) -> str:
    lines = [
        "| quota | calls | seconds | of the least | refused | a new node waits, longest |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        share = row.seconds * row.quota / row.calls
        longest = f"{max(row.joined):.1f} s of {len(row.joined)}" if row.joined else "none joined"
        lines.append(
            f"| {row.quota:g} | {row.calls:,} | {row.seconds:.1f} | {share:.2f} "
            f"| {row.refused / (row.calls + row.refused):.2%} | {longest} |"
        )
    return "\n".join(lines)


async def _run(options: argparse.Namespace) -> list[Row]:
    rows = []
    for quota in options.quota or [20.0]:
        with tempfile.TemporaryDirectory(prefix="throttle-") as directory:
            print(f"{quota:g} calls a second", file=sys.stderr, flush=True)
            rows.append(await _measure(Path(directory), quota, options.burst, options.nodes))
    return rows


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
