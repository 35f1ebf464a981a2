"""A node's merges on the API server: what they do, and what comes of them in a race."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from proreus.kube import config, patch
from proreus.kube.client import Client, Written
from proreus.kube.errors import Conflict
from proreus.kube.objects import Condition, Node, NodeAddress, Taint, WholeTaints
from proreus.kube.patch import Edit, Patch, PatchType
from proreus.kube.requests import NODES, Resource
from proreus.kube.watch import Applied, watch
from proreus.runtime.writes import WriteResult, write_node
from proreus.testing.controlplane import ControlPlane

from .memory_plane import MemoryPlane

OURS = {"key": "example.com/ours", "value": "true", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
LABELS: Mapping[str, str | None] = {"zone": "z", "changed": "new", "gone": None}
RAW = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict[str, Any])

Deed = Callable[[], Awaitable[object]]


@pytest.fixture
async def client(api_server: ControlPlane | MemoryPlane) -> AsyncIterator[Client]:
    async with Client(config.load(str(api_server.kubeconfig), env={})) as client:
        yield client


async def made(client: Client, *taints: dict[str, Any]) -> Node:
    """A node with labels, our taint and others."""
    name = f"node-{uuid4().hex[:8]}"
    labels = {"kept": "yes", "changed": "old", "gone": "soon"}
    body = {
        "metadata": {"name": name, "labels": labels, "annotations": {"kept": "yes"}},
        "spec": {"taints": [*taints, OURS]},
    }
    await client.create(NODES, body)
    return await client.get(NODES, name)


def planned(node: Node) -> tuple[Patch, Edit]:
    """What an initialisation writes."""
    status = patch.status(
        node.metadata.uid,
        addresses=(NodeAddress("InternalIP", "10.0.0.1"), NodeAddress("InternalIP", "fd00::1")),
        conditions=(Condition("CloudInitialized", "True", "Initialized"),),
    )
    main = patch.node_edit(
        node,
        new_labels=LABELS,
        new_annotations={"ours": "x"},
        provider_id="cloud://one",
        new_taints=tuple(one for one in node.spec.taints if one.key != OURS["key"]),
    )
    return status, main


class Crowd:
    """A client with others beside it: each does something before one of the node's patches."""

    def __init__(self, client: Client, *deeds: Deed | None) -> None:
        self.sent: list[str] = []
        self.answered: list[Written] = []
        self._client = client
        self._deeds = iter(deeds)

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        namespace: str = "",
        subresource: str = "",
    ) -> Written:
        if deed := next(self._deeds, None):
            await deed()
        is_merge = patch.type is PatchType.STRATEGIC
        versioned = is_merge and "resourceVersion" in patch.body["metadata"]
        form = "versioned" if versioned else "merge" if is_merge else "tested"
        self.sent.append(f"{subresource or 'main'} {form}")
        return await self._client.patch(resource, name, patch, namespace, subresource)


async def written(crowd: Crowd, node: Node) -> WriteResult:
    status, main = planned(node)
    return await write_node(crowd, node.metadata.name, status=status, main=main)


