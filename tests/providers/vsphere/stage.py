"""A real API server, a vCenter, and the Nodes of its machines."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proreus.cloudprovider.lookups import swapped
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.kubelet import node_body
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance

from ...apiserver.site import Site, all_of, is_initialised  # noqa: TID252 - pytest imports tests by path
from .site import Site as VCenter

LABELS = '[Labels]\nzone = "k8s-zone"\nregion = "k8s-region"\n'
PACE = ("--node-status-update-frequency=2s", "--node-monitor-period=1s")
"""What a manager does every few minutes it does every few seconds."""


class Stage:
    """Everything but the managers."""

    def __init__(self, site: Site, vcenter: VCenter, directory: Path) -> None:
        self.site = site
        self.vcenter = vcenter
        self.directory = directory
        self.file = directory / "vsphere.conf"
        self.file.write_text(vcenter.config(LABELS))

    async def tag(self) -> None:
        """Let the datacenter be a region, and each host a zone."""
        simulator = self.vcenter.simulator
        await simulator.tag("k8s-region", "eu", "/DC0")
        for number in range(2):
            await simulator.tag("k8s-zone", f"eu-{number}", f"/DC0/host/DC0_C0/DC0_C0_H{number}")

    async def join(self, *names: str, ready: bool = True, **more: Any) -> None:
        """Start machines whose kubelets register Nodes."""
        await self.create(*names, **more)
        await self.register_all(*names, ready=ready)

    async def create(self, *names: str, **more: Any) -> None:
        """Start machines, on both hosts by turns."""
        for host in range(2):
            path = f"/DC0/host/DC0_C0/DC0_C0_H{host}"
            await self.vcenter.simulator.create(*names[host::2], host=path, **more)

    async def register_all(self, *names: str, ready: bool = True) -> None:
        """Let the kubelets of machines register Nodes.

        On older virtual hardware they report the UUID in the other byte order.
        """
        uuids = self.vcenter.simulator.uuids
        await all_of(
            self.register(name, swapped(uuid) if number % 2 else uuid, ready=ready)
            for number, name in enumerate(names)
            for uuid in [uuids[name]]
        )

    async def register(self, name: str, uuid: str, *, ready: bool) -> None:
        """Create a Node as its kubelet would."""
        body = node_body(Instance(name=name, id=""), now=datetime.now(UTC))
        info = dict.fromkeys(
            (
                "machineID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
                "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
            ),
            "x",
        )  # fmt: skip
        body["status"]["nodeInfo"] = info | {"systemUUID": uuid}
        if ready:
            body["status"]["conditions"][-1].update(type="Ready", status="True")
        await self.site.client.create(NODES, body)

    def manager(self, *flags: str) -> ManagerProcess:
        """This manager, with the rights of the generated roles."""
        return self.site.lone_manager(
            "--cloud-provider=vsphere", f"--cloud-config={self.file}", *PACE, *flags
        )

    async def initialised(self, names: Sequence[str]) -> dict[str, Node] | None:
        """The nodes, once exactly these are there and have all that their machines tell."""
        nodes = await self.site.nodes()
        are_done = nodes.keys() == set(names) and all(
            one.spec.provider_id == self.vcenter.id(name)
            and is_initialised(one)
            and any(at.type == "InternalIP" for at in one.status.addresses)
            for name, one in nodes.items()
        )
        return nodes if are_done else None
