"""Declare command-line flags that belong to one provider."""

from collections.abc import Callable
from typing import Any

import msgspec


class ProviderFlag(msgspec.Struct, frozen=True):
    """A flag that the manager takes with this provider only; named as the official manager's.

    Attributes:
        help: What it is for, in one sentence of `--help`.
        parse: Makes the value of its text. Raises ValueError with what the text must be, such as
            "must be a whole number". No I/O.
        repeated: Whether it may be given more than once; the value is the tuple of all then.
        bare: The text that the flag's name alone stands for, such as "true"; "" if it needs one.
    """

    help: str
    parse: Callable[[str], Any] = str
    repeated: bool = False
    bare: str = ""
