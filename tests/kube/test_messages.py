"""Texts of events and conditions. What `scrub` takes out is in tests/plans/test_service.py."""

import pytest

from proreus.kube.messages import request_id, scrub


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("An error (Throttling): slow down (Request ID: 7f3a-11)", "7f3a-11"),
        ("refused, RequestId: 4d0c77aa.", "4d0c77aa"),
        ('{"x-request-id": "abcdef1", "code": 1}', "abcdef1"),
        ("HTTP 500 (Request-ID: req-0a1b2c3d-aaaa)", "req-0a1b2c3d-aaaa"),
        ("x-openstack-request-id=req-12345678", "req-12345678"),
        ("correlation id 99aabbcc", "99aabbcc"),
        ("quota exceeded for project p-123456", ""),
        ("the request id is missing", ""),
        ("", ""),
    ],
)
def test_the_id_of_a_request_is_found_in_its_error(text: str, found: str) -> None:
    assert request_id(text) == found
    assert not found or found not in scrub(text)
