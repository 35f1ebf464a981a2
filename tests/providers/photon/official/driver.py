"""The provider inside Kubernetes 1.14 and its SDK for Go, asked by a program (`driver/main.go`)."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from ... import managers  # noqa: TID252 - pytest imports tests by path

MODULE: Final = Path(__file__).parent / "driver"
_LINE: Final = 2**24


class OfficialError(Exception):
    """What the Go code says is wrong."""


class Driver:
    """The running program: one question at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, verb: str, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **question}).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 120.0)
        answer = json.loads(line)
        if "error" in answer:
            raise OfficialError(answer["error"])
        return answer["answer"]


@asynccontextmanager
async def driver(directory: Path) -> AsyncIterator[Driver]:
    """Build the program, and run it. It logs to a file."""
    program = await managers.build(MODULE, directory, CGO_ENABLED="0")
    with (directory / "official.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(program), stdin=PIPE, stdout=PIPE, stderr=log, limit=_LINE
        )
        try:
            yield Driver(process)
        finally:
            process.kill()
            await process.wait()
