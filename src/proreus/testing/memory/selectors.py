"""Parse label and field selectors. Pure."""

from typing import Any

from proreus.testing.memory.rules import Object
from proreus.testing.memory.store import ApiError, Matches


def matcher(labels: str, fields: str) -> Matches | None:
    """Return a test whether an object fits both selectors; None if both are empty.

    Raises:
        ApiError: A selector cannot be read (400).
    """
    tests = [_label_test(term) for term in _terms(labels)] + [
        _field_test(term) for term in _terms(fields)
    ]
    return (lambda body: all(test(body) for test in tests)) if tests else None


def _terms(text: str) -> list[str]:
    return [term.strip() for term in text.split(",") if term.strip()]


def _label_test(term: str) -> Matches:
    if any(character in term for character in "()<> "):
        raise ApiError(400, "BadRequest", f"set-based requirement {term!r} is not supported here")
    key, operator, value = _parts(term)

    def test(body: Object) -> bool:
        labels: dict[str, Any] = body["metadata"].get("labels") or {}
        if operator == "!=":
            return labels.get(key) != value
        if operator == "=":
            return labels.get(key) == value
        return key[1:] not in labels if key.startswith("!") else key in labels

    return test


def _field_test(term: str) -> Matches:
    path, operator, value = _parts(term)
    if not operator:
        raise ApiError(400, "BadRequest", f"field selector {term!r} has no operator")

    def test(body: Object) -> bool:
        found: Any = body
        for key in path.split("."):
            found = found.get(key, "") if isinstance(found, dict) else ""
        return (str(found) == value) is (operator == "=")

    return test


def _parts(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        left, found, right = term.partition(operator)
        if found:
            return left, "!=" if operator == "!=" else "=", right
    return term, "", ""
