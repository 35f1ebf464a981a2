"""Make an FRR have the desired configuration, and read its sessions.

Nothing is remembered: each time what FRR has is read, and only what differs is changed. So an FRR
that has started anew, or that somebody has changed, is right after the next look.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from proreus.providers.local.bgp import sessions
from proreus.providers.local.bgp.changes import (
    Edit,
    Foreign,
    edits,
    foreign,
    foreign_networks,
    parse,
)
from proreus.providers.local.bgp.frr import Desired, Line
from proreus.providers.local.bgp.sessions import Session
from proreus.providers.local.bgp.vty import FRRError, Vty, connected

ROUNDS: Final = 3
"""How often what differs is changed before FRR is taken at its word."""


OLDEST: Final = (8, 4)
"""The oldest FRR that the speaker is tried with."""
_VERSION: Final = re.compile(r"frr version (\d+)\.(\d+)")


class Applied(msgspec.Struct, frozen=True):
    """The result of `Engine.apply`: what was changed, and what could not be changed."""

    changed: tuple[Edit, ...] = ()
    problems: tuple[str, ...] = ()


class Engine:
    """The FRR whose sockets are in a directory, such as /run/frr."""

    def __init__(self, directory: str) -> None:
        """Keep the directory of the sockets."""
        self._directory = Path(directory)

    async def apply(self, desired: Desired) -> Applied:
        """Change what differs from the desired configuration.

        bgpd comes last: a session is to find its profile of BFD.

        Raises:
            FRRError: A daemon does not answer.
        """
        done = [await self._apply(name, lines, desired.held) for name, lines in self._of(desired)]
        return _all(done)

    async def differences(self, desired: Desired) -> Applied:
        """Return what `apply` would change; a problem is what it would refuse to.

        Raises:
            FRRError: A daemon does not answer.
        """
        found = []
        for name, lines in self._of(desired):
            async with connected(self._directory, name) as vty:
                found.append(_compared(lines, await _running(vty), desired.held))
        return _all(found)

    def _of(self, desired: Desired) -> Iterator[tuple[str, Sequence[Line]]]:
        """Return what each daemon is to have; without profiles nobody needs bfdd."""
        yield "zebra", desired.zebra
        if desired.bfdd or self.has("bfdd"):
            yield "bfdd", desired.bfdd
        yield "bgpd", desired.bgpd

    def has(self, name: str) -> bool:
        """Tell whether the daemon of that name has a socket."""
        return (self._directory / f"{name}.vty").exists()

    async def sessions(self) -> Mapping[str, Session]:
        """Return the sessions by the peer's address.

        Raises:
            FRRError: bgpd does not answer, or its answer has another form.
        """
        async with connected(self._directory, "bgpd") as vty:
            await vty.command("enable")
            shown = await vty.command("show bgp neighbors json")
        try:
            return sessions.parse(shown)
        except (ValueError, msgspec.ValidationError) as error:
            raise FRRError(f"bgpd of FRR shows its neighbors in a strange form: {error}") from None

    async def ended(self) -> None:
        """Wait until bgpd ends.

        Raises:
            FRRError: bgpd does not run.
        """
        async with connected(self._directory, "bgpd") as vty:
            await vty.closed()

    async def _apply(self, name: str, lines: Sequence[Line], held: frozenset[str]) -> Applied:
        changed: list[Edit] = []
        refused: tuple[str, ...] = ()
        async with connected(self._directory, name) as vty:
            for _ in range(ROUNDS):
                found = _compared(lines, await _running(vty), held)
                if not found.changed:
                    return Applied(tuple(changed), found.problems)
                refused = await vty.configure(found.changed)
                changed += found.changed
            running = await _running(vty)
            left = _compared(lines, running, held)
        if left.changed:
            refused += tuple(f"{name} of FRR does not take {one.text!r}" for one in left.changed)
            refused += too_old(name, running)
        else:
            refused = ()
        return Applied(tuple(changed), (*left.problems, *refused))


def _compared(lines: Sequence[Line], running: Sequence[Line], held: frozenset[str]) -> Applied:
    """Return what is to be changed, and what is not ours to change."""
    try:
        changed = edits(lines, running, held)
    except Foreign as error:
        return Applied((), (str(error),))
    problem = (
        "FRR has neighbors that are not ours: {}. Take them out of its configuration, or out of"
        " bgp peers in the cloud-config"
    )
    others, networks = foreign(lines, running), foreign_networks(lines, running)
    told: tuple[str, ...] = (problem.format(", ".join(others)),) if others else ()
    if networks:
        what = f"FRR announces networks that are not ours: {', '.join(networks)}"
        told += (f"{what}. Take them out of its configuration, or out of the pools",)
    return Applied(changed, told)


def too_old(name: str, running: Sequence[Line]) -> tuple[str, ...]:
    """Return the problem of a daemon that is older than all that the speaker is tested with."""
    for line in running:
        if len(line) == 1 and (found := _VERSION.match(line[0])):
            if tuple(map(int, found.groups())) >= OLDEST:
                return ()
            oldest = ".".join(map(str, OLDEST))
            return (
                f"{name} is of FRR {found[1]}.{found[2]}: what it does not take needs {oldest}",
            )
    return ()


def _all(several: Sequence[Applied]) -> Applied:
    return Applied(
        tuple(edit for one in several for edit in one.changed),
        tuple(problem for one in several for problem in one.problems),
    )


async def _running(vty: Vty) -> tuple[Line, ...]:
    await vty.command("enable")
    return parse(await vty.command("show running-config"))
