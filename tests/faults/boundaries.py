"""The boundaries: every call of a life, and plans that spoil each of them in each way."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from proreus.testing.controlplane import ControlPlane

from .relay import VERSIONED, Act, Call
from .world import World, world

LEASE: Final = "cloud-controller-manager"
ELECTION: Final = (
    "--leader-elect=true",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)
BY_RANGE: Final = ("--cidr-allocator-type=RangeAllocator",)
"""Pod CIDRs are chosen here, and the cloud is not told of them."""
ADD_KEY: Final = "POST instances:addSSHKey"
"""The one write that is for all objects; a test of its own spoils it."""
_LIVES: Final = 8
_KINDS: Final = ("anchor-", "node-", "web-")


async def rehearse(
    plane: ControlPlane,
    directory: Path,
    *flags: str,
    services: Sequence[str] = ("web-0", "web-1"),
    choose: Callable[[Call], Act | None] = lambda _: None,
) -> list[Call]:
    """The calls of a life in which nothing is spoilt but what `choose` names, in their order."""
    async with world(plane, directory, *flags) as made:
        made.script.choose = choose
        await made.live(["node-0", "node-1"], services)
        strays = {
            call.what
            for call in made.script.seen
            if call.writes and not call.owner.startswith(_KINDS) and "events" not in call.what
        } - {ADD_KEY}
        assert not strays, "nobody knows for whom these are, so no plan spoils them"
        return made.script.seen


async def rehearse_election(plane: ControlPlane, directory: Path) -> list[str]:
    """What leaders do to their lease: the first, one after another's death, and at the end."""
    async with world(plane, directory, *ELECTION) as made:
        await done_to_lease(made, "renew")
        await made.script.strike()
        await done_to_lease(made, "take")
        await done_to_lease(made, "renew")
        await made.manager.stop()
        seen = made.script.seen
    return list(dict.fromkeys(c.what for c in seen if c.writes and " leases" in c.what))


async def done_to_lease(made: World, deed: str) -> None:
    """Wait until that is done to the lease once more."""
    what = f"PUT leases {deed}"
    before = made.script.count(what)

    async def is_done() -> bool:
        return made.script.count(what) > before

    await made.when(f"another {what}", is_done)


def writes_of_one(calls: Iterable[Call], *names: str) -> list[Call]:
    """The writes for these nodes and Services."""
    return [call for call in calls if call.writes and call.owner in names]


def without_races(calls: Iterable[Call]) -> list[Call]:
    """These calls as they are where nobody else writes to a new Node in the same moment.

    Then the Node is initialised by patches of one version; the others come only after a conflict.
    """
    return list(dict.fromkeys(map(_without_race, calls)))


def _without_race(call: Call) -> Call:
    initialises = "CloudInitialized addresses" in call.what or "spec.providerID" in call.what
    if not initialises or VERSIONED in call.what:
        return call
    method, path, changes = call.what.split(" ", 2)
    return msgspec.structs.replace(call, what=f"{method} {path} {VERSIONED} {changes}")


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


async def live_each(made: World, plan: Mapping[Call, Act]) -> None:
    """Live until every call of a plan was reached: what one life does not reach, the next may.

    A manager that is killed while nodes go knows nothing of one that went before it is back; and a
    patch of one version is not sent where somebody else wrote before.
    """
    made.script.plan = dict(plan)
    for life in range(1, _LIVES + 1):
        await made.live(owners(made.script.plan, "node"), owners(made.script.plan, "web"))
        if not made.script.plan:
            return
        made.script.plan = {
            msgspec.structs.replace(call, owner=f"{call.owner}-{life}"): act
            for call, act in made.script.plan.items()
        }
    raise AssertionError(f"never reached: {made.script.plan}")


def check_exercised(calls: Iterable[Call], acts: Sequence[Act], hits: Mapping[Call, Act]) -> None:
    """Every recorded call was spoilt in each of these ways."""
    recorded = {(c.side, c.what, c.nth, act) for c in calls for act in acts}
    assert recorded
    assert {(c.side, c.what, c.nth, act) for c, act in hits.items()} == recorded
