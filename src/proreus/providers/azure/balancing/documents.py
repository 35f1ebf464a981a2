"""Change documents of Azure, and only where they differ. Pure.

What is not read of a document stays in it, so nothing that somebody else has set is lost.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proreus.providers.azure.machines import Resource, properties


def agrees(observed: Any, desired: Any) -> bool:
    """Tell whether a value is as desired: ids in any case, None as what is left out."""
    if isinstance(desired, Mapping):
        return isinstance(observed, Mapping) and all(
            _same_id(observed.get(key), value) if key == "id" else agrees(observed.get(key), value)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        is_list = isinstance(observed, list) and len(observed) == len(desired)
        return is_list and all(agrees(*pair) for pair in zip(observed, desired, strict=True))
    if isinstance(observed, str) and isinstance(desired, str):
        return observed.lower() == desired.lower()
    return bool(observed == desired)


def _same_id(observed: Any, desired: Any) -> bool:
    return isinstance(observed, str) and observed.lower() == str(desired).lower()


def with_properties(observed: Resource, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with these properties; the same one if it has them."""
    if agrees(properties(observed), desired):
        return dict(observed)
    merged = {**properties(observed), **desired}
    kept = {key: value for key, value in merged.items() if value is not None}
    return {**observed, "properties": kept}


def changed_parts(
    observed: Sequence[Resource],
    desired: Mapping[str, Mapping[str, Any]],
    drops: Callable[[Resource], bool],
) -> list[dict[str, Any]]:
    """Return the parts of a document: those that are desired, and others' as they are.

    Args:
        observed: The observed parts, each with its name.
        desired: The desired properties of parts, by name.
        drops: Whether a part that is not desired is dropped.
    """
    wanted = {name.lower(): (name, found) for name, found in desired.items()}
    kept = []
    for one in observed:
        found = wanted.pop(str(one.get("name", "")).lower(), None)
        if found is not None:
            kept.append(with_properties(one, found[1]))
        elif not drops(one):
            kept.append(dict(one))
    for name, missing in wanted.values():
        given = {key: value for key, value in missing.items() if value is not None}
        kept.append({"name": name, "properties": given})
    return kept


def copied(resource: Resource) -> dict[str, Any]:
    """Return a copy that can be changed."""
    return copy.deepcopy(dict(resource))


def named_ids(resource: Resource, field: str) -> list[str]:
    """Return the ids, in small letters, that a list of references in the properties names."""
    found = properties(resource).get(field) or ()
    return [str(one.get("id", "")).lower() for one in found if isinstance(one, Mapping)]


def named_id(resource: Resource, field: str) -> str:
    """Return the id, in small letters, that a reference in the properties names; "" without."""
    found = properties(resource).get(field)
    return str(found.get("id", "")).lower() if isinstance(found, Mapping) else ""
