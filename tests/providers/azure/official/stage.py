"""A real API server, Azure's emulator on TLS, and a cluster of machines of two kinds."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.contestants import Process
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ....apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ... import managers  # noqa: TID252
from ...changes import Change, happen  # noqa: TID252
from ...tls import server_tls  # noqa: TID252
from ..emulator import seed  # noqa: TID252
from ..emulator.kinds import filled  # noqa: TID252
from ..emulator.server import Emulator, served  # noqa: TID252
from ..emulator.store import Resource, network  # noqa: TID252
from ..site import settings  # noqa: TID252

MODULE: Final = Path(__file__).parent / "ccm"
CIDR: Final = "10.244.0.0/16"
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
OTHER_SUBNET: Final = "apps"
FIXED: Final = "fixed"
FIXED_ADDRESS: Final = "20.50.200.200"
"""A public IP that somebody has made."""
PATIENCE: Final = 240.0
KINDS: Final = (
    "loadBalancers",
    "publicIPAddresses",
    "networkSecurityGroups",
    "privateLinkServices",
    "routeTables",
)
FLAGS: Final = (
    "--cluster-name=kubernetes",
    f"--cluster-cidr={CIDR}",
    "--allocate-node-cidrs=false",
    "--configure-cloud-routes=true",
    "--route-reconciliation-period=2s",
    "--cloud-provider=azure",
    "--leader-elect=false",
    "-v=2",
)


async def build(directory: Path) -> Path:
    """Build the official manager, unless there is one."""
    if given := os.environ.get("PROREUS_AZURE_CCM"):
        return Path(given)
    return await managers.build(MODULE, directory, CGO_ENABLED="0")


class Stage:
    """Everything but the managers."""

    def __init__(
        self, site: Site, azure: Emulator, directory: Path, ca: Path, more: Mapping[str, Any]
    ) -> None:
        self.site = site
        self.azure = azure
        self.directory = directory
        self.names: list[str] = []
        self._ca = ca
        self._more = more

    def cloud_config(self) -> Path:
        file = self.directory / "azure.json"
        given = settings(
            self.azure.url,
            routeUpdateWaitingInSeconds=1,
            routeUpdateIntervalInSeconds=1,
            cloudProviderBackoff=True,
            cloudProviderBackoffRetries=2,
            cloudProviderBackoffDuration=1,
            **self._more,
        )
        file.write_text(json.dumps(given))
        return file

    async def join(self) -> None:
        """Start machines alone and in a scale set; their kubelets register ready nodes."""
        seed.scale_set(self.azure.store, "pool")
        self.names = [seed.set_machine(self.azure.store, "pool", number) for number in range(2)]
        for name in ("alone-0", "alone-1"):
            seed.machine(self.azure.store, name)
            self.names.append(name)
        for number, name in enumerate(self.names):
            cidr = f"10.244.{number}.0/24"
            await self.site.register_node(
                Instance(name=name, id=name, zone="1"), ready=True, podCIDR=cidr, podCIDRs=[cidr]
            )

    async def initialise(self) -> None:
        """Initialise the nodes by this manager.

        The official one leaves that to a program on each node, and its own controller has no workers.
        """
        manager = self.ours("--controllers=cloud-node")
        await manager.start()
        await self.site.initialised(*self.names)
        await manager.stop()

    async def change(self, name: str, change: Change) -> None:
        """Let this happen to a Service."""
        await happen(self.site, name, change)

    async def exclude(self, *names: str) -> None:
        """Keep these machines, and no others, out of load balancers."""
        for name in self.names:
            labels = {EXCLUDED: "" if name in names else None}
            body = Patch(PatchType.MERGE, {"metadata": {"labels": labels}})
            await self.site.client.patch(NODES, name, body)

    def sweep(self) -> None:
        """Delete the rules of the security group that a manager has left, as an operator would."""
        id_ = network("networkSecurityGroups", "nsg")
        group = self.azure.store.of[id_.lower()]
        if group["properties"]["securityRules"]:
            swept = {**group["properties"], "securityRules": []}
            self.azure.store.put({**group, "properties": swept})

    async def initialised(self) -> None:
        """Wait until the nodes have addresses and routes."""

        async def all_there() -> bool:
            nodes = (await self.site.nodes()).values()
            routes = self.azure.store.of[network("routeTables", "routes").lower()]
            listed = routes["properties"]["routes"]
            return all(len(one.status.addresses) > 1 for one in nodes) and len(listed) == len(
                self.names
            )

        await until("the nodes have addresses and routes", all_there, PATIENCE)

    def official(self, program: Path) -> Process:
        """The official cloud-controller-manager."""
        kubeconfig = self.site.plane.kubeconfig_for("official", ["system:masters"])
        command = [
            "/usr/bin/env",
            f"SSL_CERT_FILE={self._ca}",
            str(program),
            *FLAGS,
            "--controllers=cloud-node-lifecycle,service,route",
            f"--cloud-config={self.cloud_config()}",
            f"--kubeconfig={kubeconfig}",
            "--secure-port=0",
        ]
        return Process(command, self.directory / "official.log")

    def ours(self, *flags: str) -> ManagerProcess:
        """This manager, with the rights of the generated roles."""
        os.environ["SSL_CERT_FILE"] = str(self._ca)
        manager = self.site.lone_manager(user="azure-manager")
        return ManagerProcess(
            *[
                one
                for one in manager.flags
                if not one.startswith(("--cloud-", "--leader-elect", "-v="))
            ],
            *FLAGS,
            "--node-monitor-period=1s",
            f"--cloud-config={self.cloud_config()}",
            *flags,
            log=self.directory / "ours.log",
        )

    def picture(self) -> dict[str, Any]:
        """What clients notice in Azure: parts by id, without ETags and our own marks."""
        found: dict[str, Any] = {}
        for kind in KINDS:
            for one in self.azure.store.kind(f"Microsoft.Network/{kind}"):
                found[one["id"]] = _plain(self.azure.store.shown(one))
        return found


def reserve(azure: Emulator) -> None:
    """Make a public IP as an operator does."""
    asked = seed.resource(
        "Microsoft.Network/publicIPAddresses",
        network("publicIPAddresses", FIXED),
        {"publicIPAllocationMethod": "Static"},
        sku={"name": "Standard"},
    )
    made = filled(azure.store, asked, None)
    made["properties"]["ipAddress"] = FIXED_ADDRESS
    azure.store.put(made)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _plain(one)
            for key, one in sorted(value.items())
            if key not in {"etag", "tags", "provisioningState"}
        }
    if isinstance(value, list):
        return sorted((_plain(one) for one in value), key=repr)
    return value.lower() if isinstance(value, str) else value


def service(
    *ports: Mapping[str, Any], spec: Mapping[str, Any] | None = None, **more: str
) -> Change:
    """A Service with annotations, written with underscores."""
    stem = "service.beta.kubernetes.io/azure-"
    given = {f"{stem}{key.replace('_', '-')}": value for key, value in more.items()}
    return Change(ports, given, spec or {})


def port(number: int, node_port: int, protocol: str = "TCP") -> Resource:
    name = f"{protocol.lower()}-{number}"
    return {"name": name, "port": number, "nodePort": node_port, "protocol": protocol}


@asynccontextmanager
async def staged(plane: ControlPlane, directory: Path, **more: Any) -> AsyncIterator[Stage]:
    """A stage whose machines have joined; `more` are keys of the cloud-config."""
    context, ca = server_tls(directory)
    azure = Emulator()
    seed.seed(azure.store)
    async with served(azure, tls=context), set_up(plane, directory) as site:
        stage = Stage(site, azure, directory, ca, more)
        await stage.join()
        yield stage
