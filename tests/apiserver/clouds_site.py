"""A site with two simulated clouds, east and west, and one manager of both."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proreus.app.clouds.plan import LABEL_CLOUD
from proreus.kube.objects import condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.objects import service_body
from proreus.testing.simulated import Call, Instance, Settings, SimulatedCloudProcess
from proreus.testing.waiting import until

from .rights import MANAGERS
from .site import Site, set_up

READY = "LoadBalancerReady"


class CloudsSite:
    """Two clouds, each with its machines; nodes belong to one or the other.

    Attributes:
        base: The API server, and the cloud east.
        clouds: Both clouds by name.
    """

    def __init__(self, base: Site, west: SimulatedCloudProcess, directory: Path) -> None:
        self.base = base
        self.clouds = {"east": base.cloud, "west": west}
        self.client = base.client
        self.directory = directory

    def config(self, name: str, **more: Any) -> str:
        """Write the cloud-config of a cloud to a file, and return its path."""
        cloud = self.clouds[name]
        file = self.directory / f"{name}.conf"
        lines = {"endpoint": cloud.endpoint, "region": name, "token": cloud.token, **more}
        text = "".join(f'{key} = "{value}"\n' for key, value in lines.items() if value)
        file.write_text(f"[Global]\n{text}")
        return str(file)

    def configs(self, **west: Any) -> str:
        """Write both cloud-configs, with more in that of west; return them as a flag's value."""
        return f"east={self.config('east')},west={self.config('west', **west)}"

    def manager(self, *flags: str, clouds: str = "", config: str = "") -> ManagerProcess:
        """One manager of both clouds."""
        return ManagerProcess(
            f"--cloud-provider={clouds or 'east=simulated,west=simulated'}",
            f"--cloud-config={config or self.configs()}",
            f"--kubeconfig={self.base.plane.kubeconfig_for('manager', [MANAGERS])}",
            "--secure-port=0",
            "--leader-elect=false",
            "-v=2",
            *flags,
            log=self.directory / "manager.log",
        )

    async def machines(self, cloud: str, *names: str, **fields: Any) -> tuple[Instance, ...]:
        """Start machines in a cloud."""
        fields = {"zone": f"{cloud}-1a", "type": "sim.large", **fields}
        alike = [Instance(name=name, **fields) for name in names]
        return await self.clouds[cloud].admin.create(alike)

    async def join(self, cloud: str, *names: str) -> tuple[Instance, ...]:
        """Start machines in a cloud whose kubelets are ready and were given no provider id."""
        made = await self.machines(cloud, *names)
        await self.base.register(made)
        return made

    async def join_with_id(self, cloud: str, *names: str) -> tuple[Instance, ...]:
        """Start machines in a cloud whose kubelets are ready and were given the provider id."""
        made = await self.machines(cloud, *names)
        for machine in made:
            provider_id = f"simulated://{cloud}/{machine.id}"
            await self.base.register_node(machine, ready=True, providerID=provider_id)
        return made

    async def join_one_each(self) -> None:
        """Start a machine in either cloud, e1 and w1, with its provider id."""
        await self.join_with_id("east", "e1")
        await self.join_with_id("west", "w1")

    async def service(self, name: str, cloud: str = "", **spec: Any) -> None:
        """Create a Service of type LoadBalancer that names a cloud, or none."""
        annotations = {"proreus.io/cloud": cloud} if cloud else {}
        body = service_body(name, metadata={"annotations": annotations}, **spec)
        await self.client.create(SERVICES, body, "default")

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """Change annotations of a Service, of the domain proreus.io."""
        patch = {f"proreus.io/{key.replace('_', '-')}": one for key, one in annotations.items()}
        body = {"metadata": {"annotations": patch}}
        await self.client.patch(SERVICES, name, Patch(PatchType.MERGE, body), "default")

    async def balanced(self, name: str) -> str:
        """Wait until a Service has a load balancer; return its address."""

        async def there() -> str:
            found = await self.base.service(name)
            ready = condition(found.status.conditions, READY)
            points = found.status.load_balancer.ingress
            is_ready = ready is not None and ready.reason in {"Ensured", "NoHosts"}
            return points[0].ip if points and is_ready else ""

        return await until(f"the Service {name} has a load balancer", there)

    async def says(self, name: str, reason: str) -> str:
        """Wait until the condition of a Service has this reason; return its message."""

        async def said() -> str:
            found = condition((await self.base.service(name)).status.conditions, READY)
            return found.message if found is not None and found.reason == reason else ""

        return await until(f"the Service {name} says {reason}", said)

    async def parts(self, cloud: str) -> list[str]:
        """The load balancers of a cloud, by the names of their Services."""
        found = await self.clouds[cloud].admin.parts("load_balancer")
        return sorted(part["tags"]["proreus/service"].rpartition("/")[2] for part in found)

    async def calls(self, cloud: str, operations: Iterable[str] = ()) -> list[Call]:
        """The calls of a cloud."""
        found = await self.clouds[cloud].admin.calls()
        return [call for call in found if not operations or call.operation in operations]

    async def cloud_of(self, node: str) -> str:
        """The cloud that a node's label names."""
        return (await self.base.existing(node)).metadata.labels.get(LABEL_CLOUD, "")


@asynccontextmanager
async def two_clouds(plane: ControlPlane, directory: Path) -> AsyncIterator[CloudsSite]:
    """Set up both clouds, on an API server that is empty before and after."""
    async with (
        set_up(plane, directory, Settings(region="east")) as base,
        SimulatedCloudProcess(settings=Settings(region="west")) as west,
    ):
        yield CloudsSite(base, west, directory)
