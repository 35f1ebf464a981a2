"""Load balancers that one manager begins to delete and others finish.

The first manager is killed when something has happened that outlives it: a change in the cloud, or
one that the framework writes to the Service. Of the others each makes one call. What they know is
in the cloud, and in the Service's status.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from proreus.cloudprovider import CloudError, Done, Ensured, Pending
from proreus.kube.objects import Service, ServicePort, ServiceStatus
from proreus.providers.openstack import OpenStackCloud
from proreus.testing.clock import virtual_time

from .balancing import (
    INTERNAL,
    Balancing,
    P,
    all_there,
    by_id,
    known,
    lives,
    of_a_namesake,
)
from .wire import CLUSTER, Json, served, started

KEEP = {f"{P}keep-floatingip": "true"}
ADDRESS = "203.0.113.7"
MANAGED = "[LoadBalancer]\nmanage-security-groups = true\n"
MOST = 60
"""More than the calls of any deletion here."""


Scene = Callable[[Balancing], Awaitable[Service]]
"""Makes a Service's load balancer."""


class Play:
    """A Service whose managers are killed."""

    def __init__(self, site: Balancing) -> None:
        self.site = site
        self.service = Service()
        self._left: int | None = None
        self._manager: asyncio.Task[None] | None = None
        site.octavia.works = 1
        site.wire.good_tokens = {f"token-{number}" for number in range(1000)}
        site.wire.more.append(lambda app: app.middlewares.append(self._counted))

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        if request.method != "GET" and "/identity/" not in request.path:
            self._passed()
        return answer

    def _passed(self) -> None:
        """Something has happened that outlives the manager."""
        if self._left is None:
            return
        self._left -= 1
        if not self._left and self._manager is not None:
            self._manager.cancel()

    def config(self) -> str:
        return self.site.wire.config(sections=MANAGED)

    async def is_killed(self, at: int) -> bool:
        """Delete with a manager that is killed then; false if it has ended before."""
        self._left = at
        async with started(self.config(), confirm=0.1) as provider:
            self._manager = asyncio.create_task(self._delete(provider))
            await asyncio.wait({self._manager})
        self._left = None
        if not self._manager.cancelled():
            self._manager.result()
            return False
        return True

    async def finish(self) -> None:
        """Delete with another manager for each call, and once more: the finalizer is there yet."""
        for _ in range(2):
            for _ in range(MOST):
                async with started(self.config()) as provider:
                    if await self._call(provider):
                        break
            else:
                raise AssertionError("it does not come to an end")

    async def _delete(self, provider: OpenStackCloud) -> None:
        while not await self._call(provider):
            pass

    async def _call(self, provider: OpenStackCloud) -> bool:
        """Call `delete` once, and write what comes of it; whether all is done."""
        assert provider.load_balancers is not None
        ref = self.site.desired(provider, self.service).ref
        answer = (await provider.load_balancers.delete([ref]))[ref.uid]
        assert isinstance(answer, Done | Pending), answer
        if isinstance(answer, Pending) and answer.withdrawn:
            self.service = msgspec.structs.replace(self.service, status=ServiceStatus())
            self._passed()
        return isinstance(answer, Done)


def official(
    site: Balancing, *users: str, address: str = "", internal: str = "", made_for: str = "web"
) -> Json:
    """What the official manager has made for a Service, and the listeners of who shares it."""
    name = f"kube_service_test_shop_{made_for}"
    tags = [f"kube_service_test_shop_{one}" for one in users or ("web",)]
    site.octavia._make_balancer({"name": name, "tags": tags, "vip_subnet_id": "s"})
    made = list(site.octavia.of["loadbalancers"].values())[-1]
    made |= {"provisioning_status": "ACTIVE", "vip_address": internal or "10.0.0.150"}
    for number, tag in enumerate(tags):
        part = {"name": f"listener_0_{tag}", "tags": [tag], "protocol": "TCP",
                "protocol_port": 8000 + number}  # fmt: skip
        site.octavia.make("listeners", part, made["id"])
    if address:
        id_ = site.octavia.id()
        site.octavia.of["floatingips"][id_] = {
            "id": id_,
            "floating_ip_address": address,
            "port_id": made["vip_port_id"],
            "description": f"Floating IP for Kubernetes external service shop/{made_for}"
            " from cluster test",
        }
    return made


