"""Load balancers of Rackspace on the emulator: made, edited, shared, refused, deleted."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from proreus.cloudprovider import Done, Ensured, Pending
from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.desired import LABEL_SERVICE_NAME
from proreus.cloudprovider.errors import CloudError, InvalidRequest, Throttled, Unauthenticated
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.controllers.service.drift import adopted, fingerprints
from proreus.kube.objects import Endpoint, EndpointSlice, ObjectMeta, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .emulator.faults import LOST
from .emulator.server import Emulator, served
from .lb_site import DNS, HTTP, HTTPS, NAME, UID, LBSite, lb_site
from .site import CLUSTER, SCHEME, node, started

TCP80, TCP443, UDP80 = f"{NAME}-tcp-80", f"{NAME}-tcp-443", f"{NAME}-udp-80"
MARKS = {
    "proreus/cluster": "test",
    "proreus/cluster-uid": CLUSTER.uid,
    "proreus/service": "shop/web",
    "proreus/service-uid": UID,
}


async def test_a_service_of_three_ports_has_three_load_balancers_at_one_address(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(HTTP, HTTPS, DNS))
        shown = site.shown()
        (address,) = {ip for one in shown.values() for ip in one["vips"]}
        assert [point.ip for point in answer.ingress] == [address]
        assert shown[TCP80] == {
            "protocol": "TCP", "port": 80, "algorithm": "ROUND_ROBIN", "timeout": 30,
            "status": "ACTIVE", "vips": [address], "access": {}, "monitor": None,
            "nodes": ["10.180.0.2:30080", "10.180.0.3:30080"], "persistence": None,
            "throttle": None, "marks": MARKS,
        }  # fmt: skip
        assert shown[UDP80]["nodes"] == ["10.180.0.2:30053", "10.180.0.3:30053"]
        assert sorted(shown) == [TCP443, TCP80, UDP80]
        assert await site.deleted(site.desired(HTTP)) == Done(found=True)
        assert await site.deleted(site.desired(HTTP)) == Done(found=False)
        assert not site.shown()


async def test_what_requests_a_service_costs(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        made = site.desired(HTTP, HTTPS)
        await site.made(made)
        assert emulator.calls["POST loadbalancers"] == 2
        emulator.calls.clear()
        assert isinstance(await site.ensure(made), Ensured)
        assert emulator.calls == {"GET loadbalancers": 1, "GET loadbalancer": 2}
        emulator.calls.clear()
        await site.made(site.desired(HTTP, HTTPS, ids=site.servers[:1]))
        assert emulator.calls["DELETE nodes"] == 2
        emulator.calls.clear()
        await site.deleted(made)
        assert emulator.calls["DELETE loadbalancer"] == 2


@pytest.mark.parametrize(
    ("asked", "spec", "expected"),
    [
        ({"algorithm": "least_connections"}, {}, {"algorithm": "LEAST_CONNECTIONS"}),
        ({"timeout": "60"}, {}, {"timeout": 60}),
        ({"max-connections": "100"}, {}, {"throttle": 100}),
        ({"protocol": "http"}, {}, {"protocol": "HTTP"}),
        ({"protocol": "80=HTTPS,443=HTTP"}, {}, {"protocol": "HTTPS"}),
        ({"protocol": "HTTP", "health-monitor": "http"}, {}, {"protocol": "HTTP", "monitor": "HTTP"}),
        ({"health-monitor": "connect"}, {}, {"monitor": "CONNECT"}),
        ({"protocol": "HTTP", "session-persistence": "http-cookie"}, {},
         {"protocol": "HTTP", "persistence": "HTTP_COOKIE"}),
        ({}, {"session_affinity": "ClientIP"}, {"persistence": "SOURCE_IP"}),
        ({"session-persistence": "none"}, {"session_affinity": "ClientIP"}, {"persistence": None}),
        ({}, {"load_balancer_source_ranges": ("192.0.2.0/24",)},
         {"access": {"0.0.0.0/0": "DENY", "192.0.2.0/24": "ALLOW"}}),
        ({}, {"load_balancer_source_ranges": ("2001:db8::/32",)}, {"access": {"0.0.0.0/0": "DENY"}}),
    ],
)  # fmt: skip
async def test_an_option_is_the_same_from_the_start_and_later_and_goes_again(
    emulator: Emulator, asked: Mapping[str, str], spec: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with lb_site(emulator) as site:
        plain, chosen = site.desired(HTTP), site.desired(HTTP, asked=asked, **spec)
        await site.made(plain)
        before = site.shown()[TCP80]
        await site.made(chosen)
        edited = site.shown()[TCP80]
        assert edited == {**before, **expected}
        assert not await site.preview(chosen)
        await site.made(plain)
        assert site.shown()[TCP80] == before
        await site.deleted(plain)
        await site.made(chosen)
        assert site.shown()[TCP80] == {**edited, "vips": site.shown()[TCP80]["vips"]}


async def test_monitors_of_the_cloud_config_are_not_for_udp(emulator: Emulator) -> None:
    sections = "[LoadBalancer]\ncreate-monitor = true\nmonitor-delay = 20s\n"
    async with lb_site(emulator, sections) as site:
        await site.made(site.desired(HTTP, DNS))
        assert site.by_name(TCP80)["healthMonitor"] == {
            "type": "CONNECT", "delay": 20, "timeout": 10, "attemptsBeforeDeactivation": 3,
        }  # fmt: skip
        assert site.by_name(UDP80)["healthMonitor"] is None
        await site.made(site.desired(HTTP, DNS, asked={"health-monitor": "none"}))
        assert site.by_name(TCP80)["healthMonitor"] is None


async def test_ten_services_at_once_share_few_lists(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        services = [
            site.desired(HTTP, uid=f"5e000000-0000-4000-8{number:03}-000000000001")
            for number in range(10)
        ]
        for _ in range(2):
            emulator.calls.clear()
            await asyncio.gather(*(site.ensure(one) for one in services))
            assert emulator.calls["GET loadbalancers"] <= 2
        assert len(site.clb.alive()) == 10
        emulator.fail("GET loadbalancers", 500)
        answers = await asyncio.gather(*(site.ensure(one) for one in services))
        assert any(isinstance(one, CloudError) for one in answers)


async def test_of_many_load_balancers_all_pages_are_read(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        emulator.clb.limit = 1000
        for number in range(250):
            site.by_hand(f"by hand {number}")
        desired = site.desired(HTTP)
        await site.made(desired)
        emulator.calls.clear()
        assert isinstance(await site.ensure(desired), Ensured)
        assert emulator.calls == {"GET loadbalancers": 3, "GET loadbalancer": 1}
        assert [one.service_uid for one in await site.balancers.list_owned(CLUSTER)] == [UID]
        assert emulator.calls == {"GET loadbalancers": 6, "GET loadbalancer": 2}
        await site.deleted(desired)
        assert len(site.clb.alive()) == 250


async def test_a_preview_says_what_is_done_then(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP, HTTPS)
        lines = [f"{one.action} {one.part}" for one in await site.preview(desired)]
        assert lines == [f"create load balancer {TCP80}", f"create load balancer {TCP443}"]
        await site.made(desired)
        edited = site.desired(HTTP, asked={"protocol": "HTTP", "timeout": "40"})
        (change, gone) = await site.preview(edited)
        assert change.detail == "protocol=HTTP, timeout=40, port=80"
        assert gone.part == f"load balancer {TCP443}"
        assert not any(method != "GET" for method, _, _ in emulator.log[-3:])


async def test_an_edited_port_keeps_the_address(emulator: Emulator) -> None:
    emulator.clb.works = 1000.0
    async with lb_site(emulator) as site:
        first = await site.made(site.desired(HTTP))
        second = await site.made(site.desired(HTTPS))
        assert first.ingress == second.ingress
        assert list(site.shown()) == [TCP443]


async def test_a_load_balancer_at_work_is_pending_and_one_that_refuses_so_too(
    emulator: Emulator,
) -> None:
    emulator.clb.works = 1000.0
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP)
        answer = await site.ensure(desired)
        assert isinstance(answer, Pending)
        assert "is BUILD" in answer.reason
        waits = [(await site.ensure(desired)).after for _ in range(2)]
        assert waits[0] < waits[1]
        await site.made(desired)
        one = site.by_name(TCP80)
        edited = site.desired(HTTP, asked={"timeout": "60"})
        emulator.calls.clear()
        emulator.fail("PUT loadbalancer", 422)  # somebody else was quicker
        body = {"message": f"Load Balancer '{one['id']}' is considered immutable.", "code": 422}
        emulator.failures["PUT loadbalancer"].body = body
        assert isinstance(await site.ensure(edited), Pending)
        assert emulator.calls["PUT loadbalancer"] == 1
        await site.made(edited)
        assert one["timeout"] == 60
        one["status"] = "PENDING_UPDATE"
        answers = await site.balancers.delete([desired.ref])
        assert isinstance(answers[UID], Pending)
        one["status"] = "ACTIVE"
        answers = await site.balancers.delete([desired.ref])
        assert isinstance(answers[UID], Pending)
        answers = await site.balancers.delete([desired.ref])
        assert isinstance(answers[UID], Pending)
        assert await site.deleted(desired) == Done(found=True)


async def test_servicenet_is_inside_and_changing_sides_makes_the_new_one_first(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        inside = site.desired(HTTP, asked={"type": "servicenet"}, ip_families=("IPv6", "IPv4"))
        answer = await site.made(inside)
        assert answer.ingress[0].ip.startswith("10.")
        emulator.log.clear()
        answer = await site.made(site.desired(HTTP))
        assert answer.ingress[0].ip.startswith("203.")
        changes = [method for method, _, _ in emulator.log if method != "GET"]
        assert changes == ["POST", "DELETE"]


async def test_a_dual_stack_service_has_both_addresses_and_cannot_lose_one(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        both = site.desired(HTTP, ip_families=("IPv4", "IPv6"))
        answer = await site.made(both)
        assert len(answer.ingress) == 2
        assert ":" in answer.ingress[1].ip
        assert site.shown()[TCP80]["nodes"] == ["10.180.0.2:30080", "10.180.0.3:30080"]
        refused = await site.ensure(site.desired(HTTP))
        assert isinstance(refused, InvalidRequest)
        assert "spec.ipFamilies" in str(refused)
        assert len(site.shown()[TCP80]["vips"]) == 2


async def test_a_service_of_ipv6_alone_reaches_nodes_at_publicnet(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(HTTP, ip_families=("IPv6",)))
        assert ":" in answer.ingress[0].ip
        assert all(one.startswith("2001:") for one in site.shown()[TCP80]["nodes"])


async def test_local_traffic_goes_to_nodes_with_ready_pods_only(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        of = site.desired().ref
        meta = ObjectMeta(namespace=of.namespace, labels={LABEL_SERVICE_NAME: of.service_name})
        slices = [EndpointSlice(meta, endpoints=(Endpoint(("10.64.0.1",), node_name="node-2"),))]
        local = site.desired(DNS, external_traffic_policy="Local", endpoints=slices)
        await site.made(local)
        assert site.shown()[UDP80]["nodes"] == ["10.180.0.3:30053"]


async def test_of_too_many_nodes_some_are_chosen_and_the_others_named(emulator: Emulator) -> None:
    async with lb_site(emulator, "[CloudLoadBalancers]\nmax-nodes = 5\n") as site:
        site.servers += emulator.add_servers([f"more-{number}" for number in range(20)])
        answer = await site.made(site.desired(HTTP))
        chosen = set(site.shown()[TCP80]["nodes"])
        assert (len(chosen), len(answer.rejected)) == (5, 17)
        assert "5 nodes are as many" in next(iter(answer.rejected.values()))
        site.servers += emulator.add_servers(["one-more"])
        await site.made(site.desired(HTTP))
        assert len(chosen & set(site.shown()[TCP80]["nodes"])) >= 4
        other = "5e000000-0000-4000-8001-000000000002"
        await site.made(site.desired(HTTP, uid=other))
        assert len({tuple(one["nodes"]) for one in site.shown().values()}) == 2


async def test_more_than_ten_nodes_are_exchanged_in_parts(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        site.servers += emulator.add_servers([f"more-{number}" for number in range(23)])
        await site.made(site.desired(HTTP))
        await site.made(site.desired(ServicePort(80, "http", node_port=30081)))
        nodes = site.shown()[TCP80]["nodes"]
        assert len(nodes) == 25
        assert all(one.endswith(":30081") for one in nodes)


@pytest.mark.parametrize(
    ("ports", "asked", "spec", "text"),
    [
        ((ServicePort(80, "s", node_port=30080, protocol="SCTP"),), {}, {}, "TCP and UDP only"),
        ((ServicePort(80, "http"),), {}, {}, "no node port"),
        ((HTTP, DNS), {"protocol": "80=HTTP"}, {}, "cannot share port 80"),
        ((HTTP,), {"session-persistence": "http-cookie"}, {}, "needs a port of protocol HTTP"),
        ((HTTP,), {"health-monitor": "https"}, {}, "needs a port of protocol HTTPS"),
        ((HTTP,), {"algorithm": "BEST"}, {}, "algorithm: give one of LEAST_CONNECTIONS"),
        ((HTTP,), {"protocol": "80=QUIC"}, {}, "protocol: give a protocol"),
        ((HTTP,), {"protocol": "80:HTTP"}, {}, "protocol: give a protocol"),
        ((HTTP,), {"type": "PRIVATE"}, {}, "type: give one of PUBLIC, SERVICENET"),
        ((HTTP,), {"timeout": "10"}, {}, "timeout: give a number from 30 to 120"),
        ((HTTP,), {"max-connections": "x"}, {}, "max-connections: give a number"),
        ((HTTP,), {"health-monitor-path": "x"}, {}, "health-monitor-path: give a path"),
        ((HTTP,), {}, {"load_balancer_source_ranges": tuple(f"10.0.{n}.0/24" for n in range(100))},
         "room for 99 CIDRs"),
        ((HTTP,), {}, {"load_balancer_ip": "203.0.113.99"}, "no load balancer of this account"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_before_anything_is_made(
    emulator: Emulator,
    ports: tuple[ServicePort, ...],
    asked: Mapping[str, str],
    spec: dict[str, Any],
    text: str,
) -> None:
    async with lb_site(emulator) as site:
        try:
            answer = await site.ensure(site.desired(*ports, asked=asked, **spec))
        except InvalidRequest as error:
            answer = error
        assert isinstance(answer, InvalidRequest)
        assert text in str(answer)
        assert not any(method != "GET" for method, path, _ in emulator.log if "/clb/" in path)


async def test_an_address_of_a_load_balancer_that_is_nobodys_is_shared_and_survives(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        kept = site.by_hand()
        ip = kept["virtualIps"][0]["address"]
        desired = site.desired(HTTP, HTTPS, load_balancer_ip=ip)
        assert site.balancers.fingerprint(desired) == ""
        answer = await site.made(desired)
        assert [point.ip for point in answer.ingress] == [ip]
        await site.deleted(desired)
        assert list(site.shown()) == ["by hand"]
        inside = site.desired(HTTP, asked={"type": "SERVICENET"}, load_balancer_ip=ip)
        refused = await site.ensure(inside)
        assert "does not have addresses of SERVICENET" in str(refused)


async def test_nodes_take_nothing_from_what_others_have_at_the_address_of_a_refused_service(
    emulator: Emulator,
) -> None:
    """It may be the API server's: it stays in the status of who then asks for 6443."""
    async with lb_site(emulator) as site:
        api = site.by_hand("api", port=6443, protocol="TCP")
        ip = api["virtualIps"][0]["address"]
        site.clb.finish()
        answer = await site.made(site.desired(HTTP, load_balancer_ip=ip))
        assert [(point.ip, point.ip_mode) for point in answer.ingress] == [(ip, "Proxy")]
        taking = site.desired(
            HTTP, ServicePort(6443, "x", node_port=30043), load_balancer_ip=ip, shown=[ip]
        )
        refused = await site.settled(taking)
        assert isinstance(refused, CloudError)
        assert "currently using the requested port" in str(refused)
        own = await site.made(site.desired(HTTP, uid="5e000000-0000-4000-8000-000000000002"))
        assert [point.ip_mode for point in own.ingress] == [None]


