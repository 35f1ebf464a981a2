"""What the errors of Rackspace mean, in the words of its services."""

import json
from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError, Throttled
from proreus.cloudprovider.refused import Reason, Refused, cloud_error
from proreus.cloudprovider.requests import Answer, Request
from proreus.providers.rackspace.errors import is_gone, is_immutable, read_error


def error(status: int, body: Any, **headers: str) -> CloudError:
    text = body if isinstance(body, str) else json.dumps(body)
    answer = Answer(Request("clb.x", "GET", ""), status, headers, text.encode())
    return cloud_error("clb.x", status, read_error(answer), text=text)


def refused(status: int, message: str, **more: Any) -> Refused:
    found = error(status, {"message": message, "code": status, **more})
    assert isinstance(found, Refused)
    return found


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (422, "Load Balancer '7' has a status of 'PENDING_UPDATE' and is considered immutable.", True),
        (422, "The object at the specified URI is immutable and cannot be overwritten.", True),
        (422, "The Object at the specified URI is unprocessable.", True),
        (422, "LoadBalancer is not ACTIVE", True),
        (400, "Must provide valid load balancers: 7  are immutable and could not be processed.", True),
        (422, "Duplicate nodes detected. One or more nodes already configured.", False),
        (422, "Session persistence is already deleted.", False),
        (400, "Load balancer port is invalid. Please specify a valid port.", False),
        (500, "The load balancer has experienced a fault; it is immutable.", False),
    ],
)  # fmt: skip
def test_who_only_works_on_something_else(status: int, message: str, *, expected: bool) -> None:
    assert is_immutable(refused(status, message)) is expected


def test_what_is_gone() -> None:
    assert is_gone(refused(404, "Object not Found"))
    assert is_gone(refused(410, "The load balancer is deleted"))
    assert is_gone(refused(400, "Must provide valid load balancers: 7  could not be found."))
    assert not is_gone(refused(400, "Validation Failure"))


def test_the_404_of_something_else_is_no_absence() -> None:
    found = error(404, "<html>not here</html>")
    assert isinstance(found, Refused)
    assert found.reason is Reason.UNKNOWN


def test_all_that_validation_says_is_told() -> None:
    more = {"validationErrors": {"messages": ["first", "second"]}, "details": "not valid"}
    assert "Validation Failure; first; second" in str(refused(400, "Validation Failure", **more))
    assert "Fault; not valid" in str(refused(500, "Fault", details="not valid"))


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({"overLimit": {"code": 413, "message": "OverLimit Retry..."}}, {}, True),
        ({"overLimit": {"code": 413, "message": "Slow down"}}, {"Retry-After": "5"}, True),
        ({"message": "Nodes must not exceed 25 per load balancer.", "code": 413}, {}, False),
        ({"message": "Load balancer limit reached. Limit is set to '25'.", "code": 413}, {}, False),
    ],
)
def test_a_rate_is_waited_for_and_a_limit_is_told(
    body: Any, headers: dict[str, str], *, expected: bool
) -> None:
    assert isinstance(error(413, body, **headers), Throttled) is expected
