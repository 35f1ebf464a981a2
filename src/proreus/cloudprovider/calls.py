"""Describe calls of the cloud, and what may run around them."""

from enum import StrEnum
from typing import Protocol

import msgspec


class Outcome(StrEnum):
    """The outcome of a call of the cloud."""

    OK = "ok"
    ERROR = "error"
    THROTTLED = "throttled"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class CallRecord(msgspec.Struct, frozen=True):
    """A call as it was sent; a retry is a call of its own. `started` is the loop's time."""

    service: str
    operation: str
    read: bool
    quota: str
    started: float
    seconds: float
    outcome: Outcome


class CallHooks(Protocol):
    """Functions that run before and after every call of the cloud; tests put kill points here."""

    def before(self, service: str, operation: str, *, read: bool) -> None:
        """Run right before a call is sent."""

    def after(self, record: CallRecord) -> None:
        """Run once a call has ended."""
