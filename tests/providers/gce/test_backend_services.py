"""Load balancers with backend services made here, and addresses of IPv6: both if asked for."""

from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError, ImplementedElsewhere, InvalidRequest
from proreus.cloudprovider.load_balancers import Ensured, Previews
from proreus.controllers.service.drift import fingerprints, is_as_desired
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.gce.balancing.annotations import (
    EXTERNAL_CLASS,
    EXTERNAL_ELSEWHERE,
    RBS,
    TIER,
    TYPE,
)
from proreus.providers.gce.flags import RBS_DEFAULT
from proreus.providers.gce.identity import ClusterId

from .cloud.server import Gce
from .cloud.world import INSIDE, OUTSIDE, PROJECT, REGION
from .lb_site import NAME, SECOND, Balancing, balancing
from .site import CLUSTER, PATIENT, config_text, context, started

INTERNAL = {TYPE: "Internal"}
BACKEND = {RBS: "enabled"}
ID = ClusterId(context(), "").value()
DUAL = ("IPv4", "IPv6")
V6 = f"{NAME}-ipv6"
SECTIONS = f"{PATIENT}[LoadBalancer]\nbackend-services = true\ndual-stack = true\n"


def subnetwork(path: str) -> str:
    return f"subnetwork-name = {path.rpartition('/')[2]}"


@pytest.fixture
async def outside(gce: Gce) -> AsyncIterator[Balancing]:
    async with balancing(gce, subnetwork(OUTSIDE), SECTIONS) as site:
        yield site


@pytest.fixture
async def inside(gce: Gce) -> AsyncIterator[Balancing]:
    async with balancing(gce, subnetwork(INSIDE), SECTIONS) as site:
        yield site


async def test_an_external_one_with_a_backend_service_is_made_and_taken_down(
    outside: Balancing,
) -> None:
    await outside.make(annotations=BACKEND)
    assert outside.left() == {
        "backendServices": [NAME],
        "firewalls": [f"k8s-{ID}-node-netlb-hc", f"k8s-fw-{NAME}"],
        "forwardingRules": [NAME],
        "healthChecks": [f"k8s-{ID}-node"],
        "instanceGroups": [f"k8s-ig--{ID}"] * 2,
    }
    outside.gce.requests.clear()
    await outside.make(annotations=BACKEND)
    assert outside.gce.writes() == []
    assert (await outside.delete()).found
    assert outside.left() == {}


async def test_the_class_of_external_ones_asks_for_a_backend_service(outside: Balancing) -> None:
    await outside.make(load_balancer_class=EXTERNAL_CLASS)
    assert outside.left()["backendServices"] == [NAME]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"external_traffic_policy": "Local", "health_check_node_port": 32000},
        {"session_affinity": "ClientIP"},
    ],
)
@pytest.mark.parametrize("ports", [((80, "TCP"),), ((53, "TCP"), (53, "UDP"))])
async def test_from_a_target_pool_to_a_backend_service_and_back_the_address_stays(
    outside: Balancing, ports: tuple[tuple[int, str], ...], fields: dict[str, object]
) -> None:
    address = await outside.make(*ports, **fields)
    before = outside.left()
    assert await outside.make(*ports, annotations=BACKEND, **fields) == address
    assert not {"targetPools", "httpHealthChecks", "addresses"} & outside.left().keys()
    assert await outside.make(*ports, **fields) == address
    assert outside.left() == before


async def test_a_process_that_ended_between_two_forms_leaves_what_the_next_one_takes_up(
    outside: Balancing,
) -> None:
    address = await outside.make()
    outside.gce.fail("compute.forwardingRules.insert", status=500)
    wanted = outside.desired(outside.service(annotations=BACKEND))
    assert isinstance(await outside.answer(wanted), CloudError)
    shown = (LoadBalancerIngress(ip=address),)
    ref = msgspec.structs.replace(wanted.ref, last_ingress=shown)
    again = await outside.ensured(msgspec.structs.replace(wanted, ref=ref))
    assert again.ingress == shown
    assert not {"targetPools", "httpHealthChecks", "addresses"} & outside.left().keys()


