"""The command line of the simulated cloud, and its end."""

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from proreus.testing.simulated import Admin, SimulatedCloudProcess
from proreus.testing.waiting import until

TIMEOUT = 30.0
STARTER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-m", "proreus.testing.simulated", *sys.argv[1:]])
time.sleep(600)
"""


async def endpoint(ready: Path) -> str:
    await until("the cloud is ready", ready.exists)
    found: str = json.loads(ready.read_text())["endpoint"]
    return found


async def test_flags_become_settings_and_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proreus.testing.simulated",
        f"--state={tmp_path / 'state.db'}",
        f"--ready-file={ready}",
        "--admin-token=boss",
        "--latency=0.02",
        "--quota=20:5",
        "--write-quota=10",
        '--settings={"region": "sim-9", "pool": "127.90.0.0/16"}',
    )
    async with Admin(await endpoint(ready), "boss") as admin:
        settings = await admin.settings()
    assert (settings.latency, settings.region, settings.pool) == (0.02, "sim-9", "127.90.0.0/16")
    assert (settings.read_rate, settings.read_burst) == (20, 5)
    assert (settings.write_rate, settings.write_burst) == (10, 10)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0


async def test_a_cloud_tied_to_its_parent_does_not_outlive_it(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STARTER,
        f"--state={tmp_path / 'state.db'}",
        f"--ready-file={ready}",
        "--with-parent",
    )
    host, _, port = (await endpoint(ready)).removeprefix("http://").rpartition(":")
    parent.kill()
    await parent.wait()

    async def is_gone() -> bool:
        return not await listens(host, int(port))

    await until("the cloud is gone", is_gone)


async def test_nobody_gets_the_port_of_a_killed_cloud_until_it_is_back() -> None:
    async with SimulatedCloudProcess() as cloud:
        host, _, port = cloud.endpoint.removeprefix("http://").rpartition(":")
        await cloud.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        assert not await listens(host, int(port))
        await cloud.restart()
        assert await listens(host, int(port))


async def listens(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
