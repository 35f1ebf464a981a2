"""The host of admission webhooks, over HTTP."""

import asyncio
import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.app.webhooks import select
from proreus.cloudprovider import AdmissionRequest, AdmissionResponse, Webhook
from proreus.kube import admission
from proreus.runtime import metrics
from proreus.serving import webhooks
from proreus.serving.servers import serve
from proreus.serving.webhooks import BODY_LIMIT, deadline

SECRET = "hunter2"
REQUEST: dict[str, Any] = {
    "uid": "7c9f",
    "kind": {"group": "", "version": "v1", "kind": "Secret"},
    "resource": {"group": "", "version": "v1", "resource": "secrets"},
    "operation": "CREATE",
    "namespace": "default",
    "name": "a",
    "userInfo": {"username": "ann", "groups": ["dev"]},
    "object": {"data": {"password": SECRET}},
    "oldObject": None,
    "dryRun": False,
    "options": None,
}
REVIEW: dict[str, Any] = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": REQUEST,
}
JSON = {"Content-Type": "application/json"}


def changed(**fields: Any) -> bytes:
    """The review with other fields in its request; those that are `...` are left out."""
    request = {key: value for key, value in {**REQUEST, **fields}.items() if value is not ...}
    return msgspec.json.encode({**REVIEW, "request": request})


async def admit(request: AdmissionRequest) -> AdmissionResponse:
    assert request.object is not None
    return AdmissionResponse(
        allowed=True,
        patch=({"op": "add", "path": "/metadata/labels", "value": {"by": request.user_info.name}},),
        warnings=("slow down",),
        audit_annotations={"rule": "7"},
    )


async def refuse(_: AdmissionRequest) -> AdmissionResponse:
    return AdmissionResponse(allowed=False, message="not on Sundays", code=409)


async def fail(request: AdmissionRequest) -> AdmissionResponse:
    raise ValueError(f"cannot bear {request.object}")


async def leave(_: AdmissionRequest) -> AdmissionResponse:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    raise AssertionError


async def hang(_: AdmissionRequest) -> AdmissionResponse:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    await asyncio.sleep(3600)
    raise AssertionError


def wrong(answer: Any) -> Any:
    async def handler(_: AdmissionRequest) -> AdmissionResponse:
        return cast("AdmissionResponse", answer)

    return handler


WRONG: Mapping[str, Any] = {
    "nothing": None,
    "a-dict": {"allowed": True},
    "a-word": AdmissionResponse(allowed=cast("bool", "yes")),
    "no-json": AdmissionResponse(allowed=True, patch=({"op": "add", "path": "/a", "value": {1j}},)),
    "half-a-patch": AdmissionResponse(allowed=True, patch=({"op": "add"},)),
    "no-patch": AdmissionResponse(allowed=True, patch=cast("Any", ("add",))),
    "both": AdmissionResponse(allowed=False, patch=({"op": "remove", "path": "/a"},)),
}
HANDLERS: Mapping[str, Any] = {
    "admit": admit,
    "refuse": refuse,
    "fail": fail,
    "leave": leave,
    "hang": hang,
    **{name: wrong(answer) for name, answer in WRONG.items()},
}
ALL = {name: Webhook(f"/{name}", handler) for name, handler in HANDLERS.items()}


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All that was logged, with the fields."""
    return " ".join(str(vars(record)) for record in caplog.records)


class Host:
    """A client of the host."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.url = f"http://127.0.0.1:{port}"

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] = JSON
    ) -> tuple[int, str]:
        async with self.session.post(
            self.url + path, data=io.BytesIO(body), headers=headers
        ) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with (
        serve(webhooks.app(ALL), "127.0.0.1", 0, flag="--test", any_port=True) as port,
        aiohttp.ClientSession() as session,
    ):
        yield Host(session, port)


