"""Load balancers of NSX-T: their parts, names and tags, adoption, refusals, what others do."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from proreus.cloudprovider import (
    CloudError,
    Done,
    Ensured,
    InvalidRequest,
    LoadBalancer,
    PartChange,
    Pending,
    Unauthenticated,
)
from proreus.cloudprovider.identity import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.vsphere.nsxt.balancing.desired import ANNOTATION
from proreus.providers.vsphere.nsxt.credentials import LOGINS

from ...surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from ..site import CLUSTER, context  # noqa: TID252
from .emulator import world
from .emulator.server import Emulator, Fault
from .emulator.world import GATEWAY
from .lb_site import (
    DNS,
    HTTP,
    HTTPS,
    NODES,
    OFFICIAL,
    OTHER_UID,
    UID,
    LBSite,
    as_tags,
    lb_site,
    node,
    tags,
)
from .site import MANAGED

UNMANAGED = MANAGED.replace(f"tier1-gateway-path = {GATEWAY}", "lb-service-id = mine")
CLASSES = MANAGED + (
    '[LoadBalancerClass "public"]\nip-pool-id = public\n'
    '[LoadBalancerClass "fast"]\ntcp-app-profile-path = /infra/lb-app-profiles/mine\n'
    '[LoadBalancerClass "away"]\nip-pool-name = nowhere\n'
)


async def test_each_port_has_a_server_a_pool_and_a_monitor_of_the_official_names_and_tags(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP, DNS))
    assert ip == "10.20.30.1"
    mine = {
        "owner": OFFICIAL, "cluster": "test", "service": "shop/web", "site": "a",
        MARK_CLUSTER: "test", MARK_CLUSTER_UID: CLUSTER.uid,
        MARK_SERVICE: "shop/web", MARK_SERVICE_UID: UID,
    }  # fmt: skip
    (service,) = site.own("lb-services")
    assert (service["display_name"], service["connectivity_path"]) == ("cluster:test", GATEWAY)
    assert tags(service) == {
        "owner": OFFICIAL, "cluster": "test", "site": "a",
        MARK_CLUSTER: "test", MARK_CLUSTER_UID: CLUSTER.uid,
    }  # fmt: skip
    (allocation,) = site.own("ip-allocations")
    assert tags(allocation) == mine
    (monitor,) = site.own("lb-monitor-profiles")
    assert (monitor["display_name"], monitor["monitor_port"]) == (
        "cluster:test:shop/web:30080",
        30080,
    )
    assert tags(monitor) == {**mine, "port": "TCP/80"}
    web, dns = site.own("lb-pools")
    assert web["active_monitor_paths"] == [monitor["path"]]
    assert not dns.get("active_monitor_paths")
    for pool in (web, dns):
        assert pool["display_name"] == "cluster:test:shop/web"
        assert [(one["display_name"], one["ip_address"]) for one in pool["members"]] == [
            ("test:node-1", "10.0.0.1"),
            ("test:node-2", "10.0.0.2"),
        ]
        assert pool["snat_translation"]["type"] == "LBSnatAutoMap"
    first, second = site.own("lb-virtual-servers")
    assert tags(first) == {**mine, "port": "TCP/80", "lbclass": "default", "ippoolid": "vips"}
    assert {
        "display_name": "cluster:test:shop/web", "ip_address": ip, "ports": ["80"],
        "default_pool_member_ports": ["30080"], "pool_path": web["path"],
        "lb_service_path": service["path"],
        "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
    }.items() <= first.items()  # fmt: skip
    assert second["application_profile_path"].endswith("default-udp-lb-app-profile")
    assert second["pool_path"] == dns["path"]


async def test_deletion_leaves_nothing_and_is_done_in_the_order_of_references(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(
            HTTP, session_affinity="ClientIP", load_balancer_source_ranges=("192.0.2.0/24",)
        )
        await site.made(desired)
        assert len(site.paths()) == 7
        assert await site.deleted(desired) == Done()
        assert site.paths() == set()
        assert await site.deleted(desired) == Done(found=False)
    assert not [one for one in nsxt.refused if one[2] == 400]


async def test_what_the_official_manager_has_made_gets_marks_and_keeps_its_ids(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        there = site.official("10.20.30.1")
        desired = site.desired(HTTP, shown="10.20.30.1")
        assert await site.address(desired) == "10.20.30.1"
        assert site.paths() == there
        for one in site.parts():
            is_service = one["resource_type"] == "LBService"
            assert tags(one).get(MARK_SERVICE_UID) == (None if is_service else UID)
            assert tags(one)["owner"] == OFFICIAL
        nsxt.counted()
        assert await site.address(desired) == "10.20.30.1"
        assert not [name for name in nsxt.counted() if name.startswith("PUT")]
        assert await site.deleted(desired) == Done()
        assert site.paths() == set()


async def test_what_the_official_manager_has_made_is_deleted_if_the_status_shows_its_address(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        site.official("10.20.30.1")
        assert await site.deleted(site.desired(HTTP, shown="10.20.30.1")) == Done()
        assert site.paths() == set()


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("the status shows no address", {}),
        ("the status shows another one", {"shown": "10.20.30.9"}),
        ("another Service", {"shown": "10.20.30.1", "name": "other"}),
        ("another cluster", {"shown": "10.20.30.1", "cluster": ClusterIdentity("b", "b-uid")}),
    ],
)
async def test_nothing_of_others_is_touched(
    nsxt: Emulator, what: str, changed: dict[str, Any]
) -> None:
    async with lb_site(nsxt) as site:
        there = site.official("10.20.30.1")
        before = {one["path"]: dict(one) for one in site.parts()}
        desired = site.desired(HTTP, **changed)
        await site.made(desired)
        assert site.paths() > there
        assert await site.deleted(desired) == Done()
        assert {one["path"]: dict(one) for one in site.parts()} == before, what


async def test_half_of_a_deletion_is_finished_although_the_status_proves_nothing_any_more(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        site.official("10.20.30.1")
        nsxt.fail(Fault("DELETE lb-pools", status=500))
        answer = await site.deleted(site.desired(HTTP, shown="10.20.30.1"))
        assert isinstance(answer, CloudError)
        assert site.paths()
        assert await site.deleted(site.desired(HTTP)) == Done()
        assert site.paths() == set()


async def test_services_deleted_side_by_side_leave_no_load_balancer_service(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        several = [site.desired(HTTP, uid=f"uid-{one}", name=f"web-{one}") for one in range(3)]
        await asyncio.gather(*map(site.made, several))
        assert await asyncio.gather(*map(site.deleted, several)) == [Done()] * 3
        assert site.paths() == set()


async def test_services_made_side_by_side_share_one_service_which_goes_with_the_last(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        first = site.desired(HTTP)
        second = site.desired(HTTP, uid=OTHER_UID, name="other")
        await asyncio.gather(site.made(first), site.made(second))
        (service,) = site.own("lb-services")
        assert await site.deleted(first) == Done()
        assert site.own("lb-services") == [service]
        assert await site.deleted(second) == Done()
        assert site.paths() == set()


async def test_a_service_that_is_deleted_meanwhile_is_made_anew(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        done: list[str] = []

        def interfere(name: str, path: str) -> None:
            if name == "PUT lb-virtual-servers" and not done:
                done.append(path)
                nsxt.remove(site.own("lb-services")[0]["path"])

        nsxt.hooks.append(interfere)
        assert isinstance(await site.ensure(site.desired(HTTP)), Pending)
        assert await site.address(site.desired(HTTP)) == "10.20.30.1"
        assert len(site.own("lb-services")) == 1


async def test_a_service_of_somebody_else_on_the_gateway_is_used_and_stays(nsxt: Emulator) -> None:
    theirs = "/infra/lb-services/theirs"
    nsxt.put(theirs, connectivity_path=GATEWAY, size="SMALL")
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        assert site.own("lb-virtual-servers")[0]["lb_service_path"] == theirs
        assert await site.deleted(desired) == Done()
        assert site.paths() == {theirs}


async def test_an_empty_service_of_the_clusters_name_goes_with_the_last(nsxt: Emulator) -> None:
    """As officially: nothing tells it from that of another cluster of the name on the gateway."""
    theirs, name = "/infra/lb-services/theirs", {"owner": OFFICIAL, "cluster": CLUSTER.name}
    nsxt.put(theirs, connectivity_path=GATEWAY, size="SMALL", tags=as_tags(name))
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        assert await site.deleted(desired) == Done()
        assert site.paths() == set()


async def test_one_that_lists_leave_out_is_not_made_once_more(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
        there = site.paths()
        desired = site.desired(HTTP, shown=ip)
        hidden = {path: nsxt.store.objects.pop(path) for path in there if "lb-services" not in path}
        answer = await site.ensure(desired)
        assert isinstance(answer, Pending)
        assert "once more" in answer.reason
        nsxt.store.objects.update(hidden)
        assert await site.address(desired) == ip
        assert site.paths() == there


async def test_a_service_of_another_cluster_of_the_name_on_another_gateway_is_left_alone(
    nsxt: Emulator,
) -> None:
    """Officially a cluster is known by its name alone, which is `kubernetes` by default."""
    theirs, name = "/infra/lb-services/theirs", {"owner": OFFICIAL, "cluster": CLUSTER.name}
    nsxt.put("/infra/tier-1s/t2", display_name="t2")
    nsxt.put(theirs, connectivity_path="/infra/tier-1s/t2", size="SMALL", tags=as_tags(name))
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        (server,) = site.own("lb-virtual-servers")
        assert server["lb_service_path"] != theirs
        assert await site.deleted(desired) == Done()
        assert site.paths() == {theirs}


def namesake(nsxt: Emulator, site: LBSite, pool: str = "vips") -> str:
    """Another port of the Service's name, in a cluster of the name, at the same address."""
    (mine,) = site.own("lb-virtual-servers")
    nsxt.put("/infra/tier-1s/t2", display_name="t2")
    kept = {"owner": OFFICIAL, "cluster": CLUSTER.name}
    service = "/infra/lb-services/theirs"
    nsxt.put(service, connectivity_path="/infra/tier-1s/t2", size="SMALL", tags=as_tags(kept))
    marks = {key: value for key, value in tags(mine).items() if not key.startswith("proreus")}
    path = "/infra/lb-virtual-servers/theirs"
    nsxt.put(
        path, lb_service_path=service, ports=["8443"], ip_address=mine["ip_address"],
        tags=as_tags({**marks, "port": "TCP/8443", "ippoolid": pool}), enabled=True, display_name="theirs",
        application_profile_path=mine["application_profile_path"],
    )  # fmt: skip
    return path


