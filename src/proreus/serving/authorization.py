"""Decide what users may do on our servers, by the API server's SubjectAccessReviews.

Without asking it, the members of `system:masters` may do everything, and everybody may ask for the
paths of `--authorization-always-allow-paths`. Without its answer nobody else may do anything.

Anybody can make up paths, so reviews are bounded: those of the anonymous have a budget of their
own, and who was let in the last time is asked about without one.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from proreus.kube.client import Client
from proreus.kube.reviews import AccessReviewStatus, SubjectAccessReview, User, access_review
from proreus.serving.answers import Answers, Budget, tried
from proreus.serving.authentication import ANONYMOUS

MASTERS: Final = "system:masters"
"""The group whose members may do everything."""


class Decision(msgspec.Struct, frozen=True):
    """The answer whether the request is allowed, and the API server's reason."""

    allowed: bool
    reason: str = ""


def is_always_allowed(path: str, patterns: Sequence[str]) -> bool:
    """Tell whether everybody may use a path: it is listed, or matches a `*` at the end."""
    return any(
        path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
        for pattern in ("/" + each.lstrip("/") for each in patterns)
    )


def decided(user: User, path: str, patterns: Sequence[str]) -> Decision | None:
    """Decide without the API server where possible; None if it must be asked."""
    if MASTERS in user.groups or is_always_allowed(path, patterns):
        return Decision(allowed=True)
    return None


class Authorizer:
    """A judge of what users may do."""

    def __init__(
        self,
        client: Client,
        *,
        always_allow_paths: Sequence[str],
        authorized_ttl: float,
        unauthorized_ttl: float,
    ) -> None:
        """Keep `client`, and the seconds for which a yes and a no are valid."""
        self._client = client
        self._paths = tuple(always_allow_paths)
        self._reviews: Answers[bytes, Decision] = Answers(
            lambda decision: authorized_ttl if decision.allowed else unauthorized_ttl,
            renews=lambda decision: decision.allowed,
        )
        self._anonymous, self._others = Budget(), Budget()

    async def authorize(self, user: User, verb: str, path: str) -> Decision:
        """Decide whether the user may do `verb`, the lower-case method, at the path.

        Raises:
            KubeError: The API server did not answer.
            Busy: Too many requests wait for a review.
        """
        known = decided(user, path, self._paths)
        if known is not None:
            return known

        async def review() -> Decision:
            question = access_review(user, verb, path)
            answer = await tried(lambda: self._client.send(question, SubjectAccessReview))
            return _decision(answer.status)

        # What others make up can be long, and is not to be kept.
        key = hashlib.sha256(msgspec.json.encode((user, verb, path))).digest()
        budget = self._anonymous if user.name == ANONYMOUS.name else self._others
        return await self._reviews.get(key, review, budget)

    async def close(self) -> None:
        """Cancel the SubjectAccessReviews that have no answer yet."""
        await self._reviews.close()


def _decision(status: AccessReviewStatus) -> Decision:
    return Decision(status.allowed and not status.denied, status.reason)
