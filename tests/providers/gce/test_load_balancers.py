"""Load balancers: their parts in the project, what is asked for them, and what goes wrong."""

import pytest

from proreus.cloudprovider.errors import CloudError, ImplementedElsewhere, InvalidRequest
from proreus.cloudprovider.identity import MARK_FINGERPRINT, ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Ensured, Pending
from proreus.cloudprovider.mark_forms import LABELS
from proreus.kube.objects import ConfigMap, ObjectMeta
from proreus.providers.gce.balancing.annotations import (
    EXTERNAL_ELSEWHERE,
    GLOBAL_ACCESS,
    INTERNAL_BEFORE,
    INTERNAL_ELSEWHERE,
    RBS,
    SHARE,
    TIER,
    TYPE,
)
from proreus.providers.gce.flags import FLAGS, RANGES, RBS_DEFAULT
from proreus.providers.gce.identity import CONFIG_MAP, NEED, ClusterId
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, REGION, ZONES
from .lb_site import NAME, SECOND, UID, Balancing, balancing, lbs
from .site import CLUSTER, config_text, context, started

__all__ = ["lbs"]

INTERNAL = {TYPE: "Internal"}
ID = ClusterId(context(), "").value()
STATIC = "34.10.200.200"


async def test_an_external_one_as_the_official_manager_makes_it(lbs: Balancing) -> None:
    address = await lbs.make()
    assert lbs.left() == {
        "firewalls": [f"k8s-{ID}-node-http-hc", f"k8s-fw-{NAME}"],
        "forwardingRules": [NAME],
        "httpHealthChecks": [f"k8s-{ID}-node"],
        "targetPools": [NAME],
    }
    rule = lbs.gce.one("forwardingRules", NAME)
    assert rule["IPAddress"] == address
    assert rule["description"] == '{"kubernetes.io/service-name":"shop/web"}'
    assert rule["portRange"] == "80-80"
    assert rule["labels"]["proreus-service-uid"] == UID
    pool = lbs.gce.one("targetPools", NAME)
    assert sorted(link.rpartition("/")[2] for link in pool["instances"]) == ["node-1", "node-2"]
    firewall = lbs.gce.one("firewalls", f"k8s-fw-{NAME}")
    assert firewall["targetTags"] == ["node"]
    assert firewall["destinationRanges"] == [address]


async def test_it_costs_six_changes_and_at_rest_no_change(lbs: Balancing) -> None:
    await lbs.make()
    assert lbs.gce.writes() == [
        *("compute.httpHealthChecks.insert", "compute.firewalls.insert"),
        *("compute.targetPools.insert", "compute.forwardingRules.insert"),
        *("compute.firewalls.insert", "compute.forwardingRules.setLabels"),
    ]
    lbs.gce.requests.clear()
    lbs.gce.calls.clear()
    await lbs.make()
    assert lbs.gce.writes() == []
    assert len(lbs.gce.calls) == 8


async def test_deletion_leaves_nothing(lbs: Balancing) -> None:
    await lbs.make()
    assert (await lbs.delete()).found
    assert lbs.left() == {}
    assert not (await lbs.delete()).found


async def test_what_others_share_stays_until_the_last_one_goes(lbs: Balancing) -> None:
    await lbs.make()
    await lbs.make(**SECOND)
    await lbs.delete()
    assert lbs.left()["httpHealthChecks"] == [f"k8s-{ID}-node"]
    await lbs.delete(**SECOND)
    assert lbs.left() == {}


@pytest.mark.parametrize(
    "edit",
    [
        {"ports": ((80, "TCP"), (443, "TCP"))},
        {"ports": ((80, "UDP"),)},
        {"ports": ((80, "TCP"), (53, "UDP"))},
        {"session_affinity": "ClientIP"},
        {"external_traffic_policy": "Local", "health_check_node_port": 32000},
    ],
)
@pytest.mark.parametrize("annotations", [{}, INTERNAL])
async def test_an_edit_keeps_the_address(
    lbs: Balancing, edit: dict[str, object], annotations: dict[str, str]
) -> None:
    before = await lbs.make(annotations=annotations)
    ports = edit.pop("ports", ())
    after = await lbs.make(*ports, annotations=annotations, **edit)  # type: ignore[misc]
    edit["ports"] = ports
    assert after == before
    assert "addresses" not in lbs.left()


