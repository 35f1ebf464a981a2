"""Define failures that a test injects into the API server."""

from enum import StrEnum

import msgspec

from proreus.testing.memory.store import ApiError


class FaultMode(StrEnum):
    """The way in which a request fails; the last three have had their effect by then."""

    ERROR = "error"
    """Status 500."""
    THROTTLE = "throttle"
    """Status 429 with Retry-After: 1."""
    CONFLICT = "conflict"
    """Status 409 with the reason Conflict."""
    FORBIDDEN = "forbidden"
    """Status 403."""
    GONE = "gone"
    """Status 410; for a watch, an ERROR event."""
    LOST = "lost"
    """The connection is cut instead of an answer."""
    CUT = "cut"
    """A watch breaks off in the middle of the first event."""


class Fault(msgspec.Struct, frozen=True):
    """A failure to inject into the next `count` requests (0: all) that fit."""

    mode: FaultMode
    verb: str = "*"
    resource: str = "*"
    count: int = 1


def refuse(fault: Fault) -> None:
    """Raise the error that a request gets instead of being carried out, if any."""
    refusals = {
        FaultMode.ERROR: (500, "InternalError"),
        FaultMode.THROTTLE: (429, "TooManyRequests"),
        FaultMode.CONFLICT: (409, "Conflict"),
        FaultMode.FORBIDDEN: (403, "Forbidden"),
        FaultMode.GONE: (410, "Expired"),
    }
    if fault.mode in refusals:
        code, reason = refusals[fault.mode]
        raise ApiError(code, reason, "injected failure")