async def test_virtual_servers_of_a_namesake_at_the_same_address_are_left_alone(
    nsxt: Emulator,
) -> None:
    """Behind gateways of their own, clusters of one name may have the same addresses."""
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
        theirs = namesake(nsxt, site)
        before = dict(nsxt.store.objects[theirs])
        assert await site.address(site.desired(HTTP, HTTPS, shown=ip)) == ip
        assert len(site.own("lb-virtual-servers")) == 3
        assert await site.deleted(site.desired(HTTP, shown=ip)) == Done()
        assert site.paths() == {theirs, "/infra/lb-services/theirs"}
        assert nsxt.store.objects[theirs] == before


async def check_apart(
    site: LBSite, theirs: str, desired: LoadBalancer, *, is_deleted: bool
) -> None:
    """What is made, or deleted, is ours alone, beside the virtual server of a namesake."""
    if is_deleted:
        assert await site.deleted(desired) == Done()
        assert site.paths() == {theirs, "/infra/lb-services/theirs"}
    else:
        assert await site.address(desired) == desired.ref.last_ingress[0].ip
        assert len(site.own("lb-virtual-servers")) == 2


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_namesakes_virtual_server_is_not_taken_for_one_of_ours_that_is_gone(
    nsxt: Emulator, *, is_deleted: bool
) -> None:
    """As where the only port was changed, and the next virtual server could not be made."""
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
        theirs = namesake(nsxt, site)
        before = dict(nsxt.store.objects[theirs])
        (mine,) = (one for one in site.own("lb-virtual-servers") if one["path"] != theirs)
        del nsxt.store.objects[mine["path"]]
        await check_apart(site, theirs, site.desired(HTTPS, shown=ip), is_deleted=is_deleted)
        assert nsxt.store.objects[theirs] == before


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_namesakes_virtual_server_is_not_taken_where_our_address_alone_is_left(
    nsxt: Emulator, *, is_deleted: bool
) -> None:
    """Somebody has deleted all else; networks apart have IP pools of their own."""
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
        theirs = namesake(nsxt, site, pool="theirs")
        before = dict(nsxt.store.objects[theirs])
        for kind in ("lb-virtual-servers", "lb-pools", "lb-monitor-profiles"):
            for one in site.own(kind):
                if one["path"] != theirs:
                    nsxt.remove(one["path"])
        await check_apart(site, theirs, site.desired(HTTP, shown=ip), is_deleted=is_deleted)
        assert nsxt.store.objects[theirs] == before


