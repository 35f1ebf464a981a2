"""Clean texts for events, conditions and errors: stable, within their limit, without values."""

import re
from collections.abc import Iterable
from typing import Final

MESSAGE_LIMIT: Final = 1024
"""Most characters of a message; what events.k8s.io/v1 allows in `note`."""

MOST_NAMED: Final = 5
"""How many objects one sentence names."""

_SPACE = re.compile(r"\s+")
_NAMED_ID = re.compile(
    r"\b((?:x-)?(?:[a-z]+-)*(?:request|req|correlation|trace|operation)[-_ ]?id)"
    r"(\"?\s*[:=]?\s*\"?)([A-Za-z0-9][\w+/=.-]{5,})",
    re.IGNORECASE,
)
_VARYING = (
    (
        re.compile(r"\b(?:req-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE),
        "<id>",
    ),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<pointer>"),
    (re.compile(r"\b[0-9a-f]{24,}\b", re.IGNORECASE), "<id>"),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", re.IGNORECASE
        ),
        "<time>",
    ),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}\b|\[[0-9a-f:.]+\]:\d{1,5}\b"), "<address>"),
    (re.compile(r"\('[0-9a-f:.]+', \d{1,5}(?:, \d+, \d+)?\)"), "<address>"),
)

_HARMLESS = re.compile(r"""(?:[^'"]|'(?:<[a-z ]+>|.|\\[a-z]|\\x..)'|"'")*""")
"""The beginning of a parser's message that quotes single characters and kinds of tokens only."""


def scrub(text: str) -> str:
    """Drop what changes from one try to the next; keep one line of bounded length.

    Request ids, UUIDs, pointers, times and socket addresses (address *and* port, which change
    with every connection) are replaced; a bare address stays, because it says which one is
    meant. Equal texts let events be counted up and keep conditions from being written anew.
    """
    text = _NAMED_ID.sub(r"\1\2<id>", _SPACE.sub(" ", text).strip())
    for pattern, placeholder in _VARYING:
        text = pattern.sub(placeholder, text)
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def request_id(text: str) -> str:
    """Return the cloud's request id in an error message, or ""."""
    found = _NAMED_ID.search(text)
    return found[3].rstrip(".") if found else ""


def yaml_problem(problem: str | None) -> str:
    """Return what a YAML parser says of a text, without what it quotes of it.

    PyYAML quotes anchors, aliases and tags, which a value that begins with `&`, `*` or `!` is taken
    for, such as a password without quotation marks.
    """
    text = problem or "it cannot be read"
    found = _HARMLESS.match(text)
    shown = found.group().strip() if found else ""
    if shown == text:
        return text
    return f"{shown} (not shown; a value that begins with *, & or ! needs quotation marks)"


def some_of(names: Iterable[str]) -> str:
    """Name the first of these in order, and say how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(ordered[:MOST_NAMED]) + more
