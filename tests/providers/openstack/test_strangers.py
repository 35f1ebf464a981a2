"""What a Service's load balancer has nothing to do with any more, or never had, stays."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proreus.cloudprovider import (
    CloudError,
    Done,
    Ensured,
    InvalidRequest,
    PartChange,
    Pending,
    RetryAfter,
)
from proreus.kube.objects import ServicePort

from .balancing import INTERNAL, SUBNET, Balancing, P, balancing, by_id, known, lives, previewed
from .octavia_wire import revise
from .wire import Json, context, neutron, octavia, port, started, uuid

NAME = "kube_service_test_shop_web"
VIP = "10.0.0.200"


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        yield made


def namesakes(site: Balancing) -> list[Json]:
    """What official managers have made for two clusters of one name, in networks of one CIDR."""
    part = {"name": f"listener_0_{NAME}", "tags": [NAME], "protocol": "TCP", "protocol_port": 80}
    for _ in range(2):
        given = {"name": NAME, "tags": [NAME], "vip_subnet_id": SUBNET, "listeners": [dict(part)]}
        site.octavia._make_balancer(given)
    made = list(site.octavia.of["loadbalancers"].values())
    for one in made:
        one |= {"vip_address": VIP, "provisioning_status": "ACTIVE"}
    return made


async def test_a_floating_address_that_somebody_has_moved_outlives_the_service(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service())
        moved = site.octavia.only("floatingips")
        moved["port_id"] = site.wire.ports[0]["id"]
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
        assert len(site.octavia.of["floatingips"]) == 2
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert list(site.octavia.of["floatingips"]) == [moved["id"]]
    assert moved["port_id"] == site.wire.ports[0]["id"]


@pytest.mark.parametrize("verb", ["ensure", "delete"])
async def test_a_floating_address_that_somebody_moves_at_that_very_moment_stays(
    site: Balancing, verb: str
) -> None:
    inside = site.service({INTERNAL: "true"})
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service())
        moved, at = site.octavia.only("floatingips"), site.wire.ports[0]["id"]
        site.wire.meanwhile["floatingip_delete"] = lambda: revise(moved, port_id=at)
        first = await getattr(site, verb)(provider, inside)
        second = await getattr(site, verb)(provider, inside)
    assert isinstance(first, RetryAfter)
    assert isinstance(second, Ensured if verb == "ensure" else Done)
    assert site.octavia.only("floatingips")["port_id"] == at


async def test_a_floating_address_that_somebody_attaches_at_that_very_moment_stays(
    site: Balancing,
) -> None:
    kept: Json = {"id": uuid(901), "floating_ip_address": "203.0.113.50", "port_id": None}
    site.octavia.of["floatingips"] = {uuid(901): kept}
    at, service = site.wire.ports[0]["id"], site.service(load_balancer_ip="203.0.113.50")
    site.wire.meanwhile["floatingip_update"] = lambda: revise(kept, port_id=at)
    async with started(site.wire.config()) as provider:
        assert isinstance(await site.ensure(provider, service), RetryAfter)
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest)
    assert f"attached to port {at}" in str(answer)
    assert kept["port_id"] == at


async def test_a_floating_address_to_be_kept_is_only_detached_when_the_service_becomes_internal(
    site: Balancing,
) -> None:
    keep = {f"{P}keep-floatingip": "true"}
    inside = site.service({**keep, INTERNAL: "true"})
    async with started(site.wire.config()) as provider:
        first = await site.ensure(provider, site.service(keep))
        address = first.ingress[0].ip
        assert await previewed(site, provider, inside) == (
            PartChange("change", f"floating IP {address}", "attached to no port"),
        )
        assert (await site.ensure(provider, inside)).ingress != first.ingress
        assert site.octavia.only("floatingips")["port_id"] is None
        assert (await site.ensure(provider, site.service(keep))).ingress == first.ingress


async def test_an_address_that_is_given_up_is_shown_no_more_though_what_follows_fails(
    site: Balancing,
) -> None:
    """Neutron gives it to whoever comes next; there is no quota for the one of IPv6."""
    async with started(site.wire.config()) as provider:
        own = await lives(site, provider, site.service())
        (shown,) = own.status.load_balancer.ingress
        site.octavia.most_balancers = 1
        both: dict[str, Any] = {"ip_families": ("IPv4", "IPv6")}
        kept = await site.ensure(provider, known(site.service(**both), shown.ip))
        inside = known(site.service({INTERNAL: "true"}, **both), shown.ip)
        left = await site.ensure(provider, inside)
        again = await site.ensure(provider, inside)
        wrong = known(site.service({f"{P}timeout-client-data": "x"}, **both), shown.ip)
        unread = await site.ensure(provider, wrong)
        site.octavia.most_balancers = 2
        made = await site.ensure(provider, known(site.service({INTERNAL: "true"}, **both)))
    assert not site.octavia.of["floatingips"]
    assert isinstance(made, Ensured)
    assert isinstance(unread, InvalidRequest)
    assert unread.disowns
    for answer, disowns in ((kept, False), (left, True), (again, True)):
        assert "Quota" in str(answer)
        assert answer.disowns == disowns


@pytest.mark.parametrize(
    ("asked", "family", "is_given_up"),
    [({INTERNAL: "true"}, "IPv4", True), ({}, "IPv4", False), ({}, "IPv6", True)],
)
async def test_an_address_is_shown_while_its_load_balancer_is_gone_only_if_it_is_kept(
    site: Balancing, asked: dict[str, str], family: str, *, is_given_up: bool
) -> None:
    """The floating IP stays the Service's, and the port of the former load balancer does not."""
    async with started(site.wire.config(), confirm=0.1) as provider:
        own = await lives(site, provider, site.service(asked, ip_families=(family,)))
        made = site.octavia.only("loadbalancers")["id"]
        await lives(site, provider, site.service({INTERNAL: "true"}, name="b"))
        site.octavia.remove(made)
        site.octavia.most_balancers = 1
        desired, verbs = site.desired(provider, own), provider.load_balancers
        assert verbs is not None

        async def answer() -> Any:
            return (await verbs.ensure([desired]))[desired.ref.uid]

        while isinstance(failed := await answer(), Pending):
            assert not failed.withdrawn
            await asyncio.sleep(0.05)
        assert isinstance(failed, CloudError)
        assert failed.disowns == is_given_up
        site.octavia.most_balancers, site.octavia.works = 2, 3
        for is_withdrawn in (False, is_given_up):
            pending = await answer()
            assert isinstance(pending, Pending)
            assert pending.withdrawn == is_withdrawn
        anew = await site.ensure(provider, own)
    assert (anew.ingress != own.status.load_balancer.ingress) == is_given_up