def content(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A node without what differs between two alike."""
    meta = {key: raw["metadata"].get(key) for key in ("labels", "annotations")}
    return {"metadata": meta, "spec": raw["spec"], "status": raw["status"]}


async def test_taints_are_read_whole_by_get_list_and_watch(client: Client) -> None:
    node = await made(client, FOREIGN)
    assert isinstance(node.spec.taints, WholeTaints)
    (listed,) = (
        one for one in (await client.list(NODES)).items if one.metadata.name == node.metadata.name
    )
    assert isinstance(listed.spec.taints, WholeTaints)
    assert listed == node

    async with aclosing(
        watch(client, NODES, backoff=lambda _: 0.1, on_error=lambda _: None)
    ) as events:
        await anext(events)
        change = patch.node_edit(node, new_labels={"zone": "z"})
        await client.patch(NODES, node.metadata.name, change.tested)
        event = await anext(events)

    assert isinstance(event, Applied)
    assert event.object.metadata.labels["zone"] == "z"
    assert isinstance(event.object.spec.taints, WholeTaints)


async def test_merges_have_the_effect_of_the_tested_patches(client: Client) -> None:
    merged, tested = [await made(client, FOREIGN) for _ in range(2)]
    crowd = Crowd(client)

    result = await written(crowd, merged)
    status, main = planned(tested)
    await client.patch(NODES, tested.metadata.name, status, subresource="status")
    await client.patch(NODES, tested.metadata.name, main.tested)

    assert crowd.sent == ["status versioned", "main versioned"]
    raw, other = [await client.get(RAW, one.metadata.name) for one in (merged, tested)]
    assert content(raw) == content(other)
    assert raw["spec"]["taints"][0] == FOREIGN
    assert OURS["key"] not in {one["key"] for one in raw["spec"]["taints"]}
    assert raw["metadata"]["labels"] == {"kept": "yes", "changed": "new", "zone": "z"}
    assert result == WriteResult(
        Written(raw["metadata"]["uid"], int(raw["metadata"]["resourceVersion"]))
    )


async def test_the_last_taint_goes_by_a_merge(client: Client) -> None:
    node = await made(client)
    ours = tuple(one for one in node.spec.taints if one.key == OURS["key"])
    alone = patch.node_edit(node, new_taints=ours)
    await write_node(client, node.metadata.name, status=patch.status("u"), main=alone)
    node = await client.get(NODES, node.metadata.name)
    assert node.spec.taints == ours
    crowd = Crowd(client)

    result = await written(crowd, node)

    assert result.error is None
    assert crowd.sent == ["status versioned", "main versioned"]
    assert (await client.get(NODES, node.metadata.name)).spec.taints == ()


def others(client: Client, node: Node) -> dict[str, Deed]:
    """What others may do to the node, each in one write."""
    name = node.metadata.name

    async def heartbeat() -> None:
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await client.patch(NODES, name, Patch(PatchType.STRATEGIC, ready), subresource="status")

    async def label() -> None:
        labels = {"metadata": {"labels": {"theirs": "x", "kept": None}}}
        await client.patch(NODES, name, Patch(PatchType.MERGE, labels))

    async def taint() -> None:
        now = await client.get(NODES, name)
        new = Taint("example.com/theirs", "NoExecute")
        change = patch.node_edit(now, new_taints=(*now.spec.taints, new))
        await client.patch(NODES, name, change.tested)

    return {"heartbeat": heartbeat, "label": label, "taint": taint}


RACES = {
    0: ["status versioned", "status merge", "main tested"],
    1: ["status versioned", "main versioned", "main tested"],
}


@pytest.mark.parametrize("deed", ["heartbeat", "label", "taint"])
@pytest.mark.parametrize("moment", RACES)
async def test_what_others_write_between_stays_and_ours_is_done(
    client: Client, deed: str, moment: int
) -> None:
    node = await made(client, FOREIGN)
    done = others(client, node)[deed]
    crowd = Crowd(client, *[None] * moment, done)

    result = await written(crowd, node)

    assert result.error is None
    assert crowd.sent == RACES[moment]
    after = await client.get(RAW, node.metadata.name)
    keys = [one["key"] for one in after["spec"]["taints"]]
    assert OURS["key"] not in keys
    assert FOREIGN in after["spec"]["taints"]
    assert after["spec"]["providerID"] == "cloud://one"
    ready = [one for one in after["status"]["conditions"] if one["type"] == "Ready"]
    labels = after["metadata"]["labels"]
    assert bool(ready) == (deed == "heartbeat")
    assert ("theirs" in labels, "kept" in labels) == (deed == "label", deed != "label")
    assert ("example.com/theirs" in keys) == (deed == "taint")
    assert labels["zone"] == "z"


@pytest.mark.parametrize("moment", RACES)
async def test_a_provider_id_that_somebody_else_set_stays_and_is_a_conflict(
    client: Client, moment: int
) -> None:
    node = await made(client, FOREIGN)

    async def set_id() -> None:
        body = {"spec": {"providerID": "cloud://theirs"}}
        await client.patch(NODES, node.metadata.name, Patch(PatchType.MERGE, body))

    crowd = Crowd(client, *[None] * moment, set_id)
    result = await written(crowd, node)

    assert crowd.sent == RACES[moment]
    assert isinstance(result.error, Conflict)
    assert result.error.code == 422
    after = await client.get(NODES, node.metadata.name)
    assert after.spec == replace(node.spec, provider_id="cloud://theirs")
    assert after.metadata.labels == node.metadata.labels


@pytest.mark.parametrize("moment", [0, 1])
async def test_a_node_made_anew_is_never_written(client: Client, moment: int) -> None:
    node = await made(client, FOREIGN)
    name = node.metadata.name

    async def anew() -> None:
        await client.delete(NODES, name)
        await client.create(NODES, {"metadata": {"name": name}, "spec": {"taints": [OURS]}})

    result = await written(Crowd(client, *[None] * moment, anew), node)

    assert isinstance(result.error, Conflict)
    after = await client.get(NODES, name)
    assert after.metadata.uid != node.metadata.uid
    assert after.spec.provider_id == ""
    assert OURS["key"] in {one.key for one in after.spec.taints}
    assert not after.metadata.labels
    assert after.status.addresses == ()


async def test_a_taint_with_a_field_that_is_not_known_keeps_it(in_memory: MemoryPlane) -> None:
    async with Client(config.load(str(in_memory.kubeconfig), env={})) as client:
        newer = {**FOREIGN, "future": {"a": ["]"]}}
        node = await made(client, newer)
        crowd = Crowd(client)

        result = await written(crowd, node)

        assert result.error is None
        assert crowd.sent == ["status merge", "main tested"]
        raw = await client.get(RAW, node.metadata.name)
        assert raw["spec"]["taints"][0] == newer
        assert OURS["key"] not in {one["key"] for one in raw["spec"]["taints"]}
