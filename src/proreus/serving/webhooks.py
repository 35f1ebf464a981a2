"""Host admission webhooks: HTTP around handlers that know only the request and the answer.

What is wrong with a request is answered in one sentence: 400 names the field, 404 is a path of no
webhook, 413 and 415 a body that is too long or not JSON. What is wrong with a handler is 500, and
504 if it takes too long; the API server then does as the `failurePolicy` says. Nothing of a body
is ever logged.
"""

import asyncio
import math
import time
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import PurePath
from typing import Final

from aiohttp import web

from proreus.kube import admission
from proreus.kube.admission import AdmissionRequest, Webhook
from proreus.runtime import klog, metrics

log = klog.logger(__name__)

BODY_LIMIT: Final = 8 * 2**20
"""Most bytes of a request: objects have up to 3 MiB, and an update holds two of them."""

DEADLINE: Final = 10.0
"""Seconds for a request without a timeout: the API server's default."""

LONGEST: Final = 30.0
"""Most seconds that a request may ask for: the longest that a configuration allows."""


def deadline(timeout: str) -> float:
    """Return the seconds that the API server waits: `timeout` is its URL's value, such as "10s"."""
    try:
        seconds = float(timeout.removesuffix("s"))
    except ValueError:
        return DEADLINE
    return min(seconds, LONGEST) if math.isfinite(seconds) and seconds > 0 else DEADLINE


def app(webhooks: Mapping[str, Webhook]) -> web.Application:
    """Make the web application that serves these webhooks."""
    result = web.Application(client_max_size=BODY_LIMIT)
    for name, webhook in webhooks.items():
        result.router.add_post(webhook.path, _Endpoint(name, webhook).answer)
    return result


class _Failure(Exception):
    """The error that a request is answered with."""

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Endpoint:
    """The endpoint of one webhook."""

    def __init__(self, name: str, webhook: Webhook) -> None:
        self._name = name
        self._webhook = webhook

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview."""
        began = time.monotonic()
        code = HTTPStatus.OK
        try:
            body = await self._review(request)
        except _Failure as exc:
            code = exc.code
            klog.warning(
                log, "An admission request failed", webhook=self._name, code=code, err=str(exc)
            )
            return web.Response(status=code, text=f"{exc}\n")
        else:
            return web.Response(body=body, content_type="application/json")
        finally:
            labels = (str(int(code)), self._name)
            metrics.WEBHOOK_REQUESTS.labels(*labels).inc()
            metrics.WEBHOOK_DURATION.labels(*labels).observe(time.monotonic() - began)

    async def _review(self, request: web.Request) -> bytes:
        if request.content_type != "application/json":
            raise _Failure(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json"
            )
        began, seconds = time.monotonic(), deadline(request.query.get("timeout", ""))
        try:
            async with asyncio.timeout(seconds):
                asked = await _read(request)
        except TimeoutError:
            text = f"the body did not arrive within {seconds:g} s"
            raise _Failure(HTTPStatus.REQUEST_TIMEOUT, text) from None
        return await self._ask(asked, seconds - (time.monotonic() - began))

    async def _ask(self, asked: AdmissionRequest, seconds: float) -> bytes:
        """Return the handler's response, within the deadline.

        The handler runs in a task of its own, so that it may even call `sys.exit`, or ignore that
        its time is over.
        """

        async def call() -> bytes:
            return admission.written(asked.uid, await self._webhook.handler(asked))

        task = asyncio.create_task(call())
        try:
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                text = f"webhook {self._name} did not answer in time"
                raise _Failure(HTTPStatus.GATEWAY_TIMEOUT, text)
        finally:
            if not task.done():
                task.cancel()
                _left.add(task)
                task.add_done_callback(_end)
        if not task.cancelled() and task.exception() is None:
            return task.result()
        raise _Failure(HTTPStatus.INTERNAL_SERVER_ERROR, f"webhook {self._name} {_why(task)}")


_left: Final[set["asyncio.Task[bytes]"]] = set()
"""Handlers that outlived their deadline; kept so that the loop does not drop the tasks."""


def _end(task: "asyncio.Task[bytes]") -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # nobody waits for it


def _why(task: "asyncio.Task[bytes]") -> str:
    """Name the exception a handler raised, and where: the message may hold secrets of the body."""
    failure = None if task.cancelled() else task.exception()
    if failure is None:
        return "cancelled itself"
    place = ""
    for frame in traceback.extract_tb(failure.__traceback__)[-1:]:
        place = f" at {PurePath(frame.filename).name}:{frame.lineno}"
    return f"failed: {type(failure).__name__}{place}"


async def _read(request: web.Request) -> AdmissionRequest:
    try:
        return admission.read(await request.read())
    except web.HTTPRequestEntityTooLarge:
        text = f"the body is longer than {BODY_LIMIT} bytes"
        raise _Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text) from None
    except ValueError as exc:
        raise _Failure(HTTPStatus.BAD_REQUEST, str(exc)) from None
