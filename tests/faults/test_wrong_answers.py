"""The cloud answers, and the answer is wrong: no node whose machine is there is deleted for it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane

from ..apiserver.site import names  # noqa: TID252 - pytest imports tests by path
from .table import Tally
from .world import World, world

Answer = dict[str, Any]

SILENT: Final = 8
PASSES: Final = 4
"""Questions after which whatever was to happen by mistake would have happened."""
CAREFUL: Final = ("--node-deletion-breaker=0.2", "--node-monitor-period=100ms")


def nothing_is_known(answer: Answer) -> Answer:
    """As with the credentials of another account."""
    found = answer["instances"]
    return {
        "instances": [],
        "missing_ids": [*answer["missing_ids"], *(one["id"] for one in found)],
        "missing_names": [*answer["missing_names"], *(one["name"] for one in found)],
    }


def half_is_known(answer: Answer) -> Answer:
    """Every second silent machine is said not to exist; the witnesses are there."""
    lost = [one for one in answer["instances"] if one["name"] in names("silent", SILENT)[::2]]
    return {
        **answer,
        "instances": [one for one in answer["instances"] if one not in lost],
        "missing_ids": [*answer["missing_ids"], *(one["id"] for one in lost)],
    }


def each(**changes: Any) -> Callable[[Answer], Answer]:
    """All machines are shown with something changed."""
    return lambda answer: {
        **answer,
        "instances": [{**one, **changes} for one in answer["instances"]],
    }


WRONG: Final[Mapping[str, Callable[[Answer], Answer]]] = {
    "nothing is known": nothing_is_known,
    "an empty page": lambda answer: {**answer, "instances": []},
    "half of the page": lambda a: {**a, "instances": a["instances"][::2]},
    "an empty object": lambda _: {},
    "everything twice": lambda a: {**a, "instances": a["instances"] * 2},
    "one id for all": each(id="i-000000000001"),
    "other machines under the ids": each(system_uuid="00000000-0000-0000-0000-000000000001"),
    "machines of another cluster under the names": each(
        id="i-000000000002", system_uuid="00000000-0000-0000-0000-000000000002"
    ),
    "a region that is not ours": each(region="sim-9"),
    "machines without addresses": each(addresses=[]),
}
"""What the cloud says to a question about machines, made of what is true."""


def spoil(change: Callable[[Answer], Answer]) -> Callable[[str, Answer], Answer]:
    """Change the answers about machines that are answers."""
    return lambda what, answer: (
        change(answer) if what.endswith(":batchGet") and "instances" in answer else answer
    )


def spoil_listings(share: int, *, kind: str = "") -> Callable[[str, Answer], Answer]:
    """Listings of parts have only the first of so many parts, and say that this was all.

    Those of a `kind` are all there.
    """

    def change(what: str, answer: Answer) -> Answer:
        if what != "GET resources" or "resources" not in answer:
            return answer
        found = answer["resources"]
        first = found[: len(found) // share] if share else []
        kept = [one for one in found if one in first or one["kind"] == kind]
        return {"resources": kept, "next_page_token": ""}

    return change


STRANGERS: Final[Mapping[str, str]] = {
    "other-cloud": "aws:///eu-1a/i-0123456789abcdef0",
    "other-region": "simulated://sim-9/i-000000000009",
    "no-cloud": "",
}
"""Nodes that are none of this provider's, with their provider ids."""


async def strangers(made: World) -> None:
    """Create the nodes that are none of this provider's, all silent."""
    for name, provider_id in STRANGERS.items():
        spec = {"providerID": provider_id} if provider_id else {}
        conditions = [{"type": "Ready", "status": "Unknown", "reason": "x", "message": "x"}]
        body = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}
        await made.client.create(NODES, body)


async def held(made: World, name: str) -> None:
    """Wait until it is said on a node that its deletion is held."""

    async def is_said() -> bool:
        return bool(await made.site.events("NodeDeletionHeld", name))

    await made.when(f"{name} is held", is_said)


async def asked(made: World, count: int, what: str = "POST instances:batchGet") -> None:
    """Wait until the manager has asked the cloud so many times more."""
    before = made.script.count(what)

    async def enough() -> bool:
        return made.script.count(what) >= before + count

    await made.when(f"{count} more {what}", enough)


