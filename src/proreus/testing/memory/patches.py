"""Apply the patch kinds of the Kubernetes API to plain JSON values. Pure.

JSON Patch is RFC 6902, merge patch RFC 7386; strategic merge follows the API's conventions, for
the lists that Nodes, Services and Events have.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = Any

MERGE_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "ownerReferences": "uid",
    "ports": "port",
}
"""Lists of objects that are merged by a key; all others are replaced."""
PRIMITIVE_SETS: Final = frozenset({"finalizers", "podCIDRs"})
"""Lists of strings that are merged as sets."""
_DIRECTIVES: Final = ("$patch", "$deleteFromPrimitiveList/", "$setElementOrder/", "$retainKeys")


class PatchError(Exception):
    """The error that a patch does not apply: a failed test, or a missing path (422)."""


def json_patch(target: Json, operations: Sequence[Mapping[str, Any]]) -> Json:
    """Apply a JSON Patch.

    Raises:
        PatchError: An operation does not apply.
    """
    for operation in operations:
        target = _operate(target, operation)
    return target


def merge_patch(target: Json, change: Json) -> Json:
    """Apply a JSON merge patch: null removes, objects are merged, all else is replaced."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(target: Json, change: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a strategic merge patch.

    Raises:
        PatchError: The patch has a directive that is not known, or an entry without its merge key.
    """
    result = dict(target) if isinstance(target, Mapping) else {}
    if change.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in change.items() if key != "$patch"}
    for key, value in change.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [one for one in result.get(name) or () if one not in value]
        elif key.startswith("$"):
            if not key.startswith(_DIRECTIVES):
                raise PatchError(f"unknown directive of a strategic merge patch: {key}")
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = strategic_merge(result.get(key), value)
        elif isinstance(value, list):
            result[key] = _merged_list(key, result.get(key) or [], value)
        else:
            result[key] = value
    return result


def _merged_list(name: str, present: list[Any], change: list[Any]) -> list[Any]:
    if name in PRIMITIVE_SETS:
        return present + [one for one in change if one not in present]
    by = MERGE_KEYS.get(name)
    if not by:
        return copy.deepcopy(change)
    if any(one.get("$patch") == "replace" for one in change):
        return [copy.deepcopy(one) for one in change if "$patch" not in one]
    merged = list(present)
    for entry in change:
        if by not in entry:
            raise PatchError(f"{name}: an entry has no {by}")
        places = [i for i, one in enumerate(merged) if one.get(by) == entry[by]]
        if entry.get("$patch") == "delete":
            merged = [one for one in merged if one.get(by) != entry[by]]
        elif places:
            merged[places[0]] = strategic_merge(merged[places[0]], entry)
        else:
            merged.append(copy.deepcopy(entry))
    return merged


def _operate(document: Json, operation: Mapping[str, Any]) -> Json:
    op, path = operation.get("op"), _pointer(operation.get("path"))
    if op == "test":
        if _found(document, path, absent_leaf=True) != operation.get("value"):
            raise PatchError(f"testing path {operation['path']} value failed")
        return document
    if op in {"add", "replace"}:
        return _set(document, path, copy.deepcopy(operation.get("value")), add=op == "add")
    if op == "remove":
        return _removed(document, path)
    if op in {"move", "copy"}:
        source = _pointer(operation.get("from"))
        value = copy.deepcopy(_found(document, source))
        if op == "move":
            document = _removed(document, source)
        return _set(document, path, value, add=True)
    raise PatchError(f"unknown operation {op!r}")


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _found(document: Json, path: Sequence[str], *, absent_leaf: bool = False) -> Json:
    """Return the value at a path; an absent last key of an object is null, if that is allowed."""
    for depth, key in enumerate(path):
        if isinstance(document, list):
            document = document[_index(document, key)]
        elif isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, dict) and absent_leaf and depth == len(path) - 1:
            return None
        else:
            raise PatchError(f"the path /{'/'.join(path)} is not there")
    return document


def _opened(document: Json, path: Sequence[str]) -> tuple[Json, Json]:
    """Return a copy of the document in which the part at the path may be changed, and that part.

    Only the parts on the path are copied.
    """
    _found(document, path)
    document = parent = copy.copy(document)
    for key in path:
        place = _index(parent, key) if isinstance(parent, list) else key
        parent[place] = copy.copy(parent[place])
        parent = parent[place]
    return document, parent


def _set(document: Json, path: Sequence[str], value: Json, *, add: bool) -> Json:
    if not path:
        return value
    document, parent = _opened(document, path[:-1])
    key = path[-1]
    if isinstance(parent, list):
        if add:
            parent.insert(len(parent) if key == "-" else _index(parent, key, end=True), value)
        else:
            parent[_index(parent, key)] = value
    elif isinstance(parent, dict) and (add or key in parent):
        parent[key] = value
    else:
        raise PatchError(f"the path /{'/'.join(path)} is not there")
    return document


def _removed(document: Json, path: Sequence[str]) -> Json:
    if not path:
        raise PatchError("the whole document cannot be removed")
    document, parent = _opened(document, path[:-1])
    key = path[-1]
    if isinstance(parent, list):
        del parent[_index(parent, key)]
    elif isinstance(parent, dict) and key in parent:
        del parent[key]
    else:
        raise PatchError(f"the path /{'/'.join(path)} is not there")
    return document


def _index(items: list[Any], key: str, *, end: bool = False) -> int:
    if not key.isdecimal() or int(key) >= len(items) + end:
        raise PatchError(f"the list has no entry {key}")
    return int(key)
