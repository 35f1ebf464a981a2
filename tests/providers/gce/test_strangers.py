"""What is somebody else's in the project: another controller's, an operator's, another zone's."""

import asyncio

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError, ImplementedElsewhere, InvalidRequest
from proreus.cloudprovider.load_balancers import Done, Ensured, LoadBalancer, Pending
from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceStatus,
)
from proreus.providers.gce.balancing.annotations import RBS, TIER, TYPE
from proreus.providers.gce.balancing.annotations import SUBNET as SUBNET_OF
from proreus.providers.gce.balancing.naming import described
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, REGION, SUBNET, ZONES
from .lb_site import NAME, SECOND, Balancing, balancing, lbs
from .site import PATIENT

__all__ = ["lbs"]

INTERNAL = {TYPE: "Internal"}
RANGE = "10.128.0.0/20"
ASKED = "10.128.9.9"
RULE = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}"


async def test_a_rule_of_the_controller_of_backend_services_outlives_our_cleanup(
    lbs: Balancing,
) -> None:
    """Both controllers give it the same name, which holds the Service's UID."""
    await lbs.make()
    with lbs.gce.changing(RULE) as rule:
        link = rule.pop("target")
        rule["backendService"] = link.replace("targetPools", "backendServices") + "-theirs"
        rule.pop("labels")
    assert await lbs.delete() == Done()
    assert lbs.left() == {"forwardingRules": [NAME]}
    assert await lbs.delete() == Done(found=False)
    assert lbs.left() == {"forwardingRules": [NAME]}


@pytest.mark.parametrize("annotations", [{}, INTERNAL], ids=["external", "internal"])
@pytest.mark.parametrize("is_listed", [False, True])
async def test_no_firewall_is_opened_for_the_tag_of_an_instance_that_a_node_names_falsely(
    gce: Gce, annotations: dict[str, str], *, is_listed: bool
) -> None:
    """A kubelet can name any instance of the project; all that have its tag would be let in to."""
    gce.run("bank-1", tags=("bank",))
    liar = objects.node("node-3", f"gce://{PROJECT}/{ZONES[0]}/bank-1")
    known = Objects()
    sections = PATIENT + ("[Tenants]\nallow = *=bank-1\n" if is_listed else "")
    async with balancing(gce, "", sections, nodes=known) as lbs:
        nodes = [*lbs.nodes, liar]
        known.by_key = {one.metadata.name: one for one in nodes}
        lb = lbs.desired(lbs.service(annotations=annotations), nodes)
        answer = await lbs.ensured(lb)
        rule = gce.one("firewalls", f"k8s-fw-{NAME}")
        assert rule["targetTags"] == (["bank", "node"] if is_listed else ["node"])
        if is_listed:
            assert not answer.rejected
            return
        assert "bank-1 has another name than its Node" in answer.rejected["node-3"]
        with gce.changing(f"projects/{PROJECT}/global/firewalls/k8s-fw-{NAME}") as before:
            before["targetTags"] = ["bank", "node"]
        for path, group in gce.world.of("instanceGroups"):
            if f"/{ZONES[0]}/" in path:
                group["members"].append(gce.world.link(gce.machine("bank-1")))
        assert not (await lbs.ensured(lb)).rejected, "what it has stays"


@pytest.mark.parametrize("zone", [ZONES[0], ZONES[2]], ids=["", "alone in its zone"])
async def test_no_service_takes_a_host_from_the_instance_groups_of_another_one(
    gce: Gce, zone: str
) -> None:
    """They have them in common: the firewall is opened for a host that came in before."""
    gce.run("old-3", zone=zone, tags=("old",))
    known = Objects()
    async with balancing(gce, "", PATIENT, nodes=known) as lbs:
        nodes = [*lbs.nodes, objects.node("node-3", f"gce://{PROJECT}/{zone}/old-3")]
        first = lbs.desired(lbs.service(annotations=INTERNAL), nodes)
        assert not (await lbs.ensured(first)).rejected
        known.by_key = {one.metadata.name: one for one in nodes}  # most have the Node's name
        second = lbs.desired(lbs.service(**SECOND, annotations=INTERNAL), nodes)
        assert not (await lbs.ensured(second)).rejected
        assert not (await lbs.ensured(first)).rejected
        assert "/old-3" in str([one["members"] for _, one in gce.world.of("instanceGroups")])
        for _, rule in gce.world.of("firewalls"):
            assert rule["targetTags"] == ["node", "old"]


