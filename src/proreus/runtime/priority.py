"""How urgent a piece of work is. Queues, cloud calls and API requests use the same steps."""

from contextvars import ContextVar
from enum import IntEnum
from typing import Final


class Priority(IntEnum):
    """Higher is more urgent."""

    RESYNC = 0
    """Nothing is known to have changed; the state is compared again."""
    CHECK = 1
    """Something may be wrong: a retry, or a look whether a machine still exists."""
    USER = 2
    """Somebody waits for it: an edit, a new node, a deletion."""


current: Final[ContextVar[Priority]] = ContextVar("proreus_priority", default=Priority.USER)
"""The priority of the work that the running task does; outside a queue, somebody waits."""
