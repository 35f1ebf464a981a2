"""Define all metrics of the process in one table. Where Go's manager has one, the name is Go's.

They live in a registry of our own, so that a program which embeds Proreus keeps its default one.
Go's label `host` is left out: there is one API server.
"""

import itertools
import platform
from functools import cache
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from proreus import __version__
from proreus.kube.requests import Request
from proreus.runtime import threads


def _exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return bucket bounds, each `factor` times the one before."""
    return tuple(itertools.accumulate([first] + [factor] * (count - 1), lambda a, b: a * b))


# Kubernetes has no `_created` series; they would double the size of every scrape.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # not annotated

REGISTRY: Final = CollectorRegistry()
"""The registry that /metrics shows."""
ProcessCollector(registry=REGISTRY)

_QUEUE_BUCKETS = _exponential(1e-8, 10, 12)
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

# Work queues (client-go)
WORKQUEUE_DEPTH: Final = Gauge(
    "workqueue_depth", "Keys that are ready to be worked on.", ["name"], registry=REGISTRY
)
WORKQUEUE_ADDS: Final = Counter(
    "workqueue_adds_total", "Keys added to the queue.", ["name"], registry=REGISTRY
)
WORKQUEUE_QUEUE_DURATION: Final = Histogram(
    "workqueue_queue_duration_seconds",
    "Seconds a ready key waits before it is handed out.",
    ["name"],
    buckets=_QUEUE_BUCKETS,
    registry=REGISTRY,
)
WORKQUEUE_WORK_DURATION: Final = Histogram(
    "workqueue_work_duration_seconds",
    "Seconds from handing out a key until it is done.",
    ["name"],
    buckets=_QUEUE_BUCKETS,
    registry=REGISTRY,
)
WORKQUEUE_RETRIES: Final = Counter(
    "workqueue_retries_total",
    "Keys that were queued again after a failure.",
    ["name"],
    registry=REGISTRY,
)
WORKQUEUE_UNFINISHED: Final = Gauge(
    "workqueue_unfinished_work_seconds",
    "Seconds of work in progress, summed over the keys; if it only grows, something hangs.",
    ["name"],
    registry=REGISTRY,
)
WORKQUEUE_LONGEST: Final = Gauge(
    "workqueue_longest_running_processor_seconds",
    "Seconds since the oldest key in progress was handed out.",
    ["name"],
    registry=REGISTRY,
)

# API server
REST_REQUESTS: Final = Counter(
    "rest_client_requests_total",
    "Requests to the API server.",
    ["code", "method"],
    registry=REGISTRY,
)
REST_DURATION: Final = Histogram(
    "rest_client_request_duration_seconds",
    "Seconds a request to the API server takes.",
    ["verb"],
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)


def observe_request(request: Request, code: int, seconds: float) -> None:
    """Observe a client: count a request and its duration. Code 0 is no answer."""
    requests, durations = _of_requests(request.method, code)
    requests.inc()
    durations.observe(seconds)


@cache
def _of_requests(method: str, code: int) -> tuple[Counter, Histogram]:
    """Return the metrics of requests, which are looked up by their labels once."""
    counted = REST_REQUESTS.labels(str(code) if code else "<error>", method)
    return counted, REST_DURATION.labels(method)


# Leader election
LEADER: Final = Gauge(
    "leader_election_master_status",
    "1 while this process holds the lease, else 0.",
    ["name"],
    registry=REGISTRY,
)
LEADER_SLOW_PATH: Final = Counter(
    "leader_election_slowpath_total",
    "Renewals before which the lease had to be read, because somebody else had written it.",
    ["name"],
    registry=REGISTRY,
)

# Health checks (component-base)
HEALTH_CHECK: Final = Gauge(
    "kubernetes_healthcheck", "1 if the check passed last, else 0.", ["name", "type"],
    registry=REGISTRY,
)  # fmt: skip
HEALTH_CHECKS: Final = Counter(
    "kubernetes_healthchecks_total",
    "Results of health checks; status is success or error.",
    ["name", "type", "status"],
    registry=REGISTRY,
)

# Process
BUILD_INFO: Final = Gauge(
    "kubernetes_build_info",
    "Always 1; the labels give version and platform. Python's version stands for the compiler's.",
    ["git_version", "compiler", "platform"],
    registry=REGISTRY,
)
BUILD_INFO.labels(
    f"v{__version__}",
    f"{platform.python_implementation()} {platform.python_version()}",
    f"{platform.system().lower()}/{platform.machine()}",
).set(1)
MANAGED_CONTROLLERS: Final = Gauge(
    "running_managed_controllers",
    "1 for each controller that runs.",
    ["name", "manager"],
    registry=REGISTRY,
)
CRASHES: Final = Counter(
    "proreus_crashes_total", "Tasks that crashed and were restarted.", ["task"], registry=REGISTRY
)

# Cloud-config
CLOUD_CONFIG_RELOADS: Final = Counter(
    "proreus_cloud_config_reloads_total",
    "Changed cloud-configs by result: success, invalid (cannot be read) or failed (the cloud "
    "refuses it).",
    ["result"],
    registry=REGISTRY,
)
CLOUD_CONFIG_CURRENT: Final = Gauge(
    "proreus_cloud_config_current",
    "1 if the cloud-config in use is the newest, 0 if that one is wrong and an old one is in use.",
    registry=REGISTRY,
)
CLOUD_CONFIG_CURRENT.set(1)

# Informers and events
INFORMER_OBJECTS: Final = Gauge(
    "proreus_informer_objects", "Objects in the cache.", ["resource"], registry=REGISTRY
)
INFORMER_ERRORS: Final = Counter(
    "proreus_informer_errors_total",
    "Failures by kind: watch (of the list or the watch) or handler.",
    ["resource", "kind"],
    registry=REGISTRY,
)
EVENTS: Final = Counter(
    "proreus_events_total",
    "Events by result: created, counted (more of the same), held (a repeat, counted later), "
    "filtered (too many of one object), failed or dropped.",
    ["result"],
    registry=REGISTRY,
)

# Controllers
RECONCILES: Final = Counter(
    "proreus_reconciles_total",
    "Keys worked on, by result: ok, conflict or error.",
    ["controller", "result"],
    registry=REGISTRY,
)
OBSERVE_FAILURES: Final = Counter(
    "proreus_observe_failures_total",
    "Batches of keys whose observation in the cloud failed.",
    ["controller"],
    registry=REGISTRY,
)
NODE_TAINT_REMOVAL_DELAY: Final = Histogram(
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "Seconds from a node's creation until its uninitialized taint is removed.",
    buckets=_exponential(1, 4, 6),
    registry=REGISTRY,
)
NODE_INITIAL_SYNC_DELAY: Final = Histogram(
    "node_controller_initial_node_sync_delay_seconds",
    "Seconds from a node's creation until its first sync.",
    buckets=_exponential(1, 4, 6),
    registry=REGISTRY,
)
NODES_UNINITIALIZED: Final = Gauge(
    "proreus_nodes_uninitialized",
    "Nodes of this cloud that wait for their initialisation.",
    registry=REGISTRY,
)
OLDEST_UNINITIALIZED: Final = Gauge(
    "proreus_oldest_uninitialized_node_seconds",
    "Age of the oldest node that waits for its initialisation; 0 if none does.",
    registry=REGISTRY,
)
SERVING_REQUESTS_APPROVED: Final = Counter(
    "proreus_kubelet_serving_requests_approved_total",
    "Requests of kubelets for serving certificates that were approved.",
    registry=REGISTRY,
)
SERVING_REQUESTS_REFUSED: Final = Gauge(
    "proreus_kubelet_serving_requests_refused",
    "Requests of kubelets for serving certificates that wait and were not approved.",
    registry=REGISTRY,
)
ROUTE_SYNCS: Final = Counter(
    "route_controller_route_sync_total",
    "Passes over the routes of all nodes.",
    registry=REGISTRY,
)
IPAM_ALLOCATIONS: Final = Counter(
    "node_ipam_controller_cidrset_cidrs_allocations_total",
    "Node CIDRs taken from a cluster CIDR.",
    ["clusterCIDR"],
    registry=REGISTRY,
)
IPAM_RELEASES: Final = Counter(
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "Node CIDRs that became free again.",
    ["clusterCIDR"],
    registry=REGISTRY,
)
IPAM_MAX_CIDRS: Final = Gauge(
    "node_ipam_controller_cirdset_max_cidrs",  # the name is Go's, letter by letter
    "Number of node CIDRs in a cluster CIDR.",
    ["clusterCIDR"],
    registry=REGISTRY,
)
IPAM_USAGE: Final = Gauge(
    "node_ipam_controller_cidrset_usage_cidrs",
    "Share of a cluster CIDR's node CIDRs that is taken.",
    ["clusterCIDR"],
    registry=REGISTRY,
)
IPAM_TRIES: Final = Histogram(
    "node_ipam_controller_cidrset_allocation_tries_per_request",
    "Node CIDRs looked at until a free one was found.",
    ["clusterCIDR"],
    buckets=_exponential(1, 5, 5),
    registry=REGISTRY,
)
SERVICE_LOAD_BALANCER_SYNCS: Final = Counter(
    "service_controller_loadbalancer_sync_total",
    "Load balancers whose hosts were updated because nodes changed.",
    registry=REGISTRY,
)
SERVICE_NODE_SYNC_ERRORS: Final = Counter(
    "service_controller_nodesync_error_total",
    "Updates of hosts that failed for at least one load balancer.",
    registry=REGISTRY,
)
SERVICE_NODE_SYNC_LATENCY: Final = Histogram(
    "service_controller_nodesync_latency_seconds",
    "Seconds an update of the hosts of all load balancers takes.",
    buckets=_exponential(1, 2, 15),
    registry=REGISTRY,
)
LEAKED_OBJECTS: Final = Gauge(
    "proreus_leaked_cloud_objects",
    "Cloud objects that carry this cluster's marks and whose Service is gone.",
    ["kind"],
    registry=REGISTRY,
)
SERVICE_UPDATE_HOST_LATENCY: Final = Histogram(
    "service_controller_update_loadbalancer_host_latency_seconds",
    "Seconds an update of the hosts of one load balancer takes.",
    buckets=_exponential(1, 2, 15),
    registry=REGISTRY,
)

# The cloud
CLOUD_REQUESTS: Final = Counter(
    "cloudprovider_requests_total",
    "Calls to the cloud; code is ok or the kind of the error.",
    ["service", "operation", "code"],
    registry=REGISTRY,
)
CLOUD_DURATION: Final = Histogram(
    "cloudprovider_request_duration_seconds",
    "Seconds a call to the cloud takes.",
    ["service", "operation"],
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)
CLOUD_RATE: Final = Gauge(
    "proreus_cloud_call_rate",
    "Calls a second that the learned quota admits; +Inf while the cloud has refused none.",
    ["quota", "kind"],
    registry=REGISTRY,
)
CLOUD_WAITING: Final = Gauge(
    "proreus_cloud_calls_waiting",
    "Calls that wait for the learned quota.",
    ["quota", "kind"],
    registry=REGISTRY,
)
PROVIDER_FAULTS: Final = Counter(
    "proreus_provider_faults_total",
    "Violations of the interface by a provider; the kinds are raised, wrong_answer, left_out, "
    "unasked, duplicate, hung, cancelled, uncancellable and threads.",
    ["provider", "verb", "kind"],
    registry=REGISTRY,
)
PROVIDER_THREADS: Final = Gauge(
    "proreus_provider_threads",
    "Threads that run a provider's code: called (a blocking call), abandoned (one whose caller "
    "has given up) or foreign (started by the provider or an SDK).",
    ["state"],
    registry=REGISTRY,
)
PROVIDER_THREADS.labels("foreign").set_function(lambda: len(threads.foreign()))
LOOP_BLOCKED: Final = Counter(
    "proreus_event_loop_blocked_seconds",
    "Seconds in which something kept the event loop from doing anything else.",
    registry=REGISTRY,
)

# The lifecycle of nodes
NODES_WAITING: Final = Gauge(
    "proreus_nodes_waiting_for_deletion",
    "Nodes that look gone and wait for more answers.",
    registry=REGISTRY,
)
NODES_HELD: Final = Gauge(
    "proreus_nodes_held_by_breaker",
    "Nodes that look gone but are held, because too many do at once.",
    registry=REGISTRY,
)
NODES_UNPROVEN: Final = Gauge(
    "proreus_nodes_held_without_proof",
    "Nodes that look gone but are held, because no witness confirms the answers.",
    registry=REGISTRY,
)
NODES_UNKNOWN: Final = Gauge(
    "proreus_nodes_unknown_to_cloud",
    "Ready nodes whose machine the cloud does not know.",
    registry=REGISTRY,
)
NODES_ASIDE: Final = Gauge(
    "proreus_nodes_set_aside",
    "Ready nodes unknown to the cloud that are no longer witnesses.",
    registry=REGISTRY,
)
NODES_DELETED: Final = Counter(
    "proreus_nodes_deleted_total",
    "Nodes deleted because their machine is gone.",
    registry=REGISTRY,
)
NODES_POWERED_OFF: Final = Gauge(
    "proreus_nodes_powered_off",
    "Nodes whose machines are powered off, and that wait for their taint out-of-service.",
    registry=REGISTRY,
)
NODES_OUT_OF_SERVICE: Final = Counter(
    "proreus_nodes_out_of_service_total",
    "Nodes taken out of service because their machines are powered off.",
    registry=REGISTRY,
)

# Admission webhooks
_WEBHOOK_BUCKETS = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)
WEBHOOK_REQUESTS: Final = Counter(
    "cloud_provider_webhook_request_total",
    "Requests to admission webhooks, by the HTTP status of the answer.",
    ["code", "webhook"],
    registry=REGISTRY,
)
WEBHOOK_DURATION: Final = Histogram(
    "cloud_provider_webhook_request_duration_seconds",
    "Seconds that an admission webhook takes.",
    ["code", "webhook"],
    buckets=_WEBHOOK_BUCKETS,
    registry=REGISTRY,
)