async def test_two_protocols_share_a_reserved_address_and_go_with_all_their_rules(
    lbs: Balancing,
) -> None:
    mixed = ((53, "TCP"), (53, "UDP"))
    reserve(lbs.gce)
    assert await lbs.make(*mixed, load_balancer_ip=STATIC) == STATIC
    assert lbs.left()["forwardingRules"] == [NAME, f"{NAME}-udp"]
    assert await lbs.make(*mixed) == STATIC
    await lbs.make(*mixed, annotations=INTERNAL)
    assert lbs.left()["forwardingRules"] == [NAME]
    await lbs.make(*mixed)
    await lbs.delete()
    assert lbs.left() == {"addresses": ["fixed"]}


async def test_a_process_that_ended_while_it_made_the_second_rule_leaves_no_address(
    lbs: Balancing,
) -> None:
    before = await lbs.make((53, "TCP"))
    mixed = lbs.desired(lbs.service((53, "TCP"), (53, "UDP")))
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    assert isinstance(await lbs.answer(mixed), CloudError)
    assert lbs.gce.one("addresses", NAME)["address"] == before
    assert (await lbs.ensured(mixed)).ingress[0].ip == before
    assert "addresses" not in lbs.left()


async def test_a_process_that_ended_in_the_middle_leaves_what_the_next_one_takes_up(
    lbs: Balancing,
) -> None:
    before = await lbs.make()
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    edited = lbs.desired(lbs.service((80, "TCP"), (443, "TCP")))
    assert isinstance(await lbs.answer(edited), CloudError)
    assert lbs.gce.one("addresses", NAME)["address"] == before
    assert "forwardingRules" not in lbs.left()
    assert (await lbs.ensured(edited)).ingress[0].ip == before
    assert "addresses" not in lbs.left()


async def test_a_lost_answer_makes_nothing_twice(lbs: Balancing) -> None:
    for method in ("httpHealthChecks", "targetPools", "forwardingRules", "firewalls"):
        lbs.gce.fail(f"compute.{method}.insert", status=0, after=True)
    wanted = lbs.desired(lbs.service())
    for _ in range(6):
        answer = await lbs.answer(wanted)
    assert isinstance(answer, Ensured)
    assert len(lbs.left()["forwardingRules"]) == 1
    await lbs.delete()
    assert lbs.left() == {}


async def test_operations_that_take_time_are_waited_for(lbs: Balancing) -> None:
    lbs.gce.world.latency = 0.05
    await lbs.make()
    assert "compute.regionOperations.wait" in lbs.gce.calls
    await lbs.delete()
    assert lbs.left() == {}


async def test_an_operation_that_takes_longer_is_pending(gce: Gce) -> None:
    async with balancing(gce, "", "[Client]\noperation-timeout = 100ms\n") as site:
        gce.world.latency = 0.4
        wanted = site.desired(site.service())
        answers = [await site.answer(wanted) for _ in range(2)]
        assert all(isinstance(one, Pending) for one in answers), answers
        gce.world.latency = 0.0
        await site.ensured(wanted)


async def test_the_error_of_an_operation_is_told(lbs: Balancing) -> None:
    lbs.gce.world.latency = 0.05
    wanted = lbs.desired(lbs.service(load_balancer_ip=STATIC))
    answer = await lbs.answer(wanted)
    assert isinstance(answer, InvalidRequest)
    assert "is not reserved in the region" in str(answer)


def reserve(gce: Gce, **fields: str) -> None:
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/fixed"
    body = {"name": "fixed", "address": STATIC, "addressType": "EXTERNAL", "networkTier": "PREMIUM"}
    with gce.world.lock:
        gce.world.put(path, {**body, **fields})


async def test_a_reserved_address_is_used_and_stays_reserved(lbs: Balancing) -> None:
    reserve(lbs.gce)
    assert await lbs.make() != STATIC
    assert await lbs.make(load_balancer_ip=STATIC) == STATIC
    assert await lbs.make((80, "TCP"), (81, "TCP"), load_balancer_ip=STATIC) == STATIC
    await lbs.delete()
    assert lbs.left() == {"addresses": ["fixed"]}


