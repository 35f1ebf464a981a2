"""Load balancers of Rancher: made, changed in place, shared, adopted, refused, removed."""

import asyncio
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Done, Ensured, Pending
from proreus.cloudprovider.desired import LABEL_SERVICE_NAME
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.controllers.service.drift import adopted, fingerprints
from proreus.kube.objects import (
    Endpoint,
    EndpointSlice,
    LoadBalancerIngress,
    ObjectMeta,
    ServicePort,
)

from .emulator.schemas import Json
from .emulator.server import LOST, Emulator, Exchange, served
from .site import DNS, HTTP, HTTPS, NAME, UID, lb_site, node, started

OTHER = "5e000000-0000-4000-9000-000000000002"
CHANGES = "POST loadbalancerservices?"


def is_new(emulator: Emulator) -> bool:
    return "v2-beta" in emulator.versions


async def test_a_load_balancer_is_made_with_names_stack_and_ports_of_the_official_one(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator, ["node-1.example.org", "node_2"]) as site:
        answer = await site.made(site.desired(HTTP, HTTPS))
        made = site.balancer()
        (stack,) = site.world.of("stack")
        assert set(site.externals()) == {"node-1-example-org", "node-2"}
        assert all(one["stackId"] == stack["id"] for one in site.world.services())
        assert site.served() == {"80": site.targets(30080), "443": site.targets(30443)}
    assert (stack["name"], stack["externalId"]) == (
        "kubernetes-loadbalancers",
        "kubernetes-loadbalancers://",
    )
    new = is_new(emulator)
    ports = {"80:80/tcp", "443:443/tcp"} if new else {"80:30080/tcp", "443:30443/tcp"}
    assert set(made["launchConfig"]["ports"]) == ports
    image = "docker:rancher/lb-service-haproxy:v0.7.5" if new else None
    assert made["launchConfig"].get("imageUuid") == image
    assert made["state"] == "active"
    # A host may be a node, of which no port is to lead to the Service's pods.
    assert answer.ingress == (LoadBalancerIngress(ip="10.42.0.2", ip_mode="Proxy"),)
    assert not emulator.dropped
    assert not emulator.ignored