@pytest.mark.parametrize("tags", ["", "node-tags = node\n"])
@pytest.mark.parametrize("annotations", [{}, INTERNAL], ids=["external", "internal"])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(f"{ZONES[0][:-1]}zz/node-3", id="a zone that does not exist"),
        pytest.param(f"{ZONES[0]}/{'x' * 64}", id="a name that no instance can have"),
    ],
)
async def test_a_node_in_a_place_that_cannot_be_keeps_no_service_from_the_others(
    gce: Gce, place: str, annotations: dict[str, str], tags: str
) -> None:
    liar = objects.node("node-3", f"gce://{PROJECT}/{place}")
    async with balancing(gce, tags, PATIENT) as lbs:
        lb = lbs.desired(lbs.service(annotations=annotations), [*lbs.nodes, liar])
        answer = await lbs.ensured(lb)
        assert list(answer.rejected) == ["node-3"]


@pytest.mark.parametrize("more", ["", "[LoadBalancer]\nsubsetting = true\n"])
@pytest.mark.parametrize("tags", ["", "node-tags = node\n"])
async def test_an_instance_that_a_node_names_falsely_keeps_no_other_out_of_its_group(
    gce: Gce, tags: str, more: str
) -> None:
    """All instances of a group are in one subnetwork: where nobody says it, in that of the first."""
    gce.run("bank-1")
    with gce.changing(f"projects/{PROJECT}/zones/{ZONES[0]}/instances/bank-1") as bank:
        nic = bank["networkInterfaces"][0]
        nic["subnetwork"] = nic["subnetwork"].replace("subnetworks/", "subnetworks/bank-")
    liar = objects.node("node-3", f"gce://{PROJECT}/{ZONES[0]}/bank-1")
    known = Objects()
    async with balancing(gce, tags, PATIENT + more, nodes=known) as lbs:
        nodes = [*lbs.nodes, liar]
        known.by_key = {one.metadata.name: one for one in nodes}
        lb = lbs.desired(lbs.service(annotations=INTERNAL), nodes)
        answer = await lbs.ensured(lb)
        assert list(answer.rejected) == ["node-3"]
        assert "bank-1 has another name than its Node" in answer.rejected["node-3"]
    kind, field = ("networkEndpointGroups", "endpoints") if more else ("instanceGroups", "members")
    members = [one for _, group in gce.world.of(kind) for one in group[field]]
    names = (one["instance"] if isinstance(one, dict) else one for one in members)
    assert sorted(one.rpartition("/")[2] for one in names) == ["node-1", "node-2"]


async def test_a_node_that_another_one_names_falsely_comes_into_its_group(gce: Gce) -> None:
    liar = objects.node("node-3", f"gce://{PROJECT}/{ZONES[0]}/node-1")
    known = Objects()
    async with balancing(gce, "", PATIENT, nodes=known) as lbs:
        nodes = [*lbs.nodes, liar]
        known.by_key = {one.metadata.name: one for one in nodes}
        await lbs.ensured(lbs.desired(lbs.service(annotations=INTERNAL), nodes))
    members = [one for _, group in gce.world.of("instanceGroups") for one in group["members"]]
    assert sorted(one.rpartition("/")[2] for one in members) == ["node-1", "node-2"]


async def test_an_instance_with_another_name_is_a_host_by_the_tag_that_all_nodes_have(
    gce: Gce,
) -> None:
    gce.run("nodes-of-a-former-pool")
    other = objects.node("node-3", f"gce://{PROJECT}/{ZONES[0]}/nodes-of-a-former-pool")
    known = Objects()
    async with balancing(gce, nodes=known) as lbs:
        nodes = [*lbs.nodes, other]
        known.by_key = {one.metadata.name: one for one in nodes}
        assert not (await lbs.ensured(lbs.desired(lbs.service(), nodes))).rejected


def keep(lbs: Balancing, address: str, **fields: object) -> None:
    """Reserve an address that is in use, as whoever wants to keep it does."""
    body = {"name": "kept", "address": address, "addressType": "EXTERNAL"}
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/kept"
    every = {**body, "networkTier": "PREMIUM", **fields}
    with lbs.gce.world.lock:
        lbs.gce.world.put(path, {key: one for key, one in every.items() if one is not None})


