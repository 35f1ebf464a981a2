"""Load balancers on the wire: one step at a time, found again, addresses, and what is refused."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from proreus.cloudprovider import Ensured, InvalidRequest, PartChange, Pending, Refused
from proreus.cloudprovider.load_balancers import Done
from proreus.kube.objects import LoadBalancerIngress, Service, ServicePort
from proreus.providers.openstack import OpenStackCloud

from .balancing import SUBNET, Balancing, P, balancing, known, previewed, previews
from .wire import CLUSTER, Json, started, uuid


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        yield made


async def test_a_load_balancer_is_made_in_one_request_with_a_floating_address(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service())
    made, floating = site.octavia.only("loadbalancers"), site.octavia.only("floatingips")
    address = floating["floating_ip_address"]
    assert answer == Ensured(
        ingress=(LoadBalancerIngress(ip=address),),
        annotations={f"{P}load-balancer-id": made["id"], f"{P}load-balancer-address": address},
    )
    assert made["name"] == "kube_service_test_shop_web"
    assert (made["vip_subnet_id"], made["provider"]) == (SUBNET, "amphora")
    assert "proreus/service-uid=uid-web" in made["tags"]
    assert site.members() == [["10.0.0.1", "10.0.0.2"]]
    assert site.wire.asked["loadbalancer_create"] == 1
    assert site.wire.asked["listener_create"] == site.wire.asked["pool_create"] == 0


async def test_nobody_waits_while_octavia_works(site: Balancing) -> None:
    site.octavia.works = 3
    async with started(site.wire.config()) as provider:
        assert provider.load_balancers is not None
        desired = site.desired(provider, site.service())
        for _ in range(3):
            answers = await provider.load_balancers.ensure([desired])
            assert isinstance(answers["uid-web"], Pending)
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert site.wire.asked["loadbalancer_create"] == 1


async def test_what_is_as_desired_is_not_written(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service())
        site.wire.asked.clear()
        await site.ensure(provider, site.service())
    written = [name for name in site.wire.asked if name.endswith(("create", "update", "delete"))]
    assert written == []


async def test_new_hosts_are_one_request_for_each_pool(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service(), nodes=1)
        assert site.members() == [["10.0.0.1"]]
        await site.ensure(provider, site.service(), nodes=2)
    assert site.members() == [["10.0.0.1", "10.0.0.2"]]
    assert site.wire.asked["member_update"] == 1


async def test_a_provider_that_needs_it_gets_parts_one_by_one(site: Balancing) -> None:
    site.octavia.serial_only = True
    text = site.wire.config(
        sections="[LoadBalancer]\nprovider-requires-serial-api-calls\ncreate-monitor\n"
        "cascade-delete = false\n"
    )
    async with started(text) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
        assert site.members() == [["10.0.0.1", "10.0.0.2"]]
        assert len(site.octavia.of["healthmonitors"]) == 1
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert not any(site.octavia.of.values())


async def test_both_families_have_a_load_balancer_each(site: Balancing) -> None:
    dual = site.service(ip_families=("IPv4", "IPv6"))
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, dual)
        assert [":" in one.ip for one in answer.ingress] == [False, True]
        assert sorted(site.members()) == [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]]
        assert isinstance(await site.delete(provider, dual), Done)
    assert not any(site.octavia.of.values())


async def test_an_internal_one_has_no_floating_address_and_loses_one_that_it_had(
    site: Balancing,
) -> None:
    internal = site.service({"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"})
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service())
        answer = await site.ensure(provider, internal)
    assert answer.ingress[0].ip == site.octavia.only("loadbalancers")["vip_address"]
    assert site.octavia.of["floatingips"] == {}


async def test_an_internal_one_loses_a_floating_address_that_it_was_given_which_stays(
    site: Balancing,
) -> None:
    internal = site.service({"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"})
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, internal)
        given = {
            "id": uuid(900),
            "port_id": site.octavia.only("loadbalancers")["vip_port_id"],
            "floating_ip_address": "203.0.113.99",
            "description": "of an operator",
        }
        site.octavia.of["floatingips"][given["id"]] = dict(given)
        await site.ensure(provider, internal)
    assert site.octavia.only("floatingips") == {**given, "port_id": None, "revision_number": 2}


async def test_a_load_balancer_of_the_official_manager_is_taken_over(site: Balancing) -> None:
    official = {
        "name": "kube_service_test_shop_web",
        "tags": ["kube_service_test_shop_web"],
        "vip_subnet_id": SUBNET,
        "listeners": [
            {
                "name": "listener_0_kube_service_test_shop_web",
                "tags": ["kube_service_test_shop_web"],
                "protocol": "TCP",
                "protocol_port": 80,
                "allowed_cidrs": ["0.0.0.0/0"],
                "connection_limit": -1,
                "default_pool": {
                    "name": "pool_0_kube_service_test_shop_web",
                    "protocol": "TCP",
                    "lb_algorithm": "ROUND_ROBIN",
                },
            }
        ],
    }
    site.octavia._make_balancer(official)
    made = site.octavia.only("loadbalancers")
    floating = {
        "id": uuid(900),
        "port_id": made["vip_port_id"],
        "floating_ip_address": "203.0.113.99",
        "description": "Floating IP for Kubernetes external service shop/web from cluster test",
    }
    site.octavia.of["floatingips"][floating["id"]] = floating
    service = known(site.service({f"{P}load-balancer-id": made["id"]}), "203.0.113.99")
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert answer.ingress == (LoadBalancerIngress(ip="203.0.113.99"),)
        assert len(site.octavia.of["loadbalancers"]) == len(site.octavia.of["listeners"]) == 1
        assert "proreus/service-uid=uid-web" in made["tags"]
        assert isinstance(await site.delete(provider, service), Done)
    assert not any(site.octavia.of.values())


async def test_listeners_that_somebody_else_has_added_stay(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service())
        id_ = site.octavia.only("loadbalancers")["id"]
        other = {"name": "mine", "tags": [], "protocol": "TCP", "protocol_port": 9999}
        site.octavia.make("listeners", other, id_)
        await site.ensure(provider, site.service())
    assert sorted(one["protocol_port"] for one in site.octavia.of["listeners"].values()) == [
        80,
        9999,
    ]


async def test_the_floating_address_stays_if_that_is_asked_for_and_is_used_again(
    site: Balancing,
) -> None:
    keep = site.service({f"{P}keep-floatingip": "true"})
    async with started(site.wire.config()) as provider:
        first = await site.ensure(provider, keep)
        assert isinstance(await site.delete(provider, keep), Done)
        assert site.octavia.only("floatingips")["port_id"] is None
        again = await site.ensure(provider, keep)
    assert again.ingress == first.ingress


async def test_a_requested_address_is_used_and_one_in_use_is_refused(site: Balancing) -> None:
    free: Json = {"id": uuid(901), "floating_ip_address": "203.0.113.50", "port_id": None}
    taken: Json = {"id": uuid(902), "floating_ip_address": "203.0.113.51", "port_id": "p"}
    site.octavia.of["floatingips"] = {one["id"]: one for one in (free, taken)}
    async with started(site.wire.config()) as provider:
        refused = await site.ensure(provider, site.service(load_balancer_ip="203.0.113.51"))
        answer = await site.ensure(provider, site.service(load_balancer_ip="203.0.113.50"))
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert isinstance(refused, InvalidRequest)
    assert answer.ingress[0].ip == "203.0.113.50"
    assert set(site.octavia.of["floatingips"]) == {uuid(901), uuid(902)}  # both are the user's


async def test_a_full_floating_subnet_is_passed_over(site: Balancing) -> None:
    site.octavia.subnets |= {
        "full": {"id": "full", "name": "dmz-1", "network_id": NETWORK},
        "free": {"id": "free", "name": "dmz-2", "network_id": NETWORK},
        "other": {"id": "other", "name": "lan", "network_id": NETWORK},
    }
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service({f"{P}floating-subnet": "dmz-*"}))
    assert isinstance(answer, Ensured)
    assert site.octavia.only("floatingips")["subnet_id"] == "free"


NETWORK = "10000000-0000-4000-8000-0000000000ff"


async def test_several_external_networks_are_not_guessed_among(site: Balancing) -> None:
    site.wire.external["10000000-0000-4000-8000-0000000000fe"] = "dmz"
    named = site.service({f"{P}floating-network-id": NETWORK})
    async with started(site.wire.config()) as provider:
        refused = await site.ensure(provider, site.service())
        answer = await site.ensure(provider, named)
    assert isinstance(refused, InvalidRequest)
    assert "dmz, public" in str(refused)
    assert isinstance(answer, Ensured)


async def test_one_in_an_error_is_made_anew_unless_its_address_is_known(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        first = await site.ensure(provider, site.service())
        broken = site.octavia.only("loadbalancers")
        broken["provisioning_status"] = "ERROR"
        told = await site.ensure(provider, known(site.service(), first.ingress[0].ip))
        assert "ERROR" in str(told)
        await site.ensure(provider, site.service())
    assert site.octavia.only("loadbalancers")["id"] != broken["id"]


async def test_two_that_were_made_by_mistake_become_one(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service())
        first = dict(site.octavia.only("loadbalancers"))
        site.octavia._make_balancer(
            {"name": first["name"], "tags": first["tags"], "vip_subnet_id": SUBNET}
        )
        for _ in range(3):
            await site.ensure(provider, site.service())
    assert list(site.octavia.of["loadbalancers"]) == [first["id"]]


async def test_load_balancers_can_be_turned_off(site: Balancing) -> None:
    text = site.wire.config(sections="[LoadBalancer]\nenabled = false\n")
    async with started(text) as provider:
        assert provider.load_balancers is None


async def test_several_services_are_worked_on_side_by_side(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        services = [site.service(name=name) for name in ("a", "b", "c")]
        answers = await asyncio.gather(*(site.ensure(provider, one) for one in services))
    assert all(isinstance(one, Ensured) for one in answers)
    assert len(site.octavia.of["loadbalancers"]) == 3


async def test_a_load_balancer_of_a_manager_inside_kubernetes_is_taken_over(
    site: Balancing,
) -> None:
    service = known(site.service(), "203.0.113.5")
    site.octavia._make_balancer({"name": "auidweb", "tags": [], "vip_subnet_id": SUBNET})
    made = site.octavia.only("loadbalancers")
    made["provisioning_status"] = "ACTIVE"
    site.octavia.of["floatingips"]["f"] = {
        "id": "f",
        "floating_ip_address": "203.0.113.5",
        "description": "Floating IP for Kubernetes external service shop/web from cluster test",
        "port_id": made["vip_port_id"],
    }
    listener = {"tags": [], "name": "listener_auidweb_0", "protocol": "TCP", "protocol_port": 80}
    site.octavia.make("listeners", listener, made["id"])
    kept = site.octavia.only("listeners")["id"]
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, Ensured)
        assert site.octavia.only("listeners")["id"] == kept
        assert site.members() == [["10.0.0.1", "10.0.0.2"]]
        assert isinstance(await site.delete(provider, service), Done)
    assert not any(site.octavia.of.values())


async def test_octavia_is_asked_the_less_often_the_longer_it_works(site: Balancing) -> None:
    site.octavia.works = 8
    async with started(site.wire.config()) as provider:
        assert provider.load_balancers is not None
        desired = site.desired(provider, site.service())
        waits = []
        for _ in range(7):
            (answer,) = (await provider.load_balancers.ensure([desired])).values()
            assert isinstance(answer, Pending)
            waits.append(answer.after)
        assert waits[0] == waits[1] / 1.5 == 1.0
        assert waits == sorted(waits)
        assert waits[-1] == pytest.approx(1.5**6)
        site.octavia.works = 0
        assert isinstance(await site.ensure(provider, site.service()), Ensured)


@pytest.mark.parametrize("cascade", [True, False])
@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_a_listing_that_lacks_it_before_its_deletion_began_is_no_end(
    site: Balancing, calls: int, *, cascade: bool
) -> None:
    """Octavia still works on it, or its listeners go first: the framework is to look again."""
    settings = f"[LoadBalancer]\ncascade-delete = {str(cascade).lower()}\n"
    async with started(site.wire.config(sections=settings)) as provider:
        assert provider.load_balancers is not None
        await site.ensure(provider, site.service())
        made = site.octavia.only("loadbalancers")
        if cascade:
            made.update(provisioning_status="PENDING_UPDATE", left=99)
        ref = site.desired(provider, site.service()).ref
        for _ in range(calls):
            assert isinstance((await provider.load_balancers.delete([ref]))[ref.uid], Pending)
        del site.octavia.of["loadbalancers"][made["id"]]
        assert (await provider.load_balancers.delete([ref]))[ref.uid] == Done(found=False)
        site.octavia.of["loadbalancers"][made["id"]] = made
        made["left"] = 0
        assert await site.delete_ref(provider, ref) == Done(found=True)
    assert not any(site.octavia.of.values())


async def test_one_that_octavia_deletes_already_was_there(site: Balancing) -> None:
    inside = site.service({"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"})
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, inside)
        made = site.octavia.only("loadbalancers")
        made.update(provisioning_status="PENDING_DELETE", left=2)
        assert await site.delete(provider, inside) == Done(found=True)


async def test_a_404_of_a_proxy_deletes_nothing_and_is_no_absence(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        service = site.service()
        await site.ensure(provider, service)
        site.wire.fail("loadbalancer_delete", web.Response(status=404, text="<html>nginx</html>"))
        answer = await site.delete(provider, service)
        assert isinstance(answer, Refused)
        assert site.octavia.of["loadbalancers"]
        assert isinstance(await site.delete(provider, service), Done)
    assert not site.octavia.of["loadbalancers"]


async def shown(site: Balancing, provider: OpenStackCloud, service: Service) -> bool:
    """Whether the listing tells that all is as the Service asks."""
    assert provider.load_balancers is not None
    expected = provider.load_balancers.fingerprint(site.desired(provider, service))
    owned = await provider.load_balancers.list_owned(CLUSTER)
    assert expected
    return {one.fingerprint for one in owned if one.service_uid == "uid-web"} == {expected}


def written(service: Service, answer: Ensured) -> Service:
    """The Service once the framework has written the answer."""
    meta = msgspec.structs.replace(
        service.metadata, annotations={**service.metadata.annotations, **answer.annotations}
    )
    return known(
        msgspec.structs.replace(service, metadata=meta), *(one.ip for one in answer.ingress)
    )


async def test_what_it_was_made_from_is_recorded_and_another_process_finds_nothing_to_do(
    site: Balancing,
) -> None:
    dual = site.service(ip_families=("IPv4", "IPv6"))
    async with started(site.wire.config()) as provider:
        service = written(dual, await site.ensure(provider, dual))
        assert site.wire.asked["loadbalancer_update"] == 2
    site.wire.good_tokens |= {"token-2"}
    async with started(site.wire.config()) as later:
        before = site.wire.asked.copy()
        assert await shown(site, later, service)
        asked = site.wire.asked - before
        assert asked["loadbalancer_list"] == asked["pool_list"] == 1
        # The status, an annotation or a load balancer is not as it was left.
        assert not await shown(site, later, known(service, "203.0.113.1"))
        assert not await shown(site, later, known(dual, *(service_addresses(service))))
        for one in site.octavia.of["loadbalancers"].values():
            one.update(provisioning_status="PENDING_UPDATE", left=1)
        assert not await shown(site, later, service)
        assert await shown(site, later, service)
        site.octavia.remove(next(iter(site.octavia.of["loadbalancers"])))
        assert not await shown(site, later, service)


def service_addresses(service: Service) -> list[str]:
    return [one.ip for one in service.status.load_balancer.ingress if one.ip]


async def test_new_hosts_wait_for_no_record_and_make_it_void_themselves(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        service = written(site.service(), await site.ensure(provider, site.service(), nodes=1))
        assert not await shown(site, provider, service)
        site.wire.asked.clear()
        desired = site.desired(provider, service)
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.update_hosts([desired]))["uid-web"]
        assert isinstance(answer, Pending)
        # In the first request already the hosts are there, and the record counts no more.
        assert site.members() == [["10.0.0.1", "10.0.0.2"]]
        assert site.wire.asked["loadbalancer_update"] == 0
        owned = await provider.load_balancers.list_owned(CLUSTER)
        assert {one.fingerprint for one in owned} == {""}
        await site.ensure(provider, service)
        assert site.wire.asked["loadbalancer_update"] == 1
        assert await shown(site, provider, service)


async def test_a_record_is_gone_before_anything_else_is_changed(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        service = written(site.service(), await site.ensure(provider, site.service()))
        more = (ServicePort(80, "http", node_port=30080), ServicePort(443, "s", node_port=30443))
        other = msgspec.structs.replace(
            service, spec=msgspec.structs.replace(service.spec, ports=more)
        )
        assert provider.load_balancers is not None
        assert await shown(site, provider, service)
        await provider.load_balancers.ensure([site.desired(provider, other)])
        assert len(site.octavia.of["listeners"]) == 1
        assert not await shown(site, provider, service)
        await site.ensure(provider, other)
        assert await shown(site, provider, other)
        assert not await shown(site, provider, service)


async def test_a_record_is_gone_before_a_floating_address_is_taken_away(site: Balancing) -> None:
    name = "service.beta.kubernetes.io/openstack-internal-load-balancer"
    async with started(site.wire.config()) as provider:
        public = written(site.service(), await site.ensure(provider, site.service()))
        internal = msgspec.structs.replace(
            public,
            metadata=msgspec.structs.replace(
                public.metadata, annotations={**public.metadata.annotations, name: "true"}
            ),
        )
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.ensure([site.desired(provider, internal)]))[
            "uid-web"
        ]
        # Octavia still works on the tag: the record comes with the next request.
        assert isinstance(answer, Pending)
        assert site.octavia.of["floatingips"] == {}
        assert not await shown(site, provider, public)
        internal = written(internal, await site.ensure(provider, internal))
        assert await shown(site, provider, internal)


async def test_a_preview_shows_each_part_and_the_floating_address(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        new = await previewed(site, provider, site.service())
        assert [(one.action, one.part) for one in new] == [
            ("create", "load balancer kube_service_test_shop_web"),
            ("create", "listener TCP/80"),
            ("create", "pool pool_0_kube_service_test_shop_web"),
            ("create", "member 10.0.0.1:30080"),
            ("create", "member 10.0.0.2:30080"),
            ("create", "floating IP"),
        ]
        assert not any(site.octavia.of.values())
        service = written(site.service(), await site.ensure(provider, site.service()))
        site.octavia.only("loadbalancers")["provisioning_status"] = "PENDING_UPDATE"
        assert await previewed(site, provider, service) == ()
        internal = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
        (gone,) = await previewed(site, provider, site.service(internal))
        assert (gone.action, gone.part.split()[0]) == ("delete", "floating")
        (lost,) = site.octavia.of["pools"]
        site.octavia.members[lost].pop()
        (added,) = await previewed(site, provider, service)
        assert added == PartChange("create", "member 10.0.0.2:30080", "n2")


async def test_a_preview_answers_with_the_error_that_ensure_would(site: Balancing) -> None:
    async with started(site.wire.config()) as provider:
        assert provider.load_balancers is not None
        desired = site.desired(provider, site.service({f"{P}load-balancer-id": uuid(77)}))
        for verb in (provider.load_balancers.ensure, previews(provider)):
            answer = (await verb([desired]))["uid-web"]
            assert isinstance(answer, InvalidRequest)
            assert "there is no such load balancer" in str(answer)
