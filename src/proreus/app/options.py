"""The one table of flags. Names, meanings and defaults are those of Go's CCM.

Defaults that differ, each for a reason that ARCHITECTURE.md gives: `--kube-api-qps` and
`--kube-api-burst` (0: no limit), `--concurrent-node-syncs`, `--concurrent-service-syncs`,
`--route-reconciliation-period`. Flags that Go does not have are in the group "proreus".
"""

from typing import Annotated

import msgspec

from proreus.app.flags import (
    Flag,
    above,
    at_least,
    boolean,
    duration,
    integer,
    levels,
    names,
    number,
)
from proreus.controllers.networks import cluster_cidrs
from proreus.controllers.node_ipam.plan import Mode, ranges
from proreus.runtime import klog

GENERIC = "generic"
ELECTION = "leader election"
CLOUD = "cloud provider"
NODE = "node controller"
SERVICE = "service controller"
ROUTE = "route controller"
IPAM = "node ipam controller"
SERVING = "serving"
MISC = "misc"
PROREUS = "proreus"

LAST_PORT = 65535
RETRY_JITTER = 1.2  # client-go: the retry period is stretched by up to this


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the command line can say. Durations are seconds."""

    cloud_provider: Annotated[str, Flag(CLOUD, "The cloud: a bundled provider or a plugin.")] = ""
    cloud_config: Annotated[
        str, Flag(CLOUD, "File with the cloud's configuration (gcfg, YAML, JSON or TOML).")
    ] = ""
    cluster_name: Annotated[
        str, Flag(CLOUD, "The cluster's name, part of the ownership marks in the cloud.")
    ] = "kubernetes"
    allow_untagged_cloud: Annotated[
        bool, Flag(CLOUD, "Run although the cloud knows no cluster id.", boolean)
    ] = False
    node_monitor_period: Annotated[
        float,
        Flag(CLOUD, "How often nodes that are not Ready are asked about.", duration, at_least(0.1)),
    ] = 5.0
    kubeconfig: Annotated[
        str, Flag(GENERIC, "File that says how to reach the API server; else in-cluster.")
    ] = ""
    master: Annotated[str, Flag(GENERIC, "URL of the API server, instead of the kubeconfig's.")] = (
        ""
    )
    kube_api_qps: Annotated[
        float,
        Flag(GENERIC, "Requests a second; 0 is no limit.", number, at_least(0)),
    ] = 0.0
    kube_api_burst: Annotated[int, Flag(GENERIC, "Requests at once.", integer, at_least(0))] = 0
    controllers: Annotated[
        tuple[str, ...],
        Flag(GENERIC, "Controllers to run: '*' all, 'name' that one, '-name' not it.", names),
    ] = ("*",)
    leader_elect: Annotated[
        bool, Flag(ELECTION, "Work only while holding the lease; needed with replicas.", boolean)
    ] = True
    leader_elect_lease_duration: Annotated[
        float, Flag(ELECTION, "How long others respect a lease.", duration, at_least(1))
    ] = 15.0
    leader_elect_renew_deadline: Annotated[
        float,
        Flag(ELECTION, "The leader ends if it cannot renew so long.", duration, at_least(1)),
    ] = 10.0
    leader_elect_retry_period: Annotated[
        float, Flag(ELECTION, "Pause between tries to get or renew it.", duration, at_least(0.1))
    ] = 2.0
    leader_elect_resource_lock: Annotated[
        str,
        Flag(
            ELECTION,
            "Kind of the lock object; only 'leases'.",
            check=lambda value: "" if value == "leases" else "must be leases",
        ),
    ] = "leases"
    leader_elect_resource_name: Annotated[str, Flag(ELECTION, "Name of the lease.")] = (
        "cloud-controller-manager"
    )
    leader_elect_resource_namespace: Annotated[str, Flag(ELECTION, "Namespace of the lease.")] = (
        "kube-system"
    )
    concurrent_node_syncs: Annotated[
        int, Flag(NODE, "Nodes written at the same time.", integer, at_least(1))
    ] = 32
    node_status_update_frequency: Annotated[
        float, Flag(NODE, "How often addresses and labels are compared.", duration, at_least(1))
    ] = 300.0
    concurrent_service_syncs: Annotated[
        int, Flag(SERVICE, "Load-balancer groups worked on at the same time.", integer, at_least(1))
    ] = 16
    configure_cloud_routes: Annotated[
        bool, Flag(ROUTE, "Keep routes to the nodes' pods, where the cloud has routes.", boolean)
    ] = True
    cluster_cidr: Annotated[
        tuple[str, ...],
        Flag(
            ROUTE,
            "The pods' networks: a CIDR, or two of different families. Routes need it.",
            names,
            lambda texts: cluster_cidrs(texts)[1],
        ),
    ] = ()
    route_reconciliation_period: Annotated[
        float, Flag(ROUTE, "How often all routes are compared.", duration, at_least(1))
    ] = 300.0
    allocate_node_cidrs: Annotated[
        bool, Flag(IPAM, "Give every node its pod CIDRs, out of --cluster-cidr.", boolean)
    ] = False
    cidr_allocator_type: Annotated[
        str,
        Flag(
            IPAM,
            "RangeAllocator, IPAMFromCloud (the cloud's go to the nodes) or IPAMFromCluster "
            "(the nodes' go to the cloud).",
            check=lambda value: "" if value in set(Mode) else f"must be one of {', '.join(Mode)}",
        ),
    ] = Mode.RANGE.value
    service_cluster_ip_range: Annotated[
        tuple[str, ...],
        Flag(
            IPAM,
            "The Services' networks, which no node gets a part of.",
            names,
            lambda texts: cluster_cidrs(texts)[1],
        ),
    ] = ()
    node_cidr_mask_size: Annotated[
        int,
        Flag(IPAM, "Prefix length of a node's CIDR; 0: 24 or 64.", integer, at_least(0)),
    ] = 0
    node_cidr_mask_size_ipv4: Annotated[
        int, Flag(IPAM, "The same for IPv4 only; 0: 24.", integer, at_least(0))
    ] = 0
    node_cidr_mask_size_ipv6: Annotated[
        int, Flag(IPAM, "The same for IPv6 only; 0: 64.", integer, at_least(0))
    ] = 0
    metrics_bind_address: Annotated[
        str, Flag(SERVING, "host:port of /healthz, /livez, /readyz and /metrics; 0 is off.")
    ] = "127.0.0.1:10258"
    v: Annotated[int, Flag(MISC, "Log verbosity: 0 to 10.", integer, at_least(0), short="v")] = 0
    vmodule: Annotated[
        tuple[tuple[str, int], ...],
        Flag(MISC, "Verbosity of single files: pattern=N, without .py; comma-separated.", levels),
    ] = ()
    logging_format: Annotated[
        str,
        Flag(
            MISC,
            "Format of the log: text or json.",
            check=lambda value: "" if value in {klog.TEXT, klog.JSON} else "must be text or json",
        ),
    ] = klog.TEXT
    log_flush_frequency: Annotated[
        float,
        Flag(MISC, "Without effect: every line is written at once.", duration, above(0)),
    ] = 5.0
    version: Annotated[bool, Flag(MISC, "Print the version and exit.", boolean)] = False
    load_balancer_resync_period: Annotated[
        float,
        Flag(
            PROREUS, "How often load balancers are compared with the cloud.", duration, at_least(1)
        ),
    ] = 3600.0
    load_balancer_classes: Annotated[
        tuple[str, ...],
        Flag(PROREUS, "Values of spec.loadBalancerClass that this manager owns.", names),
    ] = ()
    classless_load_balancers: Annotated[
        bool, Flag(PROREUS, "Own Services without a loadBalancerClass, as Go does.", boolean)
    ] = True
    node_deletion_confirmations: Annotated[
        int,
        Flag(PROREUS, "Answers 'no such machine' before a Node is deleted.", integer, at_least(1)),
    ] = 2
    node_deletion_interval: Annotated[
        float, Flag(PROREUS, "Time between these answers.", duration, at_least(0))
    ] = 30.0
    node_deletion_witnesses: Annotated[
        int,
        Flag(PROREUS, "Ready nodes asked about in the same call; 0: none.", integer, at_least(0)),
    ] = 3
    node_startup_grace: Annotated[
        float, Flag(PROREUS, "Age before a never initialised Node may go.", duration, at_least(0))
    ] = 300.0
    node_deletion_breaker: Annotated[
        float,
        Flag(PROREUS, "Share of nodes, gone in 5 minutes, that stops all.", number, at_least(0)),
    ] = 0.2
    node_deletion_resume: Annotated[
        bool, Flag(PROREUS, "Delete although the breaker has tripped.", boolean)
    ] = False
    delete_nodes_by_name: Annotated[
        bool, Flag(PROREUS, "Let Nodes without provider id go, looked up by name.", boolean)
    ] = False


def problems(options: Options) -> tuple[str, ...]:
    """What is wrong with the options as a whole; each problem names its flag."""
    found: list[str] = []
    if not options.cloud_provider:
        found.append("--cloud-provider: must not be empty; name a bundled provider or a plugin")
    if options.leader_elect:
        lease, renew = options.leader_elect_lease_duration, options.leader_elect_renew_deadline
        retry = options.leader_elect_retry_period
        if lease <= renew:
            found.append(
                f"--leader-elect-lease-duration: {lease:g}s must be longer than "
                f"--leader-elect-renew-deadline ({renew:g}s)"
            )
        if renew <= retry * RETRY_JITTER:
            found.append(
                f"--leader-elect-renew-deadline: {renew:g}s must be longer than {RETRY_JITTER:g} x "
                f"--leader-elect-retry-period ({retry:g}s)"
            )
    if options.allocate_node_cidrs:
        found.extend(_node_cidrs(options))
    if options.metrics_bind_address != "0":
        port = options.metrics_bind_address.rpartition(":")[2]
        if not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
            found.append(
                f"--metrics-bind-address: {options.metrics_bind_address!r} must be host:port or 0"
            )
    return tuple(found)


def _node_cidrs(options: Options) -> tuple[str, ...]:
    _, found = ranges(
        Mode(options.cidr_allocator_type),
        options.cluster_cidr,
        size=options.node_cidr_mask_size,
        size_v4=options.node_cidr_mask_size_ipv4,
        size_v6=options.node_cidr_mask_size_ipv6,
    )
    return found