async def test_an_address_that_somebody_has_reserved_meanwhile_stays_the_service_s(
    lbs: Balancing,
) -> None:
    before = await lbs.make()
    keep(lbs, before)
    assert await lbs.make(session_affinity="ClientIP") == before
    await lbs.delete()
    assert lbs.left() == {"addresses": ["kept"]}


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({}, True),
        ({"description": described("shop/web")}, True),
        ({"description": described("shop/second")}, False),
    ],
)
async def test_it_stays_also_if_the_process_ended_while_the_rule_was_made_anew(
    lbs: Balancing, fields: dict[str, object], *, is_kept: bool
) -> None:
    before = await lbs.make()
    keep(lbs, before)
    edited = lbs.desired(lbs.service(session_affinity="ClientIP"))
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    assert isinstance(await lbs.answer(edited), CloudError)
    keep(lbs, before, **fields)
    shown = (LoadBalancerIngress(ip=before),)
    ref = msgspec.structs.replace(edited.ref, last_ingress=shown)
    answer = await lbs.ensured(msgspec.structs.replace(edited, ref=ref))
    assert (answer.ingress[0].ip == before) is is_kept


def shown(service: Service, address: str) -> Service:
    """The same Service, whose status shows an address."""
    status = ServiceStatus(LoadBalancerStatus((LoadBalancerIngress(ip=address),)))
    return msgspec.structs.replace(service, status=status)


def of_bank(service: Service) -> Service:
    meta = msgspec.structs.replace(service.metadata, namespace="bank")
    return msgspec.structs.replace(service, metadata=meta)


@pytest.mark.parametrize("annotations", [{}, INTERNAL], ids=["external", "internal"])
@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_address_of_another_namespace_is_refused_while_its_rule_is_made_anew(
    gce: Gce, annotations: dict[str, str], *, is_listed: bool
) -> None:
    """Nothing has it at that moment, and an address that an operator reserves has no mark."""
    address = ASKED if annotations else "34.10.200.200"
    inside = {"addressType": "INTERNAL", "networkTier": None, "subnetwork": gce.world.link(SUBNET)}
    known = Objects()
    sections = PATIENT + (f"[Tenants]\nallow = bank={address}\n" if is_listed else "")
    async with balancing(gce, "", sections, services=known) as lbs:
        keep(lbs, address, **(inside if annotations else {}))
        await lbs.make(annotations=annotations, load_balancer_ip=address)
        edited = lbs.service(
            (80, "TCP"), (81, "TCP"), annotations=annotations, load_balancer_ip=address
        )
        edited = shown(edited, address)
        theirs = of_bank(lbs.service(annotations=annotations, load_balancer_ip=address, **SECOND))
        known.by_key = {"shop/web": edited, "bank/second": theirs}
        gce.fail("compute.forwardingRules.insert", status=500)
        assert isinstance(await lbs.answer(lbs.desired(edited)), CloudError)
        if is_listed:
            await lbs.ensured(lbs.desired(theirs))
            return
        answer = await lbs.answer(lbs.desired(theirs))
        assert isinstance(answer, InvalidRequest)
        assert "shop/web" in str(answer)
        assert (await lbs.ensured(lbs.desired(edited))).ingress[0].ip == address


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_internal_address_of_another_namespace_is_refused_while_nothing_has_it(
    gce: Gce, *, is_listed: bool
) -> None:
    """It need not be reserved; somebody has deleted the forwarding rule, which is made anew."""
    known = Objects()
    sections = PATIENT + (f"[Tenants]\nallow = bank={ASKED}\n" if is_listed else "")
    async with balancing(gce, "", sections, services=known) as lbs:
        own = shown(lbs.service(annotations=INTERNAL, load_balancer_ip=ASKED), ASKED)
        theirs = of_bank(lbs.service(annotations=INTERNAL, load_balancer_ip=ASKED, **SECOND))
        known.by_key = {"shop/web": own, "bank/second": theirs}
        answer = await lbs.answer(lbs.desired(theirs))
        if is_listed:
            assert isinstance(answer, Ensured)
            return
        assert isinstance(answer, InvalidRequest)
        assert "shop/web" in str(answer)
        assert (await lbs.ensured(lbs.desired(own))).ingress[0].ip == ASKED