@pytest.mark.parametrize(("asked", "is_given_up"), [({}, True), ({INTERNAL: "true"}, False)])
async def test_an_address_of_ipv6_is_kept_by_naming_it_only_where_that_brings_it_back(
    site: Balancing, asked: dict[str, str], *, is_given_up: bool
) -> None:
    """Outside, Octavia chooses it, and Neutron gives what is left to whoever comes next."""
    families = ("IPv6",)
    async with started(site.wire.config(), confirm=0.1) as provider:
        own = await lives(site, provider, site.service(asked, ip_families=families))
        (shown,) = own.status.load_balancer.ingress
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        site.octavia.most_balancers = 0
        naming = site.service(asked, ip_families=families, load_balancer_ip=shown.ip)
        failed = await site.ensure(provider, known(naming, shown.ip))
    assert "Quota" in str(failed)
    assert failed.disowns == is_given_up


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_floating_address_that_somebody_has_moved_is_shown_no_more_though_what_follows_fails(
    site: Balancing, *, is_named: bool
) -> None:
    """Nodes would lead the clients of the machine that has it to the Service."""
    given: Json = {"id": uuid(901), "floating_ip_address": "203.0.113.50", "port_id": None}
    asked: dict[str, Any] = {}
    if is_named:
        site.octavia.of["floatingips"] = {uuid(901): given}
        asked = {"load_balancer_ip": "203.0.113.50"}
    async with started(site.wire.config()) as provider:
        own = await lives(site, provider, site.service(**asked))
        (shown,) = own.status.load_balancer.ingress
        moved, site.octavia.most_floating = site.octavia.only("floatingips"), 1
        home, moved["port_id"] = moved["port_id"], site.wire.ports[0]["id"]
        failed = await site.ensure(provider, own)
        moved["port_id"] = None
        wrong = known(site.service({f"{P}timeout-client-data": "x"}, **asked), shown.ip)
        loose = await site.ensure(provider, wrong)
        moved["port_id"] = home
        assert (await site.ensure(provider, own)).ingress == own.status.load_balancer.ingress
    assert isinstance(failed, CloudError)
    assert failed.disowns
    assert isinstance(loose, InvalidRequest)
    assert not loose.disowns


