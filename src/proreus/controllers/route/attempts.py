"""Judge the result of a change of the route table, and when to try it again. Pure."""

import math
from collections.abc import Mapping

import msgspec

from proreus.cloudprovider.errors import CallTimeout, CloudError, RetryAfter, Throttled
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route
from proreus.controllers.events import scrub
from proreus.controllers.networks import Network
from proreus.controllers.route.desired import DesiredRoute
from proreus.controllers.route.policy import Policy

Key = tuple[Network, str]
"""The destination and target of a route; "" where routes are only deleted."""

Answer = Done | Pending | CloudError

MOST_DOUBLINGS = 30
"""The most doublings of a delay: 2 to this power is beyond any cap."""

SHRINK = 8
"""The divisor of the next batch's size for a destination whose whole batch failed."""


class Unit(msgspec.Struct, frozen=True):
    """The work on one destination in one `apply`.

    With `desired`, that route replaces the routes in `delete`; without, the routes in `delete` are
    deleted.
    """

    destination: Network
    desired: DesiredRoute | None = None
    delete: tuple[Route, ...] = ()

    @property
    def key(self) -> Key:
        """The key by which failures are counted."""
        return self.destination, self.desired.target if self.desired else ""


class Attempt(msgspec.Struct, frozen=True):
    """A summary of the tries so far.

    Attributes:
        failures: How many tries failed in a row.
        due: When the next try is due.
        is_lacking: Whether the node is known to lack the route.
        text: The cloud's last error text; "" if the user can do nothing about it.
        batch: The most destinations that may be in one batch with this one.
    """

    failures: int
    due: float
    is_lacking: bool
    text: str
    batch: int


class Result(msgspec.Struct, frozen=True):
    """The result of a unit; without `attempt` all is done."""

    created: Route | None
    deleted: tuple[Route, ...]
    attempt: Attempt | None


def result(
    unit: Unit,
    answers: Mapping[Route, Answer] | Exception,
    before: Attempt | None,
    policy: Policy,
    *,
    batch: int,
    now: float,
) -> Result:
    """Judge the cloud's answers about one destination.

    Args:
        unit: The change that was tried.
        answers: The cloud's answers by route, or the error that `apply` raised, which fails the
            whole batch.
        before: The attempts so far.
        policy: The settings of delays and sizes.
        batch: How many destinations were in the batch.
        now: The time of the answer.
    """
    if isinstance(answers, Exception):
        error = answers if isinstance(answers, CloudError) else CloudError(str(answers))
        smaller = max(1, batch // SHRINK)
        return Result(None, (), _attempt(error, before, policy, batch=smaller, now=now))
    deleted = tuple(route for route in unit.delete if isinstance(answers.get(route), Done))
    limit = before.batch if before else policy.batch
    if unit.desired is not None:
        route = unit.desired.route()
        attempt = _attempt(answers.get(route), before, policy, batch=limit, now=now)
        # A replaced route that is still there is seen as one that nobody needs.
        return Result(None if attempt else route, deleted, attempt)
    rest = [route for route in unit.delete if route not in deleted]
    if not rest:
        return Result(None, deleted, None)
    return Result(
        None,
        deleted,
        _attempt(answers.get(rest[0]), before, policy, batch=limit, now=now),
    )


def _attempt(
    answer: Answer | None, before: Attempt | None, policy: Policy, *, batch: int, now: float
) -> Attempt | None:
    """Return the next attempt; None if there is nothing to try again.

    No answer, and a call that had none in time, say nothing about the route. To be asked to
    wait is no failure, and neither it nor throttling is anything a user could do about.
    """
    if isinstance(answer, Done):
        return None
    old = before or Attempt(0, now, is_lacking=False, text="", batch=policy.batch)
    if isinstance(answer, Pending | RetryAfter):
        due = now + max(answer.after, policy.retry_first)
        return Attempt(old.failures, due, is_lacking=True, text=old.text, batch=batch)
    failures = old.failures + 1
    due = _due(failures, policy, now)
    if isinstance(answer, Throttled):
        due = max(due, now + (answer.after or 0.0))
        return Attempt(failures, due, is_lacking=True, text=old.text, batch=batch)
    is_unknown = answer is None or isinstance(answer, CallTimeout)
    if is_unknown and failures < policy.report_after:
        return Attempt(failures, due, is_lacking=old.is_lacking, text=old.text, batch=batch)
    text = scrub(str(answer)) if answer is not None else "the cloud gave no answer for it"
    return Attempt(failures, due, is_lacking=True, text=text, batch=batch)


def _due(failures: int, policy: Policy, now: float) -> float:
    """Return when to try again: after the delay, and at a multiple of it.

    So routes that failed at about one time come back in one pass, with one listing for all.
    """
    delay = min(policy.retry_cap, policy.retry_first * 2.0 ** min(failures - 1, MOST_DOUBLINGS))
    return math.ceil((now + delay) / delay) * delay
