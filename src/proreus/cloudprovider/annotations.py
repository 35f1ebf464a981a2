"""Read a Service's annotations of a cloud, and report all mistakes in them at once. Pure.

    read = AnnotationReader(service.metadata.annotations, "example.com/")
    is_internal = read.flag("internal")
    timeout = read.number("idle-timeout", 1, 4000, 60)
    read.check()

Annotations come from a cluster's tenants, so every value is checked before it can reach a call.
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
"""The texts that Go takes for true and false."""


class AnnotationReader:
    """A reader of one annotation after the other, which collects all mistakes.

    A value that is wrong or not given has its default, which is checked as well, since it may be an
    operator's.
    """

    def __init__(self, annotations: Mapping[str, str], prefix: str) -> None:
        """Read annotations whose names begin with `prefix`; one with a slash has its full name."""
        self._annotations = annotations
        self._prefix = prefix
        self.problems: list[str] = []

    def check(self) -> None:
        """Raise an error that names all mistakes, if there are any.

        Raises:
            InvalidRequest: Annotations are wrong; names each of them, and the remedy.
        """
        if self.problems:
            raise InvalidRequest("; ".join(self.problems))

    def wrong(self, name: str, remedy: str) -> None:
        """Record that an annotation is wrong, and the remedy."""
        full = name if "/" in name else f"{self._prefix}{name}"
        self.problems.append(f"annotation {full}: {remedy}")

    def text(self, name: str, default: str = "") -> str:
        """Return an annotation's text, without spaces around it."""
        full = name if "/" in name else f"{self._prefix}{name}"
        return self._annotations.get(full, "").strip() or default

    def parsed(self, name: str, parse: Callable[[str], T], remedy: str, default: T) -> T:
        """Return what `parse` makes of a text; a KeyError or ValueError means that it is wrong."""
        text = self.text(name)
        try:
            return parse(text) if text else default
        except (KeyError, ValueError):
            self.wrong(name, remedy)
            return default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return an annotation that is true or false."""
        return self.parsed(name, _BOOLEANS.__getitem__, "give true or false", default=default)

    def number(self, name: str, low: int, high: int, default: Any = None) -> Any:
        """Return an annotation that is a whole number from `low` to `high`."""
        text = self.text(name, "" if default is None else str(default))
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            self.wrong(name, f"give a number from {low} to {high}")
            return default
        return int(text)

    def form(self, name: str, form: re.Pattern[str], remedy: str, default: str = "") -> str:
        """Return an annotation whose text matches a pattern."""
        text = self.text(name, default)
        if text and not form.fullmatch(text):
            self.wrong(name, remedy)
            return ""
        return text

    def choice(self, name: str, choices: Iterable[str], default: str = "") -> str:
        """Return an annotation that is one of several words, as given or in small letters."""
        known, text = tuple(choices), self.text(name, default)
        word = text if text in known else text.lower()
        if word and word not in known:
            self.wrong(name, f"give one of {', '.join(sorted(filter(None, known)))}")
            return ""
        return word

    def names(self, name: str, form: re.Pattern[str], remedy: str) -> tuple[str, ...]:
        """Split an annotation at its commas; report parts that differ from `form` or come twice."""
        found = tuple(filter(None, (part.strip() for part in self.text(name).split(","))))
        if not all(form.fullmatch(part) for part in found):
            self.wrong(name, remedy)
        elif len(set(found)) < len(found):
            twice = sorted({part for part in found if found.count(part) > 1})
            self.wrong(name, f"give each value once, not several times: {', '.join(twice)}")
        return found

    def pairs(self, name: str) -> dict[str, str]:
        """Return `key=value,key=,key` as a map; what follows a second `=` is not read, as in Go."""
        found: dict[str, str] = {}
        for pair in self.text(name).split(","):
            key, *values = pair.strip().split("=")
            if key:
                found[key] = values[0] if values else ""
        return found
