"""Play kubelets without containers: register Nodes and send heartbeats as real kubelets do.

A player stands for the kubelets of all running machines of a cloud, started with
`--cloud-provider=external`: a Node begins with the uninitialized taint, without provider id, and
with its host name as only address unless `--node-ip` is played. The API server itself adds the
not-ready taint (admission plugin TaintNodesByCondition), as it does for real kubelets.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from proreus.kube.client import Client
from proreus.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    LABEL_HOSTNAME,
    TAINT_UNINITIALIZED,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import LEASES, NODES

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
_VERSION = "v1.36.3"
_RESOURCES = {"cpu": "4", "ephemeral-storage": "50Gi", "memory": "16Gi", "pods": "110"}
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
_IMAGES_AT_MOST = 50  # --node-status-max-images

log = logging.getLogger(__name__)


class MachineAddress(Protocol):
    """An address of a machine."""

    @property
    def type(self) -> str:
        """The type: InternalIP, ExternalIP, Hostname or InternalDNS."""

    @property
    def address(self) -> str:
        """The address as text."""


class Machine(Protocol):
    """A machine as a kubelet needs to know it; the simulated cloud's `Instance` fits."""

    @property
    def id(self) -> str:
        """The machine's id in the cloud."""

    @property
    def name(self) -> str:
        """The machine's host name, and so the Node's name."""

    @property
    def state(self) -> str:
        """The state; a kubelet runs while it is "running"."""

    @property
    def system_uuid(self) -> str:
        """The UUID in the machine's firmware."""

    @property
    def addresses(self) -> Sequence[MachineAddress]:
        """The machine's addresses; the first InternalIP serves as node IP."""


class _Kubelet(msgspec.Struct):
    """The memory of one kubelet."""

    uid: str = ""
    lease: dict[str, Any] | None = None
    ready_since: datetime | None = None
    status_due: float = 0.0


