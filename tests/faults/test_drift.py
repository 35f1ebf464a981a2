"""What somebody changes in the cloud or on a node is put right, with no call more than it takes."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from proreus.cloudprovider.identity import MARK_SERVICE
from proreus.kube.objects import LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane

from .table import Tally
from .world import World, world

Part = dict[str, Any]

FLAGS: Final = ("--load-balancer-resync-period=1s", "--route-reconciliation-period=1s")
NODE: Final = "anchor-0"


class Drift(msgspec.Struct, frozen=True):
    """What somebody does, and all the writes that put it right, each with its count."""

    name: str
    deed: Callable[[World], Awaitable[None]]
    writes: Mapping[str, int]


async def part(made: World, kind: str) -> Part:
    """A part of the one load balancer, the first of several."""
    return (await made.admin.parts(kind))[0]


async def ask(made: World, method: str, path: str, body: object = None) -> None:
    """Call the cloud as somebody else."""
    headers = {"Authorization": f"Bearer {made.site.cloud.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, f"{made.site.cloud.endpoint}/v1/{path}", json=body) as response,
    ):
        assert response.ok, await response.text()


def removed(kind: str) -> Callable[[World], Awaitable[None]]:
    """Somebody removes such a part, whatever refers to it."""

    async def deed(made: World) -> None:
        await made.admin.remove((await part(made, kind))["id"])

    return deed


def changed(kind: str, **fields: Any) -> Callable[[World], Awaitable[None]]:
    """Somebody changes fields of such a part."""

    async def deed(made: World) -> None:
        one = await part(made, kind)
        collection = "addresses" if kind == "address" else f"{kind}s"
        body = {"version": one["version"], **fields}
        await ask(made, "PATCH", f"{collection}/{one['id']}", body)

    return deed


def retagged(kind: str) -> Callable[[World], Awaitable[None]]:
    """Somebody writes another Service's name into the tags of such a part."""

    async def deed(made: World) -> None:
        one = await part(made, kind)
        tags = {**one["tags"], MARK_SERVICE: "default/other"}
        await changed(kind, tags=tags)(made)

    return deed


async def a_target_removed(made: World) -> None:
    """Somebody takes a target off."""
    one = await part(made, "load_balancer")
    ids = [one["targets"][0]["instance_id"]]
    await ask(made, "POST", f"load_balancers/{one['id']}/targets:remove", {"instance_ids": ids})


async def a_target_added(made: World) -> None:
    """Somebody makes a machine without a node a target."""
    (machine,) = await made.site.machines("stranger")
    target = {"instance_id": machine.id, "address": machine.addresses[0].address}
    one = await part(made, "load_balancer")
    await ask(made, "POST", f"load_balancers/{one['id']}/targets:add", {"targets": [target]})


async def the_instance_type(made: World) -> None:
    """A machine is resized."""
    await made.admin.change(made.machines[NODE].id, type="sim.huge")


async def the_label(made: World) -> None:
    """Somebody writes another instance type on a node, under both keys."""
    keys = (LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA)
    body = {"metadata": {"labels": dict.fromkeys(keys, "wrong")}}
    await made.client.patch(NODES, NODE, Patch(PatchType.MERGE, body))


async def a_route_elsewhere(made: World) -> None:
    """Somebody lets a route lead to another machine."""
    one = await part(made, "route")
    other = next(m.id for m in made.machines.values() if m.id != one["instance_id"])
    await changed("route", instance_id=other)(made)


async def a_black_hole(made: World) -> None:
    """A route leads to a machine that then ends."""
    (machine,) = await made.site.machines("short-lived")
    await changed("route", instance_id=machine.id)(made)
    await made.admin.delete(machine.id)


