"""How a process ends that is told to: in order at first, at once when told again."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
from proreus.app import ending

async def main():
    stop = asyncio.Event()
    ending.stop_at_signals(stop)
    print("runs", flush=True)
    await stop.wait()
    print("ends", flush=True)
    await asyncio.sleep(60)
    return 0

raise SystemExit(ending.run(main()))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_ends_in_order_and_the_second_at_once(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(number)
        assert process.stdout.readline() == "ends\n"
        process.send_signal(number)
        assert process.wait(30) == 1
