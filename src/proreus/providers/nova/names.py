"""Read which server a Node is, and write the filter that finds servers by name. Pure."""

import re
from collections.abc import Sequence

import msgspec

UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
"""The form of the id of anything in OpenStack."""


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's server is looked up: an id, a name, or neither.

    Attributes:
        id: The server's id.
        name: The server's name.
        problem: Why there is nothing to look it up by.
        uuids: What the id of the server may be on which the Node's kubelet runs, by its word.
    """

    id: str = ""
    name: str = ""
    problem: str = ""
    uuids: tuple[str, ...] = ()


def is_uuid(text: str) -> bool:
    """Tell whether a text can be the id of an object of OpenStack."""
    return UUID.fullmatch(text) is not None


def pattern(names: Sequence[str]) -> str:
    """Return the regular expression for Nova's filter that matches exactly these names.

    Names of Nodes hold letters, digits, dashes and dots only. Databases differ in what else they
    understand, so nothing else is used.
    """
    escaped = [name.replace(".", r"\.") for name in names]
    return f"^{escaped[0]}$" if len(escaped) == 1 else f"^({'|'.join(escaped)})$"