async def test_between_internal_and_an_external_backend_service_nothing_is_left(
    outside: Balancing,
) -> None:
    await outside.make(annotations=BACKEND)
    await outside.make(annotations=INTERNAL)
    rule = outside.gce.one("forwardingRules", NAME)
    assert rule["loadBalancingScheme"] == "INTERNAL"
    await outside.make(annotations=BACKEND)
    assert len(outside.left()["healthChecks"]) == 1
    await outside.delete()
    assert outside.left() == {}


async def test_what_internal_and_external_ones_share_goes_with_the_last(
    outside: Balancing,
) -> None:
    await outside.make(annotations=BACKEND)
    await outside.make(annotations=INTERNAL, **SECOND)
    await outside.delete()
    assert outside.left()["instanceGroups"] == [f"k8s-ig--{ID}"] * 2
    assert f"k8s-{ID}-node-hc" in outside.left()["firewalls"]
    await outside.delete(**SECOND)
    assert outside.left() == {}


async def test_another_controller_s_finalizer_is_respected_all_the_same(
    outside: Balancing,
) -> None:
    for finalizer in EXTERNAL_ELSEWHERE:
        theirs = outside.service(annotations=BACKEND, finalizers=[finalizer])
        answer = await outside.answer(outside.desired(theirs))
        assert isinstance(answer, ImplementedElsewhere)
    await outside.make(annotations=BACKEND)
    path = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}"
    with outside.gce.changing(path) as rule:
        rule["backendService"] = rule["backendService"].replace(NAME, "k8s2-theirs")
    wanted = outside.desired(outside.service(annotations=BACKEND))
    assert isinstance(await outside.answer(wanted), ImplementedElsewhere)


async def test_with_the_flag_new_external_ones_have_one_and_old_ones_keep_their_pool(
    gce: Gce,
) -> None:
    with_flag = context()
    with_flag.flags = {RBS_DEFAULT: True}
    async with balancing(gce) as site:
        await site.make()
        async with started(config_text(gce, "", SECTIONS), with_flag) as provider:
            assert provider.load_balancers is not None
            wanted = [site.desired(site.service()), site.desired(site.service(**SECOND))]  # type: ignore[arg-type]
            answers = await provider.load_balancers.ensure(wanted)
            assert all(isinstance(one, Ensured) for one in answers.values()), answers
        assert site.left()["targetPools"] == [NAME]
        assert len(site.left()["backendServices"]) == 1


async def test_without_the_setting_it_is_another_controller_s(gce: Gce) -> None:
    async with balancing(gce, subnetwork(OUTSIDE), SECTIONS) as site:
        await site.make(annotations=BACKEND)
        async with started(config_text(gce)) as provider:
            assert provider.load_balancers is not None
            wanted = site.desired(site.service())
            answers = await provider.load_balancers.ensure([wanted])
            assert isinstance(answers[wanted.ref.uid], ImplementedElsewhere)
            await provider.load_balancers.delete([wanted.ref])
        assert site.left().keys() <= {"healthChecks", "firewalls"}


async def addresses(site: Balancing, **fields: object) -> list[str]:
    wanted = site.desired(site.service(ip_families=DUAL, **fields))  # type: ignore[arg-type]
    return [one.ip for one in (await site.ensured(wanted)).ingress]


async def test_an_internal_one_of_two_families(inside: Balancing) -> None:
    first, second = await addresses(inside, annotations=INTERNAL)
    assert first.startswith("172.16.")
    assert second.startswith("fd20:1:2:3:")
    assert inside.left() == {
        "backendServices": [NAME],
        "firewalls": [
            *(f"k8s-{ID}-node-hc", f"k8s-{ID}-node-hc-ipv6"),
            *(f"k8s-fw-{NAME}", f"k8s-fw-{V6}"),
        ],
        "forwardingRules": [NAME, V6],
        "healthChecks": [f"k8s-{ID}-node"],
        "instanceGroups": [f"k8s-ig--{ID}"] * 2,
    }
    assert inside.gce.one("firewalls", f"k8s-fw-{V6}")["destinationRanges"] == [f"{second}/96"]
    await inside.make(annotations=INTERNAL)
    assert V6 not in inside.left()["forwardingRules"]
    assert f"k8s-fw-{V6}" not in inside.left()["firewalls"]
    await addresses(inside, annotations=INTERNAL)
    await inside.delete()
    assert inside.left() == {}