def keep_elsewhere(lbs: Balancing, address: str) -> None:
    """Reserve an address of the same value in another network, whose subnetworks have its ranges.

    All networks of Google's automatic mode have the same ranges.
    """
    network = lbs.gce.world.link(f"projects/{PROJECT}/global/networks/other")
    subnet = f"projects/{PROJECT}/regions/{REGION}/subnetworks/other"
    with lbs.gce.world.lock:
        lbs.gce.world.put(subnet, {"name": "other", "ipCidrRange": RANGE, "network": network})
    link, internal = lbs.gce.world.link(subnet), "INTERNAL"
    keep(lbs, address, addressType=internal, networkTier="", subnetwork=link)
    user = {"name": "theirs", "loadBalancingScheme": internal, "subnetwork": link}
    with lbs.gce.world.lock:
        path = RULE.replace(NAME, "theirs")
        lbs.gce.world.put(path, {**user, "IPAddress": address, "IPProtocol": "TCP"})


async def test_an_address_of_another_network_holds_none_of_ours(lbs: Balancing) -> None:
    before = await lbs.make(annotations=INTERNAL)
    keep_elsewhere(lbs, before)
    lbs.gce.calls.clear()
    assert await lbs.make((80, "TCP"), (81, "TCP"), annotations=INTERNAL) == before
    calls = [one.removeprefix("compute.") for one in lbs.gce.writes()]
    assert calls.index("addresses.insert") < calls.index("forwardingRules.delete")


async def test_an_address_that_is_reserved_in_another_network_may_be_asked_for(
    lbs: Balancing,
) -> None:
    keep_elsewhere(lbs, ASKED)
    assert await lbs.make(annotations=INTERNAL, load_balancer_ip=ASKED) == ASKED


async def test_a_tier_that_is_not_asked_for_any_more_stays_with_its_address(
    lbs: Balancing,
) -> None:
    before = await lbs.make(annotations={TIER: "Standard"})
    assert await lbs.make((80, "TCP"), (81, "TCP")) == before
    assert lbs.gce.one("forwardingRules", NAME)["networkTier"] == "STANDARD"
    assert "addresses" not in lbs.left()


async def made_with_reserved(lbs: Balancing, address: str) -> LoadBalancer:
    """The Service that names a reserved address, has it, and shows it."""
    keep(lbs, address)
    assert await lbs.make(load_balancer_ip=address) == address
    return lbs.desired(shown(lbs.service(load_balancer_ip=address), address))


async def test_a_reserved_address_that_somebody_has_given_to_others_is_shown_no_more_by_who_names_it(
    lbs: Balancing,
) -> None:
    """The forwarding rule was deleted by hand, and nodes would lead the other one's clients here."""
    address = "34.10.200.200"
    named = await made_with_reserved(lbs, address)
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    theirs = {"name": "theirs", "loadBalancingScheme": "EXTERNAL", "IPProtocol": "TCP"}
    with lbs.gce.world.lock:
        lbs.gce.world.drop(RULE)
    free = await lbs.answer(named)
    assert isinstance(free, CloudError)
    assert not free.disowns
    with lbs.gce.world.lock:
        lbs.gce.world.put(RULE.replace(NAME, "theirs"), {**theirs, "IPAddress": address})
    taken = await lbs.answer(named)
    assert isinstance(taken, InvalidRequest)
    assert "theirs has it" in str(taken)
    assert taken.disowns


@pytest.mark.parametrize("theirs", ["theirs", NAME, "k8s2-tcp-6vqfkwpz-shop-web-d4ma7wbx"])
async def test_nor_by_who_leaves_the_service_to_another_controller(
    lbs: Balancing, theirs: str
) -> None:
    """An annotation suffices for that, whether there is such a controller or not."""
    address = "34.10.200.200"
    await made_with_reserved(lbs, address)
    away = {"annotations": {RBS: "enabled"}, "load_balancer_ip": address}
    left = lbs.desired(shown(lbs.service(**away), address))  # type: ignore[arg-type]
    for rule in (NAME, ""):
        answer = await lbs.answer(left)
        assert isinstance(answer, ImplementedElsewhere)
        assert not answer.disowns
        with lbs.gce.world.lock:
            if rule:
                lbs.gce.world.drop(RULE)
    rule_of_others = {
        "name": theirs, "loadBalancingScheme": "EXTERNAL", "IPProtocol": "TCP", "IPAddress": address,
    }  # fmt: skip
    with lbs.gce.world.lock:
        lbs.gce.world.put(RULE.replace(NAME, theirs), rule_of_others)
    answer = await lbs.answer(left)
    assert isinstance(answer, ImplementedElsewhere)
    assert answer.disowns is (theirs == "theirs")


