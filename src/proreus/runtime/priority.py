"""Rank the urgency of work. Queues, cloud calls and API requests use the same steps."""

from contextvars import ContextVar
from enum import IntEnum
from typing import Final


class Priority(IntEnum):
    """The urgency of work; higher is more urgent."""

    RESYNC = 0
    """A periodic resync: nothing is known to have changed."""
    CHECK = 1
    """A retry, or a check whether a machine still exists: something may be wrong."""
    USER = 2
    """An edit, a new node or a deletion: somebody waits for it."""


current: Final[ContextVar[Priority]] = ContextVar("proreus_priority", default=Priority.USER)
"""The priority of the running task's work; USER outside a queue."""
