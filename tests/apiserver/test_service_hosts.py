"""Hosts of load balancers follow the nodes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.kube.objects import LABEL_EXCLUDE_LB
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Fault, FaultMode

from .service_site import ServiceSite, answers, said, service_site


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ServiceSite]:
    async with service_site(control_plane, tmp_path) as site:
        yield site


async def test_a_host_that_the_cloud_rejects_does_not_block_the_others(site: ServiceSite) -> None:
    (machine,) = await site.add_machines(1)
    await site.add_node(machine)
    await site.cloud.admin.delete(machine.id)  # the Node is still there
    name = await site.create()

    told = await site.when_said(name, "HostsRejected", machine.name)

    assert said(told)[0] == "True"
    assert await answers(told.status.load_balancer.ingress[0].ip) in {"node-1", "node-2"}
    assert await site.hosts(told) == {"node-1", "node-2"}
    events = await site.events(told, settle="HostsRejected")
    assert events.count(("Warning", "HostsRejected")) == 1


async def test_hosts_follow_the_nodes(site: ServiceSite) -> None:
    name = await site.create()
    await site.ready(name)
    everyone = {"node-1", "node-2"}
    await site.when_hosts(name, everyone)

    (machine,) = await site.add_machines(1)
    await site.add_node(machine)
    await site.when_hosts(name, {*everyone, "node-3"})

    for value, hosts in (("true", {"node-1", "node-3"}), ("false", {*everyone, "node-3"})):
        await site.patch_node("node-2", {"metadata": {"labels": {LABEL_EXCLUDE_LB: value}}})
        await site.when_hosts(name, hosts)

    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    await site.patch_node("node-3", {"spec": {"taints": [taint]}})
    await site.when_hosts(name, everyone)

    await site.delete_node("node-2")
    await site.when_hosts(name, {"node-1"})
    service = await site.get(name)
    assert said(service)[:2] == ("True", "Ensured")


async def test_a_node_becomes_a_host_when_its_provider_id_is_set(site: ServiceSite) -> None:
    name = await site.create()
    await site.ready(name)
    (machine,) = await site.add_machines(1)
    await site.add_node(machine, with_id=False)
    (fence,) = await site.add_machines(1)
    await site.add_node(fence)
    await site.when_hosts(name, {"node-1", "node-2", fence.name})

    await site.initialise(machine)

    await site.when_hosts(name, {"node-1", "node-2", fence.name, machine.name})


async def test_a_service_without_hosts_reports_that_and_gets_its_first_at_once(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with service_site(control_plane, tmp_path, nodes=0) as site:
        name = await site.create()
        lonely = await site.when_said(name, "NoHosts")
        assert said(lonely)[0] == "False"
        address = lonely.status.load_balancer.ingress[0].ip
        events = await site.events(lonely, settle="UnAvailableLoadBalancer")
        assert events.count(("Warning", "UnAvailableLoadBalancer")) == 1

        (machine,) = await site.add_machines(1)
        await site.add_node(machine)

        assert await site.ready(name) == address
        assert await answers(address) == machine.name
        assert (await site.calls())["load_balancers.add_targets"] == 1
        await site.events(lonely, settle="UpdatedLoadBalancer")

        await site.delete_node(machine.name)

        assert said(await site.when_said(name, "NoHosts"))[0] == "False"
        await site.when_hosts(name, set())


async def test_an_update_of_hosts_that_fails_is_reported_and_tried_again(
    site: ServiceSite,
) -> None:
    name = await site.create()
    address = await site.ready(name)
    fault = Fault(FaultMode.ERROR, operation="load_balancers.add_targets", count=2)
    await site.cloud.admin.inject(fault)
    (machine,) = await site.add_machines(1)

    await site.add_node(machine)

    failed = await site.when_said(name, "CloudError", "injected failure")
    assert failed.status.load_balancer.ingress[0].ip == address
    assert await answers(address)
    await site.ready(name)
    await site.when_hosts(name, {"node-1", "node-2", machine.name})
    events = await site.events(failed, settle="SyncLoadBalancerFailed")
    warnings = [reason for type_, reason in events if type_ == "Warning"]
    # The update once, and the ensure by which it was tried again.
    assert warnings == ["UpdateLoadBalancerFailed", "SyncLoadBalancerFailed"]