async def test_an_address_that_is_not_reserved_any_more_is_shown_no_more_by_who_names_it(
    lbs: Balancing,
) -> None:
    """Outside, Google gives it to any project, and shows nobody who has it."""
    address = "34.10.200.200"
    named = await made_with_reserved(lbs, address)
    with lbs.gce.world.lock:
        lbs.gce.world.drop(RULE)
        for path in [path for path, _ in lbs.gce.world.of("addresses")]:
            lbs.gce.world.drop(path)
    gone = await lbs.answer(named)
    assert isinstance(gone, InvalidRequest)
    assert "it is not reserved" in str(gone)
    assert gone.disowns
    keep(lbs, address)
    assert (await lbs.ensured(named)).ingress[0].ip == address


async def test_an_internal_address_that_a_machine_has_by_now_is_shown_no_more_by_who_names_it(
    lbs: Balancing,
) -> None:
    """No reservation shows it: Google says so where it refuses the forwarding rule."""
    address = await lbs.make(annotations=INTERNAL)
    named = lbs.desired(shown(lbs.service(annotations=INTERNAL, load_balancer_ip=address), address))
    lbs.gce.run("taker")
    with lbs.gce.world.lock:
        lbs.gce.world.drop(RULE)
        (nic,) = lbs.gce.world.objects[lbs.gce.machine("taker")]["networkInterfaces"]
        former, nic["networkIP"] = nic["networkIP"], address
    taken = await lbs.answer(named)
    assert isinstance(taken, CloudError)
    assert "already being used" in str(taken)
    assert taken.disowns
    with lbs.gce.world.lock:
        nic["networkIP"] = former
    assert (await lbs.ensured(named)).ingress[0].ip == address


SUBSETS = f"{PATIENT}[LoadBalancer]\nsubsetting = true\n"
NOWHERE = {**INTERNAL, SUBNET_OF: "nowhere"}


@pytest.mark.parametrize("before", [INTERNAL, {}], ids=["internal", "external"])
@pytest.mark.parametrize("is_named", [False, True])
async def test_an_address_that_is_given_up_is_shown_no_more_though_the_next_one_cannot_be_made(
    gce: Gce, before: dict[str, str], *, is_named: bool
) -> None:
    """Google gives it to whoever comes next; nodes would lead their clients to who shows it."""
    known = Objects()
    async with balancing(gce, services=known) as lbs:
        address = await lbs.make(annotations=before)
        asked = {"load_balancer_ip": address} if is_named and before else {}
        stuck = shown(lbs.service(annotations=NOWHERE, **asked), address)
        known.by_key = {"shop/web": stuck}
        first = await lbs.answer(lbs.desired(stuck))
        assert isinstance(first, CloudError)
        theirs = of_bank(lbs.service(annotations=before, **SECOND))
        assert (await lbs.ensured(lbs.desired(theirs))).ingress[0].ip == address
        known.by_key["bank/second"] = shown(theirs, address)
        again = await lbs.answer(lbs.desired(stuck))
        assert isinstance(again, CloudError)
        assert [first.disowns, again.disowns] == [not asked, True]
        await lbs.delete(**SECOND)
        await lbs.make()
        made = lbs.left()
        await lbs.delete()
        assert lbs.left() == {}
        await lbs.make()
        assert lbs.left() == made


