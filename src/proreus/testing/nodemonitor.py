"""Play the node lifecycle controller of kube-controller-manager, which notices silent kubelets.

When neither the status nor the Lease of a Node has changed for the grace period, all conditions
become Unknown; the taints not-ready and unreachable follow the Ready condition. Without a
controller manager in a test, nothing else does this.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from proreus.kube.client import Client
from proreus.kube.errors import Conflict, KubeError, NotFound
from proreus.kube.objects import Condition, NodeSpec, ObjectMeta, Taint, condition
from proreus.kube.patch import Patch, PatchType, json_patch, taints
from proreus.kube.requests import LEASES, NODES, Resource
from proreus.testing.kubelet import LEASE_NAMESPACE, timestamp

TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
_SILENT = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
_EFFECTS = ("NoSchedule", "NoExecute")
_BY_STATUS: Mapping[str, str] = {"False": TAINT_NOT_READY, "Unknown": TAINT_UNREACHABLE}

log = logging.getLogger(__name__)


class _Posted(Condition, frozen=True, rename="camel", gc=False):
    """A condition of a Node with the time of the kubelet's last heartbeat."""

    last_heartbeat_time: str | None = None


class _WatchedStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_Posted, ...] = ()


class _WatchedNode(msgspec.Struct, frozen=True):
    """The fields of a Node that the node monitor reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: _WatchedStatus = _WatchedStatus()


_WATCHED = Resource("", "v1", "nodes", "Node", namespaced=False, type=_WatchedNode)


class _Heard(msgspec.Struct, frozen=True):
    """The last sign of life of a kubelet, and when it came by the local clock."""

    sign: tuple[str, ...]
    at: float


class NodeMonitor:
    """A monitor that marks Nodes whose kubelet is silent, with the defaults of KCM."""

    def __init__(
        self,
        client: Client,
        *,
        grace: float = 50.0,
        period: float = 5.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the settings; a node's silence counts from its first check."""
        self._client = client
        self._grace = grace
        self._period = period
        self._now = now
        self._clock = clock
        self._heard: dict[str, _Heard] = {}

    async def run(self) -> None:
        """Check all Nodes every `period` seconds until cancelled."""
        while True:
            try:
                await self.check_nodes()
            except KubeError as error:
                log.warning("The node monitor could not read the Nodes: %s", error)
            await asyncio.sleep(self._period)

    async def check_nodes(self) -> None:
        """Read all Nodes once and write what has changed."""
        nodes = (await self._client.list(_WATCHED)).items
        leases = (await self._client.list(LEASES, LEASE_NAMESPACE)).items
        renewed = {lease["metadata"]["name"]: _renewal(lease) for lease in leases}
        seen_at = self._clock()
        heard = {}
        for node in nodes:
            meta = node.metadata
            sign = (_heartbeat(node), renewed.get(meta.name, ""))
            before = self._heard.get(meta.uid)
            heard[meta.uid] = before if before and before.sign == sign else _Heard(sign, seen_at)
            await self._judge(node, silent=seen_at - heard[meta.uid].at >= self._grace)
        self._heard = heard

    async def _judge(self, node: _WatchedNode, *, silent: bool) -> None:
        ready = condition(node.status.conditions, "Ready")
        status = ready.status if ready is not None else "Unknown"
        try:
            if silent and status != "Unknown":
                status = "Unknown"
                patch = Patch(PatchType.STRATEGIC, unknown(node.status.conditions, self._now()))
                await self._client.patch(NODES, node.metadata.name, patch, subresource="status")
            ops = taints(node.spec.taints, tainted(node.spec.taints, status))
            patch = json_patch(node.metadata.uid, ops)
            if patch:
                await self._client.patch(NODES, node.metadata.name, patch)
        except (Conflict, NotFound):
            log.debug(
                "Node %s was changed meanwhile: it is checked again next time", node.metadata.name
            )


def unknown(conditions: tuple[Condition, ...], now: datetime) -> dict[str, Any]:
    """Make the status patch that sets all `conditions` to Unknown."""
    reason, message = _SILENT
    return {
        "status": {
            "conditions": [
                {
                    "type": one.type,
                    "status": "Unknown",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": timestamp(now),
                }
                for one in conditions
                if one.type == "Ready" or one.type.endswith("Pressure")
            ]
        }
    }


def tainted(current: tuple[Taint, ...], ready: str) -> tuple[Taint, ...]:
    """Return the taints that a Node should have with that status of its Ready condition."""
    key = _BY_STATUS.get(ready)
    own = {TAINT_NOT_READY, TAINT_UNREACHABLE}
    kept = tuple(one for one in current if one.key not in own or one.key == key)
    have = {(one.key, one.effect) for one in kept}
    missing = (effect for effect in _EFFECTS if key is not None and (key, effect) not in have)
    return (*kept, *(Taint(key or "", effect) for effect in missing))


def _heartbeat(node: _WatchedNode) -> str:
    ready = (one.last_heartbeat_time for one in node.status.conditions if one.type == "Ready")
    return next(ready, None) or ""


def _renewal(lease: Mapping[str, Any]) -> str:
    return str(lease.get("spec", {}).get("renewTime", ""))
