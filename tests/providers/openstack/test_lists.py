"""Lists that lag, or lack a part: what works stays."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from proreus.cloudprovider import CloudError, Done, Ensured, LoadBalancer, Pending
from proreus.providers.openstack import OpenStackCloud
from proreus.testing.clock import virtual_time

from .balancing import INTERNAL, SUBNET, Balancing, P, balancing, by_id, known, lives
from .wire import context, served, started

INSIDE = {INTERNAL: "true"}


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        yield made


@contextmanager
def hidden(site: Balancing, id_: str, kind: str = "loadbalancers") -> Iterator[None]:
    """Octavia shows an object to nobody for a while."""
    one = site.octavia.of[kind].pop(id_)
    yield
    site.octavia.of[kind][id_] = one


@asynccontextmanager
async def half(kind: str) -> AsyncIterator[tuple[Balancing, asyncio.Event]]:
    """A cloud whose lists of one kind lack everything while the event is set."""
    site, lacking = Balancing(), asyncio.Event()

    @web.middleware
    async def cut(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        is_list = request.method == "GET" and request.path.endswith(f"/lbaas/{kind}")
        return web.json_response({kind: []}) if is_list and lacking.is_set() else answer

    site.wire.more.append(lambda app: app.middlewares.append(cut))
    async with served(site.wire):
        yield site, lacking


def made(site: Balancing) -> tuple[str, ...]:
    """The ids of all load balancers."""
    return tuple(site.octavia.of["loadbalancers"])


async def once(provider: OpenStackCloud, lb: LoadBalancer) -> Any:
    """One answer."""
    assert provider.load_balancers is not None
    return (await provider.load_balancers.ensure([lb]))[lb.ref.uid]


async def test_one_that_a_list_lacks_is_looked_for_once_more_before_another_is_made(
    site: Balancing,
) -> None:
    dual = site.service(INSIDE, ip_families=("IPv4", "IPv6"))
    async with started(site.wire.config()) as provider:
        dual = await lives(site, provider, dual)
        there = made(site)
        for id_ in there:
            with hidden(site, id_):
                answer = await once(provider, site.desired(provider, dual))
                assert isinstance(answer, Pending | CloudError)
                assert len(made(site)) == 1
        answer = await site.ensure(provider, dual)
        assert isinstance(answer, Ensured)
    assert set(made(site)) == set(there)


async def test_one_that_the_list_lacks_is_used_where_its_id_and_its_tags_are_known() -> None:
    async with half("loadbalancers") as (site, lacking), started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service(INSIDE))
        (there,) = made(site)
        assert service.metadata.annotations[f"{P}load-balancer-id"] == there
        lacking.set()
        answer = await once(provider, site.desired(provider, service))
        assert isinstance(answer, Ensured), answer
    assert made(site) == (there,)


async def test_of_two_by_mistake_the_one_stays_whose_address_the_service_shows(
    site: Balancing,
) -> None:
    """The older one was not shown while the younger one was made, and has failed since."""
    async with started(site.wire.config()) as provider:
        await site.ensure(provider, site.service(INSIDE))
        (older,) = site.octavia.of["loadbalancers"].values()
        given = {"name": older["name"], "tags": older["tags"], "vip_subnet_id": SUBNET}
        with hidden(site, older["id"]):
            site.octavia._make_balancer(given)
            (younger,) = site.octavia.of["loadbalancers"].values()
            younger["created_at"] = "2026-01-01T01:00:00"
            answer = await site.ensure(provider, site.service(INSIDE))
            younger["vip_address"] = "10.0.0.222"
            answer = await site.ensure(provider, site.service(INSIDE))
            assert [one.ip for one in answer.ingress] == ["10.0.0.222"]
        older["provisioning_status"] = "ERROR"
        service = known(site.service({**INSIDE, **by_id(younger["id"])}), "10.0.0.222")
        for _ in range(3):
            answer = await site.ensure(provider, service)
        assert [one.ip for one in answer.ingress] == ["10.0.0.222"]
    assert made(site) == (younger["id"],)


async def test_a_pool_in_use_stays_though_the_list_lacks_its_listener() -> None:
    async with half("listeners") as (site, lacking), started(site.wire.config()) as provider:
        service = await lives(site, provider, site.service(INSIDE))
        pools = dict(site.octavia.of["pools"])
        lacking.set()
        for _ in range(3):
            answer = await once(provider, site.desired(provider, service))
            assert isinstance(answer, Pending | CloudError)
        assert site.octavia.of["pools"] == pools
        lacking.clear()
        assert isinstance(await site.ensure(provider, service), Ensured)
    assert site.octavia.of["pools"] == pools


async def test_one_of_the_official_manager_that_a_list_lacks_is_deleted_once_it_is_shown(
    site: Balancing,
) -> None:
    """Its only proof, the address in the status, is not given up before."""
    name = "kube_service_test_shop_web"
    async with started(site.wire.config()) as provider:
        site.octavia._make_balancer({"name": name, "tags": [name], "vip_subnet_id": SUBNET})
        theirs = site.octavia.only("loadbalancers")
        theirs["provisioning_status"] = "ACTIVE"
        service = known(site.service(INSIDE), theirs["vip_address"])
        ref = site.desired(provider, service).ref
        assert provider.load_balancers is not None
        with hidden(site, theirs["id"]):
            answer = (await provider.load_balancers.delete([ref]))[ref.uid]
            assert isinstance(answer, Pending)
            assert not answer.withdrawn
        assert isinstance(await site.delete(provider, service), Done)
    assert not any(site.octavia.of.values())


@virtual_time
async def test_another_account_that_shows_none_is_no_end_of_a_deletion() -> None:
    async with balancing() as site:
        site.wire.good_tokens = {f"token-{number}" for number in range(10)}
        async with started(site.wire.config()) as provider:
            service = await lives(site, provider, site.service(INSIDE))
            ref = site.desired(provider, service).ref
        shown = context(nodes=site.nodes)
        other = Balancing()
        other.wire.servers.clear()
        async with served(other.wire), started(other.wire.config(), shown) as provider:
            answer = await site.delete_ref(provider, ref)
            assert isinstance(answer, CloudError)
            assert "credentials" in str(answer)
        async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
            assert isinstance(await site.delete_ref(provider, ref), Done)
        assert not any(site.octavia.of.values())