async def test_what_is_allowed_comes_back_with_the_uid_and_the_patch(host: Host) -> None:
    status, text = await host.post("/admit?timeout=10s", changed())
    answer = json.loads(text)
    patch = json.loads(base64.b64decode(answer["response"].pop("patch")))
    assert status == 200
    assert patch == [{"op": "add", "path": "/metadata/labels", "value": {"by": "ann"}}]
    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "7c9f",
            "allowed": True,
            "patchType": "JSONPatch",
            "warnings": ["slow down"],
            "auditAnnotations": {"rule": "7"},
        },
    }


async def test_what_is_refused_comes_back_with_the_reason(host: Host) -> None:
    status, text = await host.post("/refuse", changed())
    assert status == 200
    assert json.loads(text)["response"] == {
        "uid": "7c9f",
        "allowed": False,
        "status": {"message": "not on Sundays", "code": 409, "status": "Failure"},
    }


@pytest.mark.parametrize(
    ("body", "named"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"null", "`object`", id="null"),
        pytest.param(b"[]", "`object`", id="a list"),
        pytest.param(b'"x"', "`object`", id="a string"),
        pytest.param(b"{", "not JSON", id="cut"),
        pytest.param(changed()[:-1], "not JSON", id="cut at the end"),
        pytest.param(changed() + b"{}", "not JSON", id="two"),
        pytest.param(b"\xff\xfe{}", "not JSON", id="no UTF-8"),
        pytest.param(
            changed(name="\x00").replace(b"\\u0000", b"\xff"), "not", id="no UTF-8 inside"
        ),
        pytest.param(b'{"a":' * 100_000, "", id="too deep"),
        pytest.param(b"apiVersion: v1\nkind: List\n", "not JSON", id="YAML"),
        pytest.param(b"{}", "apiVersion", id="an empty object"),
        pytest.param(
            changed().replace(b"k8s.io/v1", b"k8s.io/v1beta1"), "$.apiVersion", id="another version"
        ),
        pytest.param(changed().replace(b"AdmissionReview", b"Pod"), "$.kind", id="another kind"),
        pytest.param(
            msgspec.json.encode({**REVIEW, "request": None}), "$.request", id="null as request"
        ),
        pytest.param(
            msgspec.json.encode({**REVIEW, "request": [REQUEST]}), "$.request", id="two requests"
        ),
        pytest.param(changed(uid=...), "`uid`", id="no uid"),
        pytest.param(changed(uid=""), "$.request.uid", id="empty uid"),
        pytest.param(changed(uid=17), "$.request.uid", id="a number as uid"),
        pytest.param(changed(operation=...), "`operation`", id="no operation"),
        pytest.param(changed(operation="READ"), "$.request.operation", id="another operation"),
        pytest.param(changed(kind="Secret"), "$.request.kind", id="a word as kind"),
        pytest.param(changed(resource=...), "`resource`", id="no resource"),
        pytest.param(changed(object=[SECRET]), "$.request.object", id="a list as object"),
        pytest.param(changed(object=SECRET), "$.request.object", id="a string as object"),
        pytest.param(changed(oldObject=1), "$.request.oldObject", id="a number as old object"),
        pytest.param(changed(dryRun=SECRET), "$.request.dryRun", id="a word as dryRun"),
        pytest.param(changed(namespace={}), "$.request.namespace", id="an object as namespace"),
        pytest.param(
            changed(userInfo={"groups": SECRET}),
            "$.request.userInfo.groups",
            id="no list of groups",
        ),
        pytest.param(changed(options="x"), "$.request.options", id="a word as options"),
    ],
)
async def test_a_bad_body_is_400_and_names_the_field(
    host: Host, body: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, text = await host.post("/admit", body)
    assert status == 400
    assert named in text
    assert text.count("\n") == 1
    assert SECRET not in text + logged(caplog)


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(msgspec.json.encode))
def test_any_other_body_is_one_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        admission.read(body)
    assert raised.type is ValueError


