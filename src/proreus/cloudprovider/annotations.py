"""Reads a Service's annotations of a cloud, and says at once all that is wrong with them. Pure.

    read = AnnotationReader(service.metadata.annotations, "example.com/")
    is_internal = read.flag("internal")
    timeout = read.number("idle-timeout", 1, 4000, 60)
    read.check()

They come from a cluster's tenants, so every value is checked before it can reach a call.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from proreus.cloudprovider.errors import InvalidRequest

T = TypeVar("T")

_NUMBER: Final = re.compile(r"[+-]?\d{1,12}", re.ASCII)
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""What Go takes for true and false."""


class AnnotationReader:
    """Reads one annotation after the other, and keeps what is wrong.

    What is wrong or not given has its default, which is checked as well: it may be an operator's.
    """

    def __init__(self, annotations: Mapping[str, str], prefix: str) -> None:
        """Read annotations whose names begin with `prefix`; one with a slash has its full name."""
        self._annotations = annotations
        self._prefix = prefix
        self.problems: list[str] = []

    def check(self) -> None:
        """Refuse what is wrong.

        Raises:
            InvalidRequest: Names every annotation that is wrong, and the remedy.
        """
        if self.problems:
            raise InvalidRequest("; ".join(self.problems))

    def wrong(self, name: str, remedy: str) -> None:
        """Keep that an annotation is wrong, and what to do."""
        full = name if "/" in name else f"{self._prefix}{name}"
        self.problems.append(f"annotation {full}: {remedy}")

    def text(self, name: str, default: str = "") -> str:
        """Read a text."""
        full = name if "/" in name else f"{self._prefix}{name}"
        return self._annotations.get(full, "").strip() or default

    def parsed(self, name: str, parse: Callable[[str], T], remedy: str, default: T) -> T:
        """Read what `parse` makes of a text; a KeyError or ValueError means that it is wrong."""
        text = self.text(name)
        try:
            return parse(text) if text else default
        except (KeyError, ValueError):
            self.wrong(name, remedy)
            return default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Read true or false."""
        return self.parsed(name, _BOOLEANS.__getitem__, "give true or false", default=default)

    def number(self, name: str, low: int, high: int, default: Any = None) -> Any:
        """Read a whole number from `low` to `high`."""
        text = self.text(name, "" if default is None else str(default))
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            self.wrong(name, f"give a number from {low} to {high}")
            return default
        return int(text)

    def form(self, name: str, form: re.Pattern[str], remedy: str, default: str = "") -> str:
        """Read a text of a form."""
        text = self.text(name, default)
        if text and not form.fullmatch(text):
            self.wrong(name, remedy)
            return ""
        return text

    def choice(self, name: str, choices: Iterable[str], default: str = "") -> str:
        """Read one of several words, in small letters or as they are given."""
        known, text = tuple(choices), self.text(name, default)
        word = text if text in known else text.lower()
        if word and word not in known:
            self.wrong(name, f"give one of {', '.join(sorted(filter(None, known)))}")
            return ""
        return word

    def names(self, name: str, form: re.Pattern[str], remedy: str) -> tuple[str, ...]:
        """Read texts of a form, separated by commas."""
        found = tuple(filter(None, (one.strip() for one in self.text(name).split(","))))
        if not all(form.fullmatch(one) for one in found):
            self.wrong(name, remedy)
        elif len(set(found)) < len(found):
            self.wrong(name, "one is given twice")
        return found

    def pairs(self, name: str) -> dict[str, str]:
        """Read `key=value,key=,key`; what stands behind a second `=` is not read, as in Go's."""
        found: dict[str, str] = {}
        for one in self.text(name).split(","):
            key, *values = one.strip().split("=")
            if key:
                found[key] = values[0] if values else ""
        return found