async def test_a_reserved_address_of_another_service_is_refused(lbs: Balancing) -> None:
    reserve(lbs.gce)
    await lbs.make(load_balancer_ip=STATIC)
    taken = lbs.desired(lbs.service(load_balancer_ip=STATIC, **SECOND))  # type: ignore[arg-type]
    answer = await lbs.answer(taken)
    assert isinstance(answer, InvalidRequest)
    assert f"{NAME} has it" in str(answer)


@pytest.mark.parametrize("annotations", [{}, INTERNAL])
async def test_the_own_health_check_of_local_traffic_goes_with_it(
    lbs: Balancing, annotations: dict[str, str]
) -> None:
    await lbs.make(annotations=annotations)
    before = lbs.left()
    local = {"external_traffic_policy": "Local", "health_check_node_port": 32000}
    await lbs.make(annotations=annotations, **local)
    assert lbs.left() != before
    await lbs.make(annotations=annotations)
    assert lbs.left() == before


async def test_a_standard_tier_is_one_and_another_makes_it_anew(lbs: Balancing) -> None:
    first = await lbs.make(annotations={TIER: "Standard"})
    assert lbs.gce.one("forwardingRules", NAME)["networkTier"] == "STANDARD"
    second = await lbs.make(annotations={TIER: "Premium"})
    assert lbs.gce.one("forwardingRules", NAME)["networkTier"] == "PREMIUM"
    assert first != second


async def test_an_internal_one_as_the_official_manager_makes_it(lbs: Balancing) -> None:
    address = await lbs.make(annotations=INTERNAL)
    assert address.startswith("10.128.")
    assert lbs.left() == {
        "backendServices": [NAME],
        "firewalls": [f"k8s-{ID}-node-hc", f"k8s-fw-{NAME}"],
        "forwardingRules": [NAME],
        "healthChecks": [f"k8s-{ID}-node"],
        "instanceGroups": [f"k8s-ig--{ID}"] * 2,
    }
    rule = lbs.gce.one("forwardingRules", NAME)
    assert (rule["loadBalancingScheme"], rule["ports"]) == ("INTERNAL", ["80"])
    await lbs.make(annotations={**INTERNAL, GLOBAL_ACCESS: "true"})
    assert lbs.gce.one("forwardingRules", NAME)["allowGlobalAccess"]
    await lbs.delete()
    assert lbs.left() == {}


async def test_internal_ones_made_side_by_side_share_the_groups(lbs: Balancing) -> None:
    uids = [f"5e0{number}aaaa-0000-4000-8000-000000000000" for number in range(5)]
    wanted = [
        lbs.desired(lbs.service(name=f"s-{number}", uid=uid, annotations=INTERNAL))
        for number, uid in enumerate(uids)
    ]
    import asyncio  # noqa: PLC0415

    await asyncio.gather(*(lbs.ensured(one) for one in wanted))
    assert len(lbs.left()["backendServices"]) == 5
    await asyncio.gather(*(lbs.deleted(one.ref) for one in wanted))
    assert lbs.left() == {}


async def test_one_deleted_beside_one_that_is_made_takes_nothing_from_it(lbs: Balancing) -> None:
    import asyncio  # noqa: PLC0415

    second = lbs.desired(lbs.service(**SECOND))  # type: ignore[arg-type]
    for _ in range(5):
        await lbs.make()
        lbs.gce.world.latency = 0.01
        await asyncio.gather(lbs.delete(), lbs.ensured(second))
        assert f"k8s-{ID}-node-http-hc" in lbs.left()["firewalls"]
        assert f"k8s-{ID}-node" in lbs.left()["httpHealthChecks"]
        lbs.gce.world.latency = 0.0
        await lbs.deleted(second.ref)
        assert lbs.left() == {}


async def test_a_backend_service_is_shared_by_those_that_ask_for_it(lbs: Balancing) -> None:
    shared = {**INTERNAL, SHARE: "true"}
    await lbs.make(annotations=shared)
    await lbs.make((443, "TCP"), annotations=shared, **SECOND)
    assert len(lbs.left()["backendServices"]) == 1
    await lbs.delete()
    assert len(lbs.left()["backendServices"]) == 1
    await lbs.delete(**SECOND)
    assert lbs.left() == {}