@pytest.mark.parametrize("name", ["api-tcp-6443", f"a{'0' * 31}-tcp-6443"])
async def test_what_is_none_of_the_clusters_is_known_as_that_whatever_it_is_called(
    emulator: Emulator, name: str
) -> None:
    """The Service has named its address once, and keeps that; another cluster's may be there."""
    async with lb_site(emulator) as site:
        api = site.by_hand(name, port=6443, protocol="TCP")
        ip = api["virtualIps"][0]["address"]
        await site.made(site.desired(load_balancer_ip=ip))
        answer = await site.made(site.desired(shown=(ip,)))
        assert [(point.ip, point.ip_mode) for point in answer.ingress] == [(ip, "Proxy")]


@pytest.mark.parametrize("mode", ["VIP", "Proxy"])
async def test_a_named_address_that_a_former_version_has_shown_is_shown_anew_after_a_restart(
    emulator: Emulator, mode: str
) -> None:
    """With VIP nodes lead what comes for others there to pods, whatever the Service asks for."""
    async with lb_site(emulator) as site:
        ip = site.by_hand()["virtualIps"][0]["address"]
        site.clb.finish()
        (point,) = (await site.made(site.desired(load_balancer_ip=ip))).ingress
        listed = fingerprints(await site.balancers.list_owned(CLUSTER))
        shown = replace(point, ip_mode=mode)
        desired = site.desired(load_balancer_ip=ip, ingress=[shown])
        known = adopted(desired, site.balancers.fingerprint(desired), listed)
        assert (known is not None) == (mode == "Proxy")


