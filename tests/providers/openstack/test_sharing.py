"""Load balancers that several Services use, or that somebody has made by hand."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Ensured, InvalidRequest
from proreus.cloudprovider.identity import MARK_FINGERPRINT, ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, LoadBalancerRef
from proreus.kube.objects import Service, ServicePort
from proreus.providers.openstack import OpenStackCloud
from proreus.providers.openstack.octavia import owners
from proreus.testing.clock import virtual_time

from .balancing import SUBNET, SUBNET_V6, Balancing, P, balancing, known
from .wire import CLUSTER, Json, context, started

NAME = "kube_service_test_shop_"
OTHER = ClusterIdentity("test", "another-uid")
DNS = (ServicePort(53, "dns", node_port=30053),)


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        yield made


def by_id(id_: str) -> dict[str, str]:
    return {f"{P}load-balancer-id": id_}


def writes(site: Balancing) -> int:
    return sum(
        count
        for what, count in site.wire.asked.items()
        if what.endswith(("_create", "_update", "_delete")) and what != "token_create"
    )


async def lives(site: Balancing, provider: OpenStackCloud, service: Service) -> Service:
    """The Service as it is afterwards: with its address and its annotations."""
    answer = await site.ensure(provider, service)
    assert isinstance(answer, Ensured), answer
    return known(annotated(service, answer.annotations), *(one.ip for one in answer.ingress))


def annotated(service: Service, annotations: Mapping[str, str]) -> Service:
    given = {**service.metadata.annotations, **annotations}
    metadata = msgspec.structs.replace(service.metadata, annotations=given)
    return msgspec.structs.replace(service, metadata=metadata)


async def two(site: Balancing, provider: OpenStackCloud) -> tuple[Service, Service]:
    """One with a load balancer, and one that uses it."""
    first = await lives(site, provider, site.service(name="a"))
    id_ = site.octavia.only("loadbalancers")["id"]
    second = site.service(by_id(id_), name="b", ports=DNS)
    return first, await lives(site, provider, second)


def listeners(site: Balancing) -> dict[int, set[str]]:
    """The Services of each port."""
    return {
        one["protocol_port"]: {tag.removeprefix(NAME) for tag in one["tags"] if NAME in tag}
        for one in site.octavia.of["listeners"].values()
    }


def by_hand(site: Balancing, **given: Any) -> Json:
    """A load balancer with a floating IP."""
    site.octavia._make_balancer({"name": "x", "tags": [], "vip_subnet_id": SUBNET, **given})
    made = list(site.octavia.of["loadbalancers"].values())[-1]
    made["provisioning_status"] = "ACTIVE"
    site.octavia.of["floatingips"]["f"] = {
        "id": "f", "floating_ip_address": "203.0.113.77", "description": "mine",
        "port_id": made["vip_port_id"],
    }  # fmt: skip
    return made


async def test_a_service_uses_the_load_balancer_of_another_and_leaves_it(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        assert provider.load_balancers is not None
        first, second = await two(site, provider)
        made = site.octavia.only("loadbalancers")
        both = set(made["tags"])
        assert second.status.load_balancer == first.status.load_balancer
        assert listeners(site) == {80: {"a"}, 53: {"b"}}
        assert made["description"] == "Kubernetes external service shop/a from cluster test"
        owned = await provider.load_balancers.list_owned(CLUSTER)
        assert {(one.kind, one.id, one.service, one.service_uid) for one in owned} == {
            ("load balancer", made["id"], f"shop/{name}", f"uid-{name}") for name in "ab"
        }
        before = writes(site)
        for one in (first, second):
            await site.ensure(provider, one)
        assert writes(site) == before
        assert isinstance(await site.delete(provider, second), Done)
        assert listeners(site) == {80: {"a"}}
        assert len(site.octavia.of["pools"]) == len(site.octavia.of["floatingips"]) == 1
        gone = {tag for tag in both - set(made["tags"]) if not tag.startswith(MARK_FINGERPRINT)}
        assert gone == {f"{NAME}b", f"{owners.SHARED}={CLUSTER.uid}/shop/b/uid-b"}
        assert not any("uid-b" in tag for tag in made["tags"])
        await site.ensure(provider, first)
        assert isinstance(await site.delete(provider, first), Done)
    assert not any(site.octavia.of.values())


async def test_it_stays_for_others_when_the_service_goes_that_it_was_made_for(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        first, second = await two(site, provider)
        address = dict(site.octavia.only("floatingips"))
        assert isinstance(await site.delete(provider, first), Done)
        assert await site.delete(provider, first) == Done(found=False)
        assert site.octavia.only("floatingips") == address
        assert listeners(site) == {53: {"b"}}
        again = await site.ensure(provider, second)
        assert isinstance(again, Ensured)
        assert again.ingress == second.status.load_balancer.ingress
        assert isinstance(await site.delete(provider, second), Done)
    assert not any(site.octavia.of.values())


async def test_one_that_somebody_has_made_is_used_and_left_as_it_was(site: Balancing) -> None:
    made = by_hand(site)
    site.octavia.make(
        "listeners", {"name": "web", "tags": [], "protocol": "TCP", "protocol_port": 9}, made["id"]
    )
    before = {kind: dict(of) for kind, of in site.octavia.of.items()}
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service(by_id(made["id"])))
        assert [one.ip for one in service.status.load_balancer.ingress] == ["203.0.113.77"]
        assert listeners(site) == {9: set(), 80: {"web"}}
        assert isinstance(await site.delete(provider, service), Done)
    assert {kind: set(of) for kind, of in site.octavia.of.items()} == {
        kind: set(of) for kind, of in before.items()
    }
    assert made["tags"] == []


@pytest.mark.parametrize("is_asked", [False, True], ids=["given up", "asked for"])
@pytest.mark.parametrize("written", ["{}", "{}\n"], ids=["as we write it", "of a text block"])
async def test_a_port_stays_a_service_s_while_its_listener_is_made_anew(
    site: Balancing, written: str, *, is_asked: bool
) -> None:
    """Octavia changes no protocol; one that was made by hand is everybody's to share."""
    made = by_hand(site)
    names = by_id(made["id"])
    own = site.service({**by_id(written.format(made["id"])), f"{P}x-forwarded-for": "true"})
    theirs = site.service(names, name="c", namespace="thief")
    asking = own if is_asked else site.service(names, ports=DNS)
    async with started(site.wire.config(), context(services=[asking, theirs])) as provider:
        await lives(site, provider, site.service(names))
        assert isinstance(await site.ensure(provider, theirs), InvalidRequest)
        assert provider.load_balancers is not None
        site.octavia.works = 1
        while listeners(site):
            await provider.load_balancers.ensure([site.desired(provider, own)])
        answer = await site.ensure(provider, theirs)
        if not is_asked:
            assert isinstance(answer, Ensured)
            return
        assert isinstance(answer, InvalidRequest)
        assert "port 80/TCP" in str(answer)
        await lives(site, provider, own)
    assert listeners(site) == {80: {"web"}}


