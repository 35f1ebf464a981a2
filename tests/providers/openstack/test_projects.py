"""Credentials with the role admin, which are shown what all projects have: that is not the Service's."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest
from proreus.cloudprovider.load_balancers import Done
from proreus.testing.clock import virtual_time

from .balancing import INTERNAL, SUBNET, Balancing, P, all_there, balancing, known, lives
from .test_routes import desired_routes, nodes_of, routed
from .test_security_groups import Guarded
from .test_tenants import ADDRESS, by_hand, guest, kept_address
from .wire import CLUSTER, Wire, port, served, started, uuid

THEIRS = "another"


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        made.wire.good_tokens = {f"token-{number}" for number in range(10)}
        yield made


async def test_a_floating_address_of_another_project_is_refused(site: Balancing) -> None:
    id_ = kept_address(site, "for their shop")
    site.octavia.of["floatingips"][id_]["project_id"] = THEIRS
    before = dict(site.octavia.of["floatingips"][id_])
    service = site.service(load_balancer_ip=ADDRESS)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, InvalidRequest)
        assert f"spec.loadBalancerIP: {ADDRESS}: it belongs to the project another" in str(answer)
        assert isinstance(await site.delete(provider, service), Done)
    assert site.octavia.only("floatingips") == before
    listed = f"[Tenants]\nallow = shop={ADDRESS}\n"
    async with started(site.wire.config(sections=listed)) as provider:
        assert isinstance(await site.ensure(provider, service), Ensured)


async def test_a_load_balancer_of_another_project_is_refused(site: Balancing) -> None:
    made = by_hand(site)
    made |= {"project_id": THEIRS, "tenant_id": THEIRS}
    before = all_there(site)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, guest(site, made["id"]))
        assert isinstance(answer, InvalidRequest)
        assert f"{P}load-balancer-id: it belongs to the project another" in str(answer)
        assert await site.delete(provider, guest(site, made["id"])) == Done(found=False)
    assert all_there(site) == before


@pytest.mark.parametrize("kind", ["network-id", "subnet-id", "member-subnet-id", "port-id"])
@pytest.mark.parametrize("is_theirs", [True, False])
async def test_places_of_another_project_are_refused(
    site: Balancing, kind: str, *, is_theirs: bool
) -> None:
    owner = THEIRS if is_theirs else "p"
    network, subnet = uuid(700), uuid(701)
    site.wire.networks[network] = "theirs"
    site.wire.network_projects[network] = owner
    mine = site.octavia.subnets[SUBNET]
    site.octavia.subnets[subnet] = {
        **mine,
        "id": subnet,
        "project_id": owner,
        "network_id": network,
    }
    free = port(uuid(702), "", "10.0.0.77", project_id=owner)
    free["fixed_ips"] = [{"subnet_id": SUBNET, "ip_address": "10.0.0.77"}]
    site.wire.ports.append(free)
    named = {"network-id": network, "port-id": free["id"]}.get(kind, subnet)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service({f"{P}{kind}": named}))
    if is_theirs:
        assert isinstance(answer, InvalidRequest)
        assert f"{P}{kind}: it belongs to the project another" in str(answer)
        assert not site.octavia.of["loadbalancers"]
    else:
        assert isinstance(answer, Ensured), answer


@virtual_time
async def test_another_project_s_load_balancer_of_the_same_name_and_address_stays() -> None:
    """Projects have networks of their own, and clusters that nobody gave a name are namesakes."""
    async with balancing() as site, started(site.wire.config()) as provider:
        theirs = by_hand(site)
        theirs |= {"name": "kube_service_test_shop_web", "project_id": THEIRS}
        site.octavia.of["floatingips"].clear()
        service = known(site.service({INTERNAL: "true"}), theirs["vip_address"])
        before = all_there(site)
        assert await site.delete(provider, service) == Done(found=False)
        assert all_there(site) == before
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert len(site.octavia.of["loadbalancers"]) == 2
        assert site.octavia.of["loadbalancers"][theirs["id"]]["tags"] == []


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_server_of_another_project_that_a_node_names_gets_no_security_group(
    *, is_listed: bool
) -> None:
    """A kubelet may write any id into the providerID of its own new Node."""
    site = Guarded()
    async with served(site.wire):
        theirs, ours = site.wire.ports
        theirs["project_id"] = THEIRS
        more = f"[Tenants]\nallow = *={THEIRS}\n" if is_listed else ""
        async with started(site.text(more=more)) as provider:
            assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert len(ours["security_groups"]) == 2
    assert len(theirs["security_groups"]) == (2 if is_listed else 1)


async def test_a_server_of_another_project_that_a_node_names_forwards_to_no_pods(
    wire: Wire,
) -> None:
    nodes = nodes_of(wire, 2)
    wire.port("p-1")["project_id"] = THEIRS
    wanted = desired_routes(nodes)
    async with routed(wire) as routes:
        answers = await routes.apply(CLUSTER, nodes, wanted, [])
        assert "belongs to the project another" in str(answers[wanted[0]])
        assert answers[wanted[1]] == Done()
        assert wire.pairs("p-1") == []
        assert wire.pairs("p-2") == ["10.244.2.0/24"]
        assert [one["nexthop"] for one in wire.router["routes"]] == ["10.0.0.3"]


def copied(site: Balancing, *, address: str = "10.0.0.99") -> dict[str, Any]:
    """Give all that there is to another project, where the cluster's copy has made it."""
    for kind in ("loadbalancers", "listeners", "pools", "healthmonitors", "floatingips"):
        for one in site.octavia.of[kind].values():
            one |= {"project_id": THEIRS, "tenant_id": THEIRS}
    for one in site.octavia.groups.of.values():
        one["project_id"] = THEIRS
    site.octavia.only("loadbalancers")["vip_address"] = address
    return copy.deepcopy(all_there(site))