@pytest.mark.parametrize("hidden", [(), ("metadata",)])
async def test_an_address_of_another_namespace_or_cluster_is_refused(
    emulator: Emulator, hidden: tuple[str, ...]
) -> None:
    emulator.clb.hides = frozenset(hidden)
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(HTTP))
        ip = answer.ingress[0].ip
        other = "5e000000-0000-4000-8000-000000000002"
        near = site.desired(HTTPS, uid=other, load_balancer_ip=ip)
        assert [point.ip for point in (await site.made(near)).ingress] == [ip]
        for more in (
            {"namespace": "bank"},
            {"cluster": ClusterIdentity("other", "0b5e3a1c-0000-4000-8000-000000000002")},
        ):
            third = "5e000000-0000-4000-8000-000000000003"
            refused = await site.ensure(site.desired(DNS, uid=third, load_balancer_ip=ip, **more))
            assert isinstance(refused, InvalidRequest)
            assert "it belongs to" in str(refused)


@pytest.mark.parametrize("status", ["ACTIVE", "PENDING_UPDATE", "ERROR", "SUSPENDED"])
async def test_an_address_of_another_cluster_is_refused_though_its_load_balancer_is_not_found(
    emulator: Emulator, status: str
) -> None:
    async with lb_site(emulator) as site:
        ip = (await site.made(site.desired(HTTP))).ingress[0].ip
        site.by_name(TCP80)["status"] = status  # as while that cluster's manager changes it
        cluster = ClusterIdentity("other", "0b5e3a1c-0000-4000-8000-000000000002")
        other = "6f000000-0000-4000-8000-000000000002"
        rival = site.desired(HTTPS, uid=other, load_balancer_ip=ip, cluster=cluster)
        emulator.fail("GET loadbalancer", 404)
        answer = await site.ensure(rival)
        assert isinstance(answer, CloudError), answer
        assert ", but does not find it" in str(answer)
        assert "it belongs to" in str(await site.ensure(rival))
        assert emulator.calls["POST loadbalancers"] == 1