_BALANCER: Final = {
    "DELETE listeners/*": 2,
    "DELETE firewalls/*": 1,
    "POST load_balancers": 1,
    "POST firewalls": 1,
    "POST listeners": 2,
    "POST load_balancers/*/targets:add": 1,
}
BALANCERS: Final = (
    Drift("listener removed", removed("listener"), {"POST listeners": 1}),
    Drift("listener changed", changed("listener", target_port=9), {"PATCH listeners/*": 1}),
    Drift("firewall removed", removed("firewall"), {"POST firewalls": 1}),
    Drift(
        "firewall changed",
        changed("firewall", source_ranges=["0.0.0.0/0"]),
        {"PATCH firewalls/*": 1},
    ),
    Drift("target removed", a_target_removed, {"POST load_balancers/*/targets:add": 1}),
    Drift("target added", a_target_added, {"POST load_balancers/*/targets:remove": 1}),
    Drift(
        "health check changed",
        changed("load_balancer", health_check={"port": 9, "path": "/"}),
        {"PATCH load_balancers/*": 1},
    ),
    Drift("tags of an address", retagged("address"), {"PATCH addresses/*": 1}),
    Drift("tags of a balancer", retagged("load_balancer"), {"PATCH load_balancers/*": 1}),
    Drift("tags of a listener", retagged("listener"), {"PATCH listeners/*": 1}),
    Drift("tags of a firewall", retagged("firewall"), {"PATCH firewalls/*": 1}),
    Drift("balancer removed", removed("load_balancer"), _BALANCER),
    Drift(
        "address removed",
        removed("address"),
        {**_BALANCER, "DELETE load_balancers/*": 1, "POST addresses": 1},
    ),
)
NODES_AND_ROUTES: Final = (
    Drift("machine resized", the_instance_type, {"PATCH nodes @version metadata.labels": 1}),
    Drift("label changed", the_label, {"PATCH nodes @version metadata.labels": 1}),
    Drift("route removed", removed("route"), {"POST routes": 1}),
    Drift("route changed", a_route_elsewhere, {"PATCH routes/*": 1}),
    Drift("black hole", a_black_hole, {"PATCH routes/*": 1}),
)


async def test_each_part_of_a_load_balancer_is_put_right_with_the_fewest_calls(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    async with world(control_plane, tmp_path, *FLAGS) as made:
        await made.serve("web-0")
        for drift in BALANCERS:
            await puts_right(made, drift, tally)


@pytest.mark.long
async def test_nodes_and_routes_are_put_right_with_the_fewest_calls(
    control_plane: ControlPlane, tmp_path: Path, tally: Tally
) -> None:
    """A route that is missing must be so twice, and is not asked for when it was just made."""
    async with world(control_plane, tmp_path, *FLAGS) as made:
        for drift in NODES_AND_ROUTES:
            await puts_right(made, drift, tally)


async def puts_right(made: World, drift: Drift, tally: Tally) -> None:
    """Let it happen, and wait until all is as before; only the writes it takes are made."""
    print(drift.name)
    with tally.trying() as take_down:
        take_down("drift", drift.name)
        before = await state(made)
        seen = len(made.script.seen)
        await drift.deed(made)

        async def is_right() -> bool:
            writes = Counter(
                call.what
                for call in made.script.seen[seen:]
                if call.writes and is_counted(call.what)
            )
            assert not writes - Counter(drift.writes), writes
            return writes == drift.writes and await state(made) == before

        try:
            await made.when(f"{drift.name} is put right", is_right)
        finally:
            print([call.what for call in made.script.seen[seen:] if call.writes])


def is_counted(what: str) -> bool:
    """Whether these writes are counted; events are not."""
    return "events" not in what


async def state(made: World) -> object:
    """All that somebody may have changed, without ids and versions.

    Of the node it is whether its label has the type of its machine.
    """
    parts = await made.admin.parts()
    shown = []
    for one in parts:
        kept = {k: v for k, v in one.items() if k not in {"id", "version", "created", "address"}}
        kept = {k: v for k, v in kept.items() if not k.endswith("_id") or k == "instance_id"}
        if "targets" in kept:
            kept["targets"] = sorted(one["targets"], key=lambda target: str(target["instance_id"]))
        shown.append(kept)
    label = (await made.site.existing(NODE)).metadata.labels.get(LABEL_INSTANCE_TYPE)
    types = {machine.name: machine.type for machine in await made.admin.instances()}
    return sorted(shown, key=str), label == types[NODE]
