"""Show the configuration in use at /configz: in Go's shape, then every flag.

Flags name files and no secrets; a password in the URL of `--master` is left out.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from proreus.app.flag_values import duration
from proreus.app.flags import flags_of, named
from proreus.app.options import Options

NAME: Final = "cloudcontrollermanager.config.k8s.io"
"""The key under which Go's manager shows its CloudControllerManagerConfiguration."""

FLAGS: Final = "proreus.flags"
"""The key under which all flags are shown, with those that Go lacks."""

_SHAPE: Final[Mapping[str, Any]] = {
    "Generic": {
        "Address": "bind_address",
        "Port": "secure_port",
        "MinResyncPeriod": "min_resync_period",
        "ClientConnection": {
            "Kubeconfig": "kubeconfig",
            "ContentType": "kube_api_content_type",
            "QPS": "kube_api_qps",
            "Burst": "kube_api_burst",
        },
        "ControllerStartInterval": "controller_start_interval",
        "LeaderElection": {
            "LeaderElect": "leader_elect",
            "LeaseDuration": "leader_elect_lease_duration",
            "RenewDeadline": "leader_elect_renew_deadline",
            "RetryPeriod": "leader_elect_retry_period",
            "ResourceLock": "leader_elect_resource_lock",
            "ResourceName": "leader_elect_resource_name",
            "ResourceNamespace": "leader_elect_resource_namespace",
        },
        "Controllers": "controllers",
        "Debugging": {
            "EnableProfiling": "profiling",
            "EnableContentionProfiling": "contention_profiling",
        },
        "LeaderMigrationEnabled": "enable_leader_migration",
    },
    "KubeCloudShared": {
        "ExternalCloudVolumePlugin": "external_cloud_volume_plugin",
        "UseServiceAccountCredentials": "use_service_account_credentials",
        "AllowUntaggedCloud": "allow_untagged_cloud",
        "RouteReconciliationPeriod": "route_reconciliation_period",
        "NodeMonitorPeriod": "node_monitor_period",
        "ClusterName": "cluster_name",
        "ClusterCIDR": "cluster_cidr",
        "AllocateNodeCIDRs": "allocate_node_cidrs",
        "CIDRAllocatorType": "cidr_allocator_type",
        "ConfigureCloudRoutes": "configure_cloud_routes",
        "NodeSyncPeriod": "node_sync_period",
        "CloudProvider": {"Name": "cloud_provider", "CloudConfigFile": "cloud_config"},
    },
    "NodeController": {
        "ConcurrentNodeSyncs": "concurrent_node_syncs",
        "ConcurrentNodeStatusUpdates": "concurrent_node_status_updates",
    },
    "ServiceController": {"ConcurrentServiceSyncs": "concurrent_service_syncs"},
    "NodeStatusUpdateFrequency": "node_status_update_frequency",
    "Webhook": {"Webhooks": "webhooks"},
}


def configz(options: Options) -> Mapping[str, Any]:
    """Return all options in the form of /configz."""
    values = _values(options)
    in_go = {**values, "cluster_cidr": ",".join(options.cluster_cidr)}
    return {
        NAME: _shaped(_SHAPE, in_go),
        FLAGS: {named(field): value for field, value in values.items()},
    }


def _shaped(shape: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: values[place] if isinstance(place, str) else _shaped(place, values)
        for name, place in shape.items()
    }


def _values(options: Options) -> dict[str, Any]:
    """Return each flag's value by field, durations as Go writes them."""
    values: dict[str, Any] = {}
    for field, flag in flags_of(type(options)).items():
        value = getattr(options, field)
        values[field] = go_duration(value) if flag.parse is duration else value
    values["master"] = _without_password(options.master)
    return values


def go_duration(seconds: float) -> str:
    """Format a duration as Go does: 43200 is "12h0m0s", 0.25 is "250ms"."""
    if 0 < seconds < 1:
        return f"{round(seconds * 1000, 6):g}ms"
    whole, rest = divmod(seconds, 60)
    minutes = int(whole)
    text = f"{round(rest, 9):g}s"
    if minutes >= 60:  # noqa: PLR2004 - minutes of an hour
        return f"{minutes // 60}h{minutes % 60}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
