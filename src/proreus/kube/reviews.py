"""Ask the API server whose token this is, or whether a user may do something. Pure."""

from collections.abc import Mapping

import msgspec

from proreus.kube import requests
from proreus.kube.requests import Request, Resource

REVIEW_SECONDS = 10.0
"""Seconds that a review may take, with all tries; the caller of our server is waiting."""


class User(msgspec.Struct, frozen=True):
    """A user as Kubernetes knows users (UserInfo)."""

    name: str = msgspec.field(name="username", default="")
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True):
    """The answer whether a token is valid, and whose it is; `error` says why it is unknown."""

    authenticated: bool = False
    user: User = User()
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True):
    """The answer about a token; the token itself is not decoded."""

    status: TokenReviewStatus = TokenReviewStatus()


class AccessReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The answer whether the user is allowed; `evaluation_error` names checks that failed."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SubjectAccessReview(msgspec.Struct, frozen=True):
    """The API server's answer whether a user may do something."""

    status: AccessReviewStatus = AccessReviewStatus()


TOKEN_REVIEWS = Resource(
    "authentication.k8s.io",
    "v1",
    "tokenreviews",
    "TokenReview",
    namespaced=False,
    type=TokenReview,
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
    type=SubjectAccessReview,
)


def token_review(token: str) -> Request:
    """Make the request that asks whose token this is."""
    return _review(TOKEN_REVIEWS, {"token": token})


def access_review(user: User, verb: str, path: str) -> Request:
    """Make the request that asks whether the user may do `verb` at a non-resource path."""
    spec = {
        "user": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        "nonResourceAttributes": {"path": path, "verb": verb},
    }
    return _review(SUBJECT_ACCESS_REVIEWS, spec)


def _review(
    resource: Resource[TokenReview] | Resource[SubjectAccessReview], spec: Mapping[str, object]
) -> Request:
    request = requests.create(resource, {"spec": spec}, partial_answer=False)
    return msgspec.structs.replace(request, timeout=REVIEW_SECONDS)
