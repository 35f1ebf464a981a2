"""The forms of requests and answers, as the types of the vendor's SDK for Go say them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

TYPES: Final[Mapping[str, Mapping[str, tuple[str, bool]]]] = json.loads(
    Path(__file__).with_name("types.json").read_text()
)
_PLAIN: Final = {"string": str, "bool": bool, "int": int, "uint16": int}
TOLERATED: Final = frozenset({"allocateVip"})
"""Fields of requests that the SDK lacks; the API passes over what it does not know."""
LEFT_OUT: Final = frozenset({"clusterProperty"})
"""Fields that the SDK always sends and the documents do not ask for."""


def wrong(name: str, value: Any, *, is_request: bool = False) -> list[str]:
    """What does not fit into a type: fields that it lacks, or values of other types."""
    if not isinstance(value, Mapping):
        return [f"{name}: {value!r} is no object"]
    fields, package = TYPES[name], name.partition(".")[0]
    found = []
    for key, given in value.items():
        if given is None and is_request:
            continue
        if key not in fields:
            if not (is_request and key in TOLERATED):
                found.append(f"{name} has no field {key}")
            continue
        found += _wrong(package, f"{name}.{key}", fields[key][0], given, is_request=is_request)
    return found


def missing(name: str, value: Mapping[str, Any]) -> list[str]:
    """The fields of a request that must not be left out and are."""
    return [
        key
        for key, (_, may_lack) in TYPES[name].items()
        if not may_lack and key not in value and key not in LEFT_OUT
    ]


def _wrong(package: str, place: str, type_: str, given: Any, *, is_request: bool) -> list[str]:
    type_ = type_.removeprefix("*")
    if type_.startswith("[]"):
        if not isinstance(given, list):
            return [f"{place}: {given!r} is no list"]
        inner = type_.removeprefix("[]")
        return [
            text
            for one in given
            for text in _wrong(package, place, inner, one, is_request=is_request)
        ]
    if type_ in _PLAIN:
        is_right = isinstance(given, _PLAIN[type_]) and (type_ == "bool") == isinstance(given, bool)
        return [] if is_right else [f"{place}: {given!r} is no {type_}"]
    name = type_ if "." in type_ else f"{package}.{type_}"
    if name in TYPES:
        return wrong(name, given, is_request=is_request)
    return [] if isinstance(given, str) else [f"{place}: {given!r} is no {type_}"]