@pytest.mark.parametrize("user", ["compute:nova", "baremetal:none"])
async def test_an_internal_address_that_a_machine_has_by_now_is_shown_no_more_though_it_is_named(
    site: Balancing, user: str
) -> None:
    """Somebody has deleted the load balancer, and Neutron lets a machine have the address then."""
    asked: dict[str, Any] = {"annotations": {INTERNAL: "true"}, "load_balancer_ip": VIP}
    async with started(site.wire.config(), confirm=0.1) as provider:
        own = await lives(site, provider, site.service(**asked))
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        machine = port(uuid(702), uuid(703), VIP, device_owner=user)
        site.wire.ports += [machine, port(uuid(704), uuid(705), VIP, network_id="elsewhere")]
        site.octavia.most_balancers = 0
        taken = await site.ensure(provider, own)
        site.wire.ports.remove(machine)
        free = await site.ensure(provider, own)
    assert isinstance(taken, InvalidRequest)
    assert taken.disowns
    assert f"{VIP}: port {machine['id']} of a machine has it" in str(taken)
    assert "Quota" in str(free)
    assert not free.disowns


@pytest.mark.parametrize("name", ["api", "kube_service_other_shop_web"])
async def test_an_internal_address_that_another_load_balancer_has_by_now_is_shown_no_more(
    site: Balancing, name: str
) -> None:
    """Neutron gives it to one that is made by hand, or for another cluster, as to a machine."""
    asked: dict[str, Any] = {"annotations": {INTERNAL: "true"}, "load_balancer_ip": VIP}
    site.octavia.subnets[SUBNET]["network_id"] = "n"
    async with started(site.wire.config(), confirm=0.1) as provider:
        own = await lives(site, provider, site.service(**asked))
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        given = {"name": name, "vip_subnet_id": SUBNET, "vip_address": VIP}
        site.octavia._make_balancer(given)
        other = site.octavia.only("loadbalancers")
        site.octavia.most_balancers = 1
        taken = await site.ensure(provider, own)
        other["vip_network_id"] = "elsewhere"
        apart = await site.ensure(provider, own)
    assert isinstance(taken, InvalidRequest)
    assert taken.disowns
    assert f"{VIP}: load balancer {other['id']} has it" in str(taken)
    assert "Quota" in str(apart)
    assert not apart.disowns


