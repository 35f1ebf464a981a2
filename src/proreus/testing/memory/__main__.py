"""The command `python -m proreus.testing.memory`: runs an API server in memory."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from proreus.testing.memory.kubeconfig import write_kubeconfig
from proreus.testing.memory.server import MemoryApiServer
from proreus.testing.memory.store import HISTORY, Store


def main() -> int:
    """Read the command line and serve until a signal; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m proreus.testing.memory",
        description="Serve the Kubernetes API from memory, on loopback, until Ctrl-C.",
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any free port")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig there, once it serves")
    parser.add_argument(
        "--history",
        type=int,
        default=HISTORY,
        help="changes of each resource that a watch can go back (default: %(default)s)",
    )
    options = parser.parse_args()
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        print(f"error: --port {options.port}: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    store = Store(history=options.history)
    async with MemoryApiServer(store, port=options.port, keep_log=False) as server:
        if options.kubeconfig is not None:
            write_kubeconfig(server.url, options.kubeconfig)
        print(server.url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
