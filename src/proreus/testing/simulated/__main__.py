"""The command `python -m proreus.testing.simulated`: runs the simulated cloud."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from aiohttp import web

from proreus.testing.simulated.cloud import Cloud
from proreus.testing.simulated.model import Settings
from proreus.testing.simulated.server import Server

_PARENT_POLL = 0.5


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proreus.testing.simulated")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", help="address:port to listen on; port 0 is any free one"
    )
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        help="sqlite file that keeps the state; made if it is missing",
    )
    parser.add_argument(
        "--ready-file", type=Path, help='file that gets {"endpoint": URL} once the cloud serves'
    )
    parser.add_argument("--token", action="append", help="NAME=TOKEN of a credential; repeatable")
    parser.add_argument("--admin-token", default="admin")
    parser.add_argument("--latency", type=float, help="seconds that each call takes")
    parser.add_argument("--quota", help="most reads a second for each credential: RATE[:BURST]")
    parser.add_argument(
        "--write-quota", help="most writes a second for each credential: RATE[:BURST]"
    )
    parser.add_argument(
        "--settings", default="{}", help="JSON object of settings without a flag: route_limit, ..."
    )
    parser.add_argument(
        "--with-parent", action="store_true", help="end when the starting process has ended"
    )
    return parser


def _settings(args: argparse.Namespace, port: int) -> Settings:
    given = json.loads(args.settings)
    if args.latency is not None:
        given["latency"] = args.latency
    for kind, quota in (("read", args.quota), ("write", args.write_quota)):
        if quota:
            rate, _, burst = quota.partition(":")
            given |= {f"{kind}_rate": float(rate), f"{kind}_burst": float(burst or rate)}
    given.setdefault("pool", "")
    if not given["pool"]:
        given["pool"] = f"127.{port >> 8}.{port & 255}.0/24"
    return msgspec.convert(given, Settings)


async def _run(args: argparse.Namespace) -> None:
    host, _, port = args.listen.rpartition(":")
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    watch = loop.create_task(_follow_parent(stop)) if args.with_parent else None
    cloud = Cloud(args.state, Settings(), time.time)
    tokens = dict(reversed(pair.split("=", 1)) for pair in args.token or ["default=token"])
    app = Server(cloud, tokens, args.admin_token).app()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, int(port), reuse_address=True)
        await site.start()
        bound = runner.addresses[0][1]
        cloud.configure(msgspec.to_builtins(_settings(args, bound)))
        async with cloud.dataplane.running():
            _announce(args.ready_file, f"http://{host}:{bound}")
            await stop.wait()
    finally:
        await runner.cleanup()
        cloud.close()
        if watch is not None:
            watch.cancel()


async def _follow_parent(stop: asyncio.Event) -> None:
    parent = os.getppid()
    while not stop.is_set():
        await asyncio.sleep(_PARENT_POLL)
        if os.getppid() != parent:
            stop.set()


def _announce(ready_file: Path | None, endpoint: str) -> None:
    if ready_file is None:
        print(endpoint, flush=True)
        return
    part = ready_file.with_suffix(".part")
    part.write_text(json.dumps({"endpoint": endpoint}))
    part.replace(ready_file)


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.WARNING)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(_parser().parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
