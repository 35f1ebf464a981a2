"""Read one kubeconfig file field by field; each mistake becomes a problem with its path."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from proreus.kube.clientconfig import read_file
from proreus.kube.messages import yaml_problem


class Fields:
    """A reader of the fields of one mapping in a kubeconfig file.

    Whatever has the wrong type is reported to `problems`, with the file and the field and
    without the value, and counts as not given.
    """

    def __init__(self, path: Path, where: str, fields: Any, problems: list[str]) -> None:
        """Wrap a mapping; `where` is its path in the file, "" for the whole file."""
        self._path = path
        self._where = where
        self._problems = problems
        self._fields: Mapping[str, Any] = {}
        if isinstance(fields, Mapping):
            self._fields = fields
        elif fields is not None:
            self.problem("", "is not a mapping")

    def problem(self, field: str, text: str) -> None:
        """Report a mistake in the field, or in the whole mapping if `field` is ""."""
        name = ".".join(filter(None, (self._where, field)))
        self._problems.append(f"{self._path}: {name}: {text}" if name else f"{self._path}: {text}")

    def name(self, field: str) -> str:
        """Return the field's full name, file included, for a problem found elsewhere."""
        return f"{self._path}: {self._where}.{field}"

    def given(self, field: str) -> bool:
        """Tell whether the field has a value that is not empty."""
        return bool(self._fields.get(field))

    def raw(self, field: str) -> Any:
        """Return the field's value unchecked, None if it is absent."""
        return self._fields.get(field)

    def text(self, field: str) -> str:
        """Return the field as a string, "" if it is absent."""
        value = self._fields.get(field)
        if value is None or isinstance(value, str):
            return value or ""
        self.problem(field, "is not a string (quote it)")
        return ""

    def texts(self, field: str) -> tuple[str, ...]:
        """Return the field as a list of strings."""
        values = self._list(field)
        if all(isinstance(value, str) for value in values):
            return values
        self.problem(field, "is not a list of strings (quote them)")
        return ()

    def flag(self, field: str) -> bool:
        """Return the field as a boolean, false if it is absent."""
        value = self._fields.get(field, False)
        if isinstance(value, bool) or value is None:
            return bool(value)
        self.problem(field, "is neither true nor false")
        return False

    def file(self, field: str) -> Path | None:
        """Return the path that the field names, relative to the kubeconfig's directory."""
        value = self.text(field)
        return self.beside(value) if value else None

    def beside(self, path: str) -> Path:
        """Resolve a path relative to the kubeconfig's directory."""
        return self._path.absolute().parent / path

    def content(self, field: str) -> bytes | Path | None:
        """Decode the base64 in `field-data`, or return the path of a file that can be read."""
        data, path = self.text(f"{field}-data"), self.file(field)
        if data and path:
            self.problem(field, f"give either this or {field}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except (binascii.Error, ValueError):
                self.problem(f"{field}-data", "is not base64")
        elif path and read_file(path, self.name(field), self._problems) is not None:
            return path
        return None

    def has_content(self, field: str) -> bool:
        """Tell whether `field` or `field-data` is set, so that `content` has something to read."""
        return self.given(field) or self.given(f"{field}-data")

    def mapping(self, field: str) -> "Fields":
        """Return the field as a mapping, empty if it is absent."""
        where = f"{self._where}.{field}" if self._where else field
        return Fields(self._path, where, self._fields.get(field), self._problems)

    def names(self) -> tuple[str, ...]:
        """Return the names of the mapping's fields."""
        return tuple(str(key) for key in self._fields)

    def items(self, field: str) -> tuple["Fields", ...]:
        """Return the field as a list of mappings."""
        where = f"{self._where}.{field}" if self._where else field
        return tuple(
            Fields(self._path, f"{where}[{index}]", item, self._problems)
            for index, item in enumerate(self._list(field))
        )

    def entries(self, field: str, inner: str) -> dict[str, "Fields"]:
        """Return a field that lists `{name: …, <inner>: {…}}` as a mapping by name."""
        found: dict[str, Fields] = {}
        for entry in self.items(field):
            name = entry.text("name")
            if not entry.given("name"):
                entry.problem("name", "is not set")
            elif name in found:
                entry.problem("name", f"{name} is there twice")
            elif name:
                where = f"{field}[{name}].{inner}"
                found[name] = Fields(self._path, where, entry.raw(inner), self._problems)
        return found

    def _list(self, field: str) -> tuple[Any, ...]:
        listed = self._fields.get(field) or ()
        if isinstance(listed, str | Mapping) or not isinstance(listed, Iterable):
            self.problem(field, "is not a list")
            return ()
        return tuple(listed)


def read_document(path: Path, problems: list[str]) -> Fields | None:
    """Read the file; report a problem and return None if it is no kubeconfig."""
    content = read_file(path, "kubeconfig", problems)
    if content is None:
        return None
    try:
        document = yaml.safe_load(content)
    except yaml.MarkedYAMLError as exc:
        # Not the error itself: it quotes the line, which may hold a token.
        line = f"line {exc.problem_mark.line + 1}: " if exc.problem_mark else ""
        problems.append(f"{path}: {line}is not YAML: {yaml_problem(exc.problem)}")
        return None
    except (yaml.YAMLError, ValueError):
        problems.append(f"{path}: is not YAML")
        return None
    if document is not None and not isinstance(document, Mapping):
        problems.append(f"{path}: is not a mapping: this is not a kubeconfig")
        return None
    top = Fields(path, "", document, problems)
    if top.given("kind") and top.text("kind") != "Config":
        top.problem("kind", "is not Config: this is not a kubeconfig")
    return top
