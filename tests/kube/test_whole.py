"""Only taints of which nothing was left out are marked as whole."""

import json
from typing import Any

import msgspec
import pytest

from proreus.kube.objects import Node, NodeSpec, Taint, WholeTaints
from proreus.kube.whole import with_whole_taints

PLAIN: dict[str, Any] = {"key": "a", "effect": "NoSchedule"}
FULL = {"key": "b", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


class Page(msgspec.Struct):
    items: tuple[Node, ...]


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def tainted(*taints: dict[str, Any], name: str = "n", **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations}
    return {"metadata": meta, "spec": {"taints": taints}, "status": {}}


def read(body: bytes) -> Node:
    (node,) = with_whole_taints(body, (msgspec.json.decode(body, type=Node),))
    return node


@pytest.mark.parametrize("taints", [(PLAIN,), (FULL,), (PLAIN, FULL)])
def test_taints_whose_fields_are_all_known_are_whole(taints: tuple[dict[str, Any], ...]) -> None:
    body = compact(tainted(*taints))

    node = read(body)

    assert isinstance(node.spec.taints, WholeTaints)
    assert node == msgspec.json.decode(body, type=Node)
    assert json.loads(msgspec.json.encode(node.spec.taints)) == [*taints]


@pytest.mark.parametrize(
    "more",
    [
        {"future": "x"},
        {"future": ["]"]},
        {"future": '"taints":['},
        {"future": {"taints": [PLAIN]}},
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_taints_of_which_an_entry_has_more_are_not_whole(more: dict[str, Any], place: int) -> None:
    taints = [PLAIN, PLAIN]
    taints[place] = {**PLAIN, **more}
    body = compact(tainted(*taints))

    node = read(body)

    assert node.spec.taints == (Taint("a", "NoSchedule"),) * 2
    assert not isinstance(node.spec.taints, WholeTaints)


def test_a_text_that_looks_like_a_list_of_taints_is_none() -> None:
    node = read(
        compact(tainted({**PLAIN, "future": 1}, note=f'{{"taints":[{json.dumps(PLAIN)}]}}'))
    )

    assert not isinstance(node.spec.taints, WholeTaints)
    assert isinstance(read(compact(tainted(PLAIN, note='"taints":[]'))).spec.taints, WholeTaints)


def test_another_list_of_that_name_leaves_all_unmarked() -> None:
    body = tainted({**PLAIN, "future": 1})
    body["status"] = {"taints": [PLAIN]}

    assert not isinstance(read(compact(body)).spec.taints, WholeTaints)


def test_another_layout_of_the_json_leaves_the_taints_unmarked() -> None:
    assert not isinstance(read(json.dumps(tainted(PLAIN)).encode()).spec.taints, WholeTaints)


def test_taints_that_differ_from_those_in_the_body_are_not_whole() -> None:
    other = Node(spec=NodeSpec(taints=(Taint("other", "NoSchedule"),)))

    (node,) = with_whole_taints(compact(tainted(PLAIN)), (other,))

    assert not isinstance(node.spec.taints, WholeTaints)


def test_each_node_of_a_page_is_judged_by_its_own_list() -> None:
    items = [
        tainted(PLAIN, name="known"),
        {"metadata": {"name": "untainted"}, "spec": {}},
        tainted({**PLAIN, "future": 1}, name="unknown"),
        tainted(FULL, PLAIN, name="known-too"),
    ]
    body = compact({"items": items})

    nodes = with_whole_taints(body, msgspec.json.decode(body, type=Page).items)

    assert [node.metadata.name for node in nodes] == [one["metadata"]["name"] for one in items]
    whole = [isinstance(node.spec.taints, WholeTaints) for node in nodes]
    assert whole == [True, False, False, True]
