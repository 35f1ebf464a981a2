"""Read CloudStack's errors: those of requests, and those that end jobs. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused
from proreus.cloudprovider.requests import Answer

TOO_MANY: Final = 429
UNKNOWN_COMMAND: Final = 432
"""The role lacks the command, or this CloudStack has none of the name."""
IN_USE: Final = 536
CONFLICT: Final = 537
"""Another rule has the port."""

_REASONS: Final[Mapping[int, Reason]] = {
    401: Reason.UNAUTHORIZED,
    TOO_MANY: Reason.TOO_MANY_REQUESTS,
    430: Reason.INVALID,
    431: Reason.INVALID,
    UNKNOWN_COMMAND: Reason.FORBIDDEN,
    531: Reason.FORBIDDEN,
    IN_USE: Reason.CONFLICT,
    CONFLICT: Reason.CONFLICT,
}
_AFTER = re.compile(r"retry after \[?(\d{1,9})\]? ms")
_ABSENT = re.compile(
    r"Invalid parameter (?P<parameter>\w+) value=(?P<id>[0-9a-fA-F-]{1,64}) due to incorrect long"
    r" value format, or entity does not exist"
)
_REMOVED = re.compile(r"(?i)unable to find|does not exist|invalid \S+ id|not found by id")


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer that is an error; return None if CloudStack has not written it."""
    try:
        content = answer.json(dict[str, Any])
    except CloudError:
        return None
    for inner in content.values():
        if isinstance(inner, dict) and "errorcode" in inner:
            return error_body(inner)
    return None


def error_body(said: Mapping[str, Any]) -> ErrorBody:
    """Read what CloudStack says in an error's envelope, or as the result of a job."""
    code, text = _number(said.get("errorcode")), str(said.get("errortext") or "")
    reason = _REASONS.get(code, Reason.UNKNOWN)
    if reason is Reason.INVALID and _ABSENT.search(text):
        reason = Reason.NOT_FOUND
    waits = _AFTER.search(text)
    after = int(waits[1]) / 1000 if waits else None
    return ErrorBody(str(code or ""), text, reason, after)


def absent_id(text: str) -> str:
    """Return the id of the object that, as an error says, does not exist; "" for other errors."""
    found = _ABSENT.search(text)
    return found["id"].lower() if found else ""


def is_removed(error: Refused) -> bool:
    """Tell whether an error says that the object of a change is gone, in whatever words.

    Counts only for the object of the request: a job that does not find another object says another
    code.
    """
    is_about = error.reason is Reason.INVALID and _REMOVED.search(error.text)
    return error.is_absence or bool(is_about)


def _number(code: object) -> int:
    return code if isinstance(code, int) else 0
