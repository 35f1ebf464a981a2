"""A cluster moves from the official manager of Azure to this one and back."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Final

import pytest

from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import ENDPOINT_SLICES, NAMESPACES, NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ....apiserver.read_only import existing  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen, make  # noqa: TID252
from ..placing import slice_  # noqa: TID252
from .stage import PATIENCE, Stage, build, port, service, staged

pytestmark = pytest.mark.long

FIRST: Final = {
    "plain": service(port(80, 30080)),
    "two": service(port(80, 30180), port(53, 30153, "UDP")),
    "inside": service(port(80, 30280), load_balancer_internal="true"),
    "ranges": service(port(80, 30380), spec={"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}),
    "tuned": service(
        port(443, 30443),
        spec={"sessionAffinity": "ClientIP"},
        load_balancer_tcp_idle_timeout="30",
        load_balancer_health_probe_protocol="https",
        load_balancer_health_probe_interval="10",
        dns_label_name="tuned",
    ),
    "nodes": service(port(80, 30480), disable_load_balancer_floating_ip="true"),
    "near": service(port(80, 30580), spec={"externalTrafficPolicy": "Local"}),
    "tags": service(port(80, 30680), allowed_service_tags="AzureCloud"),
    "linked": service(port(80, 30980), load_balancer_internal="true", pls_create="true",
                      pls_ip_configuration_subnet="apps", pls_fqdns="a.example"),
}  # fmt: skip


async def settled(stage: Stage, seconds: float = 6.0) -> None:
    """Wait until nobody has written anything for a while."""
    last, since = stage.picture(), time.monotonic()

    async def quiet() -> bool:
        nonlocal last, since
        now = stage.picture()
        if now != last:
            last, since = now, time.monotonic()
        await asyncio.sleep(0.5)
        return time.monotonic() - since > seconds

    await until("nothing is written any more", quiet, PATIENCE)


async def remove(stage: Stage, name: str) -> None:
    """Delete a Service, and wait until it is gone."""
    await happen(stage.site, name, Change())

    async def is_gone() -> bool:
        with contextlib.suppress(NotFound):
            await stage.site.service(name)
            return False
        return True

    await until(f"{name} is gone", is_gone, PATIENCE)


def different(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


async def test_a_cluster_moves_from_the_official_manager_and_back(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with staged(control_plane, tmp_path) as stage:
        await stage.initialise()
        theirs = stage.official(program)
        await theirs.start()
        await stage.initialised()
        await make(stage.site, FIRST, PATIENCE)
        await settled(stage)
        before = stage.picture()
        nodes = {
            name: (one.spec.provider_id, one.status.addresses, one.metadata.labels)
            for name, one in (await stage.site.nodes()).items()
        }
        await theirs.stop()

        mine = stage.ours()
        await mine.start()
        await make(stage.site, {"late": service(port(80, 30780))}, PATIENCE)
        await settled(stage)
        assert {
            name: (one.spec.provider_id, one.status.addresses, one.metadata.labels)
            for name, one in (await stage.site.nodes()).items()
        } == nodes
        await remove(stage, "late")
        await settled(stage)
        assert different(before, stage.picture()) == []
        await make(stage.site, {"plain": service(port(80, 30080), port(443, 30881))}, PATIENCE)
        await settled(stage)
        edited = stage.picture()
        await mine.stop()

        again = stage.official(program)
        await again.start()
        await make(stage.site, {"last": service(port(80, 30880))}, PATIENCE)
        await remove(stage, "last")
        await settled(stage)
        assert different(edited, stage.picture()) == []
        await again.stop()

        mine = stage.ours()
        await mine.start()
        for name in FIRST:
            await happen(stage.site, name, Change())
        kinds = ("loadBalancers", "publicIPAddresses", "privateLinkServices")

        async def nothing_left() -> bool:
            return not [
                one for kind in kinds for one in stage.azure.store.kind(f"Microsoft.Network/{kind}")
            ]

        await until("nothing is left", nothing_left, PATIENCE)
        await mine.stop()


SEVERAL: Final = {
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    "loadBalancerBackendPoolUpdateIntervalInSeconds": 1,
    "multipleStandardLoadBalancerConfigurations": [
        {"name": "kubernetes", "primaryVMSet": "pool"},
        {
            "name": "second",
            "primaryVMSet": "none",
            "nodeSelector": {"matchLabels": {"side": "second"}},
            "serviceNamespaceSelector": {"matchLabels": {"team": "a"}},
        },
    ],
}
ON_SEVERAL: Final = {
    "plain": service(port(80, 30080), load_balancer_configurations="kubernetes"),
    "other": service(port(80, 30180), load_balancer_configurations="second"),
    "chosen": service(port(80, 30380)),
    "near": service(port(80, 30580), spec={"externalTrafficPolicy": "Local"}),
    "inside": service(
        port(80, 30280),
        load_balancer_internal="true",
        load_balancer_configurations="second",
    ),
}


async def test_a_cluster_with_several_load_balancers_moves_there_and_back(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with (
        staged(control_plane, tmp_path, **SEVERAL) as stage,
        contextlib.AsyncExitStack() as stack,
    ):
        await stage.initialise()
        label = Patch(PatchType.MERGE, {"metadata": {"labels": {"side": "second"}}})
        await stage.site.client.patch(NODES, "alone-1", label)
        team = Patch(PatchType.MERGE, {"metadata": {"labels": {"team": "a"}}})
        await stage.site.client.patch(NAMESPACES, "default", team)
        slices = existing(stage.site.client, ENDPOINT_SLICES, slice_("near", "alone-1"), "default")
        await stack.enter_async_context(slices)
        theirs = stage.official(program)
        await theirs.start()
        await stage.initialised()
        await make(stage.site, ON_SEVERAL, PATIENCE)
        await settled(stage)
        before = stage.picture()
        await theirs.stop()
        mine = stage.ours()
        await mine.start()
        await make(stage.site, {"late": service(port(80, 30780))}, PATIENCE)
        await remove(stage, "late")
        await settled(stage)
        assert different(before, stage.picture()) == []
        await mine.stop()
        await theirs.start()
        await make(stage.site, {"last": service(port(80, 30880))}, PATIENCE)
        await remove(stage, "last")
        await settled(stage)
        assert different(before, stage.picture()) == []
        await theirs.stop()
