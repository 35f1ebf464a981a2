"""Questions to the API server about others: who has this token, may that user do this? Pure."""

from collections.abc import Mapping

import msgspec

from proreus.kube import requests
from proreus.kube.requests import Request, Resource

REVIEW_SECONDS = 10.0
"""How long a review may take, with all its tries; whoever asked us is waiting."""


class User(msgspec.Struct, frozen=True):
    """Who somebody is for Kubernetes (UserInfo)."""

    name: str = msgspec.field(name="username", default="")
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True):
    """Whether the token is good, and whose it is; `error` says why it could not be told."""

    authenticated: bool = False
    user: User = User()
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True):
    """The answer about a token; the token itself is not decoded."""

    status: TokenReviewStatus = TokenReviewStatus()


class AccessReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Whether the user may; `evaluation_error` says what could not be looked at."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SubjectAccessReview(msgspec.Struct, frozen=True):
    """The answer about a right."""

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
    """Ask whose token this is."""
    return _review(TOKEN_REVIEWS, {"token": token})


def access_review(user: User, verb: str, path: str) -> Request:
    """Ask whether the user may do `verb` (get, put, ...) at a path that is no resource's."""
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
