"""Define the metrics of silent nodes and evicted pods, with kube-controller-manager's names."""

from typing import Final

from prometheus_client import Counter, Gauge

from proreus.runtime.metrics import REGISTRY

ZONE_HEALTH: Final = Gauge(
    "node_collector_zone_health",
    "Percentage of nodes that are Ready, by zone.",
    ["zone"],
    registry=REGISTRY,
)
ZONE_SIZE: Final = Gauge(
    "node_collector_zone_size", "Registered nodes, by zone.", ["zone"], registry=REGISTRY
)
ZONE_UNHEALTHY: Final = Gauge(
    "node_collector_unhealthy_nodes_in_zone",
    "Nodes that are not Ready, by zone.",
    ["zone"],
    registry=REGISTRY,
)
NODE_EVICTIONS: Final = Counter(
    "node_collector_evictions_total",
    "Nodes that got a NoExecute taint because they are not Ready, by zone.",
    ["zone"],
    registry=REGISTRY,
)
PODS_EVICTED: Final = Counter(
    "taint_eviction_controller_pod_deletions_total",
    "Pods deleted because their node has a NoExecute taint.",
    registry=REGISTRY,
)
EVICTION_RIVALS: Final = Gauge(
    "proreus_eviction_rivals",
    "Other controllers that taint silent nodes or evict pods: while there are any, ours waits.",
    registry=REGISTRY,
)
