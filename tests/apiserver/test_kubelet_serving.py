"""Kubelets get the serving certificates that the cloud vouches for; others are told why not."""

import asyncio
import sys
from pathlib import Path

import pytest

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import CERTIFICATE_SIGNING_REQUESTS, NODES
from proreus.testing.manager import cloud_config
from proreus.testing.simulated import Address, Fault, FaultMode
from proreus.testing.waiting import until

from .serving_requests import approved, ask, found, let_kubelets_ask, of_node
from .site import Site, names

ON = "--controllers=*,kubelet-serving"
EVENT = "ServingCertificateNotApproved"


@pytest.fixture(autouse=True)
async def kubelets_may_ask(site: Site) -> None:
    await let_kubelets_ask(site)


async def test_new_nodes_get_certificates_without_another_question_to_the_cloud(
    site: Site,
) -> None:
    async with site.lone_manager(ON):
        await site.join(*names("node", 5))
        nodes = await site.initialised(*names("node", 5))
        before = len(await site.calls())
        asked = [await of_node(site, node) for node in nodes.values()]
        for one in asked:
            assert "simulated://" in await approved(site, one)
        assert len(await site.calls()) == before
        (written,) = {one.verb for one in site.writes("certificatesigningrequests")}
        assert written == "patch"
        assert len(site.writes("certificatesigningrequests")) == 5


async def test_one_that_asks_before_its_machine_is_known_is_served_when_it_is(site: Site) -> None:
    (machine,) = await site.machines("early")
    asked = await ask(site, "early", addresses=[machine.addresses[0].address])
    async with site.lone_manager(ON):
        await site.register([machine])
        await approved(site, asked)
    assert not await site.events(EVENT)


async def test_another_nodes_address_is_refused_and_the_event_names_it(site: Site) -> None:
    async with site.lone_manager(ON):
        await site.join("honest", "curious")
        nodes = await site.initialised("honest", "curious")
        (wanted,) = [
            one.address for one in nodes["honest"].status.addresses if one.type == "InternalIP"
        ]
        asked = await ask(site, "curious", addresses=[wanted])
        event = await site.event(EVENT, asked)
        assert wanted in event.message
        assert event.involved_object["kind"] == "CertificateSigningRequest"
        await approved(site, await of_node(site, nodes["honest"]))
        assert (await found(site, asked)).status.conditions == ()


async def test_another_nodes_address_in_the_form_of_ipv6_is_refused_too(site: Site) -> None:
    """Root on a machine lets the tools in it report that address, and some clouds repeat it."""
    async with site.lone_manager(ON):
        await site.join("honest")
        node = (await site.initialised("honest"))["honest"]
        (wanted,) = [one.address for one in node.status.addresses if one.type == "InternalIP"]
        mapped = f"::ffff:{wanted}"
        own = (Address("InternalIP", "10.77.0.1"), Address("InternalIP", mapped))
        await site.join("curious", addresses=own)
        await site.initialised("curious")
        asked = await ask(site, "curious", addresses=[mapped])
        event = await site.event(EVENT, asked)
        assert f"{wanted} as an IPv6 address" in event.message


async def test_a_kubelet_that_claims_anothers_machine_gets_nothing(site: Site) -> None:
    (machine,) = await site.machines("victim")
    id_ = f"simulated://sim-1/{machine.id}"
    async with site.lone_manager(ON):
        await site.client.create(
            NODES, {"metadata": {"name": "thief"}, "spec": {"providerID": id_}}
        )
        wanted = machine.addresses[0].address
        event = await site.event(EVENT, await ask(site, "thief", names=[], addresses=[wanted]))
        assert f"the cloud calls the machine {id_}" in event.message
        assert "not thief" in event.message


async def test_a_machine_that_two_nodes_claim_serves_neither_until_one_is_gone(site: Site) -> None:
    async with site.lone_manager(ON):
        await site.join("real")
        node = (await site.initialised("real"))["real"]
        spec = {"providerID": node.spec.provider_id}
        await site.client.create(NODES, {"metadata": {"name": "copy"}, "spec": spec})
        asked = await of_node(site, node)
        event = await site.event(EVENT, asked)
        assert "copy also has the provider id" in event.message
        await site.client.delete(NODES, "copy")
        await approved(site, asked)


