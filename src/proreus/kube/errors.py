"""Define what can go wrong between this process and the API server.

KubeError
├── ConfigError          kubeconfig, --master or the Pod's service account cannot be used
├── RefusedByGate        a write was held back; nothing was sent
├── Unreachable          no (whole) HTTP answer; `sent`: the request may have taken effect
└── StatusError          the API server said no
    ├── BadRequest       400
    ├── Unauthorized     401
    ├── Forbidden        403
    ├── NotFound         404
    ├── AlreadyExists    409 on create
    ├── Conflict         the object is not what it was thought to be: wait for the cache, plan again
    ├── Gone             410: a resource version or a continue token is too old
    ├── Invalid          422
    ├── TooManyRequests  429
    └── ServerError      5xx
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec

MESSAGE_LIMIT = 500
"""How many characters of an answer that is no Status (a proxy's HTML) a message takes."""


class KubeError(Exception):
    """Any failure of a request to the API server."""


class ConfigError(KubeError):
    """The error that the client configuration is wrong; `problems` names every mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class RefusedByGate(KubeError):
    """The error that the gate held a write back: the lease may be lost. Nothing was sent."""


class Unreachable(KubeError):
    """The error that the API server gave no answer, or none that can be read.

    `sent` says that the request may have taken effect: read before doing it again.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Cause(msgspec.Struct, frozen=True):
    """One fault that the API server found: `field` is a path such as `spec.taints[1]`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusError(KubeError):
    """An error that the API server answered.

    `code` is the HTTP status, `reason` the API's word for it (StatusReason), `causes` the faults
    it found; `retry_after` are the seconds it asks to wait, None if it does not say.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{message} ({code} {reason})" if reason else f"{message} ({code})")
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after


class BadRequest(StatusError):
    """The error that the request makes no sense to the API server (400)."""


class Unauthorized(StatusError):
    """The error that the credential is missing, unknown or no longer valid (401)."""


class Forbidden(StatusError):
    """The error that the account has no right to do this (403)."""


class NotFound(StatusError):
    """The error that there is no such object or resource (404)."""


class AlreadyExists(StatusError):
    """The error that there is an object of that name already (409)."""


class Conflict(StatusError):
    """The error that the object has changed since it was read: wait for the cache and plan again.

    This is no failure. It stands for a wrong resourceVersion or uid, a failed precondition of a
    DELETE, and a JSON Patch whose `test` failed or whose path is not there.
    """


class Gone(StatusError):
    """The error that a resource version or a continue token is too old (410): list again."""


class Invalid(StatusError):
    """The error that the object would not be valid (422); `causes` name the fields."""


class TooManyRequests(StatusError):
    """The error that the API server sheds load (429); the request was not carried out."""


class ServerError(StatusError):
    """The error that the API server failed (5xx); a write may have taken effect."""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: float = 0


class _Status(msgspec.Struct, frozen=True):
    """The API's Status object; fields left out of the JSON are empty."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_BY_CODE: Mapping[int, type[StatusError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_STATUS = msgspec.json.Decoder(_Status)


def from_status(
    code: int, body: bytes, headers: Mapping[str, str], *, patch: bool = False
) -> StatusError:
    """Return the error for a failed answer; `patch` says that the request was a PATCH.

    With `code` 0 (an ERROR event of a watch) the code in the body counts.
    """
    status = _status(body)
    code = code or status.code
    details = status.details or _Details()
    causes = details.causes or ()
    return _class(code, status.reason, causes, patch=patch)(
        code,
        status.message or f"HTTP status {code}",
        reason=status.reason,
        causes=causes,
        retry_after=_retry_after(headers.get("Retry-After"), details.retry_after_seconds),
    )


def _class(code: int, reason: str, causes: tuple[Cause, ...], *, patch: bool) -> type[StatusError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    if reason == "Expired":
        return Gone
    if patch and code == HTTPStatus.UNPROCESSABLE_ENTITY and _is_stale(causes):
        return Conflict
    return (
        ServerError if code >= HTTPStatus.INTERNAL_SERVER_ERROR else _BY_CODE.get(code, StatusError)
    )


def _is_stale(causes: tuple[Cause, ...]) -> bool:
    """Tell whether a PATCH was refused because it was made from an old object.

    A failed `test` and a missing path have no causes. A wrong uid is named as a fault of that
    field. A taint that was appended meanwhile by somebody else is named as a duplicate.
    """
    return all(
        cause.field == "metadata.uid"
        or (".taints[" in cause.field and cause.reason == "FieldValueDuplicate")
        for cause in causes
    )


def _status(body: bytes) -> _Status:
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status(message=body[:MESSAGE_LIMIT].decode("utf-8", "replace").strip())


def _retry_after(header: str | None, details: float) -> float | None:
    """Return the seconds of Retry-After; Kubernetes never sends the date form."""
    try:
        return max(0.0, float(header or "")) if header else details or None
    except ValueError:
        return details or None
