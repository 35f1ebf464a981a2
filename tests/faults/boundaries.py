"""The boundaries: every call of a life, and plans that spoil each of them in each way."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from proreus.testing.controlplane import ControlPlane

from .relay import Act, Call
from .world import world


async def rehearse(plane: ControlPlane, directory: Path) -> list[Call]:
    """The calls of a life in which nothing is spoilt, for node-0 and web-0, in their order."""
    async with world(plane, directory) as made:
        await made.live(["node-0", "node-1"], ["web-0", "web-1"])
        return made.script.seen


def for_each(calls: Iterable[Call], acts: Iterable[Act]) -> dict[Call, Act]:
    """A plan in which each call of one node or Service is spoilt in each way, one for each object.

    The calls are those of the first of several alike, such as web-0: for each act and call,
    another object takes its place.
    """
    plan = {}
    numbers: Counter[str] = Counter()
    for act in acts:
        for call in calls:
            kind = call.owner.partition("-")[0]
            owner = f"{kind}-{numbers[kind]}"
            numbers[kind] += 1
            plan[Call(call.side, owner, call.what, call.nth)] = act
    return plan


def owners(plan: Iterable[Call], kind: str) -> list[str]:
    """The nodes, or Services, that something is planned for."""
    return sorted({call.owner for call in plan if call.owner.startswith(f"{kind}-")})
