"""Every verb of the cloud fails in every way, and the life of nodes and Services ends the same."""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

from proreus.testing.controlplane import ControlPlane

from ..apiserver.site import names  # noqa: TID252 - pytest imports tests by path
from .boundaries import ADD_KEY, for_each, owners
from .relay import Act, Call
from .table import Tally
from .world import World, world

FAILURES = (
    Act.CUT_BEFORE,
    Act.CUT_AFTER,
    Act.ERROR,
    Act.THROTTLE,
    Act.HANG,
    Act.GARBAGE,
)
READS = ("GET resources", "POST instances:batchGet")
SAMPLED = {
    "api": (Act.KILL_BEFORE, Act.KILL_AFTER, Act.CONFLICT, Act.CUT_AFTER, Act.THROTTLE),
    "cloud": (Act.KILL_BEFORE, Act.KILL_AFTER, Act.CUT_AFTER, Act.ERROR, Act.GARBAGE),
}
EVERY = 6
"""A short life spoils about one call in so many, and one call of each object at most."""
SEED = 20


def sampler(made: World) -> None:
    """Spoil some calls of the life to come, which the seed chooses by their names."""
    spoilt: set[str] = set()

    def choose(call: Call) -> Act | None:
        number = crc32(f"{SEED} {call}".encode())
        kind = call.owner.partition("-")[0]
        if kind not in {"node", "web"} or not call.writes or number % EVERY:
            return None
        if call.owner in spoilt:
            return None
        spoilt.add(call.owner)
        acts = SAMPLED[call.side]
        return acts[number // EVERY % len(acts)]

    made.script.choose = choose


async def test_a_life_in_which_a_call_of_each_object_is_spoilt_ends_as_any_other(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """The short form of the long tests here and of those of crashes and of the API server."""
    async with world(control_plane, tmp_path) as made:
        sampler(made)
        with tally.trying() as take_down:
            try:
                await made.live(names("node", 4), names("web", 10))
            finally:
                for call, act in made.script.hits.items():
                    take_down(f"{call.side}: {call.what}", act)
        assert made.script.hits


@pytest.mark.long
async def test_every_verb_of_the_cloud_may_fail_in_every_way(
    control_plane: ControlPlane, tmp_path: Path, rehearsed: Sequence[Call], tally: Tally
) -> None:
    """Each Service and node of this life has one call fail in one way, a read each call."""
    verbs = [
        call for call in rehearsed if call.side == "cloud" and call.owner in {"node-0", "web-0"}
    ]
    plan = for_each(verbs, FAILURES)
    for what in READS:
        for number, act in enumerate(FAILURES, 1):
            plan[Call("cloud", "", what, 2 * number)] = act
    # Volumes are asked about until the cloud answers, and not again.
    plan |= {
        Call("cloud", "", "POST volumes:batchGet", nth): act for nth, act in enumerate(FAILURES, 1)
    }
    async with world(control_plane, tmp_path, plan=plan) as made:
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"cloud: {call.what}", act)
            await made.live(owners(plan, "node"), owners(plan, "web"))
            assert not made.script.plan, "never reached"


@pytest.mark.long
async def test_a_service_that_is_deleted_while_any_verb_fails_leaves_nothing(
    control_plane: ControlPlane, tmp_path: Path, rehearsed: Sequence[Call], tally: Tally
) -> None:
    """The verb fails until its Service is deleted; then the cloud is well again."""
    verbs = [
        call
        for call in rehearsed
        if call.side == "cloud"
        and call.owner == "web-0"
        and call.what.startswith("POST")
        and call.nth == 1
        and not call.what.endswith(":remove")
    ]
    plan = for_each(verbs, FAILURES)
    by_owner = {call.owner: (call.what, act) for call, act in plan.items()}
    async with world(control_plane, tmp_path) as made:
        made.script.choose = lambda call: next(
            (act for what, act in [by_owner.get(call.owner, ("", None))] if what == call.what), None
        )
        services = owners(plan, "web")
        with tally.trying() as take_down:
            for call, act in plan.items():
                take_down(f"cloud, then deleted: {call.what}", act)
            await made.create(*services)

            async def all_failed() -> bool:
                return {call.owner for call in made.script.hits} >= set(services)

            await made.when("each has failed", all_failed)
            await made.ask_for_deletion(*services)
            made.script.choose = lambda _: None
            await made.nothing_left(*services)


@pytest.mark.long
async def test_machines_get_the_ssh_key_however_the_call_ends(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """The first call of each manager is spoilt, when there is a machine that lacks the key."""
    async with world(control_plane, tmp_path) as made:
        for number, act in enumerate((*FAILURES, Act.KILL_BEFORE, Act.KILL_AFTER)):
            await made.have_key()
            await made.start(f"node-{number}")
            with tally.trying() as take_down:
                take_down(f"cloud: {ADD_KEY}", act)
                made.script.plan = {Call("cloud", "", ADD_KEY, made.script.count(ADD_KEY) + 1): act}
                await made.script.strike()
                await made.have_key()
                assert not made.script.plan, "never reached"
