"""What the emulated Rackspace refuses with."""

from typing import Any

LOST = -1
"""The status of a failure that is no answer at all."""


class Fault(Exception):
    """An answer of 300 and above."""

    def __init__(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


def clb(status: int, message: str, *validation: str, details: str = "") -> Fault:
    """A fault of Cloud Load Balancers."""
    body: dict[str, Any] = {"message": message, "code": status}
    if details:
        body["details"] = details
    if validation:
        body |= {"validationErrors": {"messages": list(validation)}}
        body["details"] = "The object is not valid"
    return Fault(status, body)


def invalid(*messages: str) -> Fault:
    """A request that is not valid."""
    return clb(400, "Validation Failure", *messages)


def nova(status: int, kind: str, message: str) -> Fault:
    """A fault of Nova, of Cinder and of identity."""
    return Fault(status, {kind: {"message": message, "code": status}})
