from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proreus.kube import patch, requests
from proreus.kube.requests import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    LEASES,
    NODES,
    PARTIAL,
    SERVICES,
    Request,
)


@pytest.mark.parametrize(
    ("request_", "method", "path"),
    [
        (requests.get(NODES, "a"), "GET", "/api/v1/nodes/a"),
        (requests.get(SERVICES, "a", "n"), "GET", "/api/v1/namespaces/n/services/a"),
        (requests.get(NODES, "a/b?c"), "GET", "/api/v1/nodes/a%2Fb%3Fc"),
        (requests.list_page(SERVICES), "GET", "/api/v1/services"),
        (
            requests.list_page(ENDPOINT_SLICES, "n"),
            "GET",
            "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices",
        ),
        (
            requests.create(LEASES, {}, "n"),
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/n/leases",
        ),
        (
            requests.patch(NODES, "a", patch.status("u"), subresource="status"),
            "PATCH",
            "/api/v1/nodes/a/status",
        ),
        (requests.delete(NODES, "a"), "DELETE", "/api/v1/nodes/a"),
        (
            requests.replace_lease("n", "a", {}),
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/a",
        ),
    ],
)
def test_a_request_names_its_object(request_: Request, method: str, path: str) -> None:
    assert (request_.method, request_.path) == (method, path)
    assert request_.read == (method == "GET")


@pytest.mark.parametrize(
    "make",
    [
        lambda: requests.delete(NODES, ""),  # would delete all nodes
        lambda: requests.delete(NODES, ".."),
        lambda: requests.get(NODES, "."),
        lambda: requests.delete(SERVICES, "a"),
        lambda: requests.delete(SERVICES, "", "n"),
        lambda: requests.get(NODES, "a", "n"),
        lambda: requests.create(SERVICES, {}),
        lambda: requests.create(NODES, {}, "n"),
        lambda: requests.patch(NODES, "", patch.status("u")),
        lambda: requests.replace_lease("n", "", {}),
        lambda: requests.list_page(SERVICES, ".."),
    ],
)
def test_a_request_that_would_name_something_else_is_refused(make: Callable[[], Request]) -> None:
    with pytest.raises(ValueError, match="name"):
        make()


def test_a_list_asks_for_a_page_and_for_no_version() -> None:
    first = requests.list_page(CONFIG_MAPS, limit=7, label_selector="a=b,c")
    assert dict(first.query) == {"limit": "7", "labelSelector": "a=b,c"}

    second = requests.list_page(CONFIG_MAPS, continue_="token", field_selector="metadata.name=x")
    assert dict(second.query) == {
        "limit": "500",
        "continue": "token",
        "fieldSelector": "metadata.name=x",
    }


def test_a_watch_asks_for_bookmarks_and_may_take_longer_than_it_should() -> None:
    request = requests.watch(NODES, resource_version="5", timeout_seconds=300)

    assert dict(request.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
    }
    assert request.timeout > 300


@pytest.mark.parametrize(
    ("preconditions", "expected"),
    [
        ({}, {}),
        ({"uid": "u"}, {"preconditions": {"uid": "u"}}),
        (
            {"uid": "u", "resource_version": "5"},
            {"preconditions": {"uid": "u", "resourceVersion": "5"}},
        ),
    ],
)
def test_a_delete_carries_its_preconditions(
    preconditions: dict[str, str], expected: dict[str, Any]
) -> None:
    body = msgspec.json.decode(requests.delete(NODES, "a", **preconditions).body)

    assert body == {"apiVersion": "v1", "kind": "DeleteOptions", **expected}


def test_writes_ask_for_metadata_only_unless_the_object_is_needed() -> None:
    change = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))

    request = requests.patch(NODES, "a", change)
    assert (request.accept, request.content_type) == (PARTIAL, "application/json-patch+json")
    assert requests.patch(NODES, "a", change, partial_answer=False).accept == "application/json"
    assert requests.create(NODES, {}).accept == PARTIAL
    assert requests.create(LEASES, {}, "n", partial_answer=False).accept == "application/json"


def test_a_body_has_its_kind_and_keeps_unknown_fields() -> None:
    body = requests.replace_lease("n", "a", {"metadata": {"name": "a"}, "future": [1]}).body

    assert msgspec.json.decode(body) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "future": [1],
    }
