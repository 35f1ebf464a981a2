"""A machine that was found by its Node's name is asked for by its id when no name leads to it."""

from collections.abc import Mapping, Sequence

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, Throttled
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.containment.renames import Renames
from proreus.kube.objects import Node
from proreus.testing.objects import node


class Cloud:
    """A cloud that finds machines by their ids, or else by their names."""

    batch_size = 100

    def __init__(self, **machines: str) -> None:
        self.machines = machines
        self.by_id: dict[str, InstanceAnswer] = {}
        self.down: CloudError | None = None
        self.calls: list[list[str]] = []

    def owns(self, _: Node) -> Ownership:
        return Ownership.YES

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        self.calls.append([node.spec.provider_id or node.metadata.name for node in nodes])
        if self.down is not None and any(node.spec.provider_id for node in nodes):
            raise self.down
        return {one.metadata.name: self._answer(one) for one in nodes}

    def _answer(self, node: Node) -> InstanceAnswer:
        id_, name = node.spec.provider_id, node.metadata.name
        found = [
            Instance(provider_id=f"cloud://{key}", name=called)
            for key, called in self.machines.items()
            if (f"cloud://{key}" == id_ if id_ else called == name)
        ]
        return found[0] if found else self.by_id.get(id_, NotFound())


async def asked(renames: Renames, *nodes: Node) -> dict[str, InstanceAnswer]:
    return dict(await renames.describe(nodes))


async def test_a_machine_with_another_name_by_now_is_not_gone() -> None:
    cloud = Cloud(i1="a", i2="b")
    renames, nodes = Renames(cloud), [node("a"), node("b", "cloud://i2")]
    assert isinstance((await asked(renames, *nodes))["a"], Instance)
    cloud.machines["i1"] = "former-a"
    found = await asked(renames, *nodes)
    assert isinstance(found["a"], IdentityConflict)
    assert "cloud://i1, which it found before, is there, called former-a" in str(found["a"])
    assert isinstance(found["b"], Instance)
    assert cloud.calls[1:] == [["a", "cloud://i2"], ["cloud://i1"]]


@pytest.mark.parametrize("by_id", [NotFound(), NotFound(tombstone=True)])
async def test_one_that_is_gone_by_its_id_too_is_gone_without_a_tombstone(by_id: NotFound) -> None:
    cloud = Cloud(i1="a")
    renames = Renames(cloud)
    await asked(renames, node("a"))
    cloud.machines.clear()
    cloud.by_id["cloud://i1"] = by_id
    assert await asked(renames, node("a")) == {"a": NotFound()}


async def test_without_an_answer_about_the_id_nothing_is_known_of_that_node_alone() -> None:
    cloud = Cloud(i1="a", i2="b")
    renames = Renames(cloud)
    await asked(renames, node("a"), node("b"))
    cloud.machines = {"i2": "b"}
    cloud.down = Throttled("slower", after=1.0)
    found = await asked(renames, node("a"), node("b"))
    assert found["a"] is cloud.down
    assert isinstance(found["b"], Instance)


async def test_what_was_never_found_by_the_name_costs_no_second_call() -> None:
    cloud = Cloud(i1="other")
    renames = Renames(cloud)
    nodes = [node("a"), node("b", "cloud://gone")]
    assert await asked(renames, *nodes) == {"a": NotFound(), "b": NotFound()}
    assert await asked(renames, *nodes) == {"a": NotFound(), "b": NotFound()}
    assert len(cloud.calls) == 2


@pytest.mark.parametrize("id_", ["", "cloud://i1"])
async def test_a_machine_that_is_another_nodes_by_now_keeps_none_of_its_former_name(
    id_: str,
) -> None:
    cloud = Cloud(i1="a")
    renames = Renames(cloud)
    await asked(renames, node("a"))
    cloud.machines["i1"] = "b"
    assert isinstance((await asked(renames, node("b", id_)))["b"], Instance)
    assert await asked(renames, node("a")) == {"a": NotFound()}


@pytest.mark.parametrize("order", [("a", "web"), ("web", "a")])
async def test_of_two_nodes_of_one_machine_neither_is_gone_when_both_names_are(
    order: tuple[str, str],
) -> None:
    """As CloudStack finds a machine for `web` and `web.example.com`: one is of a former name."""
    cloud = Cloud(i1="a")
    renames, nodes = Renames(cloud), [node(name) for name in order]
    await asked(renames, node("a"))
    cloud.machines["i1"] = "web"
    await asked(renames, node("web"))
    cloud.machines["i1"] = "a"
    await asked(renames, *nodes)
    cloud.machines["i1"] = "renamed"
    found = await asked(renames, *nodes)
    assert isinstance(found["a"], IdentityConflict)
    assert isinstance(found["web"], IdentityConflict)


async def test_a_machine_is_a_nodes_again_when_the_other_ones_node_is_deleted() -> None:
    cloud = Cloud(i1="a")
    renames = Renames(cloud)
    await asked(renames, node("a"))
    cloud.machines["i1"] = "b"
    await asked(renames, node("b"))
    assert await asked(renames, node("a")) == {"a": NotFound()}
    renames.forget(node("b").metadata.uid)
    assert isinstance((await asked(renames, node("a")))["a"], IdentityConflict)


async def test_what_another_machine_of_the_name_was_counts_no_more() -> None:
    cloud = Cloud(i1="a")
    renames = Renames(cloud)
    await asked(renames, node("a"))
    cloud.machines = {"i1": "former-a", "i2": "a"}
    assert isinstance((await asked(renames, node("a")))["a"], Instance)
    del cloud.machines["i2"]
    assert await asked(renames, node("a")) == {"a": NotFound()}


async def test_nothing_is_known_of_a_node_that_was_deleted() -> None:
    cloud = Cloud(i1="a")
    renames = Renames(cloud)
    await asked(renames, node("a"))
    renames.forget(node("a").metadata.uid)
    cloud.machines["i1"] = "former-a"
    assert await asked(renames, node("a")) == {"a": NotFound()}
