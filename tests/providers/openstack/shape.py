"""What counts of an answer: the same each time, whoever gives it. Pure.

A value is written as its type, such as `int`; as `= ACTIVE` where the request or the service's
vocabulary decides it; and as `{balancer}` where it is something that the script knows. A list is
its length and the union of its elements.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

Json = Any

WORDS: Final = frozenset(
    {
        "code", "faultcode", "lb_algorithm", "operating_status", "protocol", "protocol_port",
        "provisioning_status", "rel", "status", "title", "type",
    }
)  # fmt: skip
"""Fields whose values are words of the service's."""
TEXTS: Final = frozenset({"debuginfo", "detail", "faultstring", "message"})
"""Fields with text for people: ids, addresses and numbers in it do not count."""
BOUNDS: Final = frozenset({"start", "end"})
"""Ends of ranges of addresses, which a server may have by chance."""
OWN: Final = frozenset({"catalog", "endpoints", "roles"})
"""Lists of which the cloud itself decides what is in them."""

_ITS_WORK = frozenset({"operating_status", "provisioning_status", "updated_at"})
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_MASKS = (
    (re.compile(rf"{_UUID}|\b[0-9a-f]{{32}}\b|req-{_UUID}"), "<id>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]+:(?:[0-9a-f]+:)*:[0-9a-f]*"), "<address>"),
    (re.compile(r"\b\d+\b"), "<number>"),
    (re.compile(r"(?<=one of: ).*"), "<words>"),
    (re.compile(r"\[.*\]"), "<list>"),
)


def shape(body: Json, known: Mapping[str, str], sent: Json) -> Json:
    """The shape of an answer.

    Args:
        body: The answer.
        known: Names of what the script knows, by the value.
        sent: The body of the request.
    """
    return _shape("", body, known, set(_scalars("", sent)))


def _scalars(name: str, of: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(of, Mapping):
        for key, value in of.items():
            yield from _scalars(key, value)
    elif isinstance(of, list | tuple):
        for value in of:
            yield from _scalars(name, value)
    else:
        yield name, of


def _shape(name: str, of: Json, known: Mapping[str, str], sent: Collection[Any]) -> Json:
    if isinstance(of, Mapping):
        return {
            key: _shape(key if key in OWN or name not in OWN else "", value, known, sent)
            for key, value in of.items()
        }
    if isinstance(of, list):
        found: list[Json] = []
        for value in of:
            _unite(found, _shape(name, value, known, sent))
        return [0 if name in OWN else len(of), *sorted(found, key=str)]
    return _scalar(name, of, known, sent)


def _scalar(name: str, of: Json, known: Mapping[str, str], sent: Collection[Any]) -> str:
    if of is None:
        return "null"
    if isinstance(of, str) and of in known and name not in BOUNDS:
        return f"{{{known[of]}}}"
    if isinstance(of, str) and name in TEXTS:
        return f"= {masked(of)}"
    if name in WORDS or ((name, of) in sent and not isinstance(of, bool)):
        return f"= {of}"
    return type(of).__name__


def masked(text: str) -> str:
    """A text without what is another one each time."""
    for pattern, mark in _MASKS:
        text = pattern.sub(mark, text)
    return " ".join(text.split())


def _unite(found: list[Json], shape_: Json) -> None:
    """Objects become one, with the fields of all; other shapes stand beside each other."""
    if isinstance(shape_, dict):
        for one in found:
            if isinstance(one, dict):
                for key, value in shape_.items():
                    one[key] = _either(one[key], value) if key in one else value
                return
    if shape_ not in found:
        found.append(shape_)


def _either(one: Json, other: Json) -> Json:
    if one == other:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        found = [dict(one)]
        _unite(found, other)
        return found[0]
    if isinstance(one, list) and isinstance(other, list):
        merged: list[Json] = []
        for value in (*one[1:], *other[1:]):
            _unite(merged, value)
        return [max(one[0], other[0]), *sorted(merged, key=str)]
    if isinstance(one, dict | list) or isinstance(other, dict | list):
        return f"{_word(one)} | {_word(other)}"
    return " | ".join(sorted({*str(one).split(" | "), *str(other).split(" | ")}))


def _word(of: Json) -> str:
    return type(of).__name__ if isinstance(of, dict | list) else str(of)


def disagreements(wire: Json, real: Json, needed: Collection[str], path: str = "") -> list[str]:
    """Where the wire answers what the real service does not.

    Args:
        wire: The shape of the wire's answer.
        real: That of the real one.
        needed: Fields that the wire may not leave out.
        path: Where in the answer.
    """
    if isinstance(wire, dict) and isinstance(real, dict):
        found = [f"{path}.{key}: only the wire has it" for key in wire if key not in real]
        for key, value in real.items():
            if key in wire:
                found += disagreements(wire[key], value, needed, f"{path}.{key}")
            elif key in needed:
                found.append(f"{path}.{key}: the wire lacks it")
        return found
    if isinstance(wire, list) and isinstance(real, list):
        if wire[0] != real[0]:
            return [f"{path}: {wire[0]} elements, really {real[0]}"]
        if len(wire) == len(real):
            pairs = zip(wire[1:], real[1:], strict=True)
            return [one for w, r in pairs for one in disagreements(w, r, needed, f"{path}[]")]
    if wire == real:
        return []
    return [f"{path}: {wire!r}, really {real!r}"]


def steady(answer: Json) -> Json:
    """Without what depends on how far Octavia already is with its work."""
    if isinstance(answer, dict):
        return {name: steady(value) for name, value in answer.items() if name not in _ITS_WORK}
    return [steady(value) for value in answer] if isinstance(answer, list) else answer