async def test_of_two_official_load_balancers_of_one_name_and_address_none_is_taken(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        site.official("10.20.30.1")
        namesake(nsxt, site)
        before = {path: dict(one) for path, one in nsxt.store.objects.items()}
        desired = site.desired(HTTP, shown="10.20.30.1")
        for answer in (await site.ensure(desired), await site.deleted(desired)):
            assert isinstance(answer, CloudError)
            assert "/infra/lb-virtual-servers/theirs" in str(answer)
        assert nsxt.store.objects == before


async def test_what_was_made_officially_on_another_gateway_goes_on(nsxt: Emulator) -> None:
    """The cloud-config has named another gateway since."""
    nsxt.put("/infra/tier-1s/t2", display_name="t2")
    async with lb_site(nsxt) as site:
        there = site.official("10.20.30.1")
        with nsxt.changing("/infra/lb-services/0ff1-lbs") as service:
            service["connectivity_path"] = "/infra/tier-1s/t2"
        await site.made(site.desired(HTTP, shown="10.20.30.1"))
        assert site.paths() == there
        other = site.desired(HTTP, uid=OTHER_UID, name="other")
        await site.made(other)
        elsewhere = "/infra/lb-services/0ff1-lbs"
        assert {one["lb_service_path"] for one in site.own("lb-virtual-servers")} == {elsewhere}
        await site.deleted(site.desired(HTTP))
        await site.deleted(other)
        # Now that nothing of ours is on it, nothing tells it from another cluster's.
        assert site.paths() == {elsewhere}


async def test_a_service_that_the_config_names_is_used_and_stays(nsxt: Emulator) -> None:
    mine = as_tags({"owner": OFFICIAL, "cluster": "test"})
    nsxt.put("/infra/lb-services/mine", connectivity_path=GATEWAY, size="SMALL", tags=mine)
    async with lb_site(nsxt, UNMANAGED) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        assert site.own("lb-virtual-servers")[0]["lb_service_path"] == "/infra/lb-services/mine"
        assert await site.deleted(desired) == Done()
        assert site.paths() == {"/infra/lb-services/mine"}


async def test_a_service_that_the_config_names_must_be_there_and_on_the_gateway(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt, UNMANAGED) as site:
        answer = await site.ensure(site.desired(HTTP))
        assert "there is no load balancer service 'mine'" in str(answer)
    nsxt.put("/infra/lb-services/mine", size="SMALL")
    text = UNMANAGED.replace("size =", f"tier1-gateway-path = {GATEWAY}\nsize =")
    async with lb_site(nsxt, text) as site:
        answer = await site.ensure(site.desired(HTTP))
        assert isinstance(answer, CloudError)
        assert "is on no gateway" in str(answer)


async def test_a_load_balancer_is_deleted_although_the_service_of_the_config_is_gone(
    nsxt: Emulator,
) -> None:
    nsxt.put("/infra/lb-services/mine", connectivity_path=GATEWAY, size="SMALL")
    async with lb_site(nsxt, UNMANAGED) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        nsxt.remove("/infra/lb-services/mine")
        assert isinstance(await site.ensure(desired), CloudError)
        assert await site.deleted(desired) == Done()
        assert site.paths() == set()


async def test_a_service_without_hosts_keeps_its_address(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
        assert await site.address(site.desired(HTTP, nodes=())) == ip
        assert not site.own("lb-pools")[0].get("members")
        assert await site.address(site.desired(HTTP)) == ip
        assert len(site.own("lb-pools")[0]["members"]) == 2


async def test_the_service_stays_while_servers_of_others_are_on_it(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        (service,) = site.own("lb-services")
        theirs = "/infra/lb-virtual-servers/theirs"
        nsxt.put(
            theirs, ip_address="10.20.30.7", ports=["80"], lb_service_path=service["path"],
            application_profile_path="/infra/lb-app-profiles/default-tcp-lb-app-profile",
        )  # fmt: skip
        assert await site.deleted(desired) == Done()
        assert site.paths() == {theirs, service["path"]}


async def test_an_exhausted_pool_is_told_and_leaves_no_allocation(nsxt: Emulator) -> None:
    world.add_pool(nsxt, "one", "One", addresses="10.20.50.1-10.20.50.1", ip_release_delay=0)
    async with lb_site(nsxt, MANAGED.replace("VIP pool", "One")) as site:
        first = site.desired(HTTP)
        await site.made(first)
        second = site.desired(HTTP, uid=OTHER_UID, name="other")
        answer = await site.ensure(second)
        assert isinstance(answer, CloudError)
        assert "no address" in str(answer)
        assert "exhausted" in str(answer)
        assert len(site.own("ip-allocations")) == 1
        assert await site.deleted(first) == Done()
        assert await site.address(second) == "10.20.50.1"


async def test_an_address_that_is_left_is_shown_no_more_while_there_is_no_other(
    nsxt: Emulator,
) -> None:
    """NSX-T gives it to whoever comes next, and nodes would lead their clients here."""
    world.add_pool(nsxt, "one", "One", addresses="10.20.50.1-10.20.50.1", ip_release_delay=0)
    async with lb_site(nsxt, MANAGED.replace("VIP pool", "One")) as site:
        address = await site.address(site.desired(HTTP))
        edited = site.desired(HTTP, HTTPS, shown=address)
        nsxt.fail(Fault("PUT lb-pools"))
        kept = await site.settled(edited)
        assert isinstance(kept, CloudError)
        assert not kept.disowns
        nsxt.mend()
        for path in site.paths():
            nsxt.remove(path)
        other = site.desired(HTTP, uid=OTHER_UID, name="other")
        assert await site.address(other) == address
        answers = await site.answers(edited)
        assert "exhausted" in str(answers[-1])
        assert answers[-1].disowns
        assert not any(one.withdrawn for one in answers[:-1])


async def test_an_address_that_comes_late_is_waited_for(nsxt: Emulator) -> None:
    nsxt.realization.never = {"*"}
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        answer = await site.ensure(desired)
        assert isinstance(answer, Pending)
        assert "allocates the address" in answer.reason
        assert not site.own("lb-virtual-servers")
        nsxt.realization.never = set()
        with nsxt.changing(site.own("ip-allocations")[0]["path"]):
            pass
        assert await site.address(desired) == "10.20.30.1"
        assert len(site.own("ip-allocations")) == 1


async def test_an_allocation_that_nothing_is_told_of_is_not_given_up(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        ip = await site.address(desired)
        before = site.own("ip-allocations")
        nsxt.fail(Fault("GET realized-entities", status=500, times=100))
        assert isinstance(await site.ensure(desired), CloudError)
        nsxt.mend()
        assert site.own("ip-allocations") == before
        assert await site.address(replace(desired)) == ip


async def test_an_allocation_that_somebody_has_deleted_is_claimed_again_and_hosts_follow_meanwhile(
    nsxt: Emulator,
) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        ip = await site.address(desired)
        nsxt.remove(site.own("ip-allocations")[0]["path"])
        fewer = site.desired(HTTP, nodes=NODES[:1], shown=ip)
        answer = await site.ensure(fewer)
        assert isinstance(answer, CloudError)  # for the pool's release delay
        assert "is not free" in str(answer)
        assert [one["ip_address"] for one in site.own("lb-pools")[0]["members"]] == ["10.0.0.1"]
        assert site.own("ip-allocations") == []
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 121
        assert await site.address(fewer) == ip
        assert len(site.own("ip-allocations")) == 1


async def test_an_address_of_another_namespace_is_refused_while_its_allocation_is_gone(
    nsxt: Emulator,
) -> None:
    """Somebody has deleted it, and NSX-T keeps the address for the pool's release delay."""
    known = context()
    async with lb_site(nsxt, with_=known) as site:
        desired = site.desired(HTTP)
        ip = await site.address(desired)
        own = site.desired(HTTP, shown=ip)
        asked: dict[str, Any] = {"uid": OTHER_UID, "namespace": "bank", "load_balancer_ip": ip}
        theirs = site.desired(HTTPS, name="other", **asked)
        known.listers = {"services": Objects([own.service, theirs.service])}
    async with lb_site(nsxt, with_=known) as site:
        nsxt.remove(site.own("ip-allocations")[0]["path"])
        assert isinstance(await site.ensure(own), CloudError)
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 121
        answer = await site.ensure(theirs)
        assert isinstance(answer, InvalidRequest)
        assert f"{ip} belongs to the Service shop/web" in str(answer)
        assert await site.address(own) == ip
        assert len(site.own("lb-virtual-servers")) == 1


async def test_an_address_that_a_service_names_stays_its_own_while_it_cannot_be_made_anew(
    nsxt: Emulator,
) -> None:
    """Somebody has deleted all of it, and NSX-T keeps the address for the pool's release delay."""
    known, services = context(), Objects()
    known.listers = {"services": services}
    async with lb_site(nsxt, with_=known) as site:
        asked: dict[str, Any] = {"load_balancer_ip": "10.20.30.5"}
        assert await site.address(site.desired(HTTP, **asked)) == "10.20.30.5"
        own = site.desired(HTTP, shown="10.20.30.5", **asked)
        theirs = site.desired(HTTPS, name="other", uid=OTHER_UID, namespace="bank", **asked)
        for path in site.paths():
            nsxt.remove(path)
        answer = await site.settled(own)
        assert isinstance(answer, CloudError)
        assert "is not free" in str(answer)
        own = site.desired(HTTP, shown="" if answer.disowns else "10.20.30.5", **asked)
        services.by_key = {"shop/web": own.service, "bank/other": theirs.service}
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 121
        answer = await site.ensure(theirs)
        assert isinstance(answer, InvalidRequest), answer
        assert "10.20.30.5 belongs to the Service shop/web" in str(answer)
        assert await site.address(own) == "10.20.30.5"


async def test_an_address_that_is_left_is_shown_no_more_while_another_is_named_in_vain(
    nsxt: Emulator,
) -> None:
    known, services = context(), Objects()
    known.listers = {"services": services}
    async with lb_site(nsxt, with_=known) as site:
        address = await site.address(site.desired(HTTP))
        asked: dict[str, Any] = {"load_balancer_ip": "10.20.30.5"}
        theirs = site.desired(
            HTTPS, name="other", uid=OTHER_UID, namespace="bank", shown="10.20.30.5"
        )
        services.by_key = {"bank/other": theirs.service}
        for path in site.paths():
            nsxt.remove(path)
        wrong = site.desired(HTTP, shown=address, **asked)
        answers = await site.answers(wrong)
        assert isinstance(answers[0], Pending)
        assert not any(one.withdrawn for one in answers[:-1])
        assert isinstance(answers[-1], InvalidRequest)
        assert answers[-1].disowns


@pytest.mark.parametrize("what", ["server", "beside", "allocation", "claimed", "elsewhere"])
async def test_an_address_that_somebody_else_has_by_now_is_shown_no_more_though_named(
    nsxt: Emulator, what: str
) -> None:
    """Somebody has deleted all of it; what is of another pool and gateway may be of a network apart."""
    ip, path = "10.20.30.5", "/infra/ip-pools/vips/ip-allocations/theirs"
    asked: dict[str, Any] = {"load_balancer_ip": ip}
    known = context()
    async with lb_site(nsxt, with_=known) as site:
        assert await site.address(site.desired(HTTP, **asked)) == ip
        own = site.desired(HTTP, shown=ip, **asked)
        known.listers = {"services": Objects([own.service])}
    async with lb_site(nsxt, with_=known) as site:
        claim = site.own("ip-allocations")[0]
        for one in [*site.own("lb-virtual-servers"), claim]:
            nsxt.remove(one["path"])
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 121
        nsxt.put(path, **({"allocation_ip": ip} if what == "allocation" else {}))
        nsxt.realization.leases["/infra/ip-pools/vips"][ip] = path
        if what != "allocation":
            tagged = {"owner": OFFICIAL, "cluster": "another", "ippoolid": "vips"}
            nsxt.put(
                "/infra/lb-virtual-servers/theirs", ip_address=ip, ports=["443"],
                application_profile_path="/infra/lb-app-profiles/default-tcp-lb-app-profile",
                tags=as_tags(tagged if what in {"server", "claimed"} else {}),
                **({"lb_service_path": site.own("lb-services")[0]["path"]} if what == "beside" else {}),
            )  # fmt: skip
        if what == "claimed":  # in vain, and the manager has ended before it took that back
            again = claim["path"].replace(claim["id"], "again")
            nsxt.put(again, allocation_ip=ip, tags=claim["tags"])
        answer = await site.settled(own)
        assert isinstance(answer, CloudError)
        assert "is not free" in str(answer)
        assert answer.disowns is (what != "elsewhere")


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_address_of_another_namespace_is_given_back_while_its_allocation_is_gone(
    nsxt: Emulator, *, is_late: bool
) -> None:
    """Once its release delay has passed, NSX-T gives it to whoever asks for any address."""
    known = context()
    async with lb_site(nsxt, with_=known) as site:
        ip = await site.address(site.desired(HTTP))
        own = site.desired(HTTP, shown=ip)
        theirs = site.desired(HTTPS, name="other", uid=OTHER_UID, namespace="bank")
        known.listers = {"services": Objects([own.service, theirs.service])}
    async with lb_site(nsxt, with_=known) as site:
        nsxt.remove(site.own("ip-allocations")[0]["path"])
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 121
        if is_late:
            nsxt.realization.never = {"*"}
            assert isinstance(await site.ensure(theirs), Pending)
            nsxt.realization.never = set()
            with nsxt.changing(site.own("ip-allocations")[0]["path"]):
                pass
        answer = await site.settled(theirs)
        assert isinstance(answer, CloudError)
        assert f"{ip} belongs to the Service shop/web" in str(answer)
        assert site.own("ip-allocations") == []
        assert await site.address(theirs) not in {ip, ""}
        nsxt.now = lambda: ahead() + 242
        assert await site.address(own) == ip


@pytest.mark.parametrize("name", ["web", "api"])
@pytest.mark.parametrize(
    ("cluster", "is_official"), [("another", False), ("another", True), ("test", True)]
)
async def test_an_address_of_another_cluster_is_not_taken_while_its_allocation_is_gone(
    nsxt: Emulator, cluster: str, name: str, *, is_official: bool
) -> None:
    """Somebody has deleted it, and NSX-T has let go of the address."""
    async with lb_site(nsxt) as site:
        other = ClusterIdentity(cluster, "another-uid")
        foreign = site.desired(HTTP, cluster=other)
        ip = await site.address(foreign)
        if is_official:
            with nsxt.changing(site.own("lb-virtual-servers")[0]["path"]) as one:
                one["tags"] = [tag for tag in one["tags"] if not tag["scope"].startswith("proreus")]
        nsxt.remove(site.own("ip-allocations")[0]["path"])
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 121
        asked: dict[str, Any] = {"uid": OTHER_UID, "name": name}
        named = site.desired(HTTPS, **asked, load_balancer_ip=ip)
        answer = await site.settled(named)
        assert isinstance(answer, InvalidRequest), answer
        assert f"{ip} belongs to the Service shop/web of the cluster {cluster}" in str(answer)
        own = site.desired(HTTPS, **asked)
        answer = await site.settled(own)
        assert isinstance(answer, CloudError), answer
        assert f"{ip} belongs to the Service shop/web of the cluster {cluster}" in str(answer)
        assert await site.address(own) not in {ip, ""}
        if not is_official:
            nsxt.now = lambda: ahead() + 242
            assert await site.address(foreign) == ip


async def test_an_address_of_the_same_namespace_is_taken_while_its_allocation_is_gone(
    nsxt: Emulator,
) -> None:
    """What bears official tags alone is this cluster's where a Service's status shows it."""
    known = context()
    async with lb_site(nsxt, with_=known) as site:
        site.official("10.20.30.5")
        own = site.desired(HTTP, shown="10.20.30.5")
        known.listers = {"services": Objects([own.service])}
    async with lb_site(nsxt, with_=known) as site:
        nsxt.remove(site.own("ip-allocations")[0]["path"])
        named = site.desired(HTTPS, uid=OTHER_UID, name="api", load_balancer_ip="10.20.30.5")
        assert await site.address(named) == "10.20.30.5"


async def test_a_port_that_comes_back_is_made_while_the_old_one_is_not_purged(
    nsxt: Emulator,
) -> None:
    nsxt.store.purges = 300.0
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP, HTTPS))
        assert await site.address(site.desired(HTTP)) == ip
        assert await site.address(site.desired(HTTP, HTTPS)) == ip
        for ranges in (("192.0.2.0/24",), (), ("192.0.2.0/24",)):
            wanted = site.desired(HTTP, HTTPS, shown=ip, load_balancer_source_ranges=ranges)
            assert await site.address(wanted) == ip


async def test_a_change_of_somebody_else_in_between_stays(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
        (pool,) = site.own("lb-pools")
        changes = ["LEAST_CONNECTION"]

        def interfere(name: str, path: str) -> None:
            if name == "PUT lb-pools" and changes:
                with nsxt.changing(path) as one:
                    one["algorithm"] = changes.pop()

        nsxt.hooks.append(interfere)
        fewer = site.desired(HTTP, nodes=NODES[:1], shown=ip)
        assert isinstance(await site.ensure(fewer), Pending)
        await site.made(fewer)
        (after,) = site.own("lb-pools")
        assert after["path"] == pool["path"]
        assert after["algorithm"] == "LEAST_CONNECTION"
        assert [one["ip_address"] for one in after["members"]] == ["10.0.0.1"]


async def test_source_ranges_become_a_group_that_each_server_lets_in(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        ranges = ("192.0.2.0/24", "198.51.100.0/25")
        await site.made(site.desired(HTTP, HTTPS, load_balancer_source_ranges=ranges))
        (group,) = site.own("groups")
        assert [one["ip_addresses"] for one in group["expression"]] == [list(ranges)]
        for server in site.own("lb-virtual-servers"):
            access = server["access_list_control"]
            assert (access["action"], access["enabled"]) == ("ALLOW", True)
            assert access["group_path"] == group["path"]
        await site.made(site.desired(HTTP, HTTPS))
        for server in site.own("lb-virtual-servers"):
            assert "access_list_control" not in server


async def test_clients_stay_with_a_host_for_as_long_as_the_service_says(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        await site.made(site.desired(HTTP, session_affinity="ClientIP"))
        (profile,) = site.own("lb-persistence-profiles")
        assert (profile["resource_type"], profile["timeout"]) == (
            "LBSourceIpPersistenceProfile",
            10800,
        )
        (server,) = site.own("lb-virtual-servers")
        assert server["lb_persistence_profile_path"] == profile["path"]
        await site.made(site.desired(HTTP))
        assert site.own("lb-persistence-profiles") == []


async def test_nodes_with_pods_are_told_by_the_health_check_port(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        local: dict[str, Any] = {
            "external_traffic_policy": "Local",
            "health_check_node_port": 30999,
        }
        ip = await site.address(site.desired(HTTP, DNS))
        assert await site.address(site.desired(HTTP, DNS, **local)) == ip
        monitors = site.own("lb-monitor-profiles")
        assert [(one["resource_type"], one["monitor_port"]) for one in monitors] == [
            ("LBHttpMonitorProfile", 30999)
        ] * 2
        assert {one["request_url"] for one in monitors} == {"/healthz"}
        pools = site.own("lb-pools")
        assert [one["active_monitor_paths"] for one in pools] == [[one["path"]] for one in monitors]


async def test_classes_have_pools_and_profiles_of_their_own(nsxt: Emulator) -> None:
    world.add_pool(nsxt, "public", "Public", addresses="203.0.113.1-203.0.113.9")
    nsxt.put("/infra/lb-app-profiles/mine", resource_type="LBFastTcpProfile")
    async with lb_site(nsxt, CLASSES) as site:
        public = site.desired(HTTP, annotations={ANNOTATION: " public "})
        assert await site.address(public) == "203.0.113.1"
        (server,) = site.own("lb-virtual-servers")
        assert (tags(server)["lbclass"], tags(server)["ippoolid"]) == ("public", "public")
        fast = site.desired(HTTP, HTTPS, annotations={ANNOTATION: "fast"})
        assert await site.address(fast) == "203.0.113.1"
        for one in site.own("lb-virtual-servers"):
            assert one["application_profile_path"] == "/infra/lb-app-profiles/mine"
            assert (tags(one)["lbclass"], tags(one)["ippoolid"]) == ("public", "public")
        assert await site.deleted(replace(fast, ref=replace(fast.ref, service=None))) == Done()
        assert site.paths() == set()


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_address_of_a_former_pool_is_kept_without_a_virtual_server(
    nsxt: Emulator, *, is_deleted: bool
) -> None:
    """A process has ended after it had deleted the only one, which names the pool."""
    async with lb_site(nsxt) as site:
        ip = await site.address(site.desired(HTTP))
    world.add_pool(nsxt, "next", "Next pool", addresses="203.0.113.1-203.0.113.9")
    async with lb_site(nsxt, MANAGED.replace("VIP pool", "Next pool")) as site:
        desired = site.desired(HTTPS, shown=ip)
        nsxt.fail(Fault("PUT lb-virtual-servers"))
        assert isinstance(await site.settled(desired), CloudError)
        assert not site.own("lb-virtual-servers")
    async with lb_site(nsxt, MANAGED.replace("VIP pool", "Next pool")) as site:
        if is_deleted:
            assert isinstance(await site.deleted(desired), Done)
            assert site.paths() == set()
            return
        assert await site.address(desired) == ip
        (allocation,) = site.own("ip-allocations")
        assert "/vips/" in allocation["path"]
        assert tags(site.own("lb-virtual-servers")[0])["ippoolid"] == "vips"


async def test_what_the_config_names_and_is_not_there_is_told(nsxt: Emulator) -> None:
    async with lb_site(nsxt, CLASSES) as site:
        answer = await site.ensure(site.desired(HTTP, annotations={ANNOTATION: "away"}))
        assert "the IP pool of the class 'away', 'nowhere', is not there" in str(answer)
        assert not isinstance(answer, InvalidRequest)  # it may be made later
        await site.made(site.desired(HTTP))
    world.add_pool(nsxt, "again", "VIP pool", addresses="10.20.60.1-10.20.60.9")
    async with lb_site(nsxt) as site:
        answer = await site.ensure(site.desired(HTTP, uid=OTHER_UID, name="other"))
        assert "is there several times: give its id" in str(answer)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"annotations": {ANNOTATION: "none"}}, f"annotation {ANNOTATION}: there is no such class"),
        ({"load_balancer_ip": "fd00::1"}, "spec.loadBalancerIP: must be an IPv4 address"),
        ({"load_balancer_ip": "example.org"}, "spec.loadBalancerIP"),
        ({"load_balancer_source_ranges": ("fd00::/64",)}, "has no IPv4 range"),
        ({"ip_families": ("IPv6",)}, "which is no IPv6 address"),
    ],
)
async def test_what_cannot_be_is_refused_by_the_field(
    nsxt: Emulator, spec: dict[str, Any], problem: str
) -> None:
    async with lb_site(nsxt) as site:
        answer = await site.ensure(site.desired(HTTP, **spec))
        assert isinstance(answer, InvalidRequest)
        assert problem in str(answer)


async def test_several_mistakes_are_told_at_once(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        ports = (replace(HTTP, protocol="SCTP"), replace(HTTPS, node_port=0))
        answer = await site.ensure(site.desired(*ports, load_balancer_ip="x"))
        for part in ("not SCTP", "443 has no node port", "spec.loadBalancerIP"):
            assert part in str(answer)
        assert site.paths() == set()


async def test_a_requested_address_is_given_and_one_that_is_in_use_refused(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP, load_balancer_ip="10.20.30.5")
        assert await site.address(desired) == "10.20.30.5"
        other = site.desired(HTTP, uid=OTHER_UID, name="other", load_balancer_ip="10.20.30.5")
        answer = await site.ensure(other)
        assert isinstance(answer, CloudError)
        assert "10.20.30.5" in str(answer)
        later = site.desired(HTTP, load_balancer_ip="10.20.30.6", shown="10.20.30.5")
        assert await site.address(later) == "10.20.30.5"


async def test_a_service_of_ipv6_has_hosts_of_ipv6(nsxt: Emulator) -> None:
    world.add_pool(nsxt, "six", "Six", addresses="fd00:1::10-fd00:1::20")
    async with lb_site(nsxt, MANAGED.replace("VIP pool", "Six")) as site:
        answer = await site.made(site.desired(HTTP, ip_families=("IPv6", "IPv4")))
        assert answer == Ensured(
            (LoadBalancerIngress(ip="fd00:1::10"),), {"node-2": "it has no IPv6 address"}
        )
        (pool,) = site.own("lb-pools")
        assert [one["ip_address"] for one in pool["members"]] == ["fd00::1"]


async def test_a_preview_says_what_is_made(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        lines = await site.preview(site.desired(HTTP))
        assert [(one.action, one.part) for one in lines] == [
            ("create", "load balancer service"),
            ("create", "IP allocation"),
            ("create", "monitor TCP/80"),
            ("create", "server pool TCP/80"),
            ("create", "virtual server TCP/80"),
        ]
        assert site.paths() == set()
        ip = await site.address(site.desired(HTTP))
        more = (*NODES, node("node-3", "10.0.0.3"))
        assert await site.preview(site.desired(HTTP, nodes=more, shown=ip)) == [
            PartChange("change", "server pool TCP/80", "members 10.0.0.1 10.0.0.2 10.0.0.3")
        ]


async def test_a_wrong_password_is_sent_once_and_shown_nowhere(nsxt: Emulator) -> None:
    async with lb_site(nsxt, password="planted-wrong") as site:
        for _ in range(8):
            answer = await site.ensure(site.desired(HTTP))
            assert isinstance(answer, Unauthenticated)
            assert "planted" not in str(answer)
        assert "the same password is not sent again" in str(answer)
    assert not nsxt.sessions.locked
    LOGINS.accepted((nsxt.host, "admin", "planted-wrong"))
    async with lb_site(nsxt) as site:
        await site.made(site.desired(HTTP))


async def test_a_session_that_has_ended_is_begun_anew(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        assert nsxt.counted()["session create"] == 1
        nsxt.sessions.expire()
        await site.made(desired)
        assert nsxt.counted()["session create"] == 1


async def test_a_password_that_was_changed_locks_no_account(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP)
        await site.made(desired)
        nsxt.sessions.users["admin"] = "planted-another"
        nsxt.sessions.expire()
        for _ in range(3):
            assert isinstance(await site.ensure(desired), Unauthenticated)
    assert not nsxt.sessions.locked


async def test_a_missing_right_is_told(nsxt: Emulator) -> None:
    nsxt.sessions.readers.add("admin")
    async with lb_site(nsxt) as site:
        answer = await site.ensure(site.desired(HTTP))
        assert isinstance(answer, Unauthenticated)
        assert "not authorized" in str(answer)
        nsxt.sessions.readers.clear()
        await site.made(site.desired(HTTP))


async def test_users_of_other_directories_log_in(nsxt: Emulator) -> None:
    nsxt.sessions.remote.add("admin")
    async with lb_site(nsxt, remote_auth="true") as site:
        await site.made(site.desired(HTTP))


async def test_a_certificate_logs_in(nsxt: Emulator, tmp_path: Any) -> None:
    certificate, key = nsxt.authority.client("kubernetes", ())
    (tmp_path / "c.pem").write_bytes(certificate)
    (tmp_path / "k.pem").write_bytes(key)
    nsxt.sessions.register("kubernetes", certificate)
    files: dict[str, Any] = {
        "client_auth_cert_file": tmp_path / "c.pem", "client_auth_key_file": tmp_path / "k.pem",
        "user": "", "password": "",
    }  # fmt: skip
    async with lb_site(nsxt, **files) as site:
        await site.made(site.desired(HTTP))


async def test_a_mounted_secret_logs_in(nsxt: Emulator, tmp_path: Any) -> None:
    (tmp_path / "username").write_text("admin\n")
    (tmp_path / "password").write_text(nsxt.sessions.users["admin"])
    secret: dict[str, Any] = {
        "secret_name": "nsxt", "secret_namespace": "kube-system",
        "secrets_directory": tmp_path, "user": "", "password": "",
    }  # fmt: skip
    async with lb_site(nsxt, **secret) as site:
        await site.made(site.desired(HTTP))


async def test_the_limit_of_requests_is_obeyed(nsxt: Emulator) -> None:
    nsxt.rate = 20
    async with lb_site(nsxt) as site:
        services = [
            site.desired(HTTP, uid=f"{UID[:-2]}{number:02}", name=f"s{number}")
            for number in range(4)
        ]
        await asyncio.gather(*(self_made(site, one) for one in services))
        assert len(site.own("lb-virtual-servers")) == 4


async def self_made(site: LBSite, desired: Any) -> None:
    """Ensure until the limit lets it through."""
    while not isinstance(answer := await site.ensure(desired), Ensured):
        assert isinstance(answer, CloudError | Pending), answer
        await asyncio.sleep(0.1)


async def test_a_service_at_rest_costs_the_requests_that_the_guide_says(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        desired = site.desired(HTTP, HTTPS)
        await site.made(desired)
        nsxt.counted()
        await site.made(desired)
        kinds = ("lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles",
                 "lb-persistence-profiles", "ip-allocations")  # fmt: skip
        assert nsxt.counted() == {
            **{f"LIST {kind}": 1 for kind in kinds},
            "GET realized-entities": 1,
            "GET groups": 1,
        }


async def test_services_that_are_looked_at_side_by_side_share_the_lists(nsxt: Emulator) -> None:
    async with lb_site(nsxt) as site:
        services = [
            site.desired(HTTP, uid=f"{UID[:-2]}{number:02}", name=f"s{number}")
            for number in range(6)
        ]
        await asyncio.gather(*(site.made(one) for one in services))
        nsxt.counted()
        await asyncio.gather(*(site.made(one) for one in services))
        counted = nsxt.counted()
        assert counted["GET realized-entities"] == counted["GET groups"] == 6
        assert {counted[f"LIST {kind}"] for kind in ("lb-pools", "lb-virtual-servers")} == {1}
