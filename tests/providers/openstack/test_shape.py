"""Shapes of answers: what counts, and what is a difference."""

from typing import Any

import pytest

from .shape import disagreements, masked, shape, steady

ID = "20000000-0000-4000-8000-000000000001"


def test_values_count_where_the_request_or_the_service_decides_them() -> None:
    body = {
        "id": ID, "name": "web", "port": 80, "up": True, "created_at": "today", "gone": None,
        "provisioning_status": "ACTIVE", "message": f"Port {ID} is not at 10.0.0.1.",
    }  # fmt: skip
    sent = {"listener": {"name": "web", "port": 81, "up": True}}
    assert shape(body, {ID: "balancer"}, sent) == {
        "id": "{balancer}", "name": "= web", "port": "int", "up": "bool", "created_at": "str",
        "gone": "null", "provisioning_status": "= ACTIVE",
        "message": "= Port <id> is not at <address>.",
    }  # fmt: skip


def test_a_list_is_its_length_and_the_union_of_its_elements() -> None:
    assert shape([{"a": 1, "b": []}, {"a": None, "b": ["x"]}], {}, None) == [
        2,
        {"a": "int | null", "b": [1, "str"]},
    ]
    assert shape([], {}, None) == [0]


def test_an_end_of_a_range_is_the_same_whether_a_server_has_it_or_not() -> None:
    ends = {"start": "10.0.0.2", "end": "10.0.0.254"}
    assert shape(ends, {"10.0.0.2": "address3"}, None) == {"start": "str", "end": "str"}


def test_what_a_cloud_has_in_its_catalog_is_its_own() -> None:
    found = shape({"catalog": [{"type": "compute"}, {"type": "image"}]}, {}, None)
    assert found == {"catalog": [0, {"type": "str"}]}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"(req-{ID}) no", "(<id>) no"),
        ("2001:db8::/32 of 0123456789abcdef0123456789abcdef", "<address>/<number> of <id>"),
        ("should be one of: B, A", "should be one of: <words>"),
        ("routes: [{'nexthop': '10.0.0.1'}], no", "routes: <list>, no"),
    ],
)
def test_what_is_another_each_time_is_masked(text: str, left: str) -> None:
    assert masked(text) == left


REAL: dict[str, Any] = {"status": 200, "body": {"id": "str", "tags": [1, "str"], "extra": "int"}}


@pytest.mark.parametrize(
    ("wire", "told"),
    [
        (REAL, []),
        ({"status": 200, "body": {"id": "str", "tags": [1, "str"]}}, []),
        ({**REAL, "status": 404}, [".status: 404, really 200"]),
        ({"status": 200, "body": {"tags": [1, "str"]}}, [".body.id: the wire lacks it"]),
        ({**REAL, "body": {**REAL["body"], "x": "int"}}, [".body.x: only the wire has it"]),
        ({**REAL, "body": {"id": "int", "tags": [1, "str"]}}, [".body.id: 'int', really 'str'"]),
        ({**REAL, "body": {"id": "str", "tags": [0]}}, [".body.tags: 0 elements, really 1"]),
    ],
)
def test_each_difference_is_reported(wire: Any, told: list[str]) -> None:
    assert disagreements(wire, REAL, {"id", "tags", "body"}) == told


def test_how_far_octavia_is_does_not_count_in_the_answer_to_a_change() -> None:
    one = {"body": {"members": [1, {"id": "str", "provisioning_status": "= ACTIVE"}]}}
    assert steady(one) == {"body": {"members": [1, {"id": "str"}]}}
