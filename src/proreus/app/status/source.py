"""Collect the state: from the manager's caches and metrics, or from the API server."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry

from proreus.app.board import lease_name, notices_of
from proreus.app.leases import of_manager
from proreus.app.status.summary import (
    Cloud,
    Deletions,
    GatewayRow,
    Inside,
    LeaseRow,
    Summary,
    leak_rows,
    summarise,
)
from proreus.controllers.cloud_node_lifecycle.controller import CloudNodeLifecycleController
from proreus.controllers.environment import Runnable
from proreus.controllers.service.controller import ServiceController
from proreus.controllers.service.leaks import Leak
from proreus.kube.client import Client
from proreus.kube.errors import KubeError
from proreus.kube.objects import Node, Service
from proreus.kube.requests import LEASES
from proreus.runtime import metrics


class _Cache(Protocol):
    """The part of an informer that is read here."""

    def all(self) -> Iterable[Any]:
        """Return every object."""


class Source:
    """A collector of what this process knows; a standby knows nothing of nodes and Services.

    Attributes:
        nodes: The cache of nodes; None while the process does not lead.
        services: The cache of Services; None while the process does not lead.
        running: The controllers that run.
        leaks: Lists the cloud objects that are left over.
    """

    def __init__(self, cluster: str) -> None:
        """Start without caches, for the cluster of that name."""
        self._cluster = cluster
        self.nodes: _Cache | None = None
        self.services: _Cache | None = None
        self.running: Callable[[], Iterable[Runnable]] = lambda: ()
        self.leaks: Callable[[], Iterable[Leak]] = self._leaks

    def summary(self) -> Summary:
        """Return the state now."""
        now = datetime.now(UTC)
        if self.nodes is None or self.services is None:
            return summarise((), (), now, cluster=self._cluster)
        nodes: Iterable[Node] = self.nodes.all()
        services: Iterable[Service] = self.services.all()
        inside = figures(metrics.REGISTRY, self.leaks(), self._unknown())
        return summarise(nodes, services, now, cluster=self._cluster, inside=inside)

    def _leaks(self) -> Iterable[Leak]:
        """Return the leaks: cloud objects with our marks whose Service is gone."""
        for controller in self.running():
            if isinstance(controller, ServiceController):
                yield from controller.leaks

    def _unknown(self) -> Iterable[str]:
        """Return the names of the Ready nodes whose machine the cloud does not know."""
        for controller in self.running():
            if isinstance(controller, CloudNodeLifecycleController):
                yield from controller.unknown


def figures(
    registry: CollectorRegistry, leaks: Iterable[Leak], unknown: Iterable[str] = ()
) -> Inside:
    """Return what the process's metrics say of deletions and of the cloud."""
    calls: dict[str, int] = {}
    rates: dict[str, float] = {}
    waiting = 0
    gauges: dict[str, float] = {}
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name == "cloudprovider_requests_total":
                code = sample.labels["code"]
                calls[code] = calls.get(code, 0) + int(sample.value)
            elif sample.name == "proreus_cloud_calls_waiting":
                waiting += int(sample.value)
            elif sample.name == "proreus_cloud_call_rate" and sample.value != float("inf"):
                rates[" ".join(filter(None, sample.labels.values()))] = sample.value
            elif not sample.labels:
                gauges[sample.name] = sample.value
    deletions = Deletions(
        waiting=int(gauges.get("proreus_nodes_waiting_for_deletion", 0)),
        held=int(gauges.get("proreus_nodes_held_by_breaker", 0)),
        unproven=int(gauges.get("proreus_nodes_held_without_proof", 0)),
        unknown=tuple(sorted(unknown)),
    )
    return Inside(Cloud(calls, waiting, rates), deletions, leak_rows(leaks))


async def replicas(
    client: Client, namespace: str, name: str
) -> tuple[tuple[LeaseRow, ...], tuple[GatewayRow, ...]]:
    """Return the manager's leases, and what its replicas say; nothing if they may not be read."""
    try:
        found = (await client.list(LEASES, namespace)).items
    except KubeError:
        return (), ()
    now = datetime.now(UTC)
    board = lease_name(name)
    rows = tuple(
        LeaseRow(one.name, one.holder, (now - one.renewed).total_seconds() if one.renewed else 0.0)
        for one in of_manager(found, name)
        if one.name != board
    )
    notices = (
        notices_of(item["metadata"].get("annotations") or {})
        for item in found
        if item["metadata"]["name"] == board
    )
    return rows, gateway_rows(next(notices, {}), now)


class _Shown(msgspec.Struct, frozen=True):
    """The addresses of a notice that are shown, how many more there are, and since when."""

    addresses: tuple[str, ...] = ()
    more: int = 0
    at: float = 0.0


def gateway_rows(notices: Mapping[str, str], now: datetime) -> tuple[GatewayRow, ...]:
    """Return the rows of replicas that say which addresses they serve, by their notices."""
    rows = []
    for name, text in sorted(notices.items()):
        with suppress(msgspec.DecodeError):  # it is of something else
            shown = msgspec.json.decode(text, type=_Shown)
            renewed = max(0.0, now.timestamp() - shown.at)
            rows.append(GatewayRow(name, shown.addresses, shown.more, renewed))
    return tuple(rows)
