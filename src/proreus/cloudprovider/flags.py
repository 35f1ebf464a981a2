"""Flags of a provider's own, beside those that every manager has."""

from collections.abc import Callable
from typing import Any

import msgspec


class ProviderFlag(msgspec.Struct, frozen=True):
    """One flag that the manager takes with this provider only; the official manager's names.

    Attributes:
        help: What it is for, in one sentence of `--help`.
        parse: Makes the value of its text. Raises ValueError with what the text must be, such as
            "must be a whole number". No I/O.
        repeated: Whether it may be given more than once; the value is the tuple of all then.
    """

    help: str
    parse: Callable[[str], Any] = str
    repeated: bool = False
