"""Tell how much of a zone is disrupted, and how quickly its nodes may be tainted. Pure.

The more nodes of a zone fall silent at once, the likelier it is that not they have failed, but the
network between them and the control plane.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from proreus.controllers.node_lifecycle.policy import Policy
from proreus.kube.objects import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    Node,
    is_ready,
)

LABEL_EXCLUDE_DISRUPTION: Final = "node.kubernetes.io/exclude-disruption"
"""The label of nodes that do not count for the state of their zone."""
_FEW: Final = 2
"""So many nodes that are not Ready are no disruption of a zone."""


class State(IntEnum):
    """How much of a zone is disrupted."""

    NORMAL = 0
    """Few nodes are not Ready."""
    PARTIAL = 1
    """Most nodes are not Ready."""
    FULL = 2
    """No node is Ready."""


class Zone(msgspec.Struct, frozen=True):
    """The nodes of a zone, counted; those with the label exclude-disruption do not count."""

    ready: int = 0
    not_ready: int = 0

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.ready + self.not_ready

    def state(self, threshold: float) -> State:
        """Tell how much of the zone is disrupted."""
        if self.not_ready and not self.ready:
            return State.FULL
        is_partial = self.not_ready > _FEW and self.not_ready / self.size >= threshold
        return State.PARTIAL if is_partial else State.NORMAL


class Bucket(msgspec.Struct, frozen=True):
    """A bucket of at most one token, which fills at a rate: `level` at the time `at`."""

    level: float = 1.0
    at: float = 0.0

    def filled(self, rate: float, at: float) -> "Bucket":
        """Return the bucket as it is at a later time."""
        return Bucket(min(1.0, self.level + max(0.0, at - self.at) * rate), at)

    def taken(self) -> "Bucket | None":
        """Take a token; None if there is none."""
        return Bucket(self.level - 1.0, self.at) if self.level >= 1.0 else None


def zone_of(node: Node) -> str:
    """Return the name of a node's zone, region and zone by its labels; "" without labels."""
    labels = node.metadata.labels
    region = labels.get(LABEL_REGION_BETA) or labels.get(LABEL_REGION, "")
    zone = labels.get(LABEL_ZONE_BETA) or labels.get(LABEL_ZONE, "")
    return f"{region}:{zone}" if region or zone else ""


def zones(nodes: Iterable[Node]) -> Mapping[str, Zone]:
    """Count the nodes of each zone."""
    counted: dict[str, list[int]] = {}
    for node in nodes:
        entry = counted.setdefault(zone_of(node), [0, 0])
        if LABEL_EXCLUDE_DISRUPTION not in node.metadata.labels:
            entry[0 if is_ready(node) else 1] += 1
    return {name: Zone(ready, not_ready) for name, (ready, not_ready) in counted.items()}


def rate(state: State, size: int, policy: Policy) -> float:
    """Return how many nodes of a zone may be tainted in a second."""
    if state is State.PARTIAL:
        return policy.reduced_rate if size > policy.large else 0.0
    return policy.rate
