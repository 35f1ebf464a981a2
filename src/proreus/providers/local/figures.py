"""Serve the load balancers' figures in `/metrics`, as the kernel counted them."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proreus.cloudprovider.metrics import REGISTRY
from proreus.providers.local.nft import service_chain
from proreus.providers.local.plan import State

_LABELS = ("service", "family")


class Figures(Collector):
    """A collector of metrics from what the kernel showed last."""

    def __init__(self) -> None:
        """Begin with nothing to serve."""
        self._state = State()
        self._counters: Mapping[str, tuple[int, int]] = {}

    def show(self, state: State, counters: Mapping[str, tuple[int, int]]) -> None:
        """Keep the state to serve; `counters` holds packets and bytes by counter."""
        self._state, self._counters = state, counters

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        packets = CounterMetricFamily(
            "proreus_local_packets",
            "Packets from clients to the Service's load balancer.",
            labels=_LABELS,
        )
        size = CounterMetricFamily(
            "proreus_local_bytes",
            "Bytes from clients to the Service's load balancer.",
            labels=_LABELS,
        )
        nodes = GaugeMetricFamily(
            "proreus_local_nodes",
            "Nodes of the Service's load balancer, by what their health check says.",
            labels=(*_LABELS, "condition"),
        )
        for uid, one in self._state.balancers.items():
            for family, key in one.pools.items():
                labels = (one.service, family)
                counted = self._counters.get(service_chain(uid, family), (0, 0))
                packets.add_metric(labels, counted[0])
                size.add_metric(labels, counted[1])
                conditions = [each.condition.value for each in self._state.pools[key].members]
                for condition in sorted(set(conditions)):
                    nodes.add_metric((*labels, condition), conditions.count(condition))
        yield from (packets, size, nodes)


FIGURES = Figures()
REGISTRY.register(FIGURES)