async def test_a_floating_address_that_a_load_balancer_outside_has_by_now_is_shown_no_more(
    site: Balancing,
) -> None:
    """Somebody has deleted the floating IP, and the external network has load balancers, too."""
    address, (outside,) = "203.0.113.50", site.wire.external
    given: Json = {"id": uuid(901), "floating_ip_address": address, "port_id": None}
    site.octavia.of["floatingips"] = {uuid(901): given}
    async with started(site.wire.config()) as provider:
        own = await lives(site, provider, site.service(load_balancer_ip=address))
        site.octavia.of["floatingips"].clear()
        site.octavia.most_floating = 0
        free = await site.ensure(provider, own)
        before = set(site.octavia.of["loadbalancers"])
        site.octavia._make_balancer({"name": "api", "vip_subnet_id": SUBNET})
        (other,) = set(site.octavia.of["loadbalancers"]) - before
        fields = {"vip_address": address, "vip_network_id": outside}
        site.octavia.of["loadbalancers"][other] |= fields
        taken = await site.ensure(provider, own)
    assert isinstance(free, CloudError)
    assert not free.disowns
    assert isinstance(taken, InvalidRequest)
    assert taken.disowns
    assert f"{address}: load balancer {other} has it" in str(taken)


@pytest.mark.parametrize(
    "text",
    [
        "IP address {} already allocated in subnet s. Neutron server returns request_ids: ['r'].",
        "Unable to complete operation for network n. The IP address {} is in use.",
    ],
)
async def test_an_internal_address_that_neutron_refuses_as_taken_is_shown_no_more_though_it_is_named(
    site: Balancing, text: str
) -> None:
    """Such as by another project's machine in a shared network, whose port it does not show."""
    asked: dict[str, Any] = {"annotations": {INTERNAL: "true"}, "load_balancer_ip": VIP}
    async with started(site.wire.config(), confirm=0.1) as provider:
        own = await lives(site, provider, site.service(**asked))
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        refusals = (octavia(409, text.format(address)) for address in (VIP, "10.0.0.20"))
        site.wire.fail("loadbalancer_create", *refusals)
        taken, other = await site.ensure(provider, own), await site.ensure(provider, own)
    assert isinstance(taken, CloudError)
    assert taken.disowns
    assert VIP in str(taken)
    assert isinstance(other, CloudError)
    assert not other.disowns


async def test_a_floating_address_that_neutron_refuses_as_taken_is_shown_no_more_though_it_is_named(
    site: Balancing,
) -> None:
    """Somebody has deleted the floating IP, and another project has the address by now."""
    address = "203.0.113.50"
    given: Json = {"id": uuid(901), "floating_ip_address": address, "port_id": None}
    site.octavia.of["floatingips"] = {uuid(901): given}
    async with started(site.wire.config()) as provider:
        own = await lives(site, provider, site.service(load_balancer_ip=address))
        site.octavia.of["floatingips"].clear()
        text = f"IP address {address} already allocated in subnet s"
        site.wire.fail("floatingip_create", neutron(409, "IpAddressAlreadyAllocated", text))
        taken = await site.ensure(provider, own)
    assert isinstance(taken, CloudError)
    assert taken.disowns


@pytest.mark.parametrize(
    ("wrong", "asked"),
    [({f"{P}subnet-id": uuid(999)}, ""), ({f"{P}timeout-client-data": "x"}, ""), ({}, "x")],
)
@pytest.mark.parametrize("is_here", [True, False])
async def test_an_address_is_shown_no_more_also_where_no_place_for_the_next_one_is_found(
    site: Balancing, wrong: dict[str, str], asked: str, *, is_here: bool
) -> None:
    """Somebody has deleted the load balancer; or the credentials are another project's by now."""
    given = context(nodes=site.nodes)
    async with started(site.wire.config(), given, confirm=0.1) as provider:
        own = await lives(site, provider, site.service({INTERNAL: "true"}))
        (shown,) = own.status.load_balancer.ingress
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        if not is_here:
            site.wire.servers.clear()
        annotations = {INTERNAL: "true", **wrong}
        refused = known(site.service(annotations, load_balancer_ip=asked), shown.ip)
        first = await site.ensure(provider, refused)
        await asyncio.sleep(0.15)
        second = await site.ensure(provider, refused)
    assert isinstance(first, InvalidRequest)
    assert not first.disowns
    assert isinstance(second, InvalidRequest)
    assert second.disowns == is_here


