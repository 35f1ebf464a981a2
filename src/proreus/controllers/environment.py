"""What every controller is given: the cluster, the cloud and the settings."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from proreus.cloudprovider import CloudProvider, ClusterIdentity, Context
from proreus.containment.inventory import Inventory
from proreus.kube.client import Client
from proreus.kube.objects import EndpointSlice, Node, Service
from proreus.runtime.events import EventRecorder
from proreus.runtime.informer import Informer


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the controllers, from the flags of the same names; durations in seconds."""

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


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The world of a controller. `now` is wall-clock time in UTC."""

    client: Client
    provider: CloudProvider
    context: Context
    cluster: ClusterIdentity
    nodes: Informer[Node]
    services: Informer[Service]
    endpoint_slices: Informer[EndpointSlice] | None
    inventory: Inventory | None
    events: EventRecorder
    now: Callable[[], datetime]
    settings: Settings


class Runnable(Protocol):
    """A controller as the manager sees it."""

    async def run(self) -> None:
        """Run until cancelled, or, after `stop`, until what is under way has ended."""

    def stop(self) -> None:
        """Take no more work."""

    @property
    def is_busy(self) -> bool:
        """Whether writes are queued or under way that events shall not delay."""