async def test_at_rest_it_costs_two_reads_and_in_v1_its_links(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        first = await site.made(site.desired())
        emulator.calls.clear()
        assert await site.ensure(site.desired()) == first
    links = {} if is_new(emulator) else {"GET serviceconsumemaps": 1}
    assert emulator.calls == {"GET loadbalancerservices": 1, "GET externalservices": 1, **links}


async def test_ports_are_changed_in_place(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        first = await site.made(site.desired(HTTP))
        before = site.balancer()["id"]
        site.writes()
        second = await site.made(site.desired(HTTP, HTTPS))
        assert site.balancer()["id"] == before
        assert site.served() == {"80": site.targets(30080), "443": site.targets(30443)}
        assert site.balancer()["state"] == "active"
        assert second.ingress == first.ingress
        in_place = {"PUT loadbalancerservices": 1}
        upgraded = {f"{CHANGES}upgrade": 1, f"{CHANGES}finishupgrade": 1}
        assert site.writes() == (in_place if is_new(emulator) else upgraded)


async def test_another_node_port_is_taken_over(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(HTTP))
        await site.made(site.desired(ServicePort(80, "http", node_port=30081)))
        assert site.served() == {"80": site.targets(30081)}


async def test_what_an_administrator_has_set_beside_the_rules_is_kept(newest: Emulator) -> None:
    async with lb_site(newest) as site:
        await site.made(site.desired(HTTP))
        site.balancer()["lbConfig"]["config"] = "global\n maxconn 100"
        site.balancer()["launchConfig"]["labels"] = {"io.rancher.scheduler.affinity": "lb=true"}
        site.balancer()["scale"] = 2
        await site.made(site.desired(HTTPS))
        made = site.balancer()
    assert made["lbConfig"]["config"] == "global\n maxconn 100"
    assert made["launchConfig"]["labels"] == {"io.rancher.scheduler.affinity": "lb=true"}
    assert made["scale"] == 2


async def test_nodes_come_and_go_and_so_do_their_external_services(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        site.add("node-3")
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}
        del site.nodes[0]
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}
        assert set(site.externals()) == {"node-2", "node-3"}


async def test_a_node_with_a_new_address_is_followed(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        ids = {one["id"] for one in site.world.services()}
        site.nodes[0] = node("node-1", site.nodes[0].spec.provider_id, "10.9.9.9")
        await site.made(site.desired())
        assert site.served() == {"80": {"10.9.9.9:30080", "10.42.0.3:30080"}}
        assert {one["id"] for one in site.world.services()} == ids


async def test_one_that_a_list_leaves_out_is_not_made_once_more(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired())
        desired = site.desired(ingress=answer.ingress)
        id_ = site.balancer()["id"]
        hidden = site.world.objects.pop(id_)
        refused = await site.ensure(desired)
        assert isinstance(refused, Pending)
        assert "once more" in refused.reason
        site.world.objects[id_] = hidden
        assert (await site.made(desired)).ingress == answer.ingress
        assert site.balancer()["id"] == id_


async def test_none_is_made_anew_in_another_environment(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired())
        desired = site.desired(ingress=answer.ingress)
    async with served(Emulator(emulator.versions)) as other, started(other) as provider:
        assert provider.load_balancers is not None
        refused = (await provider.load_balancers.ensure([desired]))[UID]
        assert isinstance(refused, CloudError)
        assert "environment" in str(refused)
        assert not other.world.services()
        assert not other.world.of("stack")


async def test_another_environment_that_shows_none_is_no_end_of_a_deletion(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        (point, *_) = (await site.made(site.desired())).ingress
        ref = site.desired(ingress=[point]).ref
        nodes = site.nodes
    async with (
        served(Emulator(emulator.versions)) as other,
        started(other, nodes=nodes) as provider,
    ):
        other.world.add_hosts(["theirs"])
        assert provider.load_balancers is not None
        answer = (await provider.load_balancers.delete([ref]))[UID]
        assert isinstance(answer, CloudError)
        assert "credentials" in str(answer)
    async with started(emulator, nodes=nodes) as site.provider:
        assert (await site.deleted(site.desired(ingress=[point]))).found
        # Somebody has deleted it by hand: a host is shown.
        assert (await site.balancers.delete([ref]))[UID] == Done(found=False)


async def test_with_local_traffic_only_nodes_with_ready_pods_are_hosts(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        labels = {LABEL_SERVICE_NAME: site.desired().ref.service_name}
        meta = ObjectMeta(namespace="shop", labels=labels)
        pods = EndpointSlice(meta, endpoints=(Endpoint(("10.9.0.1",), node_name="node-2"),))
        await site.made(site.desired(external_traffic_policy="Local", endpoints=[pods]))
        assert site.served() == {"80": {"10.42.0.3:30080"}}
        await site.made(site.desired(external_traffic_policy="Local"))
        assert site.served() == {"80": set()}


async def test_two_services_share_the_external_services_of_nodes(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        one, two = site.desired(), site.desired(HTTPS, uid=OTHER)
        await asyncio.gather(site.made(one), site.made(two))
        assert len(site.externals()) == 2
        assert len(site.world.of("stack")) == 1
        assert await site.deleted(one) == Done(found=True)
        assert len(site.externals()) == 2
        assert site.served(f"lb-{two.ref.name}") == {"443": site.targets(30443)}
        assert await site.deleted(two) == Done(found=True)
        assert not site.world.services()
        assert len(site.world.of("stack")) == 1


async def test_60_services_that_are_ensured_side_by_side_make_each_external_service_once(
    newest: Emulator,
) -> None:
    async with lb_site(newest, [f"node-{number}" for number in range(5)]) as site:
        uids = [f"5e{number:06}-0000-4000-8000-000000000001" for number in range(60)]
        await asyncio.gather(*(site.made(site.desired(uid=uid)) for uid in uids))
        assert newest.calls["POST externalservices"] == 5
        assert newest.calls["POST loadbalancerservices"] == 60
        assert newest.calls["POST stacks"] == 1


async def test_two_nodes_whose_names_come_to_the_same_have_services_of_their_own(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator, ["a.b", "a-b"]) as site:
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}
        assert {name[:4] for name in site.externals()} == {"a-b", "a-b-"}
        site.writes()
        await site.made(site.desired())
        assert not site.writes()
        await site.made(site.desired(nodes=site.nodes[:1]))
        assert len(site.externals()) == 1


async def test_an_external_service_of_somebody_else_is_left_alone(emulator: Emulator) -> None:
    async with lb_site(emulator, ["node-1"]) as site:
        stack = site.world.new(
            "stack", "st", state="active", name="kubernetes-loadbalancers", externalId=None
        )
        fields = {"name": "node-1", "stackId": stack["id"], "externalIpAddresses": ["192.0.2.9"]}
        theirs = dict(site.world.new("externalService", "s", state="active", **fields))
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}
        await site.deleted(site.desired())
        assert site.externals() == {"node-1": theirs}


async def test_a_load_balancer_whose_name_is_another_clusters_is_refused(
    emulator: Emulator,
) -> None:
    other = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000002")
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        before = dict(site.balancer())
        async with started(emulator, cluster=other) as provider:
            assert provider.load_balancers is not None
            desired = site.desired(HTTPS, cluster=other)
            while isinstance(
                answer := (await provider.load_balancers.ensure([desired]))[UID], Pending
            ):
                await asyncio.sleep(0.01)
            assert isinstance(answer, CloudError)
            assert "NotUnique" in str(answer)
            await provider.load_balancers.delete([desired.ref])
        assert site.balancer() == before


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"load_balancer_ip": "192.0.2.1"}, ["spec.loadBalancerIP", "remove it"]),
        ({"session_affinity": "ClientIP"}, ["spec.sessionAffinity", "set it to None"]),
        (
            {"load_balancer_source_ranges": ("192.0.2.0/24",)},
            ["spec.loadBalancerSourceRanges", "firewall"],
        ),
        ({"ports": (DNS,)}, ["spec.ports", "TCP only, not UDP"]),
        ({"ports": (ServicePort(80, "http"),)}, ["80 has no node port"]),
        ({"ports": (ServicePort(42, "a", node_port=30042),)}, ["42 is the port"]),
    ],
)
async def test_what_rancher_cannot_do_is_refused_by_name(
    newest: Emulator, changed: dict[str, Any], parts: list[str]
) -> None:
    async with lb_site(newest) as site:
        desired = site.desired(**changed)
        answer = await site.ensure(desired)
        assert isinstance(answer, InvalidRequest)
        assert all(part in str(answer) for part in parts)
        assert site.balancers.fingerprint(desired) == ""
        assert not newest.calls