async def test_what_no_kubelet_asks_for_is_refused_for_good(site: Site) -> None:
    async with site.lone_manager(ON):
        await site.join("a", "b")
        await site.initialised("a", "b")
        other = await ask(site, "a", user="system:node:b")
        assert "common name" in (await site.event(EVENT, other)).message
        usages = await ask(site, "b", usages=["digital signature", "client auth"])
        assert "usages" in (await site.event(EVENT, usages)).message


async def test_a_decision_of_somebody_else_stays(site: Site) -> None:
    await site.join("a")
    asked = await ask(site, "a")
    denied = {"type": "Denied", "status": "True", "reason": "Operator", "message": "no"}
    await site.client.patch(
        CERTIFICATE_SIGNING_REQUESTS,
        asked,
        Patch(PatchType.MERGE, {"status": {"conditions": [denied]}}),
        subresource="approval",
    )
    async with site.lone_manager(ON):
        await site.initialised("a")
        await approved(site, await ask_again(site))
    assert [one.type for one in (await found(site, asked)).status.conditions] == ["Denied"]
    assert not await site.events(EVENT)


async def ask_again(site: Site) -> str:
    """A second node's request: when it is approved, the first was looked at."""
    await site.join("b")
    await site.initialised("b")
    return await ask(site, "b")


async def test_a_cloud_that_fails_is_named_and_the_request_is_approved_later(site: Site) -> None:
    async with site.lone_manager(ON):
        await site.join("a")
        node = (await site.initialised("a"))["a"]
    await site.cloud.admin.inject(Fault(mode=FaultMode.ERROR, operation="instances.*", count=0))
    asked = await of_node(site, node)
    async with site.lone_manager(ON):
        await site.further_calls(3)
        assert (await found(site, asked)).status.conditions == ()
        await site.cloud.admin.clear_faults()
        await approved(site, asked)


async def test_without_being_named_the_controller_does_not_run(site: Site) -> None:
    async with site.lone_manager():
        await site.join("a")
        node = (await site.initialised("a"))["a"]
        asked = await of_node(site, node)
        await site.join("b")
        await site.initialised("b")
        assert (await found(site, asked)).status.conditions == ()
    asked_for = {one.object_ref.resource for one in site.audit()}
    assert "nodes" in asked_for
    assert "certificatesigningrequests" not in asked_for


async def test_it_works_with_an_account_of_its_own(site: Site) -> None:
    async with site.lone_manager(ON, "--use-service-account-credentials"):
        await site.join("a")
        node = (await site.initialised("a"))["a"]
        await approved(site, await of_node(site, node))
    writers = "system:serviceaccount:kube-system:kubelet-serving-approving-controller"

    async def is_told() -> bool:
        return bool(site.writes("certificatesigningrequests", writers))

    await until("the audit log tells who approved", is_told)


async def test_plan_and_doctor_tell_what_waits(site: Site, tmp_path: Path) -> None:
    async with site.lone_manager():
        await site.join("honest", "curious")
        nodes = await site.initialised("honest", "curious")
    good = await of_node(site, nodes["honest"])
    bad = await ask(site, "curious", addresses=["10.9.9.9"])
    cloud = tmp_path / "cloud.conf"
    cloud.write_text(cloud_config(site.cloud))
    given = (
        "--cloud-provider=simulated",
        f"--cloud-config={cloud}",
        f"--kubeconfig={site.plane.kubeconfig}",
    )
    shown = await proreus("plan", *given, ON)
    assert f"~ certificatesigningrequest/{good}\n    + Approved, for node honest" in shown
    assert f"! certificatesigningrequest/{bad} of system:node:curious: not approved" in shown
    assert "10.9.9.9" in shown
    assert good not in await proreus("plan", *given)
    found = await proreus("doctor", *given, ON, "--patience=1ms")
    assert f"kubectl certificate approve {bad}" in found


async def proreus(*command: str) -> str:
    """What a command prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proreus", *command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode()