async def test_wrong_answers_about_machines_delete_no_node(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    silent = names("silent", SILENT)
    async with world(control_plane, tmp_path, *CAREFUL) as made:
        with tally.trying() as take_down:
            await made.join(*silent)
            await strangers(made)
            await made.site.silence(*silent)
            for name, change in WRONG.items():
                take_down("machines", name)
                made.script.rewrite = spoil(change)
                await asked(made, PASSES)
                assert made.deleted_nodes() == set(), name
                made.script.rewrite = spoil(lambda answer: answer)
                await asked(made, 2)

            take_down("machines", "answers of a minute ago")
            await made.admin.configure(list_lag=60)
            await asked(made, PASSES)
            assert made.deleted_nodes() == set()
            await made.admin.configure(list_lag=0)
            await asked(made, 2)

            # It was never more than a wrong answer: what is really gone goes without any ado.
            await made.lose("silent-0")
            assert made.deleted_nodes() == {"silent-0"}

            take_down("machines", "half is known")
            made.script.rewrite = spoil(half_is_known)
            for name in silent[2::2]:
                await held(made, name)
            await asked(made, PASSES)
            assert made.deleted_nodes() == {"silent-0"}

            # With true answers one act, which is documented, starts deletions again.
            made.script.rewrite = spoil(lambda answer: answer)
            made.manager.flags = (*made.manager.flags, "--node-deletion-resume")
            await made.script.strike()
            await made.lose("silent-1")
            assert made.deleted_nodes() == {"silent-0", "silent-1"}
            assert {*silent[2:], *STRANGERS} <= (await made.site.nodes()).keys()


async def test_wrong_listings_of_parts_make_no_second_load_balancer(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    services = names("web", 3)
    async with world(control_plane, tmp_path) as made:
        with tally.trying() as take_down:
            await made.serve(*services)
            ports = 82
            for name, share in (("an empty page", 0), ("half of the parts", 2)):
                take_down("parts", name)
                made.script.rewrite = spoil_listings(share)
                await made.script.strike()  # who starts anew knows nothing but what is listed
                await made.change(*services, port=ports)
                await asked(made, len(services), "GET resources")
                made.script.rewrite = lambda _, answer: answer
                await made.script.strike()
                await made.ready(*services, ports={80, ports}, ranges={"127.1.0.0/16"})
                ports += 1
            await made.delete(*services)
            once = {made.script.made[name, "POST load_balancers"] for name in services}
            assert once == {1}


async def test_a_listing_without_a_deleted_object_is_confirmed_first(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """A deletion lists by name and by marks; later listings are true."""
    lies = {
        "an empty page": spoil_listings(0),
        "listeners only": spoil_listings(0, kind="listener"),
    }
    services = names("web", len(lies))
    async with world(control_plane, tmp_path) as made:
        with tally.trying() as take_down:
            await made.serve(*services)
            for service, (name, lie) in zip(services, lies.items(), strict=True):
                take_down("parts, at a deletion", name)
                made.script.rewrite = first(2, lie)
                await made.delete(service)


async def test_what_the_cloud_hides_until_its_service_is_gone_goes_when_it_is_shown(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    flags = ("--load-balancer-resync-period=1s", "--delete-leaks-after=1s")
    async with world(control_plane, tmp_path, *flags) as made:
        with tally.trying() as take_down:
            take_down("parts, at a deletion", "empty pages until the Service is gone")
            await made.serve("web-0", "web-1")
            made.script.rewrite = spoil_listings(0)
            await made.ask_for_deletion("web-0")

            async def is_gone() -> bool:
                services = (await made.client.list(SERVICES)).items
                return "web-0" not in {service.metadata.name for service in services}

            await made.when("the Service is gone", is_gone)
            assert "web-0" in made.by_service(await made.admin.parts())
            made.script.rewrite = lambda _, answer: answer
            await made.nothing_left("web-0")
            await made.ready("web-1", ports={80, 81}, ranges={"127.0.0.0/8"})


def first(count: int, lie: Callable[[str, Answer], Answer]) -> Callable[[str, Answer], Answer]:
    """Lie in the first so many listings of parts."""
    left = count

    def change(what: str, answer: Answer) -> Answer:
        nonlocal left
        if what != "GET resources" or not left:
            return answer
        left -= 1
        return lie(what, answer)

    return change