async def test_everything_that_is_refused_is_told_at_once(newest: Emulator) -> None:
    async with lb_site(newest) as site:
        desired = site.desired(DNS, load_balancer_ip="192.0.2.1", session_affinity="ClientIP")
        answer = await site.ensure(desired)
    for field in ("spec.loadBalancerIP", "spec.sessionAffinity", "spec.ports"):
        assert field in str(answer)


async def test_nodes_that_are_no_hosts_of_rancher_are_rejected_while_others_serve(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator, ["node-1"]) as site:
        extra = [node("other", "aws:///a/i-1", "10.8.8.8"), node("bare", "rancher://0", "")]
        answer = await site.made(site.desired(nodes=[*site.nodes, *extra]))
        assert site.served() == {"80": site.targets(30080)}
    assert answer.rejected == {
        "other": "aws:///a/i-1 is not a host of Rancher",
        "bare": "it has no IPv4 address",
    }


async def test_while_rancher_works_the_answer_is_pending(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        site.world.works = 0.3
        answer = await site.ensure(site.desired())
        assert isinstance(answer, Pending)
        assert "registering" in answer.reason or "external service" in answer.reason
        await site.made(site.desired())
        site.writes()
        pending = await site.ensure(site.desired(HTTP, HTTPS))
        assert isinstance(pending, Pending)
        again = await site.ensure(site.desired(HTTP, HTTPS))
        assert isinstance(again, Pending)
        assert again.after > pending.after
        assert sum(site.writes().values()) == 1
        await site.made(site.desired(HTTP, HTTPS))
        assert site.served() == {"80": site.targets(30080), "443": site.targets(30443)}
        assert await site.deleted(site.desired()) == Done(found=True)


async def test_what_fails_in_rancher_is_told_and_tried_again(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        site.world.no_host = "Scheduling failed: no host with port 80 free"
        answer = await site.ensure(site.desired())
        for _ in range(5):
            if isinstance(answer, CloudError):
                break
            await asyncio.sleep(0.01)
            answer = await site.ensure(site.desired())
        assert isinstance(answer, CloudError)
        assert "no host with port 80 free" in str(answer)
        site.world.no_host = ""
        site.world.go(site.balancer(), "inactive")
        assert (await site.made(site.desired())).ingress


async def test_a_load_balancer_without_an_address_yet_is_waited_for(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        site.balancer()["hostId"] = None
        answer = await site.ensure(site.desired())
    assert isinstance(answer, Pending)
    assert "no address" in answer.reason


async def test_what_somebody_has_deactivated_is_activated(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        for one in site.world.services():
            site.world.act(one, "deactivate", {})
        await site.made(site.desired())
        assert {one["state"] for one in site.world.services()} == {"active"}


@pytest.mark.parametrize("state", ["upgraded", "canceled-upgrade", "canceled-rollback"])
async def test_an_upgrade_that_was_left_in_the_middle_is_ended(
    emulator: Emulator, state: str
) -> None:
    if state == "canceled-rollback" and is_new(emulator):
        return  # which v2-beta does not have
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        site.balancer()["state"] = state
        await site.made(site.desired(HTTP, HTTPS))
        assert site.served() == {"80": site.targets(30080), "443": site.targets(30443)}


async def test_a_load_balancer_that_is_being_removed_is_made_again_after_it(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        site.world.works = 0.1
        for one in site.world.services():
            site.world.remove(one)
        assert isinstance(await site.ensure(site.desired()), Pending)
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}


async def test_an_external_service_that_is_being_removed_is_waited_for(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        site.world.works = 0.1
        site.world.remove(site.externals()["node-1"])
        assert isinstance(await site.ensure(site.desired()), Pending)
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}


async def test_on_servers_whose_links_do_not_follow_the_rules_they_are_set(
    newest: Emulator,
) -> None:
    newest.world.links_follow = False
    async with lb_site(newest) as site:
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}
        site.add("node-3")
        site.writes()
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}
        assert site.writes() == {
            "POST externalservices": 1,
            "PUT loadbalancerservices": 1,
            f"{CHANGES}setservicelinks": 1,
        }


async def test_stacks_that_cannot_be_used_are_told_or_waited_for(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        stack = site.world.new("stack", "st", state="error", name="kubernetes-loadbalancers")
        stack["externalId"] = None
        answer = await site.ensure(site.desired())
        assert isinstance(answer, CloudError)
        assert "error state: remove it" in str(answer)
        stack["state"] = "removing"
        assert isinstance(await site.ensure(site.desired()), Pending)
        stack["removed"] = "2026"
        await site.made(site.desired())
        assert site.served() == {"80": site.targets(30080)}


async def test_a_server_that_shows_no_image_is_told(newest: Emulator) -> None:
    newest.world.settings = {}
    async with lb_site(newest) as site:
        answer = await site.ensure(site.desired())
    assert isinstance(answer, CloudError)
    assert "lb.instance.image" in str(answer)


async def test_several_load_balancers_of_one_service_are_told(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        other = site.world.new("stack", "st", state="active", name="other", externalId=None)
        copy = {**site.balancer(), "stackId": other["id"]}
        for field in ("id", "kind", "uuid"):
            copy.pop(field)
        site.world.new("loadBalancerService", "s", **copy)
        answer = await site.ensure(site.desired())
    assert isinstance(answer, CloudError)
    assert "remove all but one" in str(answer)


async def official(site: Any) -> dict[str, Any]:
    """Make what the official manager makes, without our marks; the services by name."""
    await site.made(site.desired())
    for one in site.world.services():
        one["description"] = None
    return {one["name"]: one["id"] for one in site.world.services()}


async def shared_with_others(site: Any) -> tuple[Any, dict[str, Any]]:
    """Another load balancer, and an external service of another address to which it leads, too."""
    theirs = site.desired(HTTPS, uid=OTHER)
    await site.made(theirs)
    await official(site)
    shared = site.externals()["node-1"]
    shared["externalIpAddresses"] = ["10.9.9.9"]
    return theirs, shared


async def test_what_the_official_manager_has_made_is_kept_and_marked(emulator: Emulator) -> None:
    async with lb_site(emulator) as made:
        ids = await official(made)
    async with started(emulator) as provider:
        site = made
        site.provider = provider
        assert not await site.balancers.list_owned(site.desired().ref.cluster)
        site.writes()
        await site.made(site.desired())
        assert {one["name"]: one["id"] for one in site.world.services()} == ids
        assert site.writes() == {"PUT externalservices": 2, "PUT loadbalancerservices": 1}
        assert UID in site.balancer()["description"]
        assert await site.deleted(site.desired()) == Done(found=True)
        assert not site.world.services()


async def test_an_external_service_of_another_address_to_which_others_lead_is_left_alone(
    emulator: Emulator,
) -> None:
    """Rancher's manager takes one by its name: it may be of a node of another cluster."""
    async with lb_site(emulator) as site:
        theirs, shared = await shared_with_others(site)
        before = dict(shared)
        led_to = site.served(f"lb-{theirs.ref.name}")
        async with started(emulator) as site.provider:
            await site.made(site.desired())
            assert site.served() == {"80": site.targets(30080)}
            assert site.served(f"lb-{theirs.ref.name}") == led_to
            assert await site.deleted(site.desired()) == Done(found=True)
        assert site.externals()["node-1"] == before
        assert set(site.externals()) == {"node-1", "node-2"}


@pytest.mark.parametrize("what", ["a page", "a list that lags"])
async def test_an_external_service_is_left_alone_whose_link_of_others_a_list_leaves_out(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is of a node of another cluster, whose load balancer would lead to this one's node."""
    async with lb_site(emulator) as site:
        theirs, shared = await shared_with_others(site)
        hidden = next(
            one for one in site.world.services() if one["name"] == f"lb-{theirs.ref.name}"
        )["id"]
        listed = Exchange._list

        def halved(exchange: Exchange, type_: str) -> Json:
            found = listed(exchange, type_)
            is_alone = "consumedServiceId" in exchange._request.query and what == "a page"
            if type_ == "serviceConsumeMap" and not is_alone:
                found["data"] = [one for one in found["data"] if one["serviceId"] != hidden]
            return found

        if what == "a page" or emulator.versions != ("v1",):  # v1 has nothing but links
            monkeypatch.setattr(Exchange, "_list", halved)
        async with started(emulator) as site.provider:
            await site.made(site.desired())
        assert shared["externalIpAddresses"] == ["10.9.9.9"]
        assert site.served() == {"80": site.targets(30080)}


async def test_an_official_load_balancer_is_deleted_by_the_uid_in_its_name(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await official(site)
        bare = msgspec.structs.replace(site.desired().ref, service=None)
        while isinstance((await site.balancers.delete([bare]))[UID], Pending):
            await asyncio.sleep(0.01)
        assert not site.world.of("loadBalancerService")


@pytest.mark.parametrize("mode", ["VIP", "Proxy"])
async def test_hosts_that_a_former_version_has_shown_are_shown_anew_after_a_restart(
    emulator: Emulator, mode: str
) -> None:
    """With VIP nodes lead what comes for a host to pods, whatever the Service asks for next."""
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired())).ingress
        listed = fingerprints(await site.balancers.list_owned(site.desired().ref.cluster))
        shown = msgspec.structs.replace(point, ip_mode=mode)
        desired = site.desired(ingress=[shown])
        known = adopted(desired, site.balancers.fingerprint(desired), listed)
        assert (known is not None) == (mode == "Proxy")


async def test_a_listing_shows_what_is_as_desired_and_at_which_addresses(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        ref = site.desired().ref
        listed = await site.balancers.list_owned(ref.cluster)
        (balancer,) = (one for one in listed if one.service_uid)
        assert (balancer.service, balancer.addresses) == (ref.key, ("10.42.0.2",))
        assert balancer.fingerprint == site.balancers.fingerprint(site.desired())
        assert len([one for one in listed if one.kind == "external service"]) == 2

        async def shown() -> str:
            now = await site.balancers.list_owned(ref.cluster)
            return next(one.fingerprint for one in now if one.service_uid)

        site.externals()["node-1"]["externalIpAddresses"] = ["10.9.9.9"]
        assert await shown() not in {"", balancer.fingerprint}
        site.externals()["node-1"]["externalIpAddresses"] = []
        assert not await shown()
        site.externals()["node-1"]["externalIpAddresses"] = ["10.42.0.2"]
        assert await shown() == balancer.fingerprint
        site.balancer()["state"] = "inactive"
        assert not await shown()


async def test_an_answer_that_is_lost_makes_nothing_twice(emulator: Emulator) -> None:
    lost = ["POST externalservices", "POST loadbalancerservices"]
    lost += ["POST stacks" if is_new(emulator) else "POST environments"]
    async with lb_site(emulator) as site:
        for name in lost:
            emulator.fail(name, LOST, after_effect=True)
        answer = await site.ensure(site.desired())
        for _ in range(20):
            if isinstance(answer, Ensured):
                break
            await asyncio.sleep(0.01)
            answer = await site.ensure(site.desired())
        assert isinstance(answer, Ensured)
        assert not emulator.failures
        assert len(site.externals()) == 2
        assert len(site.world.of("stack")) == 1
        assert site.served() == {"80": site.targets(30080)}


async def test_what_is_gone_already_is_deleted(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        assert await site.deleted(site.desired()) == Done(found=False)
        await site.made(site.desired())
        emulator.fail("DELETE loadbalancerservices", 404)
        for name in list(site.externals()):
            site.world.purge(site.externals()[name])
        assert isinstance((await site.balancers.delete([site.desired().ref]))[UID], Done)


async def test_a_change_that_meets_another_one_is_pending(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        emulator.fail("DELETE loadbalancerservices", 409)
        assert isinstance((await site.balancers.delete([site.desired().ref]))[UID], Pending)
        assert await site.deleted(site.desired()) == Done(found=True)


async def test_an_external_service_that_somebody_needs_again_is_not_removed(
    newest: Emulator,
) -> None:
    """Another Service begins to need a node while the one that used it is being deleted."""
    async with lb_site(newest) as site:
        await site.made(site.desired())
        two = site.desired(HTTPS, uid=OTHER)

        async def delete() -> None:
            await site.deleted(site.desired())

        await asyncio.gather(delete(), site.made(two))
        await site.made(two)
        assert site.served(f"lb-{two.ref.name}") == {"443": site.targets(30443)}
        assert len(site.externals()) == 2


@pytest.mark.parametrize("what", ["a page", "a list that lags"])
async def test_an_external_service_stays_whose_link_a_list_leaves_out(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A new process does not know yet who needs it, and a link that goes moves others by a row."""
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        gone = site.desired(HTTPS, uid=OTHER, nodes=site.nodes[:1])
        await site.made(gone)
        (hidden,) = (one for one in site.externals().values() if one["name"] == "node-2")
        listed = Exchange._list

        def halved(exchange: Exchange, type_: str) -> Json:
            found = listed(exchange, type_)
            asked = exchange._request.query
            is_alone = "consumedServiceId" in asked and what == "a page"
            if type_ == "serviceConsumeMap" and not is_alone:
                links = found["data"]
                found["data"] = [one for one in links if one["consumedServiceId"] != hidden["id"]]
            return found

        if what == "a page" or emulator.versions != ("v1",):  # v1 has nothing but links
            monkeypatch.setattr(Exchange, "_list", halved)
        async with started(emulator) as site.provider:
            await site.made(gone)
            assert await site.deleted(gone) == Done(found=True)
        assert set(site.externals()) == {"node-1", "node-2"}
        assert site.served() == {"80": site.targets(30080)}


async def test_a_preview_reads_only_and_says_what_is_made(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        found = [f"{one.action} {one.part}" for one in await site.preview(site.desired())]
        assert found[:4] == [
            "create stack kubernetes-loadbalancers",
            "create external service node-1",
            "create external service node-2",
            f"create load balancer service {NAME}",
        ]
        assert not site.writes()


async def test_the_last_of_many_services_that_leave_a_node_removes_its_external_service(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator, ["node-1", "node-2", "node-3"]) as site:
        uids = [f"5e{number:06}-0000-4000-8000-000000000001" for number in range(8)]
        await asyncio.gather(*(site.made(site.desired(uid=uid)) for uid in uids))
        del site.nodes[0]
        await asyncio.gather(*(site.made(site.desired(uid=uid)) for uid in uids))
        assert set(site.externals()) == {"node-2", "node-3"}


async def test_the_status_follows_a_load_balancer_to_another_host(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        first = await site.made(site.desired())
        site.world.remove_host(site.nodes[0].spec.provider_id.removeprefix("rancher://"))
        site.writes()
        second = await site.made(site.desired())
        assert not site.writes()
    assert [one.ip for one in first.ingress] == ["10.42.0.2"]
    assert [one.ip for one in second.ingress] == ["10.42.0.3"]
