"""Apply patches to an object in memory, and describe them in words. Pure.

Later controllers decide from what earlier ones write: a node that gets its provider id becomes a
host of load balancers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proreus.kube.objects import Node
from proreus.kube.patch import Patch, PatchType

_MAPS = {"labels": "label", "annotations": "annotation"}


def applied(node: Node, *patches: Patch | None) -> Node:
    """Return the node after our controllers' patches: JSON patches, and those of status."""
    document = _json(node)
    for patch in patches:
        if not patch:
            continue
        body = _json(patch.body)
        if patch.type is PatchType.JSON:
            for op in body:
                _operate(document, op)
        else:
            _merge(document["status"], body["status"])
    return msgspec.convert(document, Node)


def _operate(document: Any, op: Mapping[str, Any]) -> None:
    *parents, leaf = _parts(op["path"])
    target: Any = document
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if op["op"] == "test":
        return  # the patch was made from this very object
    if isinstance(target, list) and leaf == "-":
        target.append(op["value"])
    elif op["op"] == "remove":
        del target[int(leaf) if isinstance(target, list) else leaf]
    else:
        target[leaf] = op["value"]


def _merge(status: dict[str, Any], body: Mapping[str, Any]) -> None:
    if "addresses" in body:
        status["addresses"] = [address for address in body["addresses"] if "$patch" not in address]
    by_type = {condition["type"]: condition for condition in status["conditions"]}
    for condition in body.get("conditions", ()):
        by_type[condition["type"]] = condition
    status["conditions"] = list(by_type.values())


def lines(node: Node, *patches: Patch | None) -> tuple[str, ...]:
    """Describe what the patches change, a line for each part."""
    described: list[str] = []
    for patch in patches:
        if not patch:
            continue
        body = _json(patch.body)
        if patch.type is PatchType.JSON:
            described += _operations(_json(node), body)
        else:
            described += _status(body["status"])
    return tuple(described)


def _operations(document: Any, ops: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for op in ops:
        parts = _parts(op["path"])
        if op["op"] == "test" or parts[0] not in document:
            continue
        if parts[:2] == ["spec", "taints"]:
            yield from _taints(document, op, parts)
        elif parts[0] == "metadata" and parts[1] in _MAPS:
            before = document["metadata"][parts[1]]
            values = {parts[2]: op.get("value")} if len(parts) > len("ab") else op["value"]
            for key, value in values.items():
                yield _entry(_MAPS[parts[1]], key, before.get(key), value)
        else:
            yield f"+ {'.'.join(parts)}: {_text(op.get('value'))}"


def _entry(kind: str, key: str, before: str | None, value: str | None) -> str:
    if value is None:
        return f"- {kind} {key}={before}"
    return f"+ {kind} {key}={value}" if before is None else f"~ {kind} {key}={before} -> {value}"


def _taints(document: Any, op: Mapping[str, Any], parts: Sequence[str]) -> Iterator[str]:
    if op["op"] == "remove":
        taint = document["spec"]["taints"][int(parts[2])]
        yield f"- taint {taint['key']}:{taint['effect']}"
        return
    value = op["value"]
    for taint in value if isinstance(value, list) else (value,):
        yield f"+ taint {taint['key']}:{taint['effect']}"


def _status(body: Mapping[str, Any]) -> Iterator[str]:
    if "addresses" in body:
        given = [address for address in body["addresses"] if "$patch" not in address]
        yield "~ addresses: " + ", ".join(f"{one['type']} {one['address']}" for one in given)
    for condition in body.get("conditions", ()):
        state = f"{condition['type']}={condition['status']} ({condition['reason']})"
        yield f"~ condition {state}: {condition['message']}"


def _json(value: Any) -> Any:
    """Return the value as JSON holds it: lists and dicts."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