async def test_a_body_that_is_too_long_is_413(host: Host) -> None:
    body = b" " * BODY_LIMIT + changed()
    assert (await host.post("/admit", body))[0] == 413
    assert (await host.post("/admit", body[1000:]))[0] == 200


@pytest.mark.parametrize("content_type", ["application/yaml", "text/plain", "", "application/jso"])
async def test_another_content_type_is_415(host: Host, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    status, text = await host.post("/admit", changed(), headers)
    assert status == 415
    assert "application/json" in text


async def test_an_unknown_path_is_404_and_another_method_405(host: Host) -> None:
    assert (await host.post("/nonsense", changed()))[0] == 404
    async with host.session.get(host.url + "/admit") as answer:
        assert answer.status == 405


@pytest.mark.parametrize("name", ["fail", "leave", *WRONG])
async def test_what_is_wrong_with_a_handler_is_500_and_shows_nothing_of_the_body(
    host: Host, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, text = await host.post(f"/{name}", changed())
    assert status == 500
    assert text.startswith(f"webhook {name} ")
    assert SECRET not in text + logged(caplog)
    assert f"webhook {name} " in logged(caplog)
    assert (await host.post("/admit", changed()))[0] == 200


async def test_a_handler_that_takes_too_long_is_504_though_it_does_not_end(host: Host) -> None:
    assert (await host.post("/hang?timeout=0.1s", changed()))[0] == 504


async def test_requests_are_counted_by_webhook_and_code(host: Host) -> None:
    def count(code: int) -> float:
        labels = {"code": str(code), "webhook": "refuse"}
        name = "cloud_provider_webhook_request_total"
        observed = metrics.REGISTRY.get_sample_value(
            "cloud_provider_webhook_request_duration_seconds_count", labels
        )
        counted = metrics.REGISTRY.get_sample_value(name, labels)
        assert observed == counted
        return counted or 0.0

    before = count(200), count(400)
    await host.post("/refuse", changed())
    await host.post("/refuse", b"")
    assert (count(200), count(400)) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("2s", 2.0),
        ("1.5s", 1.5),
        ("40s", 30.0),
        ("", 10.0),
        ("x", 10.0),
        ("-1s", 10.0),
        ("0s", 10.0),
        ("nan", 10.0),
        ("infs", 10.0),
    ],
)
def test_the_deadline_is_that_of_the_api_server_within_limits(text: str, seconds: float) -> None:
    assert deadline(text) == seconds


KNOWN = {name: Webhook(f"/{name}", admit) for name in ("nodes", "pods", "services")}


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ((), ""),
        (("*",), "nodes pods services"),
        (("pods",), "pods"),
        (("*", "-pods"), "nodes services"),
        (("-pods",), ""),
        (("pods", "-pods"), "pods"),
        (("*", "pods", "-pods"), "nodes pods services"),
    ],
)
def test_webhooks_are_chosen_as_controllers_are(wanted: tuple[str, ...], chosen: str) -> None:
    assert (sorted(select(wanted, KNOWN)[0]), select(wanted, KNOWN)[1]) == (chosen.split(), ())


def test_an_unknown_webhook_is_an_error_that_lists_the_known_ones() -> None:
    _, problems = select(("pod", "-x", "nodes"), KNOWN)
    assert problems == (
        "--webhooks: unknown webhook 'pod'; there are nodes, pods, services: did you mean pods?",
        "--webhooks: unknown webhook 'x'; there are nodes, pods, services",
    )


def test_two_webhooks_of_one_path_are_an_error_if_both_are_chosen() -> None:
    known = {"a": Webhook("/x", admit), "b": Webhook("/x", refuse)}
    assert select(("a",), known)[1] == ()
    (problem,) = select(("*",), known)[1]
    assert "a, b have the same path /x" in problem


@pytest.mark.parametrize("path", ["", "x", "/{name}", "/a?b", "/a b", "/a#b", "/a%2fb"])
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="must begin with /"):
        Webhook(path, admit)
