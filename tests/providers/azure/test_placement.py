"""A whole manager with several standard load balancers: what it must read of the cluster for them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proreus.app.options import Options
from proreus.app.rights import manifests, roles
from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import ENDPOINT_SLICES, NAMESPACES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.read_only import granted, reader  # noqa: TID252 - pytest imports tests by path
from ...apiserver.site import Site, set_up  # noqa: TID252
from ..changes import Change, happen, make  # noqa: TID252
from .balancing import name_of, parts
from .emulator import seed
from .emulator.server import Emulator
from .placing import slice_
from .site import emulated, settings

pytestmark = pytest.mark.long

BALANCERS = ("kubernetes", "second")
FIRST = {"name": "kubernetes", "primaryVMSet": "first"}
SECOND = {"name": "second", "primaryVMSet": "second"}
OF_A = {**SECOND, "serviceNamespaceSelector": {"matchLabels": {"team": "a"}}}
NODES = ("node-0", "node-1")
PORT = {"name": "http", "port": 80, "protocol": "TCP"}


class Cluster:
    """Two machines of Azure behind two load balancers, and the nodes of a real API server."""

    def __init__(self, site: Site, azure: Emulator, directory: Path) -> None:
        self.site = site
        self.azure = azure
        self._file = directory / "azure.json"
        self.flags = (f"--cloud-config={self._file}", "--cluster-name=kubernetes")

    def configure(self, *several: Mapping[str, Any]) -> None:
        """Write a cloud-config with these load balancers."""
        given: dict[str, Any] = {"loadBalancerBackendPoolConfigurationType": "nodeIP"}
        if several:
            given["multipleStandardLoadBalancerConfigurations"] = several
        self._file.write_text(json.dumps(settings(self.azure.url, **given)))

    def manager(self, kubeconfig: Path | None = None) -> ManagerProcess:
        """A manager with the cloud-config, and with the rights of all managers or of a user."""
        manager = self.site.lone_manager(
            "--cloud-provider=azure",
            *self.flags,
            "--controllers=*,-route",
        )
        if kubeconfig is None:
            return manager
        kept = [one for one in manager.flags if not one.startswith("--kubeconfig=")]
        return ManagerProcess(*kept, f"--kubeconfig={kubeconfig}", log=manager.log)

    async def join(self) -> None:
        for name in NODES:
            seed.machine(self.azure.store, name)
            await self.site.register_node(Instance(name=name, id=name, zone="1"), ready=True)

    async def is_on(self, name: str, balancer: str) -> bool:
        """Whether a Service has its rules on this load balancer, and an address."""
        one = await self.site.service(name)
        base = name_of(one.metadata.uid)
        rules = {
            each: {rule.partition("-")[0] for rule in parts(self.azure, "loadBalancingRules", each)}
            for each in BALANCERS
        }
        places = [each for each in BALANCERS if base in rules[each]]
        return places == [balancer] and bool(one.status.load_balancer.ingress)

    async def until_on(self, name: str, balancer: str) -> None:
        await until(f"{name} is on {balancer}", lambda: self.is_on(name, balancer))

    async def label(self, **labels: str | None) -> None:
        """Give the namespace default labels, or take them."""
        body = Patch(PatchType.MERGE, {"metadata": {"labels": labels}})
        await self.site.client.patch(NAMESPACES, "default", body)

    def pool(self, of: str) -> list[str]:
        """The nodes in the pool of this name, of either load balancer."""
        return [
            one["name"]
            for name in BALANCERS
            for one in parts(self.azure, "backendAddressPools", name)
            .get(of, {})
            .get("loadBalancerBackendAddresses", ())
        ]


@asynccontextmanager
async def clustered(plane: ControlPlane, directory: Path) -> AsyncIterator[Cluster]:
    async with emulated() as azure, set_up(plane, directory) as site:
        cluster = Cluster(site, azure, directory)
        await cluster.join()
        try:
            yield cluster
        finally:
            await cluster.label(team=None)


def annotated(**more: str) -> Mapping[str, str]:
    stem = "service.beta.kubernetes.io/azure-load-balancer"
    return {f"{stem}-{key}": value for key, value in more.items()}


async def test_the_pool_of_local_traffic_follows_the_pods(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with clustered(control_plane, tmp_path) as cluster:
        site = cluster.site
        cluster.configure(FIRST, SECOND)
        async with cluster.manager():
            await site.initialised(*NODES)
            await site.client.create(ENDPOINT_SLICES, slice_("web", "node-0"), "default")
            spec = {"externalTrafficPolicy": "Local"}
            await make(site, {"web": Change((PORT,), annotated(configurations="second"), spec)})

            async def has(node: str) -> bool:
                return cluster.pool("default-web") == [node]

            await until("the node with the pod is in the pool", lambda: has("node-0"))
            moved = Patch(PatchType.MERGE, {"endpoints": slice_("web", "node-1")["endpoints"]})
            await site.client.patch(ENDPOINT_SLICES, "web-1", moved, "default")
            await until("the pool has the other node", lambda: has("node-1"))
            await happen(site, "web", Change())
            await site.client.delete(ENDPOINT_SLICES, "web-1", "default")


async def test_labels_of_namespaces_place_services_anew(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with clustered(control_plane, tmp_path) as cluster:
        site = cluster.site
        cluster.configure(FIRST, OF_A)
        await cluster.label(team="a")
        async with cluster.manager():
            await site.initialised(*NODES)
            await make(site, {"web": Change((PORT,))})
            assert await cluster.is_on("web", "second")
            async with reader(site, "looker", tmp_path) as looker:
                flags = ("--cloud-provider=azure", *cluster.flags)
                assert (await looker.run("plan", *flags)).code == 0
                await cluster.label(team="c")
                ran = await looker.run("plan", *flags)
                assert "kubernetes" in ran.out, ran
                await cluster.label(team="a")
            # Officially, too, the labels are looked at when a Service is, and not before.
            await cluster.label(team="b")
            await make(site, {"other": Change((PORT,))})
            assert await cluster.is_on("other", "kubernetes")
            assert await cluster.is_on("web", "second")
            await happen(site, "web", Change(({**PORT, "port": 81},)))
            await cluster.until_on("web", "kubernetes")


async def test_a_cloud_config_that_comes_to_need_more_gets_it_without_a_restart(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with clustered(control_plane, tmp_path) as cluster:
        site = cluster.site
        cluster.configure()
        await cluster.label(team="a")
        async with cluster.manager():
            await site.initialised(*NODES)
            await make(site, {"web": Change((PORT,))})
            assert await cluster.is_on("web", "kubernetes")
            await site.client.create(ENDPOINT_SLICES, slice_("near", "node-0"), "default")
            cluster.configure(FIRST, OF_A)
            await cluster.until_on("web", "second")
            await make(site, {"near": Change((PORT,), {}, {"externalTrafficPolicy": "Local"})})
            assert cluster.pool("default-near") == ["node-0"]
            await site.client.delete(ENDPOINT_SLICES, "near-1", "default")


async def test_without_the_right_to_read_namespaces_services_stay_and_nodes_go_on(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with clustered(control_plane, tmp_path) as cluster:
        site = cluster.site
        cluster.configure(FIRST, OF_A)
        await cluster.label(team="a")
        async with cluster.manager():
            await site.initialised(*NODES)
            await make(site, {"web": Change((PORT,)), "old": Change((PORT,))})
            assert await cluster.is_on("web", "second")
        site.may_be_refused = True
        poor = {"kind": "User", "name": "poor"}
        options = Options(leader_elect=False, secure_port=0)
        (role,) = roles(options, needs=frozenset({"endpoint_slices"}))
        rules = manifests([role])[1]["rules"]
        rights = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}]
        manager = cluster.manager(site.plane.kubeconfig_for("poor"))
        async with granted(site.client, "poor", rules, poor), manager:
            seed.machine(cluster.azure.store, "node-2")
            new = Instance(name="node-2", id="node-2", zone="1")
            await site.register_node(new, ready=True)
            await site.initialised("node-2")
            await happen(site, "web", Change(({**PORT, "port": 81},)))

            async def is_told() -> bool:
                found = await site.events("SyncLoadBalancerFailed", "web")
                return any("list and watch namespaces" in one.message for one in found)

            await until("it is told what is missing", is_told)
            assert await cluster.is_on("web", "second")
            await happen(site, "old", Change())
            await until("what needs no label is deleted", lambda: gone(site, "old"))
            async with granted(site.client, "richer", rights, poor):

                async def has_port() -> bool:
                    rules = parts(cluster.azure, "loadBalancingRules", "second").values()
                    return [one["frontendPort"] for one in rules] == [81]

                await until("the Service is as it should be", has_port)


async def gone(site: Site, name: str) -> bool:
    try:
        await site.service(name)
    except NotFound:
        return True
    return False
