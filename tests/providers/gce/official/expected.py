"""The differences that are meant, each with its row on the page of differences."""

from typing import Final

from ....parity.compare import Meant  # noqa: TID252 - pytest imports tests by path

FAILS: Final = "a node that fails"
STATE: Final = "state"

MEANT: Final = (
    Meant(FAILS, ("nodes",), "node ?/condition CloudInitialized", None, "True Initialized"),
)
