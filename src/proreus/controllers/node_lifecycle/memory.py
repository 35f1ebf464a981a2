"""Hand over from one pass to the next when nodes were heard of, and how disrupted zones were."""

from collections.abc import Mapping

import msgspec

from proreus.controllers.node_lifecycle.zones import Bucket, State


class Memory(msgspec.Struct, frozen=True):
    """What is known of all nodes and zones; times are of one clock that only grows.

    Attributes:
        heard: When each node was heard of last, by uid.
        states: How disrupted each zone was.
        queued: The nodes that wait for their NoExecute taint, by zone and in order, by uid.
        buckets: The bucket of each zone that limits how quickly its nodes get the taint.
        at: When the last pass was; None before the first.
    """

    heard: Mapping[str, float] = {}
    states: Mapping[str, State] = {}
    queued: Mapping[str, tuple[str, ...]] = {}
    buckets: Mapping[str, Bucket] = {}
    at: float | None = None
