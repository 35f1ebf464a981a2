"""Read the recorded model: which operations there are, and what their bodies may hold."""

import copy
import functools
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from .errors import BAD_JSON, FRAMEWORK, NsxError, invalid
from .limits import LIMITS, READ_ONLY, Limit

Json = dict[str, Any]

MODEL: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("model.json").read_text())
PREFIX: Final = "/policy/api/v1"
_PORTS: Final = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_NONE: Final = Limit()


class Operation(msgspec.Struct, frozen=True):
    """An operation of the API.

    Attributes:
        method: As of HTTP.
        path: Its template.
        query: The types of parameters in its query.
        needed: Those that must be given.
        body: The type of its body, if it has one.
        answer: The type of its answer, if it has one.
    """

    method: str
    path: str
    query: Mapping[str, str]
    needed: list[str]
    body: str = ""
    answer: str = ""

    @property
    def name(self) -> str:
        """What tests call it: `PUT lb-pools`, `LIST lb-pools`, `GET realized-entities`."""
        fixed = [one for one in self.path.split("/") if one and not one.startswith("{")]
        return f"{'LIST' if self.lists else self.method} {fixed[-1]}"

    @property
    def lists(self) -> bool:
        """Whether it lists the objects of a kind."""
        return self.method == "GET" and "page_size" in self.query and "query" not in self.query

    def match(self, parts: Sequence[str]) -> bool:
        """Whether a path, in parts, is one of it."""
        own = self.path.strip("/").split("/")
        return len(own) == len(parts) and all(
            mine.startswith("{") or mine == theirs for mine, theirs in zip(own, parts, strict=True)
        )

    def check_query(self, query: Mapping[str, str]) -> None:
        """Refuse parameters that it has not, or not with these values."""
        wrong = [f"{name} is missing" for name in self.needed if not query.get(name)]
        for name, value in query.items():
            if name not in self.query:
                wrong.append(f"parameter {name} is unknown")
            elif self.query[name] == "integer" and not value.isdigit():
                wrong.append(f"parameter {name} is no integer: {value}")
            elif self.query[name] == "boolean" and value not in {"true", "false"}:
                wrong.append(f"parameter {name} is no boolean: {value}")
        if query.get("page_size", "0").isdigit() and int(query.get("page_size", "0")) > 1000:
            wrong.append("page_size is greater than maximum 1000")
        if wrong:
            raise invalid(wrong)


@functools.cache
def operations() -> tuple[Operation, ...]:
    return tuple(msgspec.convert(one, Operation) for one in MODEL["operations"])


@functools.lru_cache(maxsize=1000)
def _matching(parts: tuple[str, ...]) -> tuple[Operation, ...]:
    return tuple(one for one in operations() if one.match(parts))


def find(method: str, raw: str) -> tuple[Operation, str]:
    """The operation of a request, and the path of the object, such as `/infra/lb-pools/x`."""
    parts = [unquote(one) for one in raw.strip("/").split("/")]
    found = _matching(tuple(parts))
    if not found or any("/" in one for one in parts):
        raise NsxError(404, 98, f"No handler of {raw}", FRAMEWORK)
    for one in found:
        if one.method == method:
            return one, "/" + "/".join(parts[3:])
    raise NsxError(405, 98, f"The method {method} is not allowed for {raw}", FRAMEWORK)


@functools.cache
def fields(name: str) -> Mapping[str, Mapping[str, Any]]:
    """All fields of a type."""
    own = dict(MODEL["types"][name])
    base = own.pop("extends", "")
    return {**fields(base), **own} if base else own


@functools.cache
def limits(name: str) -> Mapping[str, Limit]:
    """The notes of all fields of a type."""
    base = LIMITS["PolicyConfigResource"] if "unique_id" in fields(name) else {}
    return {**base, **LIMITS.get(name, {})}


def read(content: bytes) -> Json:
    """A body."""
    try:
        body = json.loads(content)
    except ValueError as error:
        raise NsxError(400, BAD_JSON, f"Error in json input: {error}", FRAMEWORK) from None
    if not isinstance(body, dict):
        raise NsxError(400, BAD_JSON, "Error in json input: no object", FRAMEWORK)
    return body


def problems(type_: str, value: Any) -> list[str]:
    """All that is wrong with a value of a type."""
    return list(_problems(type_, copy.deepcopy(value), ""))