async def test_of_two_namespaces_that_name_one_address_at_once_the_first_one_has_it(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        theirs = site.by_hand()
        site.clb.finish()
        ip = theirs["virtualIps"][0]["address"]
        other = "5e000000-0000-4000-8000-000000000002"
        rivals = [
            site.desired(HTTP, load_balancer_ip=ip),
            site.desired(HTTPS, uid=other, namespace="bank", load_balancer_ip=ip),
        ]
        first = await asyncio.gather(*map(site.settled, rivals))
        assert {type(one) for one in first} == {Ensured, InvalidRequest}
        assert len(site.shown()) == 2


async def test_an_address_that_another_namespace_has_begun_to_use_is_refused_before_lists_show_it(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        theirs = site.by_hand()
        site.clb.finish()
        ip = theirs["virtualIps"][0]["address"]
        own = site.desired(HTTP, load_balancer_ip=ip)
        emulator.clb.works = 1000.0
        assert isinstance(await site.ensure(own), Pending)
        emulator.clb.unlisted = set(emulator.clb.by_id) - {theirs["id"]}
        other = "5e000000-0000-4000-8000-000000000002"
        rival = site.desired(HTTPS, uid=other, namespace="bank", load_balancer_ip=ip)
        answer = await site.ensure(rival)
        assert isinstance(answer, InvalidRequest), answer
        assert "it belongs to the Service shop/web" in str(answer)
        emulator.clb.unlisted.clear()
        await site.made(own)
        assert len(site.clb.alive()) == 2


async def test_an_address_is_another_namespace_s_also_where_only_some_of_its_ports_could_be_made(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        theirs = site.by_hand()
        site.clb.finish()
        ip = theirs["virtualIps"][0]["address"]
        own = site.desired(HTTP, HTTPS, load_balancer_ip=ip)
        emulator.clb.limit = 2
        assert isinstance(await site.ensure(own), CloudError)
        emulator.clb.unlisted = set(emulator.clb.by_id) - {theirs["id"]}
        emulator.clb.limit = 25
        other = "5e000000-0000-4000-8000-000000000002"
        rival = site.desired(HTTPS, uid=other, namespace="bank", load_balancer_ip=ip)
        answer = await site.ensure(rival)
        assert isinstance(answer, InvalidRequest), answer
        assert "it belongs to the Service shop/web" in str(answer)
        await site.made(own)
        assert len(site.clb.alive()) == 3


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_address_of_another_namespace_is_refused_while_its_load_balancers_are_made_anew(
    emulator: Emulator, *, is_listed: bool
) -> None:
    """Somebody has deleted them by hand; the one that was made by hand has no mark."""
    known = Objects()
    site = LBSite(emulator)
    ip = site.by_hand()["virtualIps"][0]["address"]
    site.clb.finish()
    sections = f"[Tenants]\nallow = bank={ip}\n" if is_listed else ""
    async with started(emulator, sections, services=known) as site.provider:
        await site.made(site.desired(HTTP, load_balancer_ip=ip))
        own = site.desired(HTTP, load_balancer_ip=ip, shown=[ip])
        other = "5e000000-0000-4000-8000-000000000002"
        theirs = site.desired(HTTPS, uid=other, namespace="bank", load_balancer_ip=ip)
        known.by_key = {"shop/web": own.service, "bank/web": theirs.service}
        site.by_name(TCP80)["status"] = "DELETED"
        answer = await site.settled(theirs)
        if is_listed:
            assert isinstance(answer, Ensured)
            return
        assert isinstance(answer, InvalidRequest)
        assert "it belongs to the Service shop/web" in str(answer)
        assert (await site.made(own)).ingress[0].ip == ip


async def test_no_address_comes_with_a_named_one_that_others_use(emulator: Emulator) -> None:
    """Another namespace's Service shares the IPv6 address of a load balancer made by hand."""
    async with lb_site(emulator) as site:
        versions = [{"type": "PUBLIC", "ipVersion": version} for version in ("IPV4", "IPV6")]
        theirs = site.by_hand(virtualIps=versions)
        site.clb.finish()
        ip4, ip6 = (vip["address"] for vip in theirs["virtualIps"])
        of_bank = site.desired(
            HTTPS, uid="5e000000-0000-4000-8000-000000000002", namespace="bank",
            load_balancer_ip=ip6, ip_families=("IPv6",),
        )  # fmt: skip
        assert [point.ip for point in (await site.made(of_bank)).ingress] == [ip6]
        before = site.shown()
        both = site.desired(HTTP, load_balancer_ip=ip4, ip_families=("IPv4", "IPv6"))
        refused = await site.ensure(both)
        assert isinstance(refused, InvalidRequest), refused
        assert "it belongs to" in str(refused)
        assert site.shown() == before
        await site.deleted(of_bank)
        answer = await site.made(both)
        assert {point.ip for point in answer.ingress} == {ip4, ip6}


@pytest.mark.parametrize("hidden", [(), ("metadata",)])
async def test_what_is_anothers_is_never_touched(
    emulator: Emulator, hidden: tuple[str, ...]
) -> None:
    """A load balancer of our name and another cluster's metadata: a cluster from the same backup."""
    emulator.clb.hides = frozenset(hidden)
    async with lb_site(emulator) as site:
        metadata = [
            {"key": "proreus/cluster-uid", "value": "another"},
            {"key": "proreus/service-uid", "value": UID},
        ]
        foreign = site.by_hand(TCP80, metadata=metadata)
        before = dict(foreign)
        desired = site.desired(HTTP, shown=[foreign["virtualIps"][0]["address"]])
        await site.made(desired)
        await site.deleted(desired)
        assert foreign == before
        assert await site.balancers.list_owned(CLUSTER) == []


async def test_a_renamed_load_balancer_is_found_by_its_address_and_named_again(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(HTTP))
        site.by_name(TCP80)["name"] = "my own name"
        await site.made(site.desired(HTTP, shown=[answer.ingress[0].ip]))
        assert list(site.shown()) == [TCP80]


async def test_list_owned_shows_what_the_fingerprint_says_and_drift(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP, HTTPS, load_balancer_source_ranges=("192.0.2.1/32",))
        await site.made(desired)
        wanted = site.balancers.fingerprint(desired)
        listed = await site.balancers.list_owned(CLUSTER)
        assert {one.fingerprint for one in listed} == {wanted}
        assert {(one.service, one.service_uid) for one in listed} == {("shop/web", UID)}
        for field, value in (
            ("algorithm", "RANDOM"),
            ("accessList", []),
            ("nodes", []),
            ("sessionPersistence", {"persistenceType": "SOURCE_IP"}),
            ("status", "PENDING_UPDATE"),
        ):
            one = site.by_name(TCP80)
            before, one[field] = one[field], value
            listed = await site.balancers.list_owned(CLUSTER)
            assert wanted not in {one.fingerprint for one in listed}, field
            one[field] = before


async def test_a_node_that_somebody_drains_by_hand_is_enabled_again(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(HTTP))
        site.by_name(TCP80)["nodes"][0]["condition"] = "DRAINING"
        await site.made(site.desired(HTTP))
        assert {node["condition"] for node in site.by_name(TCP80)["nodes"]} == {"ENABLED"}


@pytest.mark.parametrize("status", ["ERROR", "SUSPENDED"])
async def test_a_failed_load_balancer_is_told_and_tried_to_be_deleted(
    emulator: Emulator, status: str
) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        one = site.by_name(TCP80)
        one["status"] = status
        answer = await site.ensure(desired)
        assert isinstance(answer, CloudError)
        assert f"{one['id']} ({status}): Rackspace's support" in str(answer)
        answer = (await site.balancers.delete([desired.ref]))[UID]
        assert isinstance(answer, CloudError)
        assert f"only support can end its state, {status}" in str(answer)
        assert emulator.calls["DELETE loadbalancer"] == 1


async def test_one_that_is_listed_and_not_found_is_not_made_once_more(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        emulator.fail("GET loadbalancer", 404)
        answer = await site.ensure(desired)
        assert isinstance(answer, CloudError)
        assert ", but does not find it" in str(answer)
        assert emulator.calls["POST loadbalancers"] == 1
        assert isinstance(await site.ensure(desired), Ensured)


async def test_one_that_is_not_listed_yet_is_not_made_once_more(emulator: Emulator) -> None:
    emulator.clb.works = 1000.0
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP)
        assert isinstance(await site.ensure(desired), Pending)
        emulator.clb.unlisted = set(emulator.clb.by_id)
        await site.made(desired)
        assert len(site.clb.alive()) == 1
        emulator.clb.unlisted.clear()
        assert await site.deleted(desired) == Done(found=True)


async def test_one_that_a_list_leaves_out_is_not_made_once_more(emulator: Emulator) -> None:
    """A new process knows no more than the address in the Service's status."""
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(HTTP))).ingress
        desired = site.desired(HTTP, shown=[point.ip])
    async with lb_site(emulator) as site:
        emulator.clb.unlisted = set(emulator.clb.by_id)
        answer = await site.ensure(desired)
        assert isinstance(answer, Pending)
        assert "once more" in answer.reason
        emulator.clb.unlisted.clear()
        assert (await site.made(desired)).ingress == (point,)
        assert len(site.clb.alive()) == 1


async def test_an_address_that_is_left_is_shown_no_more_while_the_next_one_is_not_there(
    emulator: Emulator,
) -> None:
    """Rackspace gives it to whoever comes next, and nodes would lead their clients here."""
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(HTTP))).ingress
        inside = site.desired(HTTP, asked={"type": "servicenet"}, shown=[point.ip])
        emulator.fail("POST loadbalancers")
        kept = await site.settled(inside)
        assert isinstance(kept, CloudError)
        assert not kept.disowns
        emulator.clb.by_id.clear()  # by hand
        emulator.fail("POST loadbalancers")
        answers = await site.answers(inside)
        assert not any(one.withdrawn for one in answers[:-1])
        assert isinstance(answers[-1], CloudError)
        assert answers[-1].disowns
        emulator.clb.works = 1000.0
        waits = await site.ensure(inside)
        assert isinstance(waits, Pending)
        assert waits.withdrawn
        assert (await site.made(inside)).ingress != (point,)


