"""The emulator is spoken to by a client that is not ours: `cs`, of the same API."""

import asyncio
from typing import Any

import pytest
from cs import CloudStack, CloudStackApiException

from .emulator.server import Emulator
from .lb_site import LBSite


async def told(emulator: Emulator, command: str, **parameters: Any) -> Any:
    """What `cs` returns; it waits for jobs and reads all pages if it is asked to."""
    client = CloudStack(
        endpoint=emulator.url, key=emulator.key, secret=emulator.secret, poll_interval=0.05,
        method="post", job_timeout=30,
    )  # fmt: skip
    return await asyncio.to_thread(getattr(client, command), **parameters)


async def test_cs_lists_machines_page_by_page(emulator: Emulator) -> None:
    emulator.page = 3
    names = [f"node-{number}" for number in range(8)]
    emulator.world.add_machines(names, emulator.world.add_network())
    found = await told(emulator, "listVirtualMachines", fetch_list=True, pagesize=3)
    assert [one["name"] for one in found] == names


async def test_cs_makes_a_load_balancer_by_jobs_and_takes_it_away(emulator: Emulator) -> None:
    emulator.rights = None
    emulator.world.works = 0.1
    site = LBSite(emulator)
    ip = await told(emulator, "associateIpAddress", networkid=site.network, fetch_result=True)
    id_ = ip["ipaddress"]["id"]
    made = await told(
        emulator, "createLoadBalancerRule", publicipid=id_, networkid=site.network, name="by hand",
        algorithm="roundrobin", publicport=80, privateport=8080, openfirewall=True,
        cidrlist=["192.0.2.0/24", "198.51.100.0/24"], fetch_result=True,
    )  # fmt: skip
    rule = made["loadbalancer"]["id"]
    await told(
        emulator, "assignToLoadBalancerRule", id=rule, virtualmachineids=site.machines,
        fetch_result=True,
    )  # fmt: skip
    tags = {"resourcetype": "LoadBalancer", "resourceids": rule, "fetch_result": True}
    await told(emulator, "createTags", **tags, tags=[{"key": "a/b", "value": "*_ +ü"}])
    (shown,) = await told(emulator, "listLoadBalancerRules", fetch_list=True)
    assert shown["cidrlist"] == "192.0.2.0/24 198.51.100.0/24"
    assert shown["tags"] == [{"key": "a/b", "value": "*_ +ü"}]
    await told(
        emulator, "createLBStickinessPolicy", lbruleid=rule, name="by hand", fetch_result=True,
        methodname="SourceBased", param=[{"name": "expire", "value": "30m"}],
    )  # fmt: skip
    (sticky,) = await told(emulator, "listLBStickinessPolicies", lbruleid=rule, fetch_list=True)
    assert [one["params"] for one in sticky["stickinesspolicy"]] == [{"expire": "30m"}]
    members = await told(emulator, "listLoadBalancerRuleInstances", id=rule, fetch_list=True)
    assert {one["id"] for one in members} == set(site.machines)
    await told(emulator, "disassociateIpAddress", id=id_, fetch_result=True)
    assert site.is_empty()


@pytest.mark.parametrize(
    ("command", "parameters", "code"),
    [
        ("listVirtualMachines", {"id": "2e8c1f0a-0000-4000-8000-000000000000"}, 431),
        ("listVirtualMachines", {"pagesize": 3}, 431),
        ("deleteLoadBalancerRule", {}, 431),
        ("deployVirtualMachine", {}, 432),
    ],
)
async def test_cs_is_told_errors_as_cloudstack_tells_them(
    emulator: Emulator, command: str, parameters: dict[str, Any], code: int
) -> None:
    with pytest.raises(CloudStackApiException) as refused:
        await told(emulator, command, **parameters)
    assert refused.value.error["errorcode"] == code


async def test_a_wrong_secret_of_cs_is_refused(emulator: Emulator) -> None:
    good, emulator.secret = emulator.secret, "another"
    client = CloudStack(endpoint=emulator.url, key=emulator.key, secret=good)
    with pytest.raises(CloudStackApiException) as refused:
        await asyncio.to_thread(client.listVirtualMachines)
    assert refused.value.error["errorcode"] == 401