async def test_the_parts_of_others_stand_whoever_deletes_when_tags_are_lost(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        first, second = await two(site, provider)
        made = site.octavia.only("loadbalancers")
        made["tags"] = [tag for tag in made["tags"] if "b" not in tag.rpartition("_")[2]]
        made["tags"] = [tag for tag in made["tags"] if not tag.startswith(owners.SHARED)]
        assert isinstance(await site.delete(provider, first), Done)
        assert listeners(site) == {53: {"b"}}
        assert len(site.octavia.of["floatingips"]) == 1
        await site.ensure(provider, second)
        assert f"{NAME}b" in made["tags"]


REFUSED: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "port": ({}, {"ports": (ServicePort(80, node_port=30080),)}, "80/TCP of load balancer"),
    "full": ({"tags": [f"{NAME}c", f"{NAME}d"]}, {}, "2 Services use it already"),
    "family": ({"vip_subnet_id": SUBNET_V6}, {}, "IPv6, which is not a family"),
    "internal": ({}, {"annotations": {f"{P}internal": "true"}}, "internal Service"),
    "namesake": (
        {"name": f"{NAME}web", "tags": ["proreus/service-uid=uid-old"]},
        {},
        "belongs to the Service uid-old",
    ),
    "clone": (
        {"name": f"{NAME}web", "tags": [f"proreus/cluster-uid={OTHER.uid}"]},
        {},
        "another Service of this name",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_shared_is_reported_and_not_touched(
    site: Balancing, name: str
) -> None:
    given, spec, text = REFUSED[name]
    made = by_hand(site, **given)
    made["tags"] = given.get("tags", [])
    if name == "port":
        site.octavia.make(
            "listeners", {"name": "x", "tags": [], "protocol": "HTTP", "protocol_port": 80},
            made["id"],
        )  # fmt: skip
    annotations = by_id(made["id"])
    if name == "internal":
        annotations["service.beta.kubernetes.io/openstack-internal-load-balancer"] = "true"
    service = site.service(annotations, ports=spec.get("ports", DNS))
    before = writes(site)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest), answer
    assert text in str(answer)
    assert writes(site) == before


async def test_a_load_balancer_without_a_floating_address_gets_none_by_who_shares_it(
    site: Balancing,
) -> None:
    made = by_hand(site)
    site.octavia.of["floatingips"].clear()
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service(by_id(made["id"])))
    assert isinstance(answer, InvalidRequest)
    assert not site.octavia.of["floatingips"]


