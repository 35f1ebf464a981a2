import msgspec
import pytest

from proreus.kube.errors import (
    AlreadyExists,
    BadRequest,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    StatusError,
    TooManyRequests,
    Unauthorized,
    from_status,
)


def status(reason: str = "", causes: list[dict[str, str]] | None = None, **fields: object) -> bytes:
    details = {} if causes is None else {"details": {"causes": causes}}
    return msgspec.json.encode({"kind": "Status", "reason": reason, **details, **fields})


UID = {"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "immutable"}
TAINT = {"reason": "FieldValueDuplicate", "field": "metadata.taints[4]"}
ADDRESS = {"reason": "FieldValueDuplicate", "field": "status.addresses[1]"}
LABEL = {"reason": "FieldValueInvalid", "field": "metadata.labels"}


@pytest.mark.parametrize(
    ("code", "body", "patch", "expected"),
    [
        (400, status("BadRequest"), False, BadRequest),
        (401, status("Unauthorized"), False, Unauthorized),
        (403, status("Forbidden"), False, Forbidden),
        (404, status("NotFound"), False, NotFound),
        (409, status("AlreadyExists"), False, AlreadyExists),
        (409, status("Conflict"), False, Conflict),
        (410, status("Gone"), False, Gone),
        (410, status("Expired"), False, Gone),
        (200, status("Expired"), False, Gone),
        (0, status("Expired", code=410), False, Gone),
        (0, status("Gone", code=410), False, Gone),
        (0, status("InternalError", code=500), False, ServerError),
        (422, status("Invalid", [LABEL]), False, Invalid),
        (422, status("Invalid", [LABEL]), True, Invalid),
        (422, status("Invalid", [UID, LABEL]), True, Invalid),
        (422, status("Invalid", [ADDRESS]), True, Invalid),
        (422, status("Invalid"), False, Invalid),
        (422, status("Invalid"), True, Conflict),
        (422, status("Invalid", []), True, Conflict),
        (422, status("Invalid", [UID]), True, Conflict),
        (422, status("Invalid", [TAINT]), True, Conflict),
        (429, status("TooManyRequests"), False, TooManyRequests),
        (500, status("InternalError"), False, ServerError),
        (504, b"<html>bad gateway</html>", False, ServerError),
        (418, b"", False, StatusError),
    ],
)
def test_an_answer_becomes_the_error_of_its_kind(
    code: int, body: bytes, *, patch: bool, expected: type[KubeError]
) -> None:
    assert type(from_status(code, body, {}, patch=patch)) is expected


def test_an_error_has_the_message_of_the_api_server() -> None:
    error = from_status(422, status("Invalid", [LABEL], message="not so"), {})

    assert str(error) == "not so (422 Invalid)"
    assert (error.code, error.reason, error.message) == (422, "Invalid", "not so")
    assert error.causes == (Cause("FieldValueInvalid", "", "metadata.labels"),)


@pytest.mark.parametrize(
    "body", [b"", b"<html>" + b"x" * 10_000, b"\xff\xfe", b"[1]", b'{"code": "x"}']
)
def test_an_answer_that_is_no_status_is_an_error_all_the_same(body: bytes) -> None:
    error = from_status(502, body, {})

    assert isinstance(error, ServerError)
    assert 0 < len(str(error)) < 600


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({"Retry-After": "0"}, {"retryAfterSeconds": 3}, 0.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "-1"}, {}, 0.0),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "soon"}, {}, None),
        ({}, {}, None),
    ],
)
def test_retry_after_is_read_from_header_or_details(
    header: dict[str, str], details: dict[str, int], expected: float | None
) -> None:
    body = msgspec.json.encode({"details": details})

    assert from_status(429, body, header).retry_after == expected