async def test_one_of_two_families_is_known_to_be_as_desired_after_a_restart(
    inside: Balancing,
) -> None:
    wanted = inside.desired(inside.service(ip_families=DUAL, annotations=INTERNAL))
    answer = await inside.ensured(wanted)
    ref = msgspec.structs.replace(wanted.ref, last_ingress=answer.ingress)
    wanted = msgspec.structs.replace(wanted, ref=ref)
    shown = fingerprints(await inside.verbs.list_owned(CLUSTER))
    assert is_as_desired(wanted, inside.verbs.fingerprint(wanted), shown)


@pytest.mark.parametrize("edit", [{"session_affinity": "ClientIP"}, {"ports": ((443, "TCP"),)}])
async def test_an_external_one_of_two_families_keeps_both_addresses_while_it_is_edited(
    outside: Balancing, edit: dict[str, object]
) -> None:
    before = await addresses(outside, annotations=BACKEND)
    assert before[1].startswith("2600:1900:1:2:")
    ports = edit.pop("ports", ())
    service = outside.service(*ports, ip_families=DUAL, annotations=BACKEND, **edit)  # type: ignore[misc, arg-type]
    edit["ports"] = ports
    outside.gce.fail("compute.forwardingRules.insert", status=500)
    await outside.answer(outside.desired(service))
    after = await outside.ensured(outside.desired(service))
    assert [one.ip for one in after.ingress] == before
    assert "addresses" not in outside.left()
    await outside.delete()
    assert outside.left() == {}


async def test_a_reserved_address_of_ipv6_is_used_and_stays_reserved(inside: Balancing) -> None:
    asked = "fd20:1:2:3:7::"
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/fixed"
    body = {"name": "fixed", "address": asked, "prefixLength": 96, "addressType": "INTERNAL"}
    with inside.gce.world.lock:
        inside.gce.world.put(path, {**body, "subnetwork": inside.gce.world.link(INSIDE)})
    found = await addresses(inside, annotations=INTERNAL, load_balancer_ip=asked)
    assert found[1] == asked
    await inside.delete()
    assert inside.left() == {"addresses": ["fixed"]}


async def test_what_google_cannot_do_by_ipv6_is_refused_by_name(outside: Balancing) -> None:
    standard = {**BACKEND, TIER: "Standard"}
    wanted = outside.desired(outside.service(ip_families=DUAL, annotations=standard))
    assert isinstance(await outside.answer(wanted), InvalidRequest)


async def test_a_subnetwork_without_ipv6_is_told(outside: Balancing) -> None:
    wanted = outside.desired(outside.service(ip_families=DUAL, annotations=INTERNAL))
    answer = await outside.answer(wanted)
    assert isinstance(answer, CloudError)
    assert "It has no IPv6 of INTERNAL" in str(answer)


async def test_without_the_setting_and_with_a_target_pool_there_is_ipv4_only(gce: Gce) -> None:
    async with balancing(gce, subnetwork(INSIDE)) as site:
        assert len(await addresses(site, annotations=INTERNAL)) == 1
    async with started(config_text(gce, subnetwork(INSIDE), SECTIONS)) as provider:
        assert provider.load_balancers is not None
        service = site.service(ip_families=DUAL)
        assert provider.load_balancers.host_policy(service).families == ("IPv4",)


async def test_a_preview_shows_the_way_from_a_pool_to_a_backend_service(
    outside: Balancing,
) -> None:
    await outside.make()
    wanted = outside.desired(outside.service(annotations=BACKEND, ip_families=DUAL))
    shown = (await cast("Previews", outside.verbs).preview([wanted]))[wanted.ref.uid]
    assert not isinstance(shown, CloudError)
    lines = [f"{one.action} {one.part}" for one in shown]
    assert f"delete target pool {NAME}" in lines
    assert f"create forwarding rule {V6}" in lines
    assert outside.left()["targetPools"] == [NAME]
