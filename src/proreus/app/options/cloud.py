"""Define the flags of the cloud and of the controllers that use it."""

import re
from typing import Annotated

from proreus.app.flag_values import at_least, boolean, duration, integer, names
from proreus.app.flags import Flag
from proreus.app.options.generic import GenericOptions
from proreus.controllers.networks import cluster_cidrs
from proreus.controllers.node_ipam.plan import Mode
from proreus.controllers.settings import DEFAULTS

CLOUD = "cloud provider"
NODE = "node controller"
SERVICE = "service controller"
ROUTE = "route controller"
IPAM = "node ipam controller"
SSH = "ssh keys controller"


def _allocator(text: str) -> str:
    """Return the allocator's mode; `CloudAllocator`, usual on GCE, means `IPAMFromCloud`.

    https://github.com/kubernetes/cloud-provider-gcp, pkg/controller/nodeipam/ipam
    """
    return Mode.FROM_CLOUD.value if text == "CloudAllocator" else text


def _login(text: str) -> str:
    """Return the problem with a login name, or "": a cloud may keep names in a list of lines."""
    is_name = not text or re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", text)
    return "" if is_name else "must be a login name such as core: a-z, 0-9, _ and -"


class CloudOptions(GenericOptions, frozen=True, kw_only=True):
    """The flags of the cloud and its controllers."""

    cloud_provider: Annotated[
        str,
        Flag(
            CLOUD,
            "Name of the cloud: of a bundled provider or a plugin. Several: NAME=PROVIDER or "
            "PROVIDER, separated by commas.",
        ),
    ] = ""
    cloud_config: Annotated[
        str,
        Flag(
            CLOUD,
            "File with the cloud's configuration (gcfg, YAML, JSON or TOML). Of several clouds "
            "NAME=FILE, separated by commas, or one YAML file of all.",
        ),
    ] = ""
    cluster_name: Annotated[
        str, Flag(CLOUD, "The cluster's name, part of the ownership marks in the cloud.")
    ] = "kubernetes"
    allow_untagged_cloud: Annotated[
        bool, Flag(CLOUD, "Run although the cloud knows no cluster id.", boolean)
    ] = False
    external_cloud_volume_plugin: Annotated[
        str, Flag(CLOUD, "Has no effect, as in Go's: no volumes are made here.")
    ] = ""
    use_service_account_credentials: Annotated[
        bool, Flag(CLOUD, "Run each controller under its own service account.", boolean)
    ] = False
    node_monitor_period: Annotated[
        float,
        Flag(
            CLOUD,
            "How often the cloud is asked about nodes that are not Ready.",
            duration,
            at_least(0.1),
        ),
    ] = DEFAULTS.node_monitor_period
    node_sync_period: Annotated[
        float,
        Flag(CLOUD, "Has no effect, as in Go's: a deprecated flag.", duration, at_least(0)),
    ] = 0.0
    concurrent_node_syncs: Annotated[
        int, Flag(NODE, "Nodes written at the same time.", integer, at_least(1))
    ] = DEFAULTS.concurrent_node_syncs
    concurrent_node_status_updates: Annotated[
        int,
        Flag(
            NODE,
            "Nodes written at the same time by the refresh; 0: --concurrent-node-syncs.",
            integer,
            at_least(0),
        ),
    ] = DEFAULTS.concurrent_node_status_updates
    node_status_update_frequency: Annotated[
        float,
        Flag(
            NODE,
            "How often addresses and labels of nodes are compared with the cloud.",
            duration,
            at_least(1),
        ),
    ] = DEFAULTS.node_status_update_frequency
    concurrent_service_syncs: Annotated[
        int, Flag(SERVICE, "Load-balancer groups worked on at the same time.", integer, at_least(1))
    ] = DEFAULTS.concurrent_service_syncs
    configure_cloud_routes: Annotated[
        bool, Flag(ROUTE, "Keep routes to the nodes' pods, where the cloud has routes.", boolean)
    ] = DEFAULTS.configure_cloud_routes
    cluster_cidr: Annotated[
        tuple[str, ...],
        Flag(
            ROUTE,
            "The pods' networks: a CIDR, or two of different families. Routes need it.",
            names,
            lambda texts: cluster_cidrs(texts)[1],
        ),
    ] = DEFAULTS.cluster_cidr
    route_reconciliation_period: Annotated[
        float,
        Flag(ROUTE, "How often all routes are compared with the cloud.", duration, at_least(1)),
    ] = DEFAULTS.route_reconciliation_period
    allocate_node_cidrs: Annotated[
        bool, Flag(IPAM, "Allocate pod CIDRs to every node from --cluster-cidr.", boolean)
    ] = DEFAULTS.allocate_node_cidrs
    cidr_allocator_type: Annotated[
        str,
        Flag(
            IPAM,
            "Who allocates node CIDRs: RangeAllocator (this manager), IPAMFromCloud or "
            "CloudAllocator (the cloud), IPAMFromCluster (this manager, for nodes and cloud).",
            _allocator,
            check=lambda value: "" if value in set(Mode) else f"must be one of {', '.join(Mode)}",
        ),
    ] = DEFAULTS.cidr_allocator_type
    service_cluster_ip_range: Annotated[
        tuple[str, ...],
        Flag(
            IPAM,
            "The Services' networks; no node CIDR is taken from these.",
            names,
            lambda texts: cluster_cidrs(texts)[1],
        ),
    ] = DEFAULTS.service_cluster_ip_range
    node_cidr_mask_size: Annotated[
        int,
        Flag(IPAM, "Prefix length of a node's CIDR; 0: 24 or 64.", integer, at_least(0)),
    ] = DEFAULTS.node_cidr_mask_size
    node_cidr_mask_size_ipv4: Annotated[
        int, Flag(IPAM, "Prefix length of a node's IPv4 CIDR; 0: 24.", integer, at_least(0))
    ] = DEFAULTS.node_cidr_mask_size_ipv4
    node_cidr_mask_size_ipv6: Annotated[
        int, Flag(IPAM, "Prefix length of a node's IPv6 CIDR; 0: 64.", integer, at_least(0))
    ] = DEFAULTS.node_cidr_mask_size_ipv6
    ssh_user: Annotated[
        str,
        Flag(SSH, "The user to whom all instances give the key in --ssh-keyfile.", check=_login),
    ] = DEFAULTS.ssh_user
    ssh_keyfile: Annotated[
        str, Flag(SSH, "File with a private SSH key for --ssh-user; made if there is none.")
    ] = DEFAULTS.ssh_keyfile