def still_there(site: Balancing, before: dict[str, Any]) -> bool:
    now = all_there(site)["objects"]
    return all(now.get(id_) == one for id_, one in before["objects"].items())


@pytest.mark.parametrize("has_own", [True, False])
@pytest.mark.parametrize("verb", ["ensure", "delete"])
@virtual_time
async def test_what_the_copy_of_a_cluster_has_in_another_project_stays(
    verb: str, *, has_own: bool
) -> None:
    """A copy of etcd has the same uids; its manager has the credentials of a project of its own."""
    site = Guarded()
    site.wire.good_tokens = {f"token-{number}" for number in range(10)}
    async with served(site.wire):
        async with started(site.text()) as provider:
            assert isinstance(await site.ensure(provider, site.service()), Ensured)
        theirs = copied(site)
        group = copy.deepcopy(site.groups.only())
        for one in site.wire.ports:
            one["security_groups"].remove(group["id"])
        service = site.service()
        async with started(site.text()) as provider:
            if has_own:
                service = await lives(site, provider, service)
                assert still_there(site, theirs)
            answer = await getattr(site, verb)(provider, service)
            assert provider.load_balancers is not None
            owned = await provider.load_balancers.list_owned(CLUSTER)
        assert isinstance(answer, Ensured | Done), answer
        assert still_there(site, theirs)
        assert site.groups.of[group["id"]] == group
        ids = {*theirs["objects"], group["id"]}
        assert not ids & {one.id for one in owned}
        assert len(site.octavia.of["loadbalancers"]) == (2 if verb == "ensure" else 1)


@virtual_time
async def test_a_load_balancer_in_the_former_project_is_used_and_not_deleted_half() -> None:
    """The credentials are of another project now, with the role admin."""
    async with balancing() as site, started(site.wire.config()) as provider:
        site.wire.good_tokens = {f"token-{number}" for number in range(10)}
        service = await lives(site, provider, site.service({INTERNAL: "true"}))
        before = copied(site, address=service.status.load_balancer.ingress[0].ip)
        assert isinstance(await site.ensure(provider, service), Ensured)
        assert len(site.octavia.of["loadbalancers"]) == 1
        answer = await site.delete(provider, service)
        assert isinstance(answer, CloudError)
        assert "it belongs to the project another" in str(answer)
        assert still_there(site, before)
        listed = f"[Tenants]\nallow = *={site.octavia.only('loadbalancers')['id']}\n"
        async with started(site.wire.config(sections=listed)) as other:
            assert isinstance(await site.delete(other, service), Done)
        assert not site.octavia.of["loadbalancers"]