def annotated(service: Service, annotations: Mapping[str, str]) -> Service:
    every = {**service.metadata.annotations, **annotations}
    metadata = msgspec.structs.replace(service.metadata, annotations=every)
    return msgspec.structs.replace(service, metadata=metadata)


async def own(site: Balancing, service: Service) -> Service:
    text = site.wire.config(sections=MANAGED)
    async with started(text) as provider:
        return await lives(site, provider, service)


async def external(site: Balancing) -> Service:
    return await own(site, site.service())


async def kept(site: Balancing) -> Service:
    return await own(site, site.service(KEEP))


async def of_two_families(site: Balancing) -> Service:
    return await own(site, site.service(ip_families=("IPv4", "IPv6")))


async def with_the_address_of_another(site: Balancing) -> Service:
    theirs = of_a_namesake(site)
    service = site.service({INTERNAL: "true"}, load_balancer_ip=theirs["vip_address"])
    return msgspec.structs.replace(await own(site, service), metadata=service.metadata)


async def that_names_another(site: Balancing) -> Service:
    theirs = of_a_namesake(site)
    service = await own(site, site.service({f"{P}hostname": "web.example.org"}))
    shown = known(service)
    ingress = [msgspec.json.decode(b'{"hostname": "web.example.org"}')]
    status = msgspec.convert({"loadBalancer": {"ingress": ingress}}, ServiceStatus)
    return annotated(msgspec.structs.replace(shown, status=status), by_id(theirs["id"]))


async def made_officially(site: Balancing) -> Service:
    made = official(site, address=ADDRESS)
    return known(site.service(by_id(made["id"])), ADDRESS)


async def made_officially_and_kept(site: Balancing) -> Service:
    official(site, address=ADDRESS)
    return known(site.service(KEEP), ADDRESS)


async def made_officially_inside(site: Balancing) -> Service:
    official(site, internal="10.0.0.77")
    return known(site.service({INTERNAL: "true"}), "10.0.0.77")


async def taken_over(site: Balancing) -> Service:
    """The API server empties the status when the Service gets another type."""
    official(site, address=ADDRESS)
    service = await own(site, known(site.service(), ADDRESS))
    return msgspec.structs.replace(service, status=ServiceStatus())


async def taken_over_and_lost(site: Balancing) -> Service:
    """Somebody has deleted the load balancer by hand."""
    service = await taken_over(site)
    site.octavia.remove(site.octavia.only("loadbalancers")["id"])
    return known(service, ADDRESS)


async def last_of_an_official_one(site: Balancing) -> Service:
    """The Service that it was made for has left it."""
    official(site, address=ADDRESS, made_for="first")
    return known(site.service(), ADDRESS)


async def guest_of_an_official_one(site: Balancing) -> Service:
    made = official(site, "first", address=ADDRESS, made_for="first")
    made["tags"].append("kube_service_test_shop_web")
    return known(site.service(by_id(made["id"])), ADDRESS)


async def guest_of_a_neighbour(site: Balancing) -> Service:
    first = await own(site, site.service(name="first"))
    named = by_id(first.metadata.annotations[f"{P}load-balancer-id"])
    ports = (ServicePort(53, "dns", node_port=30053),)
    return await own(site, site.service(named, ports=ports))


ALL_GO = (made_officially, taken_over, taken_over_and_lost, last_of_an_official_one)
ADDRESS_STAYS = (made_officially_and_kept,)
OTHERS_STAY = (with_the_address_of_another, that_names_another)
GUESTS = (guest_of_an_official_one,)
LONG = (external, of_two_families, made_officially_inside, kept, guest_of_a_neighbour)


