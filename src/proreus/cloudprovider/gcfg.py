r"""Reads gcfg, the dialect of git-config in which most cloud-config files are written.

    ; a comment, as is # to the end of a line
    [Global]
    auth-url = https://keystone.example.org:5000/v3
    password = "a \"quoted\" value; no comment"
    use-clouds                      ; a key without a value: true
    [LoadBalancerClass "internal"]  # a subsection
    subnet-id = \
        continued on the next line

Pure syntax: names are kept as they are written, and nothing is known about their meaning. Within
quotes \n, \t, \b, \" and \\ are escapes; elsewhere a backslash may only end a line. No message ever
shows a value, nor a name: that may be a part of a value which goes on in a line of its own.
"""

import re

import msgspec

_NAME = re.compile(r"[^\W\d_][\w-]*")
_BLANK = re.compile(r"[ \t\r]*")
_ASSIGNMENT = re.compile(r"=[ \t]*(?:\"[^\"\n]|[^\s=\"])")
"""A = with a value, as opposed to one at the end of a key in base64."""
_HEADER = re.compile(
    r"\[[ \t]*[\w-]+[ \t]*(?:\"[^\"\n]*\"[ \t]*)?\][ \t\r]*(?:[;#].*)?$", re.MULTILINE
)
"""A whole header of a section, with nothing after it."""
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class Entry(msgspec.Struct, frozen=True):
    """An entry `key = value` of gcfg; the value is None where there is no equals sign."""

    line: int
    key: str
    value: str | None

    def __repr__(self) -> str:
        return f"Entry(line={self.line}, key={self.key!r})"


class Section(msgspec.Struct, frozen=True):
    """A section `[name "subsection"]` of gcfg with its entries.

    `subsection` is "" if the section has none.
    """

    line: int
    name: str
    subsection: str
    entries: tuple[Entry, ...]


class Problem(msgspec.Struct, frozen=True):
    """A mistake in gcfg with its line. `section` and `key` are "" where there is none."""

    line: int
    section: str
    key: str
    message: str


class _Wrong(Exception):
    """The signal that the rest of a line cannot be read."""


def parse(text: str, default: str = "") -> tuple[tuple[Section, ...], tuple[Problem, ...]]:
    """Read a gcfg text; a line that cannot be read is a problem, and the next one is tried.

    Args:
        text: The text to parse.
        default: The section of entries that stand before the first section; "" if such entries are
            a mistake.
    """
    reader = _Reader(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"), default)
    reader.read()
    sections = tuple(
        Section(line=line, name=name, subsection=sub, entries=tuple(entries))
        for line, name, sub, entries in reader.sections
    )
    return sections, tuple(reader.problems)


def title(name: str, subsection: str) -> str:
    """Return a section's header as it is written: `[name "subsection"]`."""
    return f'[{name} "{subsection}"]' if subsection else f"[{name}]"


class _Reader:
    """A cursor in a gcfg text, with what was read so far."""

    def __init__(self, text: str, default: str) -> None:
        self._text = text
        self._default = default
        self._at = 0
        self._line = 1
        self._key = ""
        self._section = ""
        self._is_lost = False  # after a section that cannot be read
        self._is_torn = False  # after a quotation mark that is not closed on its line
        self.sections: list[tuple[int, str, str, list[Entry]]] = []
        self.problems: list[Problem] = []

    def read(self) -> None:
        while self._at < len(self._text):
            self._key = ""
            line = self._line
            try:
                self._statement()
            except _Wrong as wrong:
                self.problems.append(Problem(line, self._section, self._key, str(wrong)))
                self._skip_line()

    def _statement(self) -> None:
        """Read one line: a blank one, a comment, a section's header or an entry."""
        self._skip_blank()
        char = self._peek()
        if char == "[":
            self._header()
        elif _NAME.match(char):
            self._entry()
        elif char not in {"", "\n", ";", "#"}:
            raise _Wrong("expected a [section], a key or a comment")
        self._end_of_line()

    def _header(self) -> None:
        if self._is_torn and not _HEADER.match(self._text, self._at):
            self._at = self._line_end()  # The rest of a value, as in `_entry`.
            return
        self._at += 1
        self._skip_blank()
        self._section, self._is_lost, self._is_torn = "", True, False
        line, name, subsection = self._line, self._name("a section name"), ""
        self._section = title(name, "")
        self._skip_blank()
        if self._peek() == '"':
            subsection = self._quoted()
            self._skip_blank()
            if not subsection:
                raise _Wrong('the subsection "" is empty: leave the quotation marks out')
        if self._peek() != "]":
            raise _Wrong('the header is not closed: write [section] or [section "subsection"]')
        self._at += 1
        self._section, self._is_lost = title(name, subsection), False
        self.sections.append((line, name, subsection, []))

    def _entry(self) -> None:
        line, key = self._line, self._name("a key")
        self._key = key
        if not self.sections and self._default:
            self._section = title(self._default, "")
            self.sections.append((line, self._default, "", []))
        if not self.sections and not self._is_lost:
            raise _Wrong(
                "stands before the first [section]: move it below one, or name a TOML file *.toml"
            )
        self._skip_blank()
        if self._is_torn and not _ASSIGNMENT.match(self._text, self._at):
            # The rest of a value, perhaps of a secret: to take it for a key would show it.
            self._key, self._at = "", self._line_end()
            return
        self._is_torn = False
        value: str | None = None
        if self._peek() == "=":
            self._at += 1
            value = self._value()
        elif self._peek() not in {"", "\n", ";", "#"}:
            raise _Wrong("expected = after the key")
        if not self._is_lost:
            self.sections[-1][3].append(Entry(line=line, key=key, value=value))

    def _value(self) -> str:
        """Read a value up to a comment or the line's end, without blanks at both ends."""
        self._skip_blank()
        parts: list[str] = []
        kept = 0
        while (char := self._peek()) not in {"", "\n", ";", "#"}:
            if char == '"':
                parts.extend(self._quoted())
                kept = len(parts)
            elif char == "\\":
                self._continuation()
            else:
                self._at += 1
                parts.append(char)
                kept = kept if char in " \t\r" else len(parts)
        return "".join(parts[:kept])

    def _quoted(self) -> str:
        """Read a quoted part of a value, from one quotation mark to the next."""
        self._at += 1
        parts: list[str] = []
        while (char := self._peek()) != '"':
            if char in {"", "\n"}:
                self._is_torn = True
                raise _Wrong('the quotation mark is not closed on its line: add a "')
            self._at += 1
            if char == "\\":
                char = _ESCAPES.get(self._peek(), "")
                if not char:
                    raise _Wrong(r"unknown escape: only \n, \t, \b, \" and \\ may stand in quotes")
                self._at += 1
            parts.append(char)
        self._at += 1
        return "".join(parts)

    def _continuation(self) -> None:
        self._at += 1
        if self._peek() == "\r":
            self._at += 1
        if self._peek() != "\n":
            raise _Wrong(r"a backslash must end its line, or be written as \\ within quotes")
        self._at += 1
        self._line += 1

    def _end_of_line(self) -> None:
        self._skip_blank()
        if self._peek() in {";", "#"}:
            self._at = self._line_end()
        if self._peek() not in {"", "\n"}:
            raise _Wrong("unexpected text after the section or the value")
        self._skip_line()

    def _skip_line(self) -> None:
        self._at = self._line_end() + 1
        self._line += 1

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _skip_blank(self) -> None:
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _name(self, what: str) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise _Wrong(f"expected {what}")
        self._at = match.end()
        return match.group()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]
