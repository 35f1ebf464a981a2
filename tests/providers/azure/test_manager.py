"""A whole manager on Azure: many nodes and Services, while Azure throttles, fails and forgets."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proreus.kube.errors import NotFound
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from ..changes import Change, happen  # noqa: TID252
from .emulator import seed
from .emulator.server import Emulator, Fault
from .emulator.store import compute, network
from .site import emulated, settings

pytestmark = pytest.mark.long

FLAGS = (
    "--cloud-provider=azure",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)
INTERNAL = "service.beta.kubernetes.io/azure-load-balancer-internal"


class Life:
    """A cluster whose machines and load balancers are in Azure."""

    def __init__(self, site: Site, azure: Emulator, directory: Path, patience: float) -> None:
        self.site = site
        self.azure = azure
        self.machines: dict[str, str] = {}
        self._patience = patience
        self._file = directory / "azure.json"
        self._file.write_text(json.dumps(settings(azure.url)))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[bool]]) -> None:
        await until(what, attempt, self._patience)

    async def join(self, count: int) -> None:
        """Start machines, half of them in a scale set; their kubelets register ready nodes."""
        seed.scale_set(self.azure.store, "pool")
        sets = compute("virtualMachineScaleSets", "pool")
        for number in range(count):
            if number % 2:
                name = seed.set_machine(self.azure.store, "pool", number)
                self.machines[name] = f"{sets}/virtualMachines/{number}"
            else:
                name = f"node-{number}"
                self.machines[name] = seed.machine(self.azure.store, name)
        for number, name in enumerate(self.machines):
            cidr = f"10.64.{number}.0/24"
            # What a kubelet reports is its machine's `vmId`, in the other byte order on older kernels.
            uuid = self.azure.store.of[self.machines[name].lower()]["properties"]["vmId"]
            await self.site.register_node(
                Instance(name=name, id=name, zone="1", system_uuid=uuid),
                ready=True,
                podCIDR=cidr,
                podCIDRs=[cidr],
            )

    async def initialised(self) -> bool:
        nodes = (await self.site.nodes()).values()
        return all(is_initialised(one) for one in nodes) and len(self.routes()) == len(list(nodes))

    def routes(self) -> list[str]:
        table = self.azure.store.of[network("routeTables", "routes").lower()]
        return [one["properties"]["addressPrefix"] for one in table["properties"]["routes"]]

    def left(self) -> list[str]:
        """What load balancers are made of, but for the security group itself."""
        kinds = ("loadBalancers", "publicIPAddresses")
        found = [
            one["id"]
            for kind in kinds
            for one in self.azure.store.kind(f"Microsoft.Network/{kind}")
        ]
        group = self.azure.store.of[network("networkSecurityGroups", "nsg").lower()]
        return found + [one["name"] for one in group["properties"]["securityRules"]]

    async def services(self, count: int, port: int) -> None:
        """Make or edit Services, every third of them internal."""
        for number in range(count):
            annotations = {INTERNAL: "true"} if number % 3 == 0 else {}
            ports = ({"name": "http", "port": port},)
            await happen(self.site, f"web-{number}", Change(ports, annotations))

    async def served(self, count: int, port: int) -> bool:
        """Tell whether all Services have addresses, and rules for the port with all hosts."""
        names = [f"web-{number}" for number in range(count)]
        found = [await self.site.service(name) for name in names]
        rules, pools = [], []
        for one in self.azure.store.kind("Microsoft.Network/loadBalancers"):
            shown = self.azure.store.shown(one)["properties"]
            rules += [rule["properties"]["frontendPort"] for rule in shown["loadBalancingRules"]]
            pools += [
                len(pool["properties"].get("backendIPConfigurations", ()))
                for pool in shown["backendAddressPools"]
            ]
        hosts = len(await self.site.nodes())
        return (
            all(one.status.load_balancer.ingress for one in found)
            and rules == [port] * count
            and pools == [hosts] * 2
        )

    async def gone(self, count: int) -> bool:
        for number in range(count):
            with contextlib.suppress(NotFound):
                await self.site.service(f"web-{number}")
                return False
        return not self.left()


@asynccontextmanager
async def lived(plane: ControlPlane, directory: Path, patience: float) -> AsyncIterator[Life]:
    async with emulated() as azure, set_up(plane, directory) as site:
        azure.page, azure.works = 50, 1
        yield Life(site, azure, directory, patience)


async def _live(life: Life, nodes: int, services: int) -> None:
    azure = life.azure
    azure.quota = {"reads": (250, 25), "writes": (200, 10), "deletes": (200, 10)}
    await life.join(nodes)
    for kind in ("virtualMachines", "networkInterfaces", "routeTables", "loadBalancers"):
        azure.faults.append(Fault("GET", kind, status=500, times=2))
    azure.faults += [
        Fault("PUT", "loadBalancers", after_effect=True, status=502),
        Fault("PUT", "publicIPAddresses", after_effect=True, status=504, times=2),
        Fault("PUT", "networkSecurityGroups", status=412, code="PreconditionFailed"),
        Fault("PUT", "routeTables", asynchronous=True),
        Fault("PUT", "networkInterfaces", status=429, code="RetryableError", times=2),
        Fault("PUT", "loadBalancers", status=409, code="AnotherOperationInProgress"),
    ]
    manager = life.manager()
    await manager.start()
    await life.until("the nodes are initialised and have routes", life.initialised)
    await life.services(services, 80)
    await life.until("the Services are served", lambda: life.served(services, 80))

    azure.identity.revoke()
    await life.services(services, 81)
    await manager.kill()
    manager = life.manager()
    await manager.start()
    await life.until("the edited Services are served", lambda: life.served(services, 81))

    lost = list(life.machines)[: nodes // 20]
    for name in lost:
        seed.remove_machine(azure.store, life.machines.pop(name))
    await life.site.silence(*lost)
    await life.site.gone(*lost)

    azure.faults += [
        Fault("DELETE", "publicIPAddresses", after_effect=True, status=500, times=2),
        Fault("PUT", "loadBalancers", status=500),
        Fault("DELETE", "loadBalancers", asynchronous=True),
    ]
    for number in range(services):
        await happen(life.site, f"web-{number}", Change())
    await life.until("nothing is left", lambda: life.gone(services))
    await manager.stop()


async def test_nothing_is_left_of_the_life_of_200_nodes_and_20_services(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with lived(control_plane, tmp_path, 420.0) as life:
        await _live(life, 200, 20)


async def test_nothing_is_left_of_the_life_of_a_small_cluster(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with lived(control_plane, tmp_path, 120.0) as life:
        await _live(life, 20, 4)
