"""Credentials with the role admin, which are shown what all projects have: that is not the Service's."""

from collections.abc import AsyncIterator

import pytest

from proreus.cloudprovider import Ensured, InvalidRequest
from proreus.cloudprovider.load_balancers import Done
from proreus.testing.clock import virtual_time

from .balancing import INTERNAL, SUBNET, Balancing, P, all_there, balancing, known
from .test_tenants import ADDRESS, by_hand, guest, kept_address
from .wire import port, started, uuid

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
