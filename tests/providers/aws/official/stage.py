"""A real API server, AWS, and a cluster of three machines and one that has its id as name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ....apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen  # noqa: TID252
from ..site import Network  # noqa: TID252
from ..strict.process import REGION, StrictAWS  # noqa: TID252

CLUSTER_CIDR: Final = "10.244.0.0/16"
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
ZONES: Final = {"a": "a", "b": "b", "c": "c", "d": "a"}
"""The machines, and in which zone each is."""
SERVICES_OF_AWS: Final = {
    "EC2": "ec2",
    "Elastic Load Balancing": "elasticloadbalancing",
    "Elastic Load Balancing v2": "elasticloadbalancing",
}
"""As the official manager calls them in its file, and as they are called in signatures."""
BY_ID: Final = "d"
"""The machine whose host name is its id."""


class Stage:
    """Everything but the managers."""

    def __init__(self, site: Site, aws: StrictAWS, directory: Path) -> None:
        """There is nothing yet but a network."""
        self.site = site
        self.aws = aws
        self.directory = directory
        self.network = Network(aws)
        self.classic = aws.client("elb")
        self.elb = aws.client("elbv2")
        self.ids: dict[str, str] = {}
        """The machines' ids."""
        self.names: dict[str, str] = {}
        """The machines' nodes."""
        self.group = self.network.serve()
        table = self.network.ec2.create_route_table(VpcId=self.network.vpc)["RouteTable"]
        self.table: str = table["RouteTableId"]
        self.network.tag(self.table)

    def cloud_config(self, name: str, sections: str) -> Path:
        """An official file, with these further sections."""
        overrides = "".join(
            f'[ServiceOverride "{number}"]\nService = {service}\nRegion = {REGION}\n'
            f"URL = {self.aws.endpoint}\nSigningRegion = {REGION}\nSigningName = {signed}\n"
            for number, (service, signed) in enumerate(SERVICES_OF_AWS.items())
        )
        file = self.directory / f"{name}-cloud.conf"
        file.write_text(
            f"[Global]\nZone = {REGION}a\nVPC = {self.network.vpc}\n"
            f"SubnetID = {self.network.subnets[0]}\nKubernetesClusterID = test\n"
            f"{overrides}{sections}"
        )
        return file

    async def join(self) -> None:
        """Start the machines; their kubelets register ready nodes."""
        for number, (letter, zone) in enumerate(ZONES.items()):
            subnet = self.network.subnets["abc".index(zone)]
            more: dict[str, Any] = {}
            if letter == BY_ID:
                more["PrivateDnsNameOptions"] = {"HostnameType": "resource-name"}
            (id_,) = self.network.run(
                SubnetId=subnet,
                SecurityGroupIds=[self.group],
                PrivateIpAddress=f"10.0.{'abc'.index(zone)}.{10 + number}",
                **more,
            )
            self.ids[letter] = id_
            self.names[letter] = self.network.describe(id_)["PrivateDnsName"]
            cidr = f"10.244.{number}.0/24"
            await self.site.register_node(
                Instance(name=self.names[letter], id=id_, zone=zone),
                ready=True,
                podCIDR=cidr,
                podCIDRs=[cidr],
            )

    async def initialised(self) -> None:
        """Wait until the nodes are, have addresses, and routes."""
        await self.site.initialised(*self.names.values())

        async def all_there() -> bool:
            nodes = (await self.site.nodes()).values()
            return all(len(one.status.addresses) > 1 for one in nodes) and len(
                self.routes()
            ) == len(ZONES)

        await until("the nodes have addresses and routes", all_there)

    def routes(self) -> list[dict[str, Any]]:
        """The routes in the cluster's table that lead to machines."""
        (table,) = self.network.ec2.describe_route_tables(RouteTableIds=[self.table])["RouteTables"]
        return [one for one in table["Routes"] if one.get("InstanceId")]

    async def change(self, name: str, change: Change) -> None:
        """Let this happen to a Service."""
        await happen(self.site, name, change)

    async def exclude(self, *letters: str) -> None:
        """Keep these machines, and no others, out of load balancers."""
        for letter, name in self.names.items():
            labels = {EXCLUDED: "" if letter in letters else None}
            body = Patch(PatchType.MERGE, {"metadata": {"labels": labels}})
            await self.site.client.patch(NODES, name, body)


@asynccontextmanager
async def staged(plane: ControlPlane, aws: StrictAWS, directory: Path) -> AsyncIterator[Stage]:
    """A stage whose machines have joined, where AWS is as quick as it can be."""
    aws.reset()
    aws.configure(health=0.0, provisioning=0.0, detach=0.0)
    async with set_up(plane, directory) as site:
        stage = Stage(site, aws, directory)
        await stage.join()
        yield stage
