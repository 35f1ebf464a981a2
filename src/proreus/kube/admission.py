"""Model admission webhooks: the API server's question, our answer, and a webhook. Pure.

The API is admission.k8s.io/v1. Values of other objects stay plain dicts and lists, as a webhook may
be for any kind.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from proreus.kube.reviews import User

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

Object = dict[str, Any]


class GroupVersionKind(msgspec.Struct, frozen=True):
    """The identity of a kind of object: API group, version and kind."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(msgspec.Struct, frozen=True):
    """The resource under which the API server keeps a kind of object."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The request under admission; `namespace` is "" for cluster-wide objects.

    `object` is None at a DELETE, `old_object` at a CREATE and CONNECT. With `dry_run` nothing
    outside of the cluster may be changed.
    """

    uid: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    operation: str
    sub_resource: str = ""
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: User = User()
    object: Object | None = None
    old_object: Object | None = None
    dry_run: bool | None = None
    options: Object | None = None

    def __repr__(self) -> str:
        """Show the request without its objects and user: they may hold secrets."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"AdmissionRequest({self.operation} {self.resource.resource} {where})"


class AdmissionResponse(msgspec.Struct, frozen=True):
    """The answer whether a request is admitted, with warnings and a patch.

    Attributes:
        allowed: Whether the request is admitted.
        message: The reason for a refusal, for the user.
        code: The HTTP status of a refusal.
        patch: The operations of a JSON Patch (RFC 6902) that change the object; only for an
            admitted request of a MutatingWebhookConfiguration.
        warnings: The sentences that the user is shown in any case.
        audit_annotations: The entries for the audit log.
    """

    allowed: bool
    message: str = ""
    code: int = 403
    patch: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class Webhook(msgspec.Struct, frozen=True):
    """An admission webhook: its URL path and the handler that answers there.

    The handler is called on every replica, the standbys too, and should end within seconds. It may
    be called for several requests at once, and twice for one.

    Raises:
        ValueError: The path is not a valid URL path.
    """

    path: str
    handler: Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]

    def __post_init__(self) -> None:
        """Refuse a path that cannot stand in a URL."""
        if not self.path.startswith("/") or set(self.path) & set("{}?#% "):
            raise ValueError(f"path {self.path!r} must begin with / and have none of {{}}?#% in it")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


_REVIEW = msgspec.json.Decoder(_Review)


class _Status(msgspec.Struct, frozen=True):
    message: str
    code: int
    status: str = "Failure"


class _Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = KIND


def read(body: bytes) -> AdmissionRequest:
    """Decode the AdmissionRequest in the body of an AdmissionReview.

    Raises:
        ValueError: The body is no such review; the message names the field and shows nothing of the
            objects.
    """
    try:
        review = _REVIEW.decode(body)
    except msgspec.ValidationError as exc:
        raise ValueError(f"this is no {KIND}: {exc}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"the body is not JSON: {_where(exc)}") from None
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise ValueError(f"$.apiVersion and $.kind: must be {API_VERSION} and {KIND}")
    if not review.request.uid:
        raise ValueError("$.request.uid: must not be empty")
    if review.request.operation not in OPERATIONS:
        raise ValueError(f"$.request.operation: must be one of {', '.join(OPERATIONS)}")
    return review.request


def written(uid: str, answer: AdmissionResponse) -> bytes:
    """Encode the AdmissionReview that answers the request with this uid.

    Raises:
        TypeError: The answer is no AdmissionResponse, or holds a value that JSON does not have.
        ValueError: A patch is given for a request that is refused, or has an invalid operation.
    """
    _check(answer)
    response = _Response(
        uid=uid,
        allowed=answer.allowed,
        status=None if answer.allowed else _Status(answer.message, answer.code),
        # Bytes become base64, as the API wants it.
        patch=msgspec.json.encode(answer.patch) if answer.patch else None,
        patch_type="JSONPatch" if answer.patch else None,
        warnings=answer.warnings,
        audit_annotations=answer.audit_annotations,
    )
    return msgspec.json.encode(_Answer(response))


def _check(answer: AdmissionResponse) -> None:
    """Check the types in a handler's response: msgspec checks only what it decodes itself."""
    if not isinstance(answer, AdmissionResponse):
        raise TypeError(f"the answer is {type(answer).__name__}, not an AdmissionResponse")
    msgspec.convert(msgspec.to_builtins(answer), AdmissionResponse)
    if answer.patch and not answer.allowed:
        raise ValueError("patch: must be empty, since the answer refuses the request")
    for index, operation in enumerate(answer.patch):
        missing = {"op", "path"} - operation.keys()
        if missing:
            raise ValueError(f"patch[{index}]: lacks {', '.join(sorted(missing))}")


def _where(exc: Exception) -> str:
    """Return the path at which decoding failed, without the wrong byte or text."""
    if isinstance(exc, UnicodeDecodeError):
        return f"not UTF-8 (byte {exc.start})"
    return str(exc)