async def test_a_service_on_another_ones_load_balancer_shows_its_address_also_while_it_fails(
    site: Balancing,
) -> None:
    async with started(site.wire.config()) as provider:
        own = await lives(site, provider, site.service())
        (shown,) = own.status.load_balancer.ingress
        named = by_id(site.octavia.only("loadbalancers")["id"])
        dns = (ServicePort(53, "dns", node_port=30053),)
        guest = await lives(site, provider, site.service(named, name="b", ports=dns))
        site.octavia.most_balancers = 1
        families = ("IPv4", "IPv6")
        both = site.service(named, name="b", ports=dns, ip_families=families)
        failed = await site.ensure(provider, known(both, shown.ip))
    assert guest.status.load_balancer.ingress[0].ip == shown.ip
    assert isinstance(failed, CloudError)
    assert not failed.disowns


@pytest.mark.parametrize("verb", ["ensure", "delete"])
async def test_of_two_official_ones_with_its_name_and_address_neither_is_touched(
    site: Balancing, verb: str
) -> None:
    made = namesakes(site)
    before = copy.deepcopy(site.octavia.of)
    service = known(site.service({INTERNAL: "true"}), VIP)
    async with started(site.wire.config()) as provider:
        answer = await getattr(site, verb)(provider, service)
    assert site.octavia.of == before
    assert isinstance(answer, CloudError)
    assert all(one["id"] in str(answer) for one in made)


@pytest.mark.parametrize("verb", ["ensure", "delete"])
async def test_of_two_official_ones_the_annotation_tells_which_is_the_services(
    site: Balancing, verb: str
) -> None:
    theirs, own = namesakes(site)
    before = copy.deepcopy(theirs)
    service = known(site.service({INTERNAL: "true", **by_id(own["id"])}), VIP)
    async with started(site.wire.config()) as provider:
        answer = await getattr(site, verb)(provider, service)
    assert isinstance(answer, Ensured | Done)
    assert site.octavia.of["loadbalancers"][theirs["id"]] == before
    assert (own["id"] in site.octavia.of["loadbalancers"]) is (verb == "ensure")


@pytest.mark.parametrize("protocol", ["TCP", "PROXY"])
async def test_a_pool_that_an_operator_gives_a_services_listener_stays_as_it_is(
    site: Balancing, protocol: str
) -> None:
    """Such as one with a page for the time of repairs."""
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service())
        balancer, listener = (site.octavia.only(one) for one in ("loadbalancers", "listeners"))
        pool = {"name": "repairs", "protocol": protocol, "lb_algorithm": "SOURCE_IP"}
        members = [{"address": "10.0.9.9", "protocol_port": 8080}]
        theirs = site.octavia.make("pools", {**pool, "members": members}, balancer["id"])
        listener["default_pool_id"] = theirs["id"]
        before = copy.deepcopy((theirs, site.octavia.members[theirs["id"]]))
        planned = await previewed(site, provider, service)
        assert [one.part for one in planned if one.action == "change"] == ["listener TCP/80"]
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert (theirs, site.octavia.members[theirs["id"]]) == before
        assert listener["default_pool_id"] not in {None, theirs["id"]}
        (own,) = set(site.octavia.of["pools"]) - {theirs["id"]}
        assert listener["default_pool_id"] == own
        assert len(site.octavia.members[own]) == 2


@pytest.mark.parametrize("is_former", [True, False])
async def test_an_official_pool_stays_where_its_number_is_last(
    site: Balancing, *, is_former: bool
) -> None:
    async with started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service())
        pool = site.octavia.only("pools")
        pool |= {"name": f"pool_{NAME}_0" if is_former else "pool_of_somebody", "tags": []}
        assert isinstance(await site.ensure(provider, service), Ensured)
    assert (list(site.octavia.of["pools"]) == [pool["id"]]) is is_former
