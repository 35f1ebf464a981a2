"""Read the errors of Rancher's API. Pure."""

from typing import Any, Final

from proreus.cloudprovider.refused import ErrorBody, Reason
from proreus.cloudprovider.requests import Answer

BUSY: Final = frozenset({"ActionNotAvailable", "InvalidState"})
"""Codes of what cannot be done in the state that an object is in now."""


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer that is an error; return None if Rancher has not written it.

    Raises:
        CloudError: The body is not JSON.
    """
    content = answer.json(dict[str, Any])
    if content.get("type") != "error":
        return None
    code = str(content.get("code") or "")
    words = [content.get(name) for name in ("fieldName", "message", "detail")]
    text = ": ".join(str(word) for word in words if word and word != code)
    # The status of what an object's state forbids is 422, or 405 where a filter says so.
    return ErrorBody(code, text, Reason.CONFLICT if code in BUSY else None)