@pytest.mark.parametrize(
    "scene",
    [*ALL_GO, *ADDRESS_STAYS, *OTHERS_STAY, *GUESTS,
     *(pytest.param(one, marks=pytest.mark.long) for one in LONG)],
    ids=lambda scene: scene.__name__,
)  # fmt: skip
async def test_a_restart_at_any_change_leaves_nothing_and_takes_nothing_of_others(
    scene: Scene,
) -> None:
    for at in range(1, MOST):
        site = Balancing()
        site.octavia.subnets["s"] = {"id": "s", "ip_version": 4, "cidr": "10.0.0.0/16"}
        for one in site.octavia.subnets.values():
            one.setdefault("cidr", "10.0.0.0/16" if one["ip_version"] == 4 else "2001:db8::/64")
        play = Play(site)
        async with served(site.wire):
            play.service = await scene(site)
            before = all_there(site)["objects"]
            is_killed = await play.is_killed(at)
            await play.finish()
            site.octavia.works = 0
            left = all_there(site)["objects"]
        groups = {one["name"] for one in site.octavia.groups.of.values()}
        assert groups <= {"lb-sg-uid-first-shop-first"}, f"killed at {at}"
        assert left.keys() == expected(scene, before), f"killed at {at}"
        assert {id_: shown(left[id_]) for id_ in left} == {
            id_: shown(before[id_]) for id_ in left
        }, f"killed at {at}"
        if not is_killed:
            return
    raise AssertionError("more changes than one deletion should need")


def expected(scene: Scene, before: Mapping[str, Json]) -> set[str]:
    """What is to be left of all that there was."""
    if scene in (*ADDRESS_STAYS, kept):
        return {id_ for id_, one in before.items() if "floating_ip_address" in one}
    if scene in OTHERS_STAY:
        return {id_ for id_, one in before.items() if one.get("vip_address") == "10.0.0.99"
                and not is_ours(one)}  # fmt: skip
    if scene in (*GUESTS, guest_of_a_neighbour):
        return {
            id_
            for id_, one in before.items()
            if "floating_ip_address" in one or "vip_address" in one or "first" in one["name"]
        }
    return set()


def is_ours(one: Json) -> bool:
    return any(CLUSTER.uid in tag for tag in one["tags"])


def shown(one: Json) -> Json:
    """All but what a manager may write on what it leaves, and where a kept address is bound."""
    of_address = {"tags", "description", "port_id", "revision_number"}
    said = of_address if "floating_ip_address" in one else set()
    if "vip_address" in one and "kube_service_test_shop_first" in one["tags"]:
        said = {"tags"}
    return {name: value for name, value in one.items() if name not in said}


@virtual_time
async def test_an_official_one_in_an_error_can_bear_no_marks_and_is_reported() -> None:
    """Octavia gives it no tags; once somebody has deleted it by hand, the rest goes."""
    site = Balancing()
    async with served(site.wire), started(site.wire.config()) as provider:
        made = official(site, address=ADDRESS)
        made["provisioning_status"] = "ERROR"
        before = all_there(site)
        service = known(site.service(), ADDRESS)
        answer = await site.delete(provider, service)
        assert isinstance(answer, CloudError)
        assert f"load balancer {made['id']} is in the state ERROR" in str(answer)
        assert all_there(site) == before
        site.octavia.remove(made["id"])
        assert await site.delete(provider, service) == Done(found=False)
    assert not any(site.octavia.of.values())


@virtual_time
async def test_an_official_address_comes_back_when_its_load_balancer_was_deleted_by_hand() -> None:
    site = Balancing()
    async with served(site.wire), started(site.wire.config()) as provider:
        first = official(site, address=ADDRESS)
        service = known(site.service(), ADDRESS)
        site.octavia.remove(first["id"])
        answer = await site.ensure(provider, service)
        assert isinstance(answer, Ensured)
        assert [one.ip for one in answer.ingress] == [ADDRESS]
        assert CLUSTER.uid in site.octavia.only("floatingips")["description"]
