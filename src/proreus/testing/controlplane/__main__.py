"""The command `python -m proreus.testing.controlplane`.

Runs a control plane or gets its programs.
"""

import argparse
import asyncio
import signal
import sys

from proreus.testing.controlplane import ControlPlane, ControlPlaneError, ensure_assets
from proreus.testing.controlplane.progress import to_stderr


def main() -> int:
    """Read the command line and do what it says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m proreus.testing.controlplane",
        description="Start etcd and kube-apiserver on loopback, until Ctrl-C.",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--download-only", action="store_true", help="get the programs and start nothing"
    )
    only.add_argument(
        "--print-assets",
        action="store_true",
        help="get the programs, print their directory and start nothing",
    )
    options = parser.parse_args()
    try:
        if options.download_only or options.print_assets:
            directory = asyncio.run(ensure_assets()).directory
            if options.print_assets:
                print(directory)
            else:
                to_stderr(f"etcd and kube-apiserver are in {directory}")
        else:
            asyncio.run(_run_until_signal())
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _run_until_signal() -> None:
    async with ControlPlane() as control_plane:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        print(f"export KUBECONFIG={control_plane.kubeconfig}", flush=True)
        to_stderr("ready; Ctrl-C ends it")
        await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