async def test_from_external_to_internal_and_back(lbs: Balancing) -> None:
    await lbs.make()
    assert (await lbs.make(annotations=INTERNAL)).startswith("10.")
    assert "targetPools" not in lbs.left()
    assert not (await lbs.make()).startswith("10.")
    left = lbs.left()
    assert not {"backendServices", "instanceGroups", "healthChecks"} & left.keys()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"annotations": {RBS: "enabled"}}, RBS),
        *(({"finalizers": [one]}, one) for one in EXTERNAL_ELSEWHERE),
        ({"annotations": INTERNAL, "finalizers": [INTERNAL_ELSEWHERE]}, INTERNAL_ELSEWHERE),
    ],
)
async def test_what_another_controller_makes_is_left_to_it(
    lbs: Balancing, fields: dict[str, object], why: str
) -> None:
    answer = await lbs.answer(lbs.desired(lbs.service(**fields)))  # type: ignore[arg-type]
    assert isinstance(answer, ImplementedElsewhere)
    assert why in str(answer)
    assert lbs.left() == {}


async def test_a_rule_that_leads_to_a_backend_service_is_another_controller_s(
    lbs: Balancing,
) -> None:
    await lbs.make()
    with lbs.gce.changing(f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}") as rule:
        rule["backendService"] = rule.pop("target").replace(NAME, "k8s2-theirs")
    assert isinstance(await lbs.answer(lbs.desired(lbs.service())), ImplementedElsewhere)


async def test_with_subsets_only_internal_ones_from_before_are_ours(gce: Gce) -> None:
    async with balancing(gce, "alpha-features = ILBSubsets") as site:
        new = site.desired(site.service(annotations=INTERNAL))
        assert isinstance(await site.answer(new), ImplementedElsewhere)
        await site.make(annotations=INTERNAL, finalizers=[INTERNAL_BEFORE])


async def test_by_a_flag_new_external_ones_are_left_to_the_other_controller(gce: Gce) -> None:
    with_flag = context()
    with_flag.flags = {RBS_DEFAULT: True}
    async with balancing(gce) as site:
        await site.make()
        async with started(config_text(gce), with_flag) as provider:
            assert provider.load_balancers is not None
            old, new = site.service(), site.service(**SECOND)  # type: ignore[arg-type]
            wanted = [site.desired(old), site.desired(new)]
            answers = await provider.load_balancers.ensure(wanted)
            assert isinstance(answers[wanted[0].ref.uid], Ensured)
            assert isinstance(answers[wanted[1].ref.uid], ImplementedElsewhere)


def test_flags_are_read_as_go_reads_them() -> None:
    assert FLAGS[RANGES].parse("10.0.0.0/8, 192.0.2.1/24") == ("10.0.0.0/8", "192.0.2.0/24")
    assert FLAGS[RBS_DEFAULT].parse("T")
    for flag, text in ((RANGES, "x"), (RBS_DEFAULT, "yes")):
        with pytest.raises(ValueError, match=r"must be|does not appear"):
            FLAGS[flag].parse(text)


async def test_without_the_care_of_groups_those_there_are_serve(gce: Gce) -> None:
    async with balancing(gce, "alpha-features = SkipIGsManagement") as site:
        path = f"projects/{PROJECT}/zones/{ZONES[0]}/instanceGroups/k8s-ig--{ID}"
        with gce.world.lock:
            gce.world.put(path, {"name": f"k8s-ig--{ID}", "members": [], "size": 0})
        await site.make(annotations=INTERNAL)
        assert len(gce.one("backendServices", NAME)["backends"]) == 1
        await site.delete()
        assert site.left() == {"instanceGroups": [f"k8s-ig--{ID}"]}


async def test_an_instance_that_is_gone_is_rejected_and_the_others_serve(lbs: Balancing) -> None:
    gone = objects.node("node-9", f"gce://{PROJECT}/{ZONES[0]}/node-9")
    for annotations in ({}, INTERNAL):
        lbs.gce.run("node-9")
        service = lbs.service(annotations=annotations)
        lb = lbs.desired(service, [*lbs.nodes, gone])
        await lbs.ensured(lbs.desired(service))
        lbs.gce.terminate("node-9")
        answer = await lbs.ensured(lb)
        assert answer.rejected.keys() == {"node-9"}
        assert (
            "not found" in answer.rejected["node-9"] or "network tag" in answer.rejected["node-9"]
        )
        await lbs.delete()