async def test_it_cannot_become_internal_while_others_use_it(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        first, second = await two(site, provider)
        key = "service.beta.kubernetes.io/openstack-internal-load-balancer"
        inside = annotated(first, {key: "true"})
        assert isinstance(await site.ensure(provider, inside), InvalidRequest)
        assert len(site.octavia.of["floatingips"]) == 1
        assert isinstance(await site.delete(provider, second), Done)
        answer = await site.ensure(provider, inside)
    assert isinstance(answer, Ensured)
    assert not site.octavia.of["floatingips"]


async def test_a_service_does_not_move_to_another_load_balancer(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service())
        own = site.octavia.only("loadbalancers")["id"]
        service = annotated(service, by_id(by_hand(site)["id"]))
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest)
    assert own in str(answer)
    assert listeners(site) == {80: {"web"}}


@virtual_time
async def test_an_id_that_does_not_exist_is_reported_unless_it_was_deleted() -> None:
    gone = "20000000-0000-4000-8000-0000000000aa"
    async with balancing() as site, started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service(by_id(gone)))
        assert isinstance(answer, InvalidRequest)
        assert not site.octavia.of["loadbalancers"]
        known_service = known(site.service(by_id(gone)), "203.0.113.5")
        assert isinstance(await site.ensure(provider, known_service), Ensured)


def officially(site: Balancing) -> tuple[Json, Service, Service]:
    """What the official manager makes of two Services, of which the second shares."""
    made = by_hand(site, name=f"{NAME}a")
    made["tags"] = [f"{NAME}a", f"{NAME}b"]
    for number, name in enumerate("ab"):
        port = (80, 53)[number]
        listener = {
            "name": f"listener_0_{NAME}{name}", "tags": [f"{NAME}{name}"],
            "protocol": "TCP", "protocol_port": port,
        }  # fmt: skip
        site.octavia.make("listeners", listener, made["id"])
    site.octavia.of["floatingips"]["f"]["description"] = (
        "Floating IP for Kubernetes external service shop/a from cluster test"
    )
    one = site.service(by_id(made["id"]), name="a")
    other = site.service(by_id(made["id"]), name="b", ports=DNS)
    return made, known(one, "203.0.113.77"), known(other, "203.0.113.77")


async def test_what_is_shared_officially_is_taken_over(site: Balancing) -> None:
    made, first, second = officially(site)
    ids = {kind: set(site.octavia.of[kind]) for kind in ("loadbalancers", "listeners")}
    async with started(site.wire.config()) as provider:
        for one in (first, second):
            answer = await site.ensure(provider, one)
            assert isinstance(answer, Ensured), answer
            assert answer.ingress[0].ip == "203.0.113.77"
        assert {kind: set(site.octavia.of[kind]) for kind in ids} == ids
        assert {f"{NAME}a", f"{NAME}b", "proreus/service-uid=uid-a"} <= set(made["tags"])
        assert isinstance(await site.delete(provider, first), Done)
        assert listeners(site) == {53: {"b"}}
        assert isinstance(await site.delete(provider, second), Done)
    assert not any(site.octavia.of.values())


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_what_is_shared_officially_is_deleted_before_it_was_ever_ensured(
    site: Balancing, order: str
) -> None:
    _, first, second = officially(site)
    async with started(site.wire.config()) as provider:
        for name in order:
            gone = {"a": first, "b": second}[name]
            assert isinstance(await site.delete(provider, gone), Done)
            if name == order[0]:
                assert len(site.octavia.of["listeners"]) == 1
                assert len(site.octavia.of["floatingips"]) == 1
    assert not any(site.octavia.of.values())


def test_tags_by_a_former_name_of_the_cluster_are_replaced() -> None:
    ref = LoadBalancerRef(CLUSTER, "shop", "web", "uid-web", "a")
    mine = ["proreus/cluster=old", "proreus/service-uid=uid-web", "kube_service_old_shop_web"]
    there = {"name": "kube_service_old_shop_web", "tags": [*mine, "theirs"]}
    kept = ["proreus/cluster=old", "proreus/service-uid=uid-web", "theirs"]
    assert owners.with_tags(there, ["proreus/cluster=test", f"{NAME}web"], ref) == [
        *kept, "proreus/cluster=test", f"{NAME}web",
    ]  # fmt: skip
    assert owners.others(there, (), ref) == frozenset()
    assert owners.is_made_for(there, ref)
    assert owners.is_made_in(there, CLUSTER)
    assert owners.without(there, ref) == ["theirs"]
