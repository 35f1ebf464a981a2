"""Answer queries in the language of NSX-T's search: terms `field:value`, AND, OR, NOT, brackets.

Special characters in values are escaped by a backslash or stand in quotes; `*` and `?` match what
they do in a shell. Lists are flattened: a tag's scope and its value are found apart.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from .errors import SEARCH, NsxError

Json = dict[str, Any]
Test = Callable[[Json], bool]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<bracket>[()])|(?P<field>[\w.]+):(?P<value>\"(?:\\.|[^\"\\])*\"|(?:\\.|[^\s()\\\"])+)"
    r"|(?P<word>AND|OR|NOT)\b)"
)
_UNESCAPED: Final = re.compile(r"(?<!\\)[/:!^\[\]{}~+&|<>=\"]")


def query(text: str) -> Test:
    """A test for objects.

    Raises:
        NsxError: The query is none.
    """
    tokens = list(_tokens(text))
    parser = _Parser(tokens, text)
    found = parser.either()
    if parser.left():
        raise _bad(text)
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], text: str) -> None:
        self._tokens, self._text, self._at = tokens, text, 0

    def left(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def either(self) -> Test:
        tests = [self._both()]
        while self._takes("OR"):
            tests.append(self._both())
        return lambda one: any(test(one) for test in tests)

    def _both(self) -> Test:
        tests = [self._single()]
        while self._takes("AND"):
            tests.append(self._single())
        return lambda one: all(test(one) for test in tests)

    def _single(self) -> Test:
        if self._takes("NOT"):
            inner = self._single()
            return lambda one: not inner(one)
        if self._takes("("):
            inner = self.either()
            if not self._takes(")"):
                raise _bad(self._text)
            return inner
        token = self.left()
        if token is None or not token[0]:
            raise _bad(self._text)
        self._at += 1
        return _term(*token)

    def _takes(self, word: str) -> bool:
        found = self.left() == ("", word)
        self._at += found
        return found


def _term(field: str, value: str) -> Test:
    pattern = re.compile(_pattern(value), re.IGNORECASE)
    return lambda one: any(pattern.fullmatch(found) for found in _values(one, field.split(".")))


def _pattern(value: str) -> str:
    if value.startswith('"'):
        return re.escape(re.sub(r"\\(.)", r"\1", value[1:-1]))
    parts = re.findall(r"\\(.)|(.)", value)
    return "".join(
        re.escape(escaped) if escaped else {"*": ".*", "?": "."}.get(plain, re.escape(plain))
        for escaped, plain in parts
    )


def _values(value: Any, fields: list[str]) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _values(one, fields)
    elif isinstance(value, dict):
        if fields and fields[0] in value:
            yield from _values(value[fields[0]], fields[1:])
    elif not fields and value is not None:
        yield str(value).lower() if isinstance(value, bool) else str(value)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise _bad(text)
        at = found.end()
        if found["field"]:
            value = found["value"]
            if not value.startswith('"') and _UNESCAPED.search(value):
                raise _bad(text)
            yield found["field"], value
        else:
            yield "", found["bracket"] or found["word"]


def _bad(text: str) -> NsxError:
    return NsxError(400, SEARCH, f"The search query [{text}] is malformed.", "search")
