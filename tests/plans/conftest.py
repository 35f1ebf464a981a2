"""What a patch does to an object, computed as the API server does, for the tests of plans."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proreus.kube.objects import Node
from proreus.kube.patch import Patch

ApplyPatch = Callable[[Node, Patch], Node]


@pytest.fixture
def apply_patch() -> ApplyPatch:
    """Applies a JSON patch, or a strategic merge patch of a node's status, to a Node."""
    return _applied


def _applied(node: Node, patch: Patch) -> Node:
    document = _pruned(msgspec.to_builtins(node))
    body = msgspec.json.decode(msgspec.json.encode(patch.body))
    if isinstance(body, list):
        for op in body:
            _apply_op(document, op)
    elif body:
        _merge_status(document, body)
    return msgspec.convert(document, Node)


def _pruned(value: Any) -> Any:
    """Without empty fields, as the API server's JSON; absent parents matter to JSON patches."""
    if isinstance(value, dict):
        pruned = {k: _pruned(v) for k, v in value.items()}
        return {
            k: v
            for k, v in pruned.items()
            if v not in ("", None, {}, [], ()) or k in ("metadata", "spec", "status")
        }
    if isinstance(value, list | tuple):
        return [_pruned(item) for item in value]
    return value


def _apply_op(document: dict[str, Any], op: dict[str, Any]) -> None:
    *parents, leaf = [
        part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:]
    ]
    target: Any = document
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if isinstance(target, list) and op["op"] == "add":
        target.insert(len(target) if leaf == "-" else int(leaf), op["value"])
        return
    key: Any = int(leaf) if isinstance(target, list) else leaf
    if op["op"] == "test":
        found = target[key] if isinstance(target, list) else target.get(key)
        assert found == op.get("value"), f"the test failed: {op}"
    elif op["op"] == "remove":
        del target[key]
    else:
        assert op["op"] in ("add", "replace")
        assert op["op"] == "add" or key in target
        target[key] = copy.deepcopy(op["value"])


def _merge_status(document: dict[str, Any], body: dict[str, Any]) -> None:
    assert set(body) <= {"metadata", "status"}
    assert body["metadata"]["uid"] == document["metadata"]["uid"]
    status = document["status"]
    for field, value in body["status"].items():
        if field == "addresses":
            entries = [entry for entry in value if "$patch" not in entry]
            assert {"$patch": "replace"} in value
            status["addresses"] = entries
        else:
            assert field == "conditions"
            by_type = {c["type"]: c for c in status.get("conditions", [])}
            for entry in value:
                by_type[entry["type"]] = {**by_type.get(entry["type"], {}), **entry}
            status["conditions"] = list(by_type.values())
