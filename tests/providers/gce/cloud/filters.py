"""The filters of lists: equality by AIP-160, and the old one of regular expressions."""

import re
from collections.abc import Mapping
from typing import Any

from .errors import invalid

_OLD = re.compile(r"\(?\s*([\w.]+)\s+(eq|ne)\s+(.+?)\s*\)?")
_NEW = re.compile(r"([\w.-]+)\s*(=|!=|:)\s*(\S+)")


def selects(filter_: str, resource: Mapping[str, Any]) -> bool:
    """Whether a filter selects a resource."""
    if not filter_:
        return True
    old = [part for part in re.split(r"\)\s*\(", filter_) if part]
    if all(_OLD.fullmatch(part) for part in old):
        return all(_old(part, resource) for part in old)
    for part in re.split(r"\s+AND\s+|\s+", filter_):
        found = _NEW.fullmatch(part.strip("()"))
        if found is None:
            raise invalid("filter", filter_, "Invalid list filter expression.")
        field, operator, value = found.groups()
        shown = _value(field, resource)
        value = value.strip('"')
        is_like = shown is not None and (value == "*" or str(shown) == value)
        if is_like is (operator == "!="):
            return False
    return True


def _old(part: str, resource: Mapping[str, Any]) -> bool:
    found = _OLD.fullmatch(part)
    assert found is not None
    field, operator, pattern = found.groups()
    shown = _value(field, resource)
    is_like = re.fullmatch(pattern.strip("'\""), str(shown or "")) is not None
    return is_like is (operator == "eq")


def _value(field: str, resource: Mapping[str, Any]) -> Any:
    value: Any = resource
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
