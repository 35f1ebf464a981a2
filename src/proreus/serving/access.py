"""Gate our servers: identify and authorize the user of each request, or answer it here.

The answers are Kubernetes' own: 401 and 403 with a Status object, 429 when more is asked than the
API server is to be asked about, 500 when it does not say who may.
"""

import math
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from cryptography import x509

from proreus.kube.errors import KubeError
from proreus.kube.reviews import User
from proreus.runtime import klog
from proreus.serving.answers import Busy
from proreus.serving.authentication import Credentials, Unauthenticated
from proreus.serving.authorization import Decision

log = klog.logger(__name__)

VERBOSE: Final = 2
"""The log verbosity at which refused users are shown."""


class Authenticates(Protocol):
    """A function that identifies the user of a request, as `authentication.Authenticator` does."""

    async def authenticate(self, shown: Credentials) -> User:
        """Return the user of these credentials, or raise Unauthenticated or Busy."""


class Authorizes(Protocol):
    """A function that decides what a user may do, as `authorization.Authorizer` does."""

    async def authorize(self, user: User, verb: str, path: str) -> Decision:
        """Decide whether the user may do `verb` at a path, or raise KubeError or Busy."""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """Kubernetes' Status object for a request that failed."""

    message: str
    reason: str
    code: int
    kind: str = "Status"
    api_version: str = "v1"
    metadata: dict[str, str] = {}
    status: str = "Failure"


def access(authenticator: Authenticates, authorizer: Authorizes) -> Middleware:
    """Make a middleware that lets only allowed requests through.

    It asks before the request is looked at in any other way, so that nobody learns which paths
    there are.
    """

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            refusal = await _refusal(request, authenticator.authenticate, authorizer.authorize)
        except Busy as exc:
            klog.v(
                log, VERBOSE, "Too many requests wait for a review", path=request.path, why=str(exc)
            )
            refusal = _answer(
                HTTPStatus.TOO_MANY_REQUESTS,
                "TooManyRequests",
                "too many requests, please try again later",
            )
            refusal.headers["Retry-After"] = str(max(1, math.ceil(exc.after)))
        return await handler(request) if refusal is None else refusal

    return gate


async def _refusal(
    request: web.Request,
    authenticate: Callable[[Credentials], Awaitable[User]],
    authorize: Callable[[User, str, str], Awaitable[Decision]],
) -> web.Response | None:
    verb, path = request.method.lower(), request.path
    if not _is_text(path):
        return _answer(HTTPStatus.BAD_REQUEST, "BadRequest", "the path is not UTF-8")
    try:
        user = await authenticate(_credentials(request))
    except Unauthenticated as exc:
        klog.v(log, VERBOSE, "The user could not be authenticated", path=path, why=str(exc))
        return _answer(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
    try:
        decision = await authorize(user, verb, path)
    except KubeError as exc:
        klog.warning(log, "The API server did not answer an access review", err=str(exc), path=path)
        text = "the API server could not be asked whether this is allowed"
        return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", text)
    if decision.allowed:
        return None
    text = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
    if decision.reason:
        text += f": {decision.reason}"
    return _answer(HTTPStatus.FORBIDDEN, "Forbidden", text)


def _answer(code: HTTPStatus, reason: str, message: str) -> web.Response:
    body = msgspec.json.encode(Status(message=message, reason=reason, code=code))
    # Names of users and paths come from outside: no browser shall take them for HTML.
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(status=code, body=body, content_type="application/json", headers=headers)


def _credentials(request: web.Request) -> Credentials:
    headers = [(name, value) for name, value in request.headers.items() if _is_text(value)]
    return Credentials(tuple(headers), _chain(request))


def _is_text(value: str) -> bool:
    """Tell whether the header is UTF-8, and not bytes that could only be kept as surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _chain(request: web.Request) -> tuple[x509.Certificate, ...]:
    """Return the client's certificate, verified by the handshake, and those shown with it.

    Before Python 3.13 only the first is to be had; it must then be issued by an authority of the
    bundle itself.
    """
    tls: ssl.SSLObject | None = request.get_extra_info("ssl_object")
    leaf = tls.getpeercert(binary_form=True) if tls is not None else None
    if leaf is None:
        return ()
    shown: list[bytes] = getattr(tls, "get_unverified_chain", list)()
    return tuple(x509.load_der_x509_certificate(each) for each in (shown or [leaf]))
