"""Hand each controller what it needs: the cluster, the cloud and the settings."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from proreus.cloudprovider import CloudProvider, ClusterIdentity, Context, Ownership
from proreus.cloudprovider.lookups import ownership
from proreus.containment.inventory import Inventory
from proreus.controllers.last_ready import LastReady
from proreus.controllers.settings import Settings
from proreus.kube.client import Client
from proreus.kube.objects import EndpointSlice, Node, Service
from proreus.kube.watch import Check, unchecked
from proreus.runtime.events import EventRecorder
from proreus.runtime.informer import Cache

T = TypeVar("T")


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a controller works with. `now` is wall-clock time in UTC.

    `heritage` is what a controller hands to its successor in this process, by its name: the next
    one is made after a crash, and for another provider. `shared` is what the controllers of one
    name share where there are several clouds, by that name, and `all_services` has the Services of
    all clouds. `cloud` is the cloud's name where there are several, and "" for the only one.
    `last_ready` knows what the cache of all Nodes has shown since the process follows them.
    `check` is for caches of a controller's own: it raises if another cluster's API server answers.
    """

    client: Client
    provider: CloudProvider
    context: Context
    cluster: ClusterIdentity
    nodes: Cache[Node]
    services: Cache[Service]
    all_services: Cache[Service]
    endpoint_slices: Cache[EndpointSlice] | None
    inventory: Inventory | None
    events: EventRecorder
    now: Callable[[], datetime]
    settings: Settings
    last_ready: LastReady
    heritage: dict[str, Any] = msgspec.field(default_factory=dict)
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    cloud: str = ""
    check: Check = unchecked

    def named(self, queue: str) -> str:
        """Return a name for a queue that no other cloud's controllers have."""
        return f"{queue}/{self.cloud}" if self.cloud else queue

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of the cloud; nobody knows if the cloud has no machines."""
        return ownership(self.provider.instances, node)

    def need(self, part: T | None, capability: str) -> T:
        """Return a part of the provider, or of what stands on it, that a controller cannot lack.

        Raises:
            ValueError: The part is None; the message names the provider and `capability`.
        """
        if part is None:
            raise ValueError(f"the provider {self.provider.name} lacks the capability {capability}")
        return part


class Runnable(Protocol):
    """A controller as the manager runs it."""

    async def run(self) -> None:
        """Run until cancelled or, after `stop`, until running work has ended."""

    def stop(self) -> None:
        """Begin no more work."""

    @property
    def is_busy(self) -> bool:
        """Whether writes are queued or under way that events shall not delay."""
