"""Speak to a daemon of FRR by its Unix socket, as `vtysh` does.

A command goes with a zero byte at its end. The answer is a text, three zero bytes and the result
(`lib/command.h` of FRR: 0 is success, 1 a warning). It is the same in all versions of FRR, where
`vtysh` has to be of the version of the daemons.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from proreus.providers.local.bgp.changes import Edit, hidden

SECONDS: Final = 10.0
"""Seconds that a command may take."""
_END: Final = b"\0\0\0"
_GOOD: Final = frozenset({0, 1})
_OPENING: Final = re.compile(r"(?:router bgp|address-family|route-map|profile) |bfd$")
"""Lines after which others are within them."""
_LIMIT: Final = 64 * 1024 * 1024


class FRRError(Exception):
    """The error that FRR cannot be asked, or refuses a command; without passwords."""


class Refused(FRRError):
    """The error that FRR refuses a command."""


class Vty:
    """A connection to one daemon."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Keep the connection; see `connected`."""
        self._name = name
        self._reader = reader
        self._writer = writer

    async def command(self, line: str) -> str:
        """Run a command of FRR; return what it prints.

        Raises:
            Refused: FRR refuses the command.
            FRRError: FRR does not answer.
        """
        try:
            async with asyncio.timeout(SECONDS):
                self._writer.write(line.encode() + b"\0")
                await self._writer.drain()
                text = await self._reader.readuntil(_END)
                result = (await self._reader.readexactly(1))[0]
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
            reason = type(error).__name__
            raise FRRError(
                f"{self._name} of FRR does not answer to {hidden(line)!r}: {reason}"
            ) from None
        shown = text[: -len(_END)].decode(errors="replace")
        if result not in _GOOD:
            told = " ".join(hidden(shown).split())
            raise Refused(f"{self._name} of FRR refuses {hidden(line)!r}: {told or result}")
        return shown

    async def configure(self, edits: Iterable[Edit]) -> tuple[str, ...]:
        """Run commands of FRR's configuration; return why some are refused.

        Raises:
            FRRError: FRR does not answer, or another program holds the configuration.
        """
        problems: list[str] = []
        place: tuple[str, ...] | None = None
        await self.command("enable")
        await self.command("configure terminal")
        for edit in edits:
            *within, last = edit.line
            try:
                if place != tuple(within):
                    await self._enter(within)
                place = tuple(within)
                await self.command(last)
            except Refused as error:
                problems.append(str(error))
                place = None
            if _OPENING.match(last):
                place = None
        await self.command("end")
        return tuple(problems)

    async def _enter(self, within: Iterable[str]) -> None:
        """Go to a level of the configuration, from the outermost one."""
        await self.command("end")
        for line in ("configure terminal", *within):
            await self.command(line)

    async def closed(self) -> None:
        """Wait until the daemon ends the connection."""
        while await self._reader.read(4096):
            pass


@asynccontextmanager
async def connected(directory: Path, name: str) -> AsyncIterator[Vty]:
    """Connect to the daemon of that name (bgpd, bfdd, zebra).

    Raises:
        FRRError: The daemon does not run, or may not be asked.
    """
    path = directory / f"{name}.vty"
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LIMIT)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise FRRError(
            f"{name} of FRR does not answer at {path} ({reason}): start it, and let this process"
            " use its socket (the group frrvty)"
        ) from None
    try:
        yield Vty(name, reader, writer)
    finally:
        writer.close()