class KubeletPlayer:
    """A player of the kubelets of all running machines.

    Attributes:
        failures: How many steps of kubelets failed; the next beat tries again.
    """

    def __init__(
        self,
        client: Client,
        machines: Callable[[], Awaitable[Iterable[Machine]]],
        *,
        lease_period: float = 10.0,
        status_period: float = 300.0,
        node_ip: bool = False,
        object_size: int = 0,
        concurrency: int = 32,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Keep `machines`, a function that is called at every beat, and the settings.

        Args:
            client: The client that speaks for all kubelets.
            machines: Returns the machines as the cloud has them now, such as `Admin.instances`.
            lease_period: Seconds between renewals of a node's Lease, and between beats of `run`.
            status_period: Seconds between status writes of a node; 0 for one at every beat.
            node_ip: Whether the kubelets are given `--node-ip` with the first InternalIP.
            object_size: The size in bytes that a Node's status is filled to with images.
            concurrency: How many kubelets speak at once.
            now: The wall clock for timestamps.
        """
        self.failures = 0
        self._client = client
        self._machines = machines
        self._lease_period = lease_period
        self._status_period = status_period
        self._node_ip = node_ip
        self._object_size = object_size
        self._slots = asyncio.Semaphore(concurrency)
        self._now = now
        self._kubelets: dict[str, _Kubelet] = {}

    async def run(self) -> None:
        """Beat every `lease_period` seconds until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(self._lease_period)

    async def beat(self) -> None:
        """Let the kubelet of every running machine do what is due.

        A new kubelet registers its Node, which is not ready; its next beat makes it ready. A
        kubelet that finds its Node gone registers it again.
        """
        running = {
            machine.id: machine for machine in await self._machines() if machine.state == "running"
        }
        for id_ in self._kubelets.keys() - running.keys():
            del self._kubelets[id_]
        await asyncio.gather(*(self._guarded(self._beat, one) for one in running.values()))

    async def _guarded(self, step: Callable[[Machine], Awaitable[None]], machine: Machine) -> None:
        async with self._slots:
            try:
                await step(machine)
            except KubeError as error:
                self.failures += 1
                log.warning(
                    "A kubelet could not register its node or send its heartbeat: %s", error
                )

    async def _beat(self, machine: Machine) -> None:
        kubelet = self._kubelets.get(machine.id)
        if kubelet is None:
            await self._register(machine)
            return
        await self._renew(machine, kubelet)
        time = asyncio.get_running_loop().time()
        if time >= kubelet.status_due:
            await self._report(machine, kubelet)
            kubelet.status_due = time + self._status_period

    async def _register(self, machine: Machine) -> None:
        ip = self._ip(machine)
        body = node_body(machine, now=self._now(), node_ip=ip, object_size=self._object_size)
        try:
            uid = (await self._client.create(NODES, body)).uid
        except AlreadyExists:
            # The machine was started again, or made anew under an old name.
            uid = (await self._client.get(NODES, machine.name)).metadata.uid
        self._kubelets[machine.id] = _Kubelet(uid=uid)

    async def _report(self, machine: Machine, kubelet: _Kubelet) -> None:
        now = self._now()
        kubelet.ready_since = kubelet.ready_since or now
        ready = ("True", "KubeletReady", "kubelet is posting ready status")
        conditions = [
            *_pressures(now, kubelet.ready_since),
            _condition("Ready", *ready, now=now, since=kubelet.ready_since),
        ]
        body = {"status": {"conditions": conditions, "nodeInfo": _node_info(machine)}}
        patch = Patch(PatchType.STRATEGIC, body)
        try:
            await self._client.patch(NODES, machine.name, patch, subresource="status")
        except NotFound:
            await self._register(machine)

    async def _renew(self, machine: Machine, kubelet: _Kubelet) -> None:
        renewal = {
            "holderIdentity": machine.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            kubelet.lease = await self._write_lease(machine.name, kubelet, renewal)
        except (Conflict, NotFound):
            kubelet.lease = None
            raise
        except AlreadyExists:
            kubelet.lease = await self._client.get_lease(LEASE_NAMESPACE, machine.name)

    async def _write_lease(
        self, name: str, kubelet: _Kubelet, renewal: Mapping[str, Any]
    ) -> dict[str, Any]:
        lease = kubelet.lease
        if lease is not None:
            body = {**lease, "spec": {**lease.get("spec", {}), **renewal}}
            return await self._client.replace_lease(LEASE_NAMESPACE, name, body)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": kubelet.uid}
        metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        return await self._client.create_lease(
            LEASE_NAMESPACE,
            {
                "apiVersion": f"{LEASES.group}/{LEASES.version}",
                "kind": LEASES.kind,
                "metadata": metadata,
                "spec": dict(renewal),
            },
        )

    def _ip(self, machine: Machine) -> str:
        ips = (address.address for address in machine.addresses if address.type == "InternalIP")
        return next(ips, "") if self._node_ip else ""


def node_body(
    machine: Machine, *, now: datetime, node_ip: str = "", object_size: int = 0
) -> dict[str, Any]:
    """Make a Node as a kubelet with an external cloud provider registers it."""
    addresses = [{"type": "Hostname", "address": machine.name}]
    annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    if node_ip:
        addresses.insert(0, {"type": "InternalIP", "address": node_ip})
        annotations[ANNOTATION_PROVIDED_NODE_IP] = node_ip
    unready = ("False", "KubeletNotReady", "container runtime network not ready")
    body: dict[str, Any] = {
        "metadata": {
            "name": machine.name,
            "labels": {
                LABEL_HOSTNAME: machine.name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
            },
            "annotations": annotations,
        },
        "spec": {"taints": [{"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": addresses,
            "conditions": [
                *_pressures(now, now),
                _condition("Ready", *unready, now=now, since=now),
            ],
            "capacity": dict(_RESOURCES),
            "allocatable": dict(_RESOURCES),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": _node_info(machine),
        },
    }
    images = _images(object_size - len(msgspec.json.encode(body)))
    if images:
        body["status"]["images"] = images
    return body


def _pressures(now: datetime, since: datetime) -> list[dict[str, str]]:
    return [
        _condition(type_, "False", reason, message, now=now, since=since)
        for type_, (reason, message) in _PRESSURES.items()
    ]


def _condition(
    type_: str, status: str, reason: str, message: str, *, now: datetime, since: datetime
) -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": timestamp(now),
        "lastTransitionTime": timestamp(since),
    }


def timestamp(when: datetime) -> str:
    """Format a time as Kubernetes writes it in conditions: whole seconds, UTC."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node_info(machine: Machine) -> dict[str, str]:
    return {
        "machineID": machine.system_uuid.replace("-", ""),
        "systemUUID": machine.system_uuid,
        "bootID": machine.system_uuid,
        "kernelVersion": "6.12.0",
        "osImage": "Simulated Linux",
        "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": _VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _images(size: int) -> list[dict[str, Any]]:
    """Make a list of images that takes about `size` bytes as JSON."""
    images: list[dict[str, Any]] = []
    while size > 0 and len(images) < _IMAGES_AT_MOST:
        number = len(images)
        repository = f"registry.example.com/organisation/department-{number}/application"
        image = {
            "names": [
                f"{repository}@sha256:{number:064x}",
                f"{repository}:v1.{number}.0-release",
            ],
            "sizeBytes": 100_000_000 + number,
        }
        images.append(image)
        size -= len(msgspec.json.encode(image)) + 1
    return images