async def test_an_address_that_is_left_is_shown_no_more_while_another_is_named_in_vain(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(HTTP))).ingress
        wrong = site.desired(HTTP, load_balancer_ip="203.0.113.99", shown=[point.ip])
        refused = await site.ensure(wrong)
        assert isinstance(refused, InvalidRequest)
        assert not refused.disowns
        emulator.clb.by_id.clear()  # by hand
        answers = await site.answers(wrong)
        assert isinstance(answers[0], Pending)
        assert not any(one.withdrawn for one in answers[:-1])
        assert isinstance(answers[-1], InvalidRequest)
        assert answers[-1].disowns
    async with served() as other, started(other) as provider:
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.ensure([wrong]))[UID]
        assert "credentials" in str(answer)
        assert isinstance(answer, CloudError)
        assert not answer.disowns


async def test_none_is_made_anew_in_another_account(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(HTTP))).ingress
        desired = site.desired(HTTP, shown=[point.ip])
    async with served() as other, started(other) as provider:
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.ensure([desired]))[UID]
        assert isinstance(answer, CloudError)
        assert "credentials" in str(answer)
        assert not other.clb.by_id


async def test_another_account_that_shows_none_is_no_end_of_a_deletion(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(HTTP))).ingress
        ref = site.desired(HTTP, shown=[point.ip]).ref
        nodes = [node("node-1", f"{SCHEME}{site.servers[0]}")]
    async with served() as other, started(other, nodes=nodes) as provider:
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.delete([ref]))[UID]
        assert isinstance(answer, CloudError)
        assert "credentials" in str(answer)
    async with started(emulator, nodes=nodes) as site.provider:
        assert (await site.deleted(site.desired(HTTP, shown=[point.ip]))).found
        assert not emulator.clb.alive()
        # Somebody has deleted it by hand: a machine is shown.
        answer = (await site.balancers.delete([ref]))[UID]
        assert answer == Done(found=False)


