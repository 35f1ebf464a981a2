"""Hold the settings of the controllers."""

from typing import Final

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The controllers' settings, from the flags of the same names, whose defaults these are.

    Durations are in seconds.
    """

    concurrent_node_syncs: int = 32
    concurrent_node_status_updates: int = 0
    concurrent_service_syncs: int = 64
    node_monitor_period: float = 5.0
    node_status_update_frequency: float = 300.0
    node_deletion_confirmations: int = 2
    node_deletion_interval: float = 30.0
    node_deletion_witnesses: int = 3
    node_startup_grace: float = 300.0
    node_deletion_breaker: float = 0.2
    node_deletion_resume: bool = False
    delete_nodes_by_name: bool = False
    node_monitor_grace_period: float = 50.0
    node_startup_grace_period: float = 60.0
    node_eviction_rate: float = 0.1
    secondary_node_eviction_rate: float = 0.01
    large_cluster_size_threshold: int = 50
    unhealthy_zone_threshold: float = 0.55
    node_out_of_service_taint: bool = False
    node_out_of_service_grace: float = 60.0
    load_balancer_resync_period: float = 3600.0
    delete_leaks_after: float = 0.0
    load_balancer_classes: tuple[str, ...] = ()
    classless_load_balancers: bool = True
    configure_cloud_routes: bool = True
    cluster_cidr: tuple[str, ...] = ()
    route_reconciliation_period: float = 300.0
    allocate_node_cidrs: bool = False
    cidr_allocator_type: str = "RangeAllocator"
    service_cluster_ip_range: tuple[str, ...] = ()
    node_cidr_mask_size: int = 0
    node_cidr_mask_size_ipv4: int = 0
    node_cidr_mask_size_ipv6: int = 0
    ssh_user: str = ""
    ssh_keyfile: str = ""


DEFAULTS: Final = Settings()
"""The settings that hold without flags."""
