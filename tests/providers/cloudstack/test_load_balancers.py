"""Load balancers of CloudStack: rules, addresses, firewalls, marks, jobs, refusals."""

from typing import Any

import pytest

from proreus.cloudprovider import (
    CloudError,
    Done,
    Ensured,
    InvalidRequest,
    Pending,
    RetryAfter,
    Throttled,
)
from proreus.cloudprovider.desired import LABEL_SERVICE_NAME
from proreus.cloudprovider.identity import (
    MARK_CLUSTER_UID,
    MARK_FINGERPRINT,
    MARK_SERVICE_UID,
    ClusterIdentity,
)
from proreus.kube.objects import (
    Endpoint,
    EndpointSlice,
    LoadBalancerIngress,
    ObjectMeta,
    ServicePort,
)
from proreus.providers.cloudstack.balancing.annotations import ASSOCIATED
from proreus.providers.cloudstack.balancing.owners import CLAIM

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .emulator.refusals import Refusal
from .emulator.server import Emulator, served
from .lb_site import DNS, HTTP, HTTPS, NAME, UID, LBSite, lb_site
from .site import CLUSTER, node, started

OTHER_UID = "5e000000-0000-4000-8000-0000000000b2"


def firewall(site: LBSite) -> set[tuple[str, str, int, str]]:
    return {
        (one["ipaddress"], one["protocol"], one["startport"], one["cidrlist"])
        for one in site.world.firewall.values()
    }


async def test_each_port_has_a_rule_of_the_official_name_and_form(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(HTTP, DNS))
    (ip,) = site.allocated()
    assert answer == Ensured((LoadBalancerIngress(ip=ip),))
    rules = site.rules()
    assert rules.keys() == {f"{NAME}-tcp-80", f"{NAME}-udp-80"}
    expected = {
        "publicip": ip, "publicport": "80", "privateport": "30080", "protocol": "tcp",
        "algorithm": "roundrobin", "networkid": site.network, "cidrlist": "0.0.0.0/0",
        "members": set(site.machines), "state": "Active",
    }  # fmt: skip
    assert expected.items() <= rules[f"{NAME}-tcp-80"].items()
    assert UID in rules[f"{NAME}-tcp-80"]["description"]
    assert firewall(site) == {(ip, "tcp", 80, "0.0.0.0/0"), (ip, "udp", 80, "0.0.0.0/0")}
    marks = site.world.tags["PublicIpAddress", site.address(ip)["id"]]
    assert marks[MARK_CLUSTER_UID] == CLUSTER.uid
    assert marks[MARK_SERVICE_UID] == UID


async def test_deletion_leaves_nothing_and_closes_a_rule_before_it_goes(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP, HTTPS)
        await site.made(desired)
        emulator.log.clear()
        assert await site.deleted(desired) == Done()
        assert site.is_empty()
        assert await site.deleted(desired) == Done(found=False)
    changes = [command for command, _ in emulator.log if not command.startswith(("list", "query"))]
    assert changes == [
        *["deleteFirewallRule"] * 2, *["deleteLoadBalancerRule"] * 2, "disassociateIpAddress"
    ]  # fmt: skip


