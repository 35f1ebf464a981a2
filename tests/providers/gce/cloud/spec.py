"""Google's description of the API: which requests there are, and which are well-formed."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .errors import ApiError, invalid
from .reduce import SPEC

_UNIVERSAL: Final = frozenset({"alt", "prettyPrint", "fields", "key", "quotaUser", "$.xgafv"})
"""Parameters of all requests."""
_LARGE: Final = {"int64", "uint64"}
"""Numbers that are texts in JSON."""


class Method:
    """A method of the API."""

    def __init__(self, id_: str, described: Mapping[str, Any], schemas: Mapping[str, Any]) -> None:
        self.id = id_
        self.collection, self.verb = id_.removeprefix("compute.").split(".")
        self.method: str = described["method"]
        self.path: str = described["path"]
        self._parameters: Mapping[str, Any] = described["parameters"]
        self._request: str = described["request"]
        self._schemas = schemas
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path)
        self._pattern = re.compile(pattern)

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """The parameters in a path; None if it is none of this method."""
        found = self._pattern.fullmatch(path) if method == self.method else None
        return found.groupdict() if found else None

    def check(self, path: Mapping[str, str], query: Mapping[str, str], body: Any) -> None:
        """Refuse what the description does not allow."""
        for name, value in path.items():
            pattern = self._parameters[name].get("pattern")
            if pattern and not re.fullmatch(pattern, value):
                raise invalid(name, value, f"Must be a match of regex '{pattern}'")
        for name, value in query.items():
            described = self._parameters.get(name)
            if name in _UNIVERSAL:
                continue
            if described is None or described["location"] != "query":
                raise ApiError(
                    400, "invalidParameter", f'Invalid JSON payload: Unknown name "{name}"'
                )
            _parameter(name, value, described)
        for name, described in self._parameters.items():
            if described.get("required") and name not in path and name not in query:
                raise ApiError(400, "required", f"Required parameter: {name}")
        if self._request:
            if not isinstance(body, dict):
                raise ApiError(400, "required", "Required parameter: resource")
            for problem in self._wrong(body, self._schemas[self._request], "resource"):
                raise problem
        elif body is not None:
            raise ApiError(400, "badRequest", "Request body is not allowed")

    def _wrong(self, value: Any, schema: Mapping[str, Any], place: str) -> Iterator[ApiError]:
        if reference := schema.get("$ref"):
            schema = self._schemas[reference]
        kind = schema.get("type", "any")
        if value is None:
            return
        if not _is_of(value, kind, schema.get("format", "")):
            yield invalid(place, value, f"It must be of type {kind}")
        elif kind == "object":
            for key, one in value.items():
                inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
                if inner is None:
                    yield ApiError(
                        400,
                        "badRequest",
                        f'Invalid JSON payload. Unknown name "{key}" at "{place}"',
                    )
                    return
                yield from self._wrong(one, inner, f"{place}.{key}")
        elif kind == "array":
            for number, one in enumerate(value):
                yield from self._wrong(one, schema["items"], f"{place}[{number}]")
        elif enum := schema.get("enum"):
            if value not in enum:
                yield invalid(place, value)
        elif (pattern := schema.get("pattern")) and value and not re.fullmatch(pattern, value):
            yield invalid(place, value, f"Must be a match of regex '{pattern}'")


def _is_of(value: Any, kind: str, form: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str) and (form not in _LARGE or value.lstrip("-").isdigit())
    return True


def _parameter(name: str, value: str, described: Mapping[str, Any]) -> None:
    if described["type"] == "integer" and not value.isdigit():
        raise ApiError(400, "invalidParameter", f"Invalid value for {name}: {value}")
    if described["type"] == "boolean" and value not in {"true", "false"}:
        raise ApiError(400, "invalidParameter", f"Invalid value for {name}: {value}")
    if name == "maxResults" and int(value) > 500:
        raise invalid("maxResults", value, "Values must be within the range: [0, 500]")


@functools.cache
def methods() -> tuple[Method, ...]:
    """All methods."""
    document = json.loads(SPEC.read_text())
    return tuple(Method(id_, one, document["schemas"]) for id_, one in document["methods"].items())


def find(method: str, path: str) -> tuple[Method, dict[str, str]]:
    """The method of a request, and the parameters in its path."""
    for one in methods():
        if (parameters := one.match(method, path)) is not None:
            return one, parameters
    raise ApiError(404, "notFound", f"{method} {path} is no method of this API")
