"""Define the route controller's numbers, and the label that excludes a node."""

from typing import Final

import msgspec

LABEL_EXCLUDE: Final = "proreus.io/exclude-from-cloud-routes"
"""The label that keeps the controller from creating or deleting a node's routes."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the route controller; durations in seconds.

    Attributes:
        confirm: How long an unexpected state (a route that nobody needs, or one that was there and
            is missing) must last, as a later listing confirms, before it is acted on.
        settle: How long an answer to our own change is trusted more than a listing: lists may lag
            behind.
        batch: The most destinations in one `apply`.
        retry_first: The delay after the first failure of a route; each further failure doubles it,
        retry_cap: up to this delay.
        report_after: How many unknown outcomes in a row it takes until the node's condition reports
            them.
    """

    confirm: float = 10.0
    settle: float = 30.0
    batch: int = 50
    retry_first: float = 1.0
    retry_cap: float = 60.0
    report_after: int = 3