@pytest.mark.parametrize("sections", [PATIENT, SUBSETS], ids=["backend", "subset"])
async def test_an_address_that_is_given_up_is_shown_no_more_though_its_other_parts_stay(
    gce: Gce, sections: str
) -> None:
    """The forwarding rule goes first, and with it the address; until then it is shown."""
    async with balancing(gce, "", sections) as lbs:
        address = await lbs.make()
        wrong = lbs.service(annotations=INTERNAL, load_balancer_ip=address)
        refused = await lbs.answer(lbs.desired(shown(wrong, address)))
        inside = shown(lbs.service(annotations=INTERNAL), address)
        gce.fail("compute.forwardingRules.delete", status=500)
        kept = await lbs.answer(lbs.desired(inside))
        for answer in (refused, kept):
            assert isinstance(answer, CloudError)
            assert not answer.disowns
        for _ in range(2):
            gce.fail("compute.firewalls.delete", status=500)
            answer = await lbs.answer(lbs.desired(inside))
            assert isinstance(answer, CloudError)
            assert "forwardingRules" not in lbs.left()
            assert answer.disowns
        assert (await lbs.ensured(lbs.desired(inside))).ingress[0].ip != address


@pytest.mark.parametrize("before", [{}, INTERNAL], ids=["external", "internal"])
@pytest.mark.parametrize("sections", [PATIENT, SUBSETS], ids=["backend", "subset"])
async def test_a_service_that_goes_shows_no_address_while_its_other_parts_stay(
    gce: Gce, sections: str, before: dict[str, str]
) -> None:
    """Google has given the address to another one, whose clients nodes would lead to it."""
    async with balancing(gce, "", sections) as lbs:
        address = await lbs.make(annotations=before)
        ref = lbs.desired(shown(lbs.service(annotations=before), address)).ref
        for part, disowns in (("forwardingRules", False), ("firewalls", True)):
            gce.fail(f"compute.{part}.delete", status=500)
            answer = (await lbs.verbs.delete([ref]))[ref.uid]
            assert isinstance(answer, CloudError)
            assert answer.disowns == disowns
        theirs = of_bank(lbs.service(annotations=before, **SECOND))
        assert (await lbs.ensured(lbs.desired(theirs))).ingress[0].ip == address
        assert await lbs.deleted(ref) == Done()


async def test_an_address_that_is_given_up_is_shown_no_more_while_google_works_on_the_next_one(
    gce: Gce,
) -> None:
    async with balancing(gce, "", "[Client]\noperation-timeout = 100ms\n") as lbs:
        address = await lbs.make()
        inside = lbs.desired(shown(lbs.service(annotations=INTERNAL), address))
        gce.world.latency = 0.3
        answers = [await lbs.answer(inside)]
        while not (isinstance(answers[-1], Pending) and answers[-1].withdrawn):
            answers.append(await lbs.answer(inside))
        assert len(answers) > 1
        assert all(isinstance(one, Pending) for one in answers)
        assert address not in {one.get("IPAddress") for one in gce.world.objects.values()}
        gce.world.latency = 0.0
        assert (await lbs.ensured(inside)).ingress[0].ip != address


async def test_an_address_that_is_kept_stays_in_the_status_while_its_rule_cannot_be_made(
    lbs: Balancing,
) -> None:
    before = await lbs.make(annotations=INTERNAL)
    edited = shown(lbs.service((80, "TCP"), (81, "TCP"), annotations=INTERNAL), before)
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    answer = await lbs.answer(lbs.desired(edited))
    assert isinstance(answer, CloudError)
    assert not answer.disowns
    assert (await lbs.ensured(lbs.desired(edited))).ingress[0].ip == before


@pytest.mark.parametrize(
    "sections", [PATIENT, "[Client]\noperation-timeout = 50ms\n"], ids=["patient", "impatient"]
)
async def test_of_two_namespaces_that_name_one_address_at_once_the_first_one_has_it(
    gce: Gce, sections: str
) -> None:
    """Google lets several rules share a reserved address, and shows who has it only afterwards."""
    address = "34.10.200.200"
    async with balancing(gce, "", sections) as lbs:
        keep(lbs, address)
        gce.world.latency = 0.15
        rivals = [
            lbs.service(load_balancer_ip=address),
            of_bank(lbs.service((443, "TCP"), load_balancer_ip=address, **SECOND)),  # type: ignore[arg-type]
        ]
        answers = await asyncio.gather(
            *(lbs.ensured(lbs.desired(one)) for one in rivals), return_exceptions=True
        )
        assert {type(one) for one in answers} == {Ensured, InvalidRequest}, answers
        assert len(gce.names("forwardingRules")) == 1