def filled(type_: str, body: Json) -> tuple[str, Json]:
    """The type that a body is of, and the body with defaults and without what the manager writes.

    Raises:
        NsxError: It is none, with all reasons.
    """
    body = copy.deepcopy(body)
    if wrong := list(_problems(type_, body, "")):
        raise invalid(wrong)
    name = _actual(type_, body)
    for field in READ_ONLY & body.keys() & fields(name).keys():
        del body[field]
    return name, {**body, "resource_type": name}


def _actual(type_: str, value: Any) -> str:
    """The type of a value, which for one of several is named in it."""
    if not type_.startswith("one-of:"):
        return type_
    base = type_.removeprefix("one-of:")
    mark = _mark(base)
    return str(value.get(mark, base))


def _mark(base: str) -> str:
    return (
        "type"
        if "type" in fields(base) and "resource_type" not in fields(base)
        else "resource_type"
    )


def _problems(type_: str, value: Any, place: str) -> Iterator[str]:
    """What is wrong with a value; defaults are filled in."""
    where = place or "body"
    if type_.startswith("list:"):
        if not isinstance(value, list):
            yield f"{where} is no list"
            return
        for number, one in enumerate(value):
            yield from _problems(type_.removeprefix("list:"), one, f"{place}[{number}]")
    elif type_ in {"string", "integer", "boolean", "number", "object"}:
        if not _is(type_, value):
            yield f"{where} is no {type_}: {value!r}"
    elif not isinstance(value, dict):
        yield f"{where} is no object"
    elif type_.startswith("one-of:") and _actual(type_, value) not in _kinds(type_):
        mark = _mark(type_.removeprefix("one-of:"))
        yield f"{place}{'.' if place else ''}{mark} must be one of {sorted(_kinds(type_))}"
    else:
        yield from _object_problems(_actual(type_, value), value, f"{place}." if place else "")


def _kinds(type_: str) -> set[str]:
    base = type_.removeprefix("one-of:")
    return {one for one in fields(base)[_mark(base)]["values"] if one in MODEL["types"]}


def _is(type_: str, value: Any) -> bool:
    match type_:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, dict)


def _object_problems(name: str, value: Json, prefix: str) -> Iterator[str]:
    known, notes = fields(name), limits(name)
    for field in [field for field, one in value.items() if one is None]:
        del value[field]
    for field in value.keys() - known.keys():
        yield f"{prefix}{field} is unknown to {name}"
    for field, said in known.items():
        note = notes.get(field, _NONE)
        if field not in value:
            if note.required or (said.get("required") and field != "resource_type"):
                yield f"{prefix}{field} is missing"
            elif note.default is not None:
                value[field] = note.default
            continue
        found = list(_problems(said["type"], value[field], f"{prefix}{field}"))
        yield from found or _note_problems(said, note, value[field], f"{prefix}{field}")
    if value.get("resource_type", name) != name and prefix == "":
        yield f"resource_type must be {name}"


def _note_problems(said: Mapping[str, Any], note: Limit, value: Any, place: str) -> Iterator[str]:
    each = value if isinstance(value, list) else [value]
    for one in each:
        if "values" in said and one not in said["values"]:
            yield f"{place} must be one of {said['values']}: {one}"
        if "format" in said and not _has_form(said["format"], one):
            yield f"{place} is no {said['format']}: {one}"
    if note.longest is not None and len(value) > note.longest:
        yield f"{place} exceeds maximum length {note.longest}"
    if isinstance(value, list | int) and not isinstance(value, bool):
        size = len(value) if isinstance(value, list) else value
        if note.least is not None and size < note.least:
            yield f"{place} is less than minimum {note.least}"
        if note.most is not None and size > note.most:
            yield f"{place} is greater than maximum {note.most}"


def _has_form(form: str, value: Any) -> bool:
    try:
        match form:
            case "ip":
                ipaddress.ip_address(value)
            case "address-or-block-or-range":
                first, dash, last = value.partition("-")
                if dash:
                    return ipaddress.ip_address(first) <= ipaddress.ip_address(last)  # type: ignore[operator]
                ipaddress.ip_network(value)
            case "port-or-range":
                found = _PORTS.fullmatch(value)
                return found is not None and 0 < int(found[1]) <= int(found[2] or found[1]) < 65536
            case "int32":
                return -(2**31) <= int(value) < 2**31
    except (ValueError, TypeError):
        return False
    return True