async def test_a_new_pool_with_an_instance_that_is_gone(gce: Gce) -> None:
    async with balancing(gce, "node-tags = node") as site:
        gone = objects.node("node-9", f"gce://{PROJECT}/{ZONES[0]}/node-9")
        answer = await site.ensured(site.desired(site.service(), [*site.nodes, gone]))
        assert answer.rejected.keys() == {"node-9"}
        assert len(gce.one("targetPools", NAME)["instances"]) == 2
        assert MARK_FINGERPRINT not in LABELS.read(gce.one("forwardingRules", NAME)["labels"])
        assert gce.one("forwardingRules", NAME)["labels"]["proreus-service-uid"] == UID


async def test_hosts_without_a_fitting_tag(lbs: Balancing) -> None:
    lbs.gce.run("other")
    other = objects.node("other", f"gce://{PROJECT}/{ZONES[0]}/other")
    answer = await lbs.ensured(lbs.desired(lbs.service(), [*lbs.nodes, other]))
    assert "node-tags" in answer.rejected["other"]
    only = lbs.desired(lbs.service(**SECOND), [other])  # type: ignore[arg-type]
    refused = await lbs.answer(only)
    assert isinstance(refused, InvalidRequest)
    assert "node-tags" in str(refused)


async def test_without_hosts_nobody_is_let_in_and_nothing_fails(lbs: Balancing) -> None:
    await lbs.ensured(lbs.desired(lbs.service(), []))
    assert "firewalls" not in lbs.left()
    await lbs.make()
    assert f"k8s-fw-{NAME}" in lbs.left()["firewalls"]


async def test_another_cluster_s_is_neither_changed_nor_deleted(lbs: Balancing) -> None:
    await lbs.make()
    restored = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000009")
    theirs = lbs.desired(lbs.service((81, "TCP")), cluster=restored)
    answer = await lbs.answer(theirs)
    assert isinstance(answer, CloudError)
    assert "labels of another owner" in str(answer)
    assert await lbs.deleted(theirs.ref) == Done(found=False)
    assert lbs.gce.one("forwardingRules", NAME)["portRange"] == "80-80"


async def test_the_record_is_shown_by_list_owned(lbs: Balancing) -> None:
    wanted = lbs.desired(lbs.service())
    await lbs.ensured(wanted)
    (owned,) = await lbs.verbs.list_owned(CLUSTER)
    assert owned.service == "shop/web"
    assert owned.recorded
    assert await lbs.verbs.list_owned(ClusterIdentity("test", "other")) == []


async def test_a_firewall_that_only_others_may_change_is_told_to_them(gce: Gce) -> None:
    host = "projects/host-project"
    with gce.world.lock:
        gce.world.put(host, {"name": "host-project"})
        gce.world.put(f"{host}/global/networks/default", {"name": "default"})
    async with balancing(gce, "network-project-id = host-project") as site:
        gce.fail(
            "compute.firewalls.*", times=100, status=403, reason="forbidden", target="firewalls"
        )
        gce.fail("compute.firewalls.get", times=0)
        wanted = site.desired(site.service())
        gce.faults[0].method = "compute.firewalls.insert"
        await site.ensured(wanted)
        reasons = {reason for reason, _ in site.events.seen}
        assert reasons == {"LoadBalancerManualChange"}
        assert any(f"k8s-fw-{NAME}" in message for _, message in site.events.seen)


async def test_the_id_is_that_of_the_config_map(gce: Gce) -> None:
    namespace, name = CONFIG_MAP.split("/")
    found = ConfigMap(
        ObjectMeta(name=name, namespace=namespace), {"uid": "cafe", "provider-uid": "beef"}
    )
    async with balancing(gce, "", **{NEED: Objects([found])}) as site:
        await site.make()
        assert site.left()["httpHealthChecks"] == ["k8s-beef-node"]


def test_the_id_without_a_config_map() -> None:
    assert ClusterId(context(), "given").value() == "given"
    assert len(ID) == 16
    assert ClusterId(context(), "").value() == ID


async def test_without_load_balancers_there_is_no_capability(gce: Gce) -> None:
    with pytest.raises(AssertionError):
        async with balancing(gce, "", "[LoadBalancer]\nenabled = false\n"):
            pass
