"""Declare command-line flags that belong to one provider."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

_GO_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class ProviderFlag(msgspec.Struct, frozen=True):
    """A flag that the manager takes with this provider only; named as the official manager's.

    Attributes:
        help: The purpose of the flag, in one sentence of `--help`.
        parse: Makes the value from the text. Raises ValueError with what the text must be, such as
            "must be a whole number". No I/O.
        repeated: Whether the flag may be given more than once; its value is then the tuple of all
            values.
        bare: The text that the flag's name alone stands for, such as "true"; "" if the flag needs a
            value.
    """

    help: str
    parse: Callable[[str], Any] = str
    repeated: bool = False
    bare: str = ""


def boolean(text: str) -> bool:
    """Read true or false, as Go does.

    Raises:
        ValueError: The text is neither true nor false.
    """
    if text not in _GO_BOOLEANS:
        raise ValueError("must be true or false")
    return _GO_BOOLEANS[text]
