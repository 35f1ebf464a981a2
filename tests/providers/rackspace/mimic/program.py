"""Mimic as a program: in a virtual environment of its own, which is kept between runs."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from proreus.testing.controlplane.assets import cache
from proreus.testing.ports import free_port
from proreus.testing.waiting import until

REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_LONG: Final = 300.0


async def installed() -> Path:
    """The directory of Mimic's programs; skip where it cannot be installed."""
    if sys.version_info >= (3, 12):
        pytest.skip("Mimic 2.2 runs on Python 3.11 at most")
    there = cache(os.environ, "mimic") / f"2.2.0-py{sys.version_info.minor}"
    if not (there / "ready").exists():
        await _run(sys.executable, "-m", "venv", "--clear", str(there))
        await _run(str(there / "bin" / "pip"), "install", "-q", "-r", str(REQUIREMENTS))
        (there / "ready").touch()
    return there / "bin"


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        pytest.skip(f"Mimic cannot be installed: {output.decode()[-300:]}")


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[str]:
    """Mimic on a free port; its URL."""
    programs = await installed()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (directory / "mimic.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(programs / "twistd"), "-n", "--pidfile=", "mimic",
            f"--listen=tcp:{port}:interface=127.0.0.1", cwd=directory, stdout=log, stderr=log,
        )  # fmt: skip

    async def answers() -> bool:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(url) as response:
                    return response.status > 0
            except aiohttp.ClientError:
                return False

    try:
        await until("Mimic answers", answers, _LONG)
        yield url
    finally:
        process.terminate()
        await process.wait()
