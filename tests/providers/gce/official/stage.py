"""A real API server, Compute Engine, and a cluster of four machines in three zones."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import CONFIG_MAPS, NODES, Request
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ....apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen  # noqa: TID252
from ..cloud.server import Gce  # noqa: TID252
from ..cloud.world import NETWORK, PROJECT, REGION, ZONES  # noqa: TID252

CLUSTER_CIDR: Final = "10.244.0.0/16"
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
MACHINES: Final = {"node-a": 0, "node-b": 1, "node-c": 2, "node-d": 0}
"""The machines, and in which zone each is."""
CLUSTER_ID: Final = "0123456789abcdef"
STATIC: Final = "34.10.200.200"
"""An address that is reserved."""
OTHER_SUBNET: Final = "other"


class Stage:
    """Everything but the managers."""

    def __init__(self, site: Site, gce: Gce, directory: Path) -> None:
        """A network with another subnetwork, and a reserved address."""
        self.site = site
        self.gce = gce
        self.directory = directory
        at = f"projects/{PROJECT}/regions/{REGION}"
        world = gce.world
        with world.lock:
            world.put(
                f"{at}/subnetworks/{OTHER_SUBNET}",
                {
                    "name": OTHER_SUBNET,
                    "ipCidrRange": "10.64.0.0/16",
                    "network": world.link(NETWORK),
                    "secondaryIpRanges": [],
                },
            )
            fixed = {"name": "fixed", "address": STATIC, "addressType": "EXTERNAL"}
            world.put(f"{at}/addresses/fixed", {**fixed, "networkTier": "PREMIUM"})

    def cloud_config(self, name: str, sections: str) -> Path:
        """An official file, with these further sections."""
        file = self.directory / f"{name}-gce.conf"
        file.write_text(
            f"[global]\napi-endpoint = {self.gce.api}\nproject-id = {PROJECT}\n"
            f"local-zone = {ZONES[0]}\nmultizone = true\nnetwork-name = default\n{sections}"
        )
        return file

    async def join(self) -> None:
        """Start the machines; their kubelets register ready nodes."""
        await self._identify()
        for number, (name, zone) in enumerate(MACHINES.items()):
            self.gce.run(name, zone=ZONES[zone])
            cidr = f"10.244.{number}.0/24"
            machine = Instance(name=name, id=name, zone=ZONES[zone])
            await self.site.register_node(machine, ready=True, podCIDR=cidr, podCIDRs=[cidr])

    async def _identify(self) -> None:
        """Make the ConfigMap with the cluster's id."""
        client, namespace, name = self.site.client, "kube-system", "ingress-uid"
        try:
            await client.get(CONFIG_MAPS, name, namespace)
        except NotFound:
            body = {
                "metadata": {"name": name},
                "data": {"uid": CLUSTER_ID, "provider-uid": CLUSTER_ID},
            }
            await client.create(CONFIG_MAPS, body, namespace)

    async def initialised(self) -> None:
        """Wait until the nodes are, have addresses, and routes."""
        await self.site.initialised(*MACHINES)

        async def all_there() -> bool:
            nodes = (await self.site.nodes()).values()
            has_routes = len(self.gce.names("routes")) == len(MACHINES)
            return has_routes and all(len(one.status.addresses) > 1 for one in nodes)

        await until("the nodes have addresses and routes", all_there)

    async def change(self, name: str, change: Change) -> None:
        """Let this happen to a Service."""
        await happen(self.site, name, change)

    async def exclude(self, *names: str) -> None:
        """Keep these machines, and no others, out of load balancers."""
        for name in MACHINES:
            labels = {EXCLUDED: "" if name in names else None}
            body = Patch(PatchType.MERGE, {"metadata": {"labels": labels}})
            await self.site.client.patch(NODES, name, body)

    async def delete_map(self) -> None:
        """Delete the ConfigMap."""
        path = CONFIG_MAPS.path("kube-system", "ingress-uid")
        await self.site.client.send(Request("DELETE", path), dict[str, Any])


def text(value: object) -> str:
    """A value as one text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


@asynccontextmanager
async def staged(plane: ControlPlane, gce: Gce, directory: Path) -> AsyncIterator[Stage]:
    """A stage whose machines have joined, on a cloud that is as quick as it can be."""
    async with set_up(plane, directory) as site:
        stage = Stage(site, gce, directory)
        await stage.join()
        try:
            yield stage
        finally:
            await stage.delete_map()