async def test_at_rest_nothing_is_written_and_five_lists_are_read(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        emulator.calls.clear()
        await site.made(desired)
    assert emulator.calls == {
        "listLoadBalancerRules": 1, "listLoadBalancerRuleInstances": 1, "listNetworks": 1,
        "listPublicIpAddresses": 1, "listFirewallRules": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"session_affinity": "ClientIP"}, "algorithm", "source"),
        ({"asked": {"proxy-protocol": "true"}}, "protocol", "tcp-proxy"),
        ({"asked": {"source-cidrs": "192.0.2.0/24, 198.51.100.0/24"}}, "cidrlist",
         "192.0.2.0/24 198.51.100.0/24"),
        ({"asked": {"source-cidrs": ""}}, "cidrlist", "255.255.255.255/32"),
    ],
)  # fmt: skip
async def test_a_rule_is_changed_in_place(
    emulator: Emulator, change: dict[str, Any], field: str, value: str
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        (before,) = site.world.rules
        await site.made(site.desired(**change))
        ((id_, after),) = site.world.rules.items()
        assert id_ == before
        assert after[field] == value
        assert after["name"] == f"{NAME}-{after['protocol']}-80"
        await site.made(site.desired())
        assert site.world.rules[before]["protocol"] == "tcp"
        assert site.world.rules[before]["cidrlist"] == "0.0.0.0/0"


async def test_before_4_22_a_rule_with_other_sources_is_made_anew_and_stays_open(
    emulator: Emulator,
) -> None:
    emulator.world.version = "4.20.1.0"
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        (before,), opened = site.world.rules, set(site.world.firewall)
        await site.made(site.desired(asked={"source-cidrs": "192.0.2.0/24"}))
        ((after, rule),) = site.world.rules.items()
    assert after != before
    assert rule["cidrlist"] == "192.0.2.0/24"
    assert set(site.world.firewall) == opened
    assert set(site.world.members[after]) == set(site.machines)


async def test_before_4_18_sources_of_rules_are_refused_with_what_to_use_instead(
    emulator: Emulator,
) -> None:
    emulator.world.version = "4.17.2.0"
    async with lb_site(emulator) as site:
        refused = await site.ensure(site.desired(asked={"source-cidrs": "192.0.2.0/24"}))
    assert isinstance(refused, InvalidRequest)
    assert "4.18" in str(refused)
    assert "loadBalancerSourceRanges" in str(refused)


@pytest.mark.parametrize(
    "services",
    [
        [{"name": "SecurityGroup"}, {"name": "Dhcp"}],
        [{"name": "Lb", "capability": [{"name": "LbSchemes", "value": "Internal"}]}],
    ],
    ids=["a basic zone", "internal load balancing"],
)
async def test_a_network_without_load_balancing_is_refused_before_an_address_is_acquired(
    emulator: Emulator, services: list[dict[str, Any]]
) -> None:
    async with lb_site(emulator) as site:
        site.world.networks[site.network]["service"] = services
        refused = await site.ensure(site.desired())
        assert isinstance(refused, CloudError)
        assert "service Lb" in str(refused)
        assert "provider local" in str(refused)
        assert site.is_empty()
        # What was made before the offering was changed can be deleted.
        assert isinstance(await site.deleted(site.desired()), Done)


async def test_source_ranges_are_those_of_the_firewall(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        first = ("192.0.2.0/24", "198.51.100.0/24")
        answer = await site.made(site.desired(load_balancer_source_ranges=first))
        ip = answer.ingress[0].ip
        assert firewall(site) == {(ip, "tcp", 80, "192.0.2.0/24,198.51.100.0/24")}
        # CloudStack refuses lists that overlap, and takes others beside one another.
        for ranges in (("192.0.2.0/24",), ("203.0.113.0/24",)):
            await site.made(site.desired(load_balancer_source_ranges=ranges))
            assert firewall(site) == {(ip, "tcp", 80, ranges[0])}


async def test_a_firewall_rule_for_several_ports_is_left_alone(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired()
        answer = await site.made(desired)
        address = site.address(answer.ingress[0].ip)
        wide = {"id": site.world.new_id(), "ipaddressid": address["id"], "protocol": "tcp"}
        wide |= {"ipaddress": "", "cidrlist": "10.0.0.0/8", "startport": 1, "endport": 99}
        site.world.firewall[wide["id"]] = {**wide, "state": "Active"}
        await site.made(site.desired(HTTPS))
        assert wide["id"] in site.world.firewall


async def test_ports_come_and_go_at_the_same_address(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        before = await site.made(site.desired(HTTP))
        after = await site.made(site.desired(HTTPS))
        assert before.ingress == after.ingress
        assert site.rules().keys() == {f"{NAME}-tcp-443"}
        assert {one[2] for one in firewall(site)} == {443}
        moved = ServicePort(443, "https", node_port=31443)
        await site.made(site.desired(moved))
        assert site.rules()[f"{NAME}-tcp-443"]["privateport"] == "31443"
        assert site.rules()[f"{NAME}-tcp-443"]["members"] == set(site.machines)


async def test_hosts_that_cannot_be_members_are_rejected_with_the_reason(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        (elsewhere,) = site.world.add_machines(["far"], site.world.add_network(cidr="10.2.0.0/16"))
        (gone, going) = site.world.add_machines(["gone", "going"], site.network)
        site.world.remove_machine(gone)
        site.world.machines[going]["state"] = "Destroyed"
        site.world.shows_destroyed = True
        ids = [*site.machines, elsewhere, gone, going]
        answer = await site.made(site.desired(ids=ids))
    assert site.rules()[f"{NAME}-tcp-80"]["members"] == set(site.machines)
    assert answer.rejected.keys() == {"node-3", "node-4", "node-5"}
    assert site.network in answer.rejected["node-3"]
    assert "no such machine" in answer.rejected["node-4"]
    assert "Destroyed" in answer.rejected["node-5"]


async def test_without_any_machine_nothing_is_made_and_the_reason_is_told(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        refused = await site.ensure(site.desired(ids=[]))
    assert isinstance(refused, CloudError)
    assert "there are no nodes" in str(refused)
    assert site.is_empty()


async def test_local_traffic_goes_to_nodes_with_ready_pods_only(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        of = site.desired().ref
        meta = ObjectMeta(namespace=of.namespace, labels={LABEL_SERVICE_NAME: of.service_name})
        slices = [EndpointSlice(meta, endpoints=(Endpoint(("10.9.0.1",), node_name="node-2"),))]
        local: dict[str, Any] = {
            "external_traffic_policy": "Local",
            "health_check_node_port": 30999,
        }
        await site.made(site.desired(endpoints=slices, **local))
        assert site.rules()[f"{NAME}-tcp-80"]["members"] == {site.machines[1]}


async def test_a_host_name_stands_in_the_status_in_the_place_of_the_address(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired(asked={"hostname": "lb.example.org"}))
        assert answer.ingress == (LoadBalancerIngress(hostname="lb.example.org"),)
        answer = await site.made(site.desired(asked={"proxy-protocol": "true"}))
        assert answer.ingress[0].ip_mode == "Proxy"


async def test_all_that_is_wrong_with_annotations_and_ports_is_told(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        asked = {"proxy-protocol": "maybe", "hostname": "no host", "source-cidrs": "everyone"}
        refused = str(await site.ensure(site.desired(asked=asked)))
        for name in asked:
            assert f"cloudstack-load-balancer-{name}: give" in refused
        sctp = ServicePort(80, "x", node_port=30080, protocol="SCTP")
        refused = str(await site.ensure(site.desired(sctp)))
        assert "SCTP" in refused


# Addresses


async def test_a_given_address_is_used_and_never_released(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        site.give("203.0.113.7")
        desired = site.desired(load_balancer_ip="203.0.113.7")
        answer = await site.made(desired)
        assert answer.ingress[0].ip == "203.0.113.7"
        assert not answer.annotations
        await site.deleted(desired)
        assert site.allocated() == {"203.0.113.7"}
        assert not site.world.rules
        assert not site.world.firewall


async def test_an_address_that_is_left_is_shown_no_more_while_the_next_one_is_not_there(
    emulator: Emulator,
) -> None:
    """CloudStack gives it to whoever comes next, and nodes would lead their clients here."""
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired())).ingress
        edited = site.desired(HTTP, HTTPS, shown=point.ip)
        emulator.fail("createLoadBalancerRule")
        kept = await site.settled(edited)
        assert isinstance(kept, CloudError)
        assert not kept.disowns
        site.world.release(site.address(point.ip)["id"])
        theirs = site.give(point.ip, account="other")
        emulator.fail("associateIpAddress", times=100)
        answers = await site.answers(edited)
        assert not any(one.withdrawn for one in answers[:-1])
        assert isinstance(answers[-1], CloudError)
        assert answers[-1].disowns
        emulator.failures.clear()
        assert (await site.made(edited)).ingress != (point,)
        assert site.world.ips[theirs]["account"] == "other"


async def test_a_named_address_that_is_free_is_acquired_and_released_with_the_service(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_ip="203.0.113.7")
        answer = await site.made(desired)
        assert site.allocated() == {"203.0.113.7"}
        assert answer.annotations == {ASSOCIATED: "true"}
        await site.deleted(desired)
        assert site.is_empty()


@pytest.mark.parametrize(
    ("ip", "part"), [("192.0.2.99", "no public address"), ("203.0.113.7", "nodes' network")]
)
async def test_an_address_that_cannot_be_had_is_refused_and_named(
    emulator: Emulator, ip: str, part: str
) -> None:
    async with lb_site(emulator) as site:
        site.give("203.0.113.7", associatednetworkid="another")
        refused = await site.ensure(site.desired(load_balancer_ip=ip))
    assert isinstance(refused, InvalidRequest)
    assert part in str(refused)
    assert ip in str(refused)


async def test_an_address_of_another_namespaces_service_is_refused(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired())
        ip = answer.ingress[0].ip
        refused = await site.ensure(
            site.desired(HTTPS, uid=OTHER_UID, namespace="evil", load_balancer_ip=ip)
        )
    assert isinstance(refused, InvalidRequest)
    assert "shop/" in str(refused)


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_address_of_another_namespace_is_refused_while_it_is_free(
    emulator: Emulator, *, is_listed: bool
) -> None:
    """Somebody has released it by hand, and its Service acquires it anew."""
    ip, known, site = "203.0.113.7", Objects(), LBSite(emulator)
    text = f"[Tenants]\nallow = bank={ip}\n" if is_listed else ""
    async with started(emulator, sections=text, services=known) as site.provider:
        await site.made(site.desired(load_balancer_ip=ip))
        own = site.desired(load_balancer_ip=ip, shown=ip)
        theirs = site.desired(HTTPS, uid=OTHER_UID, namespace="bank", load_balancer_ip=ip)
        known.by_key = {"shop/web": own.service, "bank/web": theirs.service}
        site.world.release(site.address(ip)["id"])
        answer = await site.settled(theirs)
        if is_listed:
            assert isinstance(answer, Ensured)
            return
        assert isinstance(answer, InvalidRequest)
        assert "it belongs to the Service shop/" in str(answer)
        assert not site.allocated()
        assert (await site.made(own)).ingress[0].ip == ip


@pytest.mark.parametrize("why", ["acquired", "named", "used by others", "same namespace", "shown"])
async def test_an_address_that_the_official_manager_acquired_for_another_namespace_is_refused(
    emulator: Emulator, why: str
) -> None:
    """That Service has not been looked at yet, so its address has no mark."""
    ip, known, site = "203.0.113.7", Objects(), LBSite(emulator)
    async with started(emulator, services=known) as site.provider:
        id_ = site.give(ip)
        site.official_rule(id_, f"{NAME}-tcp-80", 80, 30080)
        own = site.desired(shown=ip, load_balancer_ip=ip if why == "named" else "")
        if why == "used by others":
            site.official_rule(id_, "api", 6443, 6443)
        namespace = "shop" if why == "same namespace" else "bank"
        asked: dict[str, Any] = {"namespace": namespace, "load_balancer_ip": ip}
        asked |= {"shown": ip} if why == "shown" else {}
        theirs = site.desired(HTTPS, uid=OTHER_UID, **asked)
        known.by_key = {"shop/web": own.service, f"{namespace}/other": theirs.service}
        answer = await site.settled(theirs)
        assert isinstance(answer, InvalidRequest if why == "acquired" else Ensured), answer
        if why != "acquired":
            return
        assert "it belongs to the Service shop/" in str(answer)
        assert set(site.rules()) == {f"{NAME}-tcp-80"}
        await site.made(own)
        await site.deleted(own)
        assert site.is_empty()


@pytest.mark.parametrize("is_last", [False, True])
async def test_an_address_that_another_service_shows_is_not_chosen_while_it_is_free(
    emulator: Emulator, *, is_last: bool
) -> None:
    """Somebody has released it by hand, and its Service acquires it anew."""
    ip, known, site = "203.0.113.7", Objects(), LBSite(emulator)
    async with started(emulator, services=known) as site.provider:
        await site.made(site.desired(load_balancer_ip=ip))
        own = site.desired(load_balancer_ip=ip, shown=ip)
        theirs = site.desired(HTTPS, uid=OTHER_UID, namespace="bank")
        known.by_key = {"shop/web": own.service, "bank/web": theirs.service}
        others = {one["ipaddress"] for one in site.world.ips.values()} - {ip}
        for other in others if is_last else others - {"203.0.113.3"}:
            site.give(other)
        site.world.release(site.address(ip)["id"])
        answer = await site.settled(theirs)
        assert site.address(ip)["state"] == "Free"
        if is_last:
            assert isinstance(answer, CloudError)
            assert f"{ip} is another Service's" in str(answer)
        else:
            assert answer.ingress[0].ip == "203.0.113.3"
        assert (await site.made(own)).ingress[0].ip == ip


async def test_an_address_that_is_another_accounts_by_now_is_shown_no_more_by_who_names_it(
    emulator: Emulator,
) -> None:
    """Somebody has released it by hand, and nodes would lead the other one's clients here."""
    async with lb_site(emulator) as site:
        asked: dict[str, Any] = {"load_balancer_ip": "203.0.113.7"}
        (point,) = (await site.made(site.desired(**asked))).ingress
        assert point.ip == "203.0.113.7"
        refused = site.desired(shown=point.ip, load_balancer_ip="203.0.113.99")
        kept = await site.settled(refused)
        assert isinstance(kept, Ensured)
        site.world.release(site.address(point.ip)["id"])
        site.give(point.ip, account="other")
        named = site.desired(shown=point.ip, **asked)
        assert isinstance(await site.ensure(named), Pending)
        answer = await site.settled(named)
        assert isinstance(answer, InvalidRequest)
        assert answer.disowns


async def test_nor_is_one_that_somebody_has_acquired_anew_and_has_the_port_there(
    emulator: Emulator,
) -> None:
    """Such as for the API server: it is the account's again, and has no mark of the Service."""
    async with lb_site(emulator) as site:
        ip = "203.0.113.7"
        await site.made(site.desired(load_balancer_ip=ip))
        site.world.release(site.address(ip)["id"])
        theirs = site.official_rule(site.give(ip), "api", 80, 30443)
        named = site.desired(shown=ip, load_balancer_ip=ip)
        *waits, left = await site.answers(named)
        assert waits
        assert not any(one.withdrawn for one in waits)
        assert isinstance(left, CloudError)
        assert left.disowns
        site.world.remove("rules", theirs)
        (point,) = (await site.made(site.desired(load_balancer_ip=ip))).ingress
        assert (point.ip, point.ip_mode) == (ip, "Proxy")


async def test_an_address_that_two_services_share_goes_with_the_last_one(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        first = site.desired()
        ip = (await site.made(first)).ingress[0].ip
        second = site.desired(HTTPS, uid=OTHER_UID, load_balancer_ip=ip)
        await site.made(second)
        await site.deleted(first)
        assert site.allocated() == {ip}
        assert set(site.rules()) == {second.ref.name + "-tcp-443"}
        marks = site.world.tags["PublicIpAddress", site.address(ip)["id"]]
        assert marks[MARK_SERVICE_UID] == OTHER_UID
        await site.deleted(second)
        assert site.is_empty()


async def test_nodes_take_nothing_from_what_others_have_at_the_address_of_a_refused_service(
    emulator: Emulator,
) -> None:
    """It may be the API server's: it stays in the status of who then asks for 6443."""
    ip = "203.0.113.7"
    async with lb_site(emulator) as site:
        site.official_rule(site.give(ip), "api", 6443, 6443)
        answer = await site.made(site.desired(load_balancer_ip=ip))
        assert [(one.ip, one.ip_mode) for one in answer.ingress] == [(ip, "Proxy")]
        ports = (HTTP, ServicePort(6443, "x", node_port=30043))
        refused = await site.settled(site.desired(*ports, load_balancer_ip=ip, shown=ip))
        assert isinstance(refused, CloudError)
        assert "conflicts" in str(refused)
        own = await site.made(site.desired(uid=OTHER_UID))
        assert [one.ip_mode for one in own.ingress] == [None]


@pytest.mark.parametrize("is_asked", [False, True], ids=["given up", "asked for"])
async def test_a_port_of_a_shared_address_stays_a_service_s_while_its_rule_is_made_anew(
    emulator: Emulator, *, is_asked: bool
) -> None:
    """Before 4.22 CloudStack changes no sources; an address that was made by hand has no mark."""
    emulator.world.version, ip, known = "4.20.1.0", "203.0.113.7", Objects()
    site = LBSite(emulator)
    site.give(ip)
    async with started(emulator, services=known) as site.provider:
        await site.made(site.desired(load_balancer_ip=ip))
        theirs = site.desired(uid=OTHER_UID, namespace="evil", load_balancer_ip=ip)
        assert "conflicts" in str(await site.settled(theirs))
        own = site.desired(asked={"source-cidrs": "192.0.2.0/24"}, load_balancer_ip=ip, shown=ip)
        emulator.fail("createLoadBalancerRule")
        assert isinstance(await site.settled(own), CloudError)
        assert not site.rules()
        left = own if is_asked else site.desired(HTTPS, load_balancer_ip=ip, shown=ip)
        known.by_key = {"shop/web": left.service, "evil/web": theirs.service}
        answer = await site.settled(theirs)
        if not is_asked:
            assert isinstance(answer, Ensured)
            return
        assert isinstance(answer, CloudError)
        assert f"port 80 of {ip} is that of the Service shop/" in str(answer)
        await site.made(own)
        assert set(site.rules()) == {f"{own.ref.name}-tcp-80"}


def forwarded(site: LBSite, ip_id: str) -> None:
    """Forward a port by hand, as CloudStack does by default: its firewall is opened, too."""
    site.world.forwardings["pf"] = {"id": "pf", "ipaddressid": ip_id, "publicport": "2222"}
    site.world.firewall["fw"] = {
        "id": "fw", "ipaddressid": ip_id, "protocol": "tcp", "startport": 2222, "endport": 2222,
        "cidrlist": "0.0.0.0/0", "state": "Active",
    }  # fmt: skip


@pytest.mark.parametrize("tells_rules", [True, False])
async def test_an_address_that_becomes_a_machines_while_the_service_goes_stays(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, *, tells_rules: bool
) -> None:
    """By static NAT, which CloudStack allows once no load balancer rule is there any more."""
    async with lb_site(emulator) as site:
        site.world.tells_rules = tells_rules
        desired = site.desired()
        (point,) = (await site.made(desired)).ingress
        id_ = site.address(point.ip)["id"]
        remove = site.world.remove

        def taken(kind: str, rule: str) -> None:
            remove(kind, rule)
            if not site.world.rules:
                site.world.ips[id_]["isstaticnat"] = True

        monkeypatch.setattr(site.world, "remove", taken)
        assert isinstance(await site.deleted(desired), Done)
        assert site.allocated() == {point.ip}
        assert not site.world.tags.get(("PublicIpAddress", id_))


@pytest.mark.parametrize("tells_rules", [True, False])
async def test_an_address_on_which_somebody_has_made_rules_outlives_the_service(
    emulator: Emulator, *, tells_rules: bool
) -> None:
    """Such as the way to a bastion: CloudStack deletes all rules with the address."""
    async with lb_site(emulator) as site:
        site.world.tells_rules = tells_rules
        desired = site.desired()
        (point,) = (await site.made(desired)).ingress
        id_ = site.address(point.ip)["id"]
        forwarded(site, id_)
        assert isinstance(await site.deleted(desired), Done)
        assert site.allocated() == {point.ip}
        assert list(site.world.forwardings) == ["pf"]
        assert list(site.world.firewall) == ["fw"]
        assert not site.rules()
        assert not site.world.tags.get(("PublicIpAddress", id_))


@pytest.mark.parametrize("vpc", [True, False])
async def test_an_address_without_rules_is_released_also_where_addresses_do_not_tell(
    emulator: Emulator, *, vpc: bool
) -> None:
    async with lb_site(emulator, vpc=vpc) as site:
        site.world.tells_rules = False
        await site.made(site.desired(HTTP, HTTPS))
        await site.deleted(site.desired(HTTP, HTTPS))
        assert site.is_empty()


async def test_a_claimed_address_with_rules_that_only_its_firewall_shows_is_somebodys(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        site.world.tells_rules = False
        ip = "203.0.113.7"
        forwarded(site, site.give(ip))
        site.world.tags["Network", site.network] = {f"{CLAIM}{UID}": f"{CLUSTER.uid}/{ip}"}
        await site.deleted(site.desired())
        assert site.allocated() == {ip}
        assert list(site.world.firewall) == ["fw"]


async def test_an_address_that_somebody_gets_first_is_let_go_and_another_chosen(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        text = "IP address is not available, it is already allocated"
        emulator.fail("associateIpAddress", 431, text)
        desired = site.desired()
        answer = await site.ensure(desired)
        assert isinstance(answer, RetryAfter)
        assert not site.world.tags["Network", site.network]
        await site.made(desired)
        assert len(site.allocated()) == 1


@pytest.mark.parametrize("asked", ["", "203.0.113.7"])
async def test_an_address_that_somebody_gets_first_stays_theirs_while_the_claim_on_it_cannot_go(
    emulator: Emulator, asked: str
) -> None:
    """Somebody has acquired it by hand, and has made nothing of it yet."""
    async with lb_site(emulator) as site:
        emulator.fail("associateIpAddress", 431, "IP address is not available")
        emulator.fail("deleteTags", 429, "too many requests, retry after [10] ms")
        desired = site.desired(load_balancer_ip=asked)
        assert isinstance(await site.ensure(desired), Throttled)
        (claim,) = site.world.tags["Network", site.network].values()
        theirs = claim.rpartition("/")[2]
        id_ = site.give(theirs)
        (point,) = (await site.made(desired)).ingress
        assert (point.ip == theirs) is bool(asked)
        assert not site.world.tags.get(("PublicIpAddress", id_))
        assert not site.world.tags["Network", site.network]
        await site.deleted(desired)
        assert site.allocated() == {theirs}


def used_by_hand(site: LBSite, ip: str, kind: str) -> str:
    """Somebody's address, which a process claimed that ended before it had acquired it; its id."""
    id_ = site.give(ip)
    if kind == "rule":
        site.official_rule(id_, "by hand", 22, 22)
    elif kind == "tag":
        site.world.tags["PublicIpAddress", id_] = {"team": "databases"}
    else:
        site.world.forwardings["pf"] = {"id": "pf", "ipaddressid": id_, "publicport": "2222"}
    site.world.tags["Network", site.network] = {f"{CLAIM}{UID}": f"{CLUSTER.uid}/{ip}"}
    return id_


@pytest.mark.parametrize("kind", ["rule", "port forwarding", "tag"])
@pytest.mark.parametrize("is_made", [True, False])
async def test_an_address_that_was_claimed_and_is_anothers_now_is_left_alone(
    emulator: Emulator, kind: str, *, is_made: bool
) -> None:
    async with lb_site(emulator) as site:
        used_by_hand(site, "203.0.113.7", kind)
        if is_made:
            answer = await site.made(site.desired())
            assert answer.ingress[0].ip != "203.0.113.7"
            assert not site.world.tags["Network", site.network]
        await site.deleted(site.desired())
        assert site.allocated() == {"203.0.113.7"}


async def test_a_claim_on_an_address_that_was_released_since_is_no_proof(
    emulator: Emulator,
) -> None:
    """It could not be removed in time; somebody has acquired the address, and has nothing on it."""
    async with lb_site(emulator) as site:
        desired = site.desired()
        (point,) = (await site.made(desired)).ingress
        claim = {f"{CLAIM}{UID}": f"{CLUSTER.uid}/{point.ip}"}
        site.world.tags["Network", site.network] = claim
        emulator.fail("disassociateIpAddress", after_effect=True)
        answer = (await site.balancers.delete([desired.ref]))[UID]
        assert isinstance(answer, CloudError), answer
        assert not site.allocated()
        site.give(point.ip)
        await site.deleted(desired)
        assert site.allocated() == {point.ip}
        assert not site.world.tags["Network", site.network]


@pytest.mark.parametrize("code", [531, 530])
async def test_where_the_network_cannot_be_tagged_an_address_is_acquired_without_a_claim(
    emulator: Emulator, code: int
) -> None:
    async with lb_site(emulator) as site:
        emulator.fail("createTags", code, "no permission to create tags for the resource")
        desired = site.desired()
        answer = await site.made(desired)
        marks = site.world.tags["PublicIpAddress", site.address(answer.ingress[0].ip)["id"]]
        assert marks[MARK_SERVICE_UID] == UID
        await site.deleted(desired)
        assert site.is_empty()


@pytest.mark.parametrize("kind", ["rule", "port forwarding", "tag"])
async def test_a_named_address_that_somebody_else_acquired_after_a_claim_is_never_released(
    emulator: Emulator, kind: str
) -> None:
    async with lb_site(emulator) as site:
        ip_id = used_by_hand(site, "203.0.113.7", kind)
        desired = site.desired(load_balancer_ip="203.0.113.7")
        await site.made(desired)
        assert MARK_SERVICE_UID not in site.world.tags["PublicIpAddress", ip_id]
        assert not site.world.tags["Network", site.network]
        await site.deleted(desired)
        assert site.allocated() == {"203.0.113.7"}


@pytest.mark.parametrize("kind", ["rule", "port forwarding", "tag"])
async def test_a_named_address_of_somebody_else_stays_theirs_while_a_claim_on_it_cannot_go(
    emulator: Emulator, kind: str
) -> None:
    """The Service's rules are there before the claim on the network has gone."""
    async with lb_site(emulator) as site:
        ip_id = used_by_hand(site, "203.0.113.7", kind)
        desired = site.desired(load_balancer_ip="203.0.113.7")
        emulator.fail("deleteTags")
        assert isinstance(await site.settled(desired), CloudError)
        assert f"{NAME}-tcp-80" in site.rules()
        await site.made(desired)
        assert MARK_SERVICE_UID not in site.world.tags["PublicIpAddress", ip_id]
        assert not site.world.tags["Network", site.network]
        site.world.forwardings.clear()
        await site.deleted(desired)
        assert site.allocated() == {"203.0.113.7"}


@pytest.mark.parametrize("is_acquired", [True, False])
@pytest.mark.parametrize("of_cluster", [CLUSTER.uid, "another-cluster-uid"])
async def test_an_address_that_another_service_has_claimed_is_not_anybodys_to_name(
    emulator: Emulator, of_cluster: str, *, is_acquired: bool
) -> None:
    """It is that Service's, which has not marked it yet: it acquires it, or failed to mark it."""
    async with lb_site(emulator) as site:
        ip = "203.0.113.7"
        if is_acquired:
            site.give(ip)
        claims = {f"{CLAIM}{OTHER_UID}": f"{of_cluster}/{ip}"}
        site.world.tags["Network", site.network] = dict(claims)
        desired = site.desired(load_balancer_ip=ip)
        answer = await site.ensure(desired)
        assert isinstance(answer, InvalidRequest), answer
        assert OTHER_UID in str(answer)
        assert not site.rules()
        assert site.world.tags["Network", site.network] == claims
        assert site.allocated() == ({ip} if is_acquired else set())


async def test_another_account_that_shows_none_is_no_end_of_a_deletion(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired())).ingress
        ref = site.desired(shown=point.ip).ref
        nodes = [node("node-1", f"external-cloudstack://{site.machines[0]}")]
    async with served() as other, started(other, nodes=nodes) as provider:
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.delete([ref]))[UID]
        assert isinstance(answer, CloudError)
        assert "credentials" in str(answer)
    async with started(emulator, nodes=nodes) as site.provider:
        assert (await site.deleted(site.desired(shown=point.ip))).found
        assert site.is_empty()
        # Somebody has deleted it by hand: a machine is shown.
        assert (await site.balancers.delete([ref]))[UID] == Done(found=False)


def claimed_by_another(site: LBSite, ip: str, *, tier: bool = False) -> str:
    """Another cluster's claim, on the nodes' network or on another tier of its VPC, whose id."""
    network = site.network
    if tier:
        network = site.world.add_network(vpc=True)
        site.world.networks[network]["vpcid"] = site.world.networks[site.network]["vpcid"]
    tags = site.world.tags.setdefault(("Network", network), {})
    tags[f"{CLAIM}{OTHER_UID}"] = f"another-cluster-uid/{ip}"
    return network


async def test_an_address_that_is_claimed_in_another_tier_of_the_vpc_is_not_anybodys_to_name(
    emulator: Emulator,
) -> None:
    """All tiers of a VPC share its addresses, which are of no network."""
    async with lb_site(emulator, vpc=True) as site:
        ip = "203.0.113.7"
        site.give(ip)
        theirs = claimed_by_another(site, ip, tier=True)
        before = dict(site.world.tags["Network", theirs])
        answer = await site.ensure(site.desired(load_balancer_ip=ip))
        assert isinstance(answer, InvalidRequest), answer
        assert OTHER_UID in str(answer)
        assert not site.rules()
        assert site.world.tags["Network", theirs] == before


@pytest.mark.parametrize("tier", [True, False])
@pytest.mark.parametrize("is_made", [True, False])
async def test_an_address_that_two_services_have_claimed_is_neither_taken_nor_released(
    emulator: Emulator, *, tier: bool, is_made: bool
) -> None:
    """Both chose it at once; one has acquired it and not marked it yet, and nobody knows which."""
    async with lb_site(emulator, vpc=tier) as site:
        ip = "203.0.113.7"
        id_ = site.give(ip)
        site.world.tags["Network", site.network] = {f"{CLAIM}{UID}": f"{CLUSTER.uid}/{ip}"}
        theirs = claimed_by_another(site, ip, tier=tier)
        desired = site.desired()
        if is_made:
            assert (await site.made(desired)).ingress[0].ip != ip
        await site.deleted(desired)
        assert site.allocated() == {ip}
        assert not site.world.tags.get(("PublicIpAddress", id_))
        assert list(site.world.tags["Network", theirs]) == [f"{CLAIM}{OTHER_UID}"]


async def test_a_service_with_claims_on_two_tiers_of_a_vpc_goes(emulator: Emulator) -> None:
    """A claim on the tier that its nodes have left could not be removed in time."""
    async with lb_site(emulator, vpc=True) as site:
        former = claimed_by_another(site, "203.0.113.7", tier=True)
        claim = {f"{CLAIM}{UID}": f"{CLUSTER.uid}/203.0.113.8"}
        for network in (former, site.network):
            site.world.tags["Network", network] = dict(claim)
        answer = await site.deleted(site.desired())
        assert isinstance(answer, Done), answer


@pytest.mark.parametrize("tier", [True, False])
async def test_an_address_of_the_status_that_another_has_claimed_since_is_not_used_again(
    emulator: Emulator, *, tier: bool
) -> None:
    """Somebody has released it, and another cluster is acquiring it."""
    async with lb_site(emulator, vpc=tier) as site:
        ip = "203.0.113.7"
        site.give(ip)
        claimed_by_another(site, ip, tier=tier)
        answer = await site.made(site.desired(shown=ip, mode="Proxy"))
        assert answer.ingress[0].ip != ip
        assert not any(one["publicip"] == ip for one in site.rules().values())


async def test_where_free_addresses_are_not_shown_cloudstack_chooses_one(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lb_site(emulator) as site:
        answer = emulator._answer

        def hiding(command: str, parameters: Any) -> Any:
            said = answer(command, parameters)
            shown = said.get("publicipaddress", [])
            taken = [one for one in shown if one["state"] != "Free"]
            if command == "listPublicIpAddresses":
                said = {"count": len(taken), "publicipaddress": taken}
            return said

        monkeypatch.setattr(emulator, "_answer", hiding)
        desired = site.desired()
        made = await site.made(desired)
        assert site.allocated() == {made.ingress[0].ip}
        assert MARK_SERVICE_UID in next(iter(site.world.tags.values()))
        await site.deleted(desired)
        assert not site.allocated()


async def test_when_no_address_is_free_the_cloud_says_so(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        for ip in [one["ipaddress"] for one in site.world.ips.values()]:
            site.give(ip)
        refused = await site.ensure(site.desired())
    assert "Insufficient address capacity" in str(refused)


# VPCs


async def test_in_a_vpc_access_list_items_with_our_marks_let_clients_in(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator, vpc=True) as site:
        ranges = ("192.0.2.0/24",)
        desired = site.desired(HTTP, DNS, load_balancer_source_ranges=ranges)
        answer = await site.made(desired)
        assert site.address(answer.ingress[0].ip)["vpcid"]
        items = list(site.world.acl_items.values())
        assert {(one["protocol"], one["startport"], one["cidrlist"]) for one in items} == {
            ("tcp", "80", "192.0.2.0/24"), ("udp", "80", "192.0.2.0/24")
        }  # fmt: skip
        assert all(UID in one["reason"] for one in items)
        # Another item of the list may let everyone in; the rules themselves do not.
        assert {one["cidrlist"] for one in site.rules().values()} == {"192.0.2.0/24"}
        await site.deleted(desired)
        assert site.is_empty()


async def test_two_services_of_one_port_have_items_of_their_own(emulator: Emulator) -> None:
    async with lb_site(emulator, vpc=True) as site:
        first, second = site.desired(), site.desired(uid=OTHER_UID)
        await site.made(first)
        await site.made(second)
        assert len(site.world.acl_items) == 2
        await site.deleted(first)
        assert len(site.world.acl_items) == 1


async def test_an_item_of_others_that_does_the_same_suffices_and_is_left_alone(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator, vpc=True) as site:
        list_ = next(iter(site.world.acl_lists))
        official: dict[str, Any] = {
            "id": site.world.new_id(), "aclid": list_, "aclname": "mine", "protocol": "tcp",
            "startport": "80", "endport": "80", "cidrlist": "0.0.0.0/0", "action": "Allow",
            "traffictype": "Ingress", "state": "Active", "number": 7,
        }  # fmt: skip
        site.world.acl_items[official["id"]] = official
        desired = site.desired()
        await site.made(desired)
        assert set(site.world.acl_items) == {official["id"]}
        await site.made(site.desired(load_balancer_source_ranges=("192.0.2.0/24",)))
        assert len(site.world.acl_items) == 2
        await site.deleted(desired)
        assert set(site.world.acl_items) == {official["id"]}


@pytest.mark.parametrize("acl", ["default_allow", "default_deny"])
async def test_cloudstacks_own_access_lists_are_never_changed(emulator: Emulator, acl: str) -> None:
    async with lb_site(emulator, vpc=True, acl=acl) as site:
        await site.made(site.desired())
        assert not site.world.acl_items


# Owners


async def test_what_the_official_manager_made_is_kept_marked_and_goes_with_the_service(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        ip_id = site.give("203.0.113.7")
        rule = site.official_rule(ip_id, f"{NAME}-tcp-80", 80, 30080)
        desired = site.desired(shown="203.0.113.7")
        answer = await site.made(desired)
        assert answer.ingress[0].ip == "203.0.113.7"
        assert set(site.world.rules) == {rule}
        assert site.world.tags["LoadBalancer", rule][MARK_SERVICE_UID] == UID
        await site.deleted(desired)
        assert site.is_empty()


async def test_it_goes_without_a_leak_if_it_is_deleted_before_it_was_ever_ensured(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        site.official_rule(site.give("203.0.113.7"), f"{NAME}-tcp-80", 80, 30080)
        desired = site.desired(shown="203.0.113.7")
        emulator.fail("disassociateIpAddress")
        refused = (await site.balancers.delete([desired.ref]))[UID]
        assert isinstance(refused, CloudError)
        assert await site.deleted(desired) == Done()
        assert site.is_empty()


async def test_rules_of_the_provider_inside_old_kubernetes_get_their_new_names(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        rule = site.official_rule(site.give("203.0.113.7"), f"{NAME}-80", 80, 30080)
        await site.made(site.desired(shown="203.0.113.7"))
        assert site.world.rules[rule]["name"] == f"{NAME}-tcp-80"


@pytest.mark.parametrize(
    ("spec", "shown"),
    [({"load_balancer_ip": "203.0.113.7"}, "203.0.113.7"), ({}, "203.0.113.8")],
)
async def test_an_address_without_proof_is_not_released(
    emulator: Emulator, spec: dict[str, Any], shown: str
) -> None:
    async with lb_site(emulator) as site:
        site.official_rule(site.give("203.0.113.7"), f"{NAME}-tcp-80", 80, 30080)
        desired = site.desired(shown=shown, **spec)
        await site.made(desired)
        await site.deleted(desired)
        assert site.allocated() == {"203.0.113.7"}


async def test_an_official_address_that_others_use_is_not_ours(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        ip_id = site.give("203.0.113.7")
        site.official_rule(ip_id, f"{NAME}-tcp-80", 80, 30080)
        site.official_rule(ip_id, "by hand", 22, 22)
        desired = site.desired(shown="203.0.113.7")
        await site.made(desired)
        await site.deleted(desired)
        assert set(site.rules()) == {"by hand"}
        assert site.allocated() == {"203.0.113.7"}


async def test_a_cluster_restored_from_a_backup_touches_nothing_of_the_first_one(
    emulator: Emulator,
) -> None:
    other = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000002")
    async with lb_site(emulator) as site:
        first = await site.made(site.desired())
        before = {name: dict(one) for name, one in site.rules().items()}
        second = await site.made(site.desired(cluster=other))
        assert second.ingress != first.ingress
        assert len(site.world.rules) == 2
        await site.deleted(site.desired(cluster=other))
        assert site.rules() == before


async def test_list_owned_shows_rules_and_addresses_and_a_record_that_a_change_makes_void(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(HTTP, HTTPS)
        answer = await site.made(desired)
        again = site.desired(HTTP, HTTPS, shown=answer.ingress[0].ip)
        owned = await site.balancers.list_owned(CLUSTER)
        assert sorted(one.kind for one in owned) == [
            "load balancer rule", "load balancer rule", "public address"
        ]  # fmt: skip
        assert {(one.service, one.service_uid) for one in owned} == {(desired.ref.key, UID)}
        shown = {one.fingerprint for one in owned if one.recorded}
        assert shown == {site.balancers.fingerprint(again)}
        next(iter(site.world.rules.values()))["algorithm"] = "leastconn"
        owned = await site.balancers.list_owned(CLUSTER)
        assert not any(one.fingerprint or one.recorded for one in owned)
        await site.made(desired)
        tagged = [MARK_FINGERPRINT in tags for tags in site.world.tags.values()]
        assert tagged.count(True) == 1


async def test_the_record_is_written_anew_when_nothing_but_it_is_to_be_changed(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        (gone,) = site.world.add_machines(["gone"], site.network)
        site.world.remove_machine(gone)
        await site.made(site.desired(ids=[*site.machines, gone]))
        before = await site.balancers.list_owned(CLUSTER)
        await site.made(site.desired())
        after = await site.balancers.list_owned(CLUSTER)
    assert {one.fingerprint for one in before} != {one.fingerprint for one in after}
    assert any(one.fingerprint for one in after)


# Jobs and failures


async def test_while_cloudstack_works_the_verb_is_pending_and_asks_for_the_job(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        emulator.world.works = 3600.0
        desired = site.desired()
        first = await site.ensure(desired)
        assert isinstance(first, Pending)
        assert "createTags" in first.reason
        emulator.calls.clear()
        second = await site.ensure(desired)
        assert isinstance(second, Pending)
        assert second.after > first.after
        assert emulator.calls == {"queryAsyncJobResult": 1}


async def test_slow_jobs_come_to_an_end_and_double_nothing(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        emulator.world.works = 0.6
        desired = site.desired(HTTP, HTTPS)
        await site.made(desired)
        assert len(site.world.rules) == 2
        assert len(site.allocated()) == 1
        assert await site.deleted(desired) == Done()
        assert site.is_empty()


async def test_a_job_that_fails_is_told_in_cloudstacks_words(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired()
        await site.made(desired)
        work = site.world.work

        def failing(command: str, effect: Any, **told: Any) -> Any:
            def refuse() -> None:
                site.world.the("rules", "gone")

            return work(command, refuse if command == "updateLoadBalancerRule" else effect, **told)

        monkeypatch.setattr(site.world, "work", failing)
        refused = await site.ensure(site.desired(session_affinity="ClientIP"))
    assert isinstance(refused, CloudError)
    assert "updateLoadBalancerRule" in str(refused)
    assert "entity does not exist" in str(refused)


@pytest.mark.parametrize("command", ["deleteLoadBalancerRule", "disassociateIpAddress"])
async def test_nothing_is_gone_because_a_job_could_not_find_what_it_needs(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired()
        await site.made(desired)
        work = site.world.work

        def failing(asked: str, effect: Any, **told: Any) -> Any:
            def refuse() -> None:
                raise Refusal(530, "Unable to find a running virtual router for the network")

            return work(asked, refuse if asked == command else effect, **told)

        with monkeypatch.context() as patched:
            patched.setattr(site.world, "work", failing)
            refused = await site.deleted(desired)
        assert isinstance(refused, CloudError)
        assert "virtual router" in str(refused)
        assert await site.deleted(desired) == Done()
        assert site.is_empty()


async def test_preview_says_what_ensure_does_and_writes_nothing(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_source_ranges=("192.0.2.0/24",))
        emulator.log.clear()
        foreseen = await site.preview(desired)
        assert not [one for one, _ in emulator.log if not one.startswith("list")]
        assert [(one.action, one.part.partition(" 203")[0]) for one in foreseen] == [
            ("create", "public address"),
            ("change", "public address new"),
            ("create", f"rule {NAME}-tcp-80"),
            *[("create", f"machine {id_}") for id_ in sorted(site.machines)],
            ("create", "firewall rule tcp/80"),
        ]
        await site.made(desired)
        assert not await site.preview(desired)
        changed = site.desired(HTTPS, ids=site.machines[:1])
        parts = {(one.action, one.part) for one in await site.preview(changed)}
        assert ("delete", f"rule {NAME}-tcp-80") in parts
        assert ("delete", "firewall rule tcp/80") in parts


async def test_a_member_that_is_gone_meanwhile_is_found_out_by_the_next_try(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(ids=site.machines[:1]))
        both = site.desired()
        await site.preview(both)  # which has seen both machines
        site.world.remove_machine(site.machines[1])
        assert isinstance(await site.ensure(both), CloudError)
        answer = await site.made(both)
        assert answer.rejected.keys() == {"node-2"}


async def test_an_address_that_is_not_shown_is_not_taken_out_of_the_status(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list leaves out an address that the rules are still on."""
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired())
        hidden = answer.ingress[0].ip
        answered = emulator._answer

        def hiding(command: str, parameters: Any) -> dict[str, Any]:
            found = answered(command, parameters)
            if command == "listPublicIpAddresses":
                shown = found.get("publicipaddress", [])
                found["publicipaddress"] = [one for one in shown if one["ipaddress"] != hidden]
                found["count"] = len(found["publicipaddress"])
            return found

        with monkeypatch.context() as patched:
            patched.setattr(emulator, "_answer", hiding)
            refused = await site.ensure(site.desired(HTTPS, shown=hidden))
        assert isinstance(refused, CloudError)
        assert "not its public address" in str(refused)
        assert set(site.rules()) == {f"{NAME}-tcp-80"}
        assert (await site.made(site.desired(shown=hidden))).ingress[0].ip == hidden


async def test_one_that_lists_leave_out_is_not_made_once_more(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired())).ingress
        desired = site.desired(shown=point.ip)
        rules = dict(site.world.rules)
        (id_,) = (key for key, one in site.world.ips.items() if one["ipaddress"] == point.ip)
        address = site.world.ips.pop(id_)
        site.world.rules.clear()
        answer = await site.ensure(desired)
        assert isinstance(answer, Pending)
        assert "once more" in answer.reason
        site.world.rules.update(rules)
        site.world.ips[id_] = address
        assert (await site.made(desired)).ingress == (point,)
        assert site.world.rules.keys() == rules.keys()


async def test_a_machine_that_a_list_leaves_out_stays_in_the_rules(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        desired = site.desired(HTTP, HTTPS)
    answered = emulator._answer

    def hiding(command: str, parameters: Any) -> dict[str, Any]:
        found = answered(command, parameters)
        if command == "listVirtualMachines":
            shown = found.get("virtualmachine", [])
            found["virtualmachine"] = [one for one in shown if one["id"] != site.machines[0]]
            found["count"] = len(found["virtualmachine"])
        return found

    monkeypatch.setattr(emulator, "_answer", hiding)
    async with started(emulator) as provider:
        assert provider.load_balancers is not None
        while isinstance(answer := (await provider.load_balancers.ensure([desired]))[UID], Pending):
            pass
        assert isinstance(answer, Ensured)
        assert not answer.rejected
    assert {name: rule["members"] for name, rule in site.rules().items()} == {
        f"{NAME}-tcp-80": set(site.machines),
        f"{NAME}-tcp-443": set(site.machines[1:]),
    }
