"""Read TOML statement by statement, which tells the line of each and finds every error.

`tomllib` knows no lines and stops at the first error. A statement is complete as soon as its
lines, taken alone, are a TOML document; so the library itself says where each one ends.
"""

import re
import tomllib
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

import msgspec

_WHERE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_OPEN = (r"Illegal character '\n'", 'Expected "\'"')
"""What tomllib says of strings that are not closed on their line."""
_START = re.compile(r"""\s*(?:(?P<header>\[+)\s*(?P<section>[\w.-]*)|(?P<key>[\w."'-]+)\s*=)""")


class Kind(Enum):
    """The kind of a TOML statement."""

    ENTRY = auto()
    TABLE = auto()
    ELEMENT = auto()


class Statement(msgspec.Struct, frozen=True):
    """A TOML statement: `key = value`, `[table]` or `[[element of an array]]`.

    `content` is the document that the statement is on its own.
    """

    line: int
    kind: Kind
    content: dict[str, Any]

    def __repr__(self) -> str:
        return f"Statement(line={self.line}, kind={self.kind.name})"

    @property
    def path(self) -> tuple[str, ...]:
        """The names in a table's header."""
        names: list[str] = []
        inner: Any = self.content
        while isinstance(inner, dict) and inner:
            ((name, inner),) = inner.items()
            names.append(name)
        return tuple(names)


class Problem(msgspec.Struct, frozen=True):
    """A mistake in TOML with its line; `place` is the table, `key` what stands before the `=`."""

    line: int
    place: str
    message: str
    key: str = ""


class _Wrong(Exception):
    """The signal that a statement is not TOML; `line` counts from 1 in it, None is its end."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def parse(text: str) -> tuple[tuple[Statement, ...], tuple[Problem, ...]]:
    """Read a TOML text; a statement that cannot be read is a problem, and the next is tried."""
    reader = _Reader(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").replace("\r\n", "\n"))
    return tuple(reader.statements()), tuple(reader.problems)


class _Reader:
    """A cursor in the lines of a TOML text, with what was read so far."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._at = 0
        self._section: str | None = ""  # None after a header that cannot be read
        self._is_torn = False  # after a string that is not closed on its line
        self.problems: list[Problem] = []
        # What was accepted so far is read again with each statement, to find names given twice,
        # but only in a text that is wrong somewhere.
        self._is_valid = _is_valid(text)
        self._accepted = ""
        self._header_refused = False

    def statements(self) -> Iterator[Statement]:
        while self._at < len(self._lines):
            first = self._at
            try:
                content = self._complete()
            except _Wrong as wrong:
                self._problem(first, first + (wrong.line or 1), str(wrong))
                if _kind(self._lines[first]) is not Kind.ENTRY:
                    self._section = None
                self._is_torn |= any(text in str(wrong) for text in _OPEN)
                self._skip()
                continue
            self._is_torn = False
            statement = Statement(first + 1, _kind(self._lines[first]), content)
            if statement.kind is not Kind.ENTRY:
                self._section = ".".join(statement.path)
            if content and self._section is not None:
                if not self._is_valid:
                    self._check(statement, "\n".join(self._lines[first : self._at]) + "\n")
                yield statement

    def _complete(self) -> dict[str, Any]:
        """Read the statement at the cursor, which may take several lines."""
        end = self._at
        while True:
            end += 1
            if self._lines[end - 1].endswith("\r"):
                # The line feed that `_load` gets would make a line's end of it.
                raise _Wrong("a carriage return without a line feed", end - self._at)
            try:
                content = _load("\n".join(self._lines[self._at : end]) + "\n")
            except _Wrong as wrong:
                if wrong.line is not None or end >= len(self._lines):
                    raise
            else:
                self._at = end
                return content

    def _check(self, statement: Statement, text: str) -> None:
        """Find out whether the statement contradicts those before it."""
        is_header = statement.kind is not Kind.ENTRY
        if self._header_refused and not is_header:
            return
        try:
            _load(self._accepted + text)
        except _Wrong:
            self._header_refused = is_header
            message = "is given twice, or contradicts what stands above"
            self._problem(statement.line - 1, statement.line, message)
        else:
            self._header_refused = False
            self._accepted += text

    def _problem(self, first: int, line: int, message: str) -> None:
        """Note a problem of the statement whose first line is `first`, counted from 0."""
        start = _START.match(self._lines[first])
        place, key = self._section, ""
        if start and start["header"]:
            place = start["section"]
        elif start and place is not None and not self._is_torn:
            # After a torn string this may be the rest of a secret, and no name.
            key = start["key"]
        self.problems.append(Problem(line, place or "", message, key))

    def _skip(self) -> None:
        """Go to the next line that looks like the start of a statement."""
        self._at += 1
        while self._at < len(self._lines) and not _START.match(self._lines[self._at]):
            self._at += 1


def _kind(line: str) -> Kind:
    start = line.lstrip()
    if start.startswith("[["):
        return Kind.ELEMENT
    return Kind.TABLE if start.startswith("[") else Kind.ENTRY


def _is_valid(text: str) -> bool:
    try:
        _load(text)
    except _Wrong:
        return False
    return True


def _load(text: str) -> dict[str, Any]:
    """Parse a TOML document; floats stay as they are written.

    Raises:
        _Wrong: The text is no TOML document. The message holds no value.
    """
    try:
        return tomllib.loads(text, parse_float=lambda number: number.replace("_", ""))
    except tomllib.TOMLDecodeError as error:
        found = _WHERE.fullmatch(str(error))
        message, line = found.groups() if found else (str(error), "1")
        raise _Wrong(f"is not TOML: {message}", int(line) if line else None) from None
    except RecursionError:
        raise _Wrong("is nested too deeply", 1) from None
    except ValueError:
        raise _Wrong("is a number with too many digits", 1) from None
