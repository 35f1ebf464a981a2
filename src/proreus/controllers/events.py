"""Describe events as values, which plans return.

A plan is pure, so it returns `PlannedEvent`s; the controller hands them to the recorder.
"""

from typing import Literal

import msgspec

from proreus.kube.messages import MESSAGE_LIMIT, scrub

__all__ = ["MESSAGE_LIMIT", "EventType", "PlannedEvent", "scrub"]

EventType = Literal["Normal", "Warning"]


class PlannedEvent(msgspec.Struct, frozen=True):
    """An event to record: `reason` is one CamelCase word, `message` one plain sentence."""

    type: EventType
    reason: str
    message: str
