"""The strangers as programs: oVirt's SDK for Python, and the Go code beside it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ... import managers  # noqa: TID252 - pytest imports tests by path
from ...packages import installed  # noqa: TID252

SDK: Final = ("ovirt-engine-sdk-python==4.6.3", "pycurl==7.49.0")
MODULE: Final = Path(__file__).parent / "strangers"
SCRIPT: Final = Path(__file__).parent / "sdk.py"


async def sdk() -> Path:
    """The directory with the SDK for Python, which needs a compiler and libxml2 to be made."""
    return await installed("ovirt-sdk", SDK, "--no-deps")


async def told(*arguments: str, document: bytes = b"") -> str:
    """What the SDK for Python prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "PYTHONPATH": str(await sdk())},
        input=document,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Strangers:
    """The Go program, for `async with`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def __aenter__(self) -> Self:
        program = await managers.build(MODULE, self._directory, CGO_ENABLED="0")
        self._process = await asyncio.create_subprocess_exec(
            str(program), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        await self._process.wait()

    async def do(self, verb: str, *arguments: str) -> Mapping[str, Any]:
        """The answer to one verb."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(("\t".join((verb, *arguments)) + "\n").encode())
        await self._process.stdin.drain()
        said: Mapping[str, Any] = json.loads(await self._process.stdout.readline())
        return said
