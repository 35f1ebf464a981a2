"""Instances that are renamed: the provider ids of their Nodes have the former names."""

from collections.abc import Sequence

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound
from proreus.kube.objects import Node
from proreus.providers.gce.reading import SAMPLE

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .site import config_text, context, node, node_of, started
from .test_instances import described


async def renamed(
    gce: Gce,
    *others: Node,
    count: int = 3,
    deed: str = "rename",
    lost: Sequence[str] = ("n0",),
    has_ids: bool = True,
) -> dict[str, InstanceAnswer]:
    """What is said of nodes once some machines have another name, and these are nodes, too."""
    names = [f"n{number}" for number in range(count)]
    nodes = [node_of(one) if has_ids else node(one) for one in names]
    gce.run(*names)
    known = Objects(nodes)
    async with started(config_text(gce), context(nodes=known)) as provider:
        before = await described(provider, *nodes)
        assert all(isinstance(one, Instance) for one in before.values())
        for one in lost:
            if deed == "rename":
                gce.rename(one, f"new-{one}")
            else:
                gce.terminate(one)
        known.by_key |= {one.metadata.name: one for one in others}
        return await described(provider, *nodes)


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("count", [3, 10])
async def test_an_instance_that_was_renamed_is_not_gone(
    gce: Gce, count: int, *, has_ids: bool
) -> None:
    """Its kubelet was told its Node's name, and is silent while the machine boots."""
    found = await renamed(gce, count=count, has_ids=has_ids)
    assert isinstance(found["n0"], IdentityConflict)
    assert f"is {ZONES[0]}/new-n0 by now" in str(found["n0"])
    assert all(isinstance(found[f"n{number}"], Instance) for number in range(1, count))


async def test_many_that_were_renamed_cost_a_list(gce: Gce) -> None:
    lost = [f"n{number}" for number in range(30)]
    found = await renamed(gce, count=40, lost=lost)
    assert all(isinstance(found[one], IdentityConflict) for one in lost)
    assert gce.calls.count("compute.instances.get") <= SAMPLE


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("count", [3, 10])
async def test_one_that_was_deleted_is_gone(gce: Gce, count: int, *, has_ids: bool) -> None:
    found = await renamed(gce, count=count, deed="delete", has_ids=has_ids)
    assert found["n0"] == NotFound()


@pytest.mark.parametrize(
    ("other", "goes"),
    [
        (node("new-n0"), True),
        (node("new-n0", f"gce://{PROJECT}/{ZONES[0]}/new-n0"), True),
        (node("new-n0", f"gce://{PROJECT}/{ZONES[1]}/new-n0"), False),
        (node("liar", f"gce://{PROJECT}/{ZONES[0]}/new-n0"), False),
    ],
    ids=["without an id", "its own", "another zone's", "of another name"],
)
async def test_a_node_goes_once_the_machine_has_one_of_its_new_name(
    gce: Gce, other: Node, *, goes: bool
) -> None:
    found = (await renamed(gce, other))["n0"]
    assert found == NotFound() if goes else isinstance(found, IdentityConflict)


@pytest.mark.parametrize(("status", "goes"), [(400, True), (404, True), (500, False)])
async def test_a_request_by_id_that_fails_is_no_absence(
    gce: Gce, status: int, *, goes: bool
) -> None:
    """One that Google does not take, or knows nothing of, tells nothing."""
    gce.run("n0")
    async with started(config_text(gce)) as provider:
        await described(provider, node_of("n0"))
        id_ = gce.one("instances", "n0")["id"]
        gce.rename("n0", "new-n0")
        gce.fail(
            "compute.instances.get", status=status, times=100, target=f"/{id_}", message="What?"
        )
        found = (await described(provider, node_of("n0")))["n0"]
        assert found == NotFound() if goes else isinstance(found, CloudError)
