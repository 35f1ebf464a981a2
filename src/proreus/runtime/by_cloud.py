"""Combine the figures of several clouds in one gauge: each cloud's controllers give a part.

The gauges themselves are in `metrics`; the only cloud's name is "".
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import Gauge

from proreus.runtime import metrics


class Parts:
    """The parts of a gauge, by the name of the cloud."""

    def __init__(
        self, gauge: Gauge, combined: Callable[[Iterable[float]], float] = math.fsum
    ) -> None:
        """Show all parts in `gauge`, `combined` into one figure."""
        self._parts: dict[str, Callable[[], float]] = {}
        gauge.set_function(lambda: combined([part() for part in tuple(self._parts.values())]))

    def set(self, cloud: str, value: float) -> None:
        """Set the part of a cloud."""
        self.set_function(cloud, lambda: value)

    def set_function(self, cloud: str, function: Callable[[], float]) -> None:
        """Let a function give the part of a cloud."""
        self._parts[cloud] = function


NODES_UNINITIALIZED: Final = Parts(metrics.NODES_UNINITIALIZED)
OLDEST_UNINITIALIZED: Final = Parts(
    metrics.OLDEST_UNINITIALIZED, lambda parts: max(parts, default=0.0)
)
NODES_WAITING: Final = Parts(metrics.NODES_WAITING)
NODES_HELD: Final = Parts(metrics.NODES_HELD)
NODES_UNPROVEN: Final = Parts(metrics.NODES_UNPROVEN)
NODES_UNKNOWN: Final = Parts(metrics.NODES_UNKNOWN)
NODES_ASIDE: Final = Parts(metrics.NODES_ASIDE)
NODES_POWERED_OFF: Final = Parts(metrics.NODES_POWERED_OFF)
SERVING_REQUESTS_REFUSED: Final = Parts(metrics.SERVING_REQUESTS_REFUSED)
CLOUD_CONFIG_CURRENT: Final = Parts(
    metrics.CLOUD_CONFIG_CURRENT, lambda parts: min(parts, default=1.0)
)

_leaked: dict[str, Counter[str]] = {}


def show_leaks(cloud: str, kinds: Iterable[str]) -> None:
    """Set how many cloud objects of each kind are left over in one of the clouds."""
    _leaked[cloud] = Counter(kinds)
    metrics.LEAKED_OBJECTS.clear()
    for kind, count in sum(_leaked.values(), Counter[str]()).items():
        metrics.LEAKED_OBJECTS.labels(kind).set(count)
