"""Convert the text of a cloud-config's value to the type of its field."""

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from proreus.cloudprovider.config_tree import plain

_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_INTEGER = re.compile(r"[+-]?\d+|[+-]?0[xX][0-9a-fA-F]+")
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip


def python_value(text: str, type_: object) -> object:
    """Return a value as gcfg understands it, where msgspec would read it otherwise.

    Raises:
        ValueError: The text has another form; the message does not show it.
    """
    base = shape(type_)[0]
    if base is bool:
        if text.strip().lower() not in _BOOLEANS:
            raise ValueError("must be true or false")
        return _BOOLEANS[text.strip().lower()]
    if base is int:
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError("must be a whole number")
        return int(text, 16) if "x" in text.lower() else int(text)
    if base is timedelta:
        return _duration(text.strip())
    return text


def _duration(text: str) -> timedelta:
    """Parse a duration as Go writes it, such as 1h30m or 500ms; refuse one without a unit."""
    sign = -1 if text.startswith("-") else 1
    rest = text.lstrip("+-")
    if not re.fullmatch(rf"0|(?:{_DURATION_PART.pattern})+", rest):
        raise ValueError("must be a duration with its unit, such as 30s or 1m30s")
    parts = _DURATION_PART.findall(rest)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        return sign * timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("is too long a duration") from None


def shape(type_: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the class behind a type annotation, and its arguments."""
    if typing.get_origin(type_) is typing.Annotated:
        return shape(typing.get_args(type_)[0])
    origin = typing.get_origin(type_)
    plain = {Mapping: dict, Sequence: tuple}.get(origin, origin)
    return plain or type_, typing.get_args(type_)


def names_in(type_: Any) -> frozenset[str]:
    """Return the names of all fields of a Struct, and of the Structs within it, as `plain` does."""
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return frozenset().union(*map(names_in, typing.get_args(type_)))
    fields = msgspec.structs.fields(type_)
    own = (plain(name) for field in fields for name in (field.name, field.encode_name))
    return frozenset(own).union(*(names_in(field.type) for field in fields))


def camel_case(*acronyms: str) -> Callable[[str], str]:
    """Name fields as Go's config Structs do: `rename=camel_case("ID", "VPC")` of a Struct.

    The names appear in messages and in the documentation; a file may spell them otherwise.

    Args:
        acronyms: The words that are written in capitals, such as ID.
    """

    def rename(field: str) -> str:
        words = (word.upper() for word in field.strip("_").split("_"))
        return "".join(word if word in acronyms else word.capitalize() for word in words)

    return rename