async def test_parts_that_details_leave_out_are_asked_for_and_not_set_again(
    emulator: Emulator,
) -> None:
    emulator.clb.hides = frozenset(
        {"accessList", "connectionThrottle", "healthMonitor", "sessionPersistence", "metadata"}
    )
    asked = {"max-connections": "5", "health-monitor": "connect"}
    async with lb_site(emulator) as site:
        desired = site.desired(
            HTTP, asked=asked, load_balancer_source_ranges=("192.0.2.0/24",),
            session_affinity="ClientIP",
        )  # fmt: skip
        await site.made(desired)
        emulator.log.clear()
        assert isinstance(await site.ensure(desired), Ensured)
        assert {method for method, _, _ in emulator.log} == {"GET"}


async def test_the_limit_of_the_account_is_told_and_the_rate_is_waited_for(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        emulator.clb.limit = 0
        answer = await site.ensure(site.desired(HTTP))
        assert isinstance(answer, CloudError)
        assert not isinstance(answer, Throttled)
        assert "Contact support" in str(answer)
        emulator.clb.limit = 25
        emulator.rates = {"GET": 0}
        answer = await site.ensure(site.desired(HTTP))
        assert isinstance(answer, Throttled)
        assert answer.after == 1.0


async def test_an_observer_cannot_make_any_and_is_told(emulator: Emulator) -> None:
    emulator.roles = frozenset({"nova:observer", "lbaas:observer"})
    async with lb_site(emulator) as site:
        answer = await site.ensure(site.desired(HTTP))
        assert isinstance(answer, Unauthenticated)
        assert "Access Denied" in str(answer)


@pytest.mark.parametrize(("status", "after_effect"), [(500, False), (LOST, True)])
@pytest.mark.parametrize(
    "operation",
    ["POST loadbalancers", "GET loadbalancers", "GET loadbalancer", "POST nodes", "DELETE nodes",
     "POST accesslist", "PUT loadbalancer", "DELETE loadbalancer"],
)  # fmt: skip
async def test_a_failure_before_or_after_the_effect_is_made_good(
    emulator: Emulator, operation: str, status: int, *, after_effect: bool
) -> None:
    async with lb_site(emulator) as site:
        first = site.desired(HTTP, ids=site.servers[:1])
        second = site.desired(
            HTTP, HTTPS, ids=site.servers[1:], asked={"timeout": "60"},
            load_balancer_source_ranges=("192.0.2.0/24",),
        )  # fmt: skip
        if operation == "POST loadbalancers":
            emulator.fail(operation, status, after_effect=after_effect)
        await patiently(site, first)
        ip = site.shown()[TCP80]["vips"]
        emulator.fail(operation, status, after_effect=after_effect)
        await patiently(site, second)
        assert {tuple(one["vips"]) for one in site.shown().values()} == {tuple(ip)}
        assert sorted(site.shown()) == [TCP443, TCP80]
        assert len(site.clb.alive()) == 2
        while not isinstance((await site.balancers.delete([first.ref]))[UID], Done):
            await asyncio.sleep(0)
        assert not site.shown()


async def patiently(site: LBSite, desired: Any) -> None:
    """Ensure until all is done; errors are tried again, as the framework does."""
    for _ in range(30):
        answer = await site.ensure(desired)
        if isinstance(answer, Ensured):
            return
    raise AssertionError(answer)


async def test_without_load_balancers_there_are_none(emulator: Emulator) -> None:
    async with lb_site(emulator, "[CloudLoadBalancers]\nenabled = false\n") as site:
        assert site.provider.load_balancers is None


async def test_a_node_of_another_cloud_is_no_host(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP)
        other = replace(desired.hosts[0], node="far", provider_id="aws:///eu-1a/i-0123456789")
        bare = replace(desired.hosts[0], node="bare", addresses={})
        answer = await site.made(replace(desired, hosts=(*desired.hosts, other, bare)))
        assert sorted(answer.rejected) == ["bare", "far"]
        assert len(site.shown()[TCP80]["nodes"]) == 2


@pytest.mark.parametrize("claimed", ["127.0.0.1", "127.9.9.9"])
async def test_no_node_keeps_services_from_their_hosts_by_the_address_that_it_claims(
    emulator: Emulator, claimed: str
) -> None:
    """Rackspace refuses all nodes of a load balancer for one at an address of loopback."""
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(HTTP, claimed=[claimed]))
        assert list(answer.rejected) == ["node-1"]
        assert site.shown()[TCP80]["nodes"] == ["10.180.0.3:30080"]


async def test_an_address_that_another_node_claims_in_another_form_is_one_host(
    emulator: Emulator,
) -> None:
    """Rackspace refuses all nodes of a load balancer for one that is there twice."""
    async with lb_site(emulator) as site:
        plain = site.desired(HTTP, ip_families=("IPv6",))
        (theirs,) = plain.hosts[1].addresses["IPv6"]
        same = plain_address(theirs)
        for claimed in (same.upper(), same):
            assert claimed != theirs
            await site.made(site.desired(HTTP, ip_families=("IPv6",), claimed=[claimed]))
            assert site.shown()[TCP80]["nodes"] == [f"{same}:30080"]
