"""An address that a load balancer has left proves nothing, whether or not the status shows it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from proreus.cloudprovider import (
    CloudError,
    Done,
    Ensured,
    ImplementedElsewhere,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.kube.requests import SERVICES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.memory.faults import Fault, FaultMode

from .leading import EPOCH, Balancers, Cloud, leading

FIRST, NEXT = "192.0.2.1", "192.0.2.2"
MOVED = Ensured((LoadBalancerIngress(ip=NEXT),))
LEAVING = Pending(0.0, "its address is withdrawn", withdrawn=True)


class Leaving(Balancers):
    """A cloud whose load balancers leave their address, while the API server takes no write."""

    def __init__(self, server: MemoryApiServer) -> None:
        self._server = server
        self.answers: list[CloudError | Pending | Ensured] = []
        self.further: CloudError | Pending | None = None
        self.seconds = 0.0
        self.deletion_takes = 0.0
        self.given: Pending | Ensured | None = None
        self.proofs: list[list[str]] = []

    def _answer(self, ref: LoadBalancerRef, otherwise: object) -> object:
        self.proofs.append([point.ip for point in ref.last_ingress])
        if not self.answers:
            return self.further or otherwise
        self._server.inject(Fault(FaultMode.ERROR, "patch", SERVICES.plural))
        return self.answers.pop()

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        await asyncio.sleep(self.seconds)
        ip = NEXT if self.proofs else FIRST
        given = self.given or Ensured((LoadBalancerIngress(ip=ip),))
        return {lb.ref.uid: self._answer(lb.ref, given) for lb in desired}

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        await asyncio.sleep(self.deletion_takes)
        return {ref.uid: self._answer(ref, Done()) for ref in gone}


class Stage:
    """One Service, and its load balancer."""

    def __init__(self, store: Store, balancers: Leaving) -> None:
        self.store = store
        self.balancers = balancers

    def edit(self, **annotations: str) -> None:
        found = self.store.get(SERVICES, "shop", "web")
        meta = {**found.metadata, "annotations": annotations}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta})

    def delete(self) -> None:
        self.store.delete(SERVICES, self.store.get(SERVICES, "shop", "web"), {})

    def show(self, ip: str) -> None:
        found = self.store.get(SERVICES, "shop", "web")
        balancer = {"ingress": [{"ip": ip, "ipMode": "VIP"}]}
        status = {**found.body["status"], "loadBalancer": balancer}
        self.store.update(SERVICES, found, {**found.body, "status": status}, status=True)

    def shown(self) -> list[str]:
        status = self.store.get(SERVICES, "shop", "web").body["status"]
        return [one["ip"] for one in status["loadBalancer"].get("ingress", ())]


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    loop = asyncio.get_running_loop()
    store = Store(lambda: EPOCH + timedelta(seconds=loop.time()))
    spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}
    store.create(SERVICES, "shop", {"metadata": {"name": "web"}, "spec": spec})
    async with MemoryApiServer(store) as server:
        stage = Stage(store, Leaving(server))
        async with leading(server.url, Cloud(stage.balancers), "service-lb-controller"):
            await asyncio.sleep(10)
            assert stage.shown() == [FIRST]
            yield stage


@pytest.mark.parametrize("answer", [CloudError("it failed").disowning(), LEAVING])
@virtual_time
async def test_an_address_that_a_load_balancer_has_left_is_no_proof_when_it_is_ensured_next(
    answer: CloudError | Pending,
) -> None:
    """Until then the cloud gives it to others, also to a cluster of the same name."""
    async with staged() as stage:
        stage.balancers.answers = [answer]
        stage.edit(a="b")
        await asyncio.sleep(20)
        assert stage.balancers.proofs == [[], [FIRST], []]
        assert stage.shown() == [NEXT]
        stage.edit(a="c")
        await asyncio.sleep(20)
        assert stage.balancers.proofs[3:] == [[NEXT]]


@virtual_time
async def test_the_address_before_the_last_one_is_no_proof() -> None:
    async with staged() as stage:
        stage.balancers.answers = [MOVED]
        stage.edit(a="b")
        await asyncio.sleep(20)
        assert stage.balancers.proofs == [[], [FIRST], [NEXT]]
        assert stage.shown() == [NEXT]


@virtual_time
async def test_an_address_that_is_withdrawn_is_no_proof_when_the_rest_is_deleted() -> None:
    async with staged() as stage:
        stage.balancers.answers = [LEAVING]
        stage.delete()
        await asyncio.sleep(20)
        assert stage.balancers.proofs == [[], [FIRST], []]


@virtual_time
async def test_an_address_that_is_given_while_the_cloud_works_is_the_service_s_own_again() -> None:
    async with staged() as stage:
        working = Pending(1.0, "it works", (LoadBalancerIngress(ip=NEXT),))
        stage.balancers.answers = [working, LEAVING]
        stage.edit(a="b")
        await asyncio.sleep(20)
        assert stage.balancers.proofs == [[], [FIRST], [], [NEXT]]
        assert stage.shown() == [NEXT]


@pytest.mark.parametrize(
    "further", [CloudError("it fails"), Pending(30.0, "it works"), InvalidRequest("it is wrong")]
)
@pytest.mark.parametrize("answer", [LEAVING, MOVED], ids=["left", "moved"])
@virtual_time
async def test_an_address_whose_withdrawal_could_not_be_written_is_shown_no_more(
    answer: Pending | Ensured, further: CloudError | Pending
) -> None:
    """Nothing says so again: the load balancer is asked about without it from then on."""
    async with staged() as stage:
        stage.balancers.answers, stage.balancers.further = [answer], further
        stage.edit(a="b")
        await asyncio.sleep(20)
        assert stage.shown() == []


@pytest.mark.parametrize("further", [CloudError("it fails"), Pending(30.0, "it works")])
@virtual_time
async def test_who_is_deleted_while_its_address_is_withdrawn_shows_it_no_more(
    further: CloudError | Pending,
) -> None:
    """The answer to what was asked before says nothing of a Service that is being deleted."""
    async with staged() as stage:
        stage.balancers.seconds, stage.balancers.further = 20.0, LEAVING
        stage.edit(a="b")
        await asyncio.sleep(10)
        stage.delete()
        await asyncio.sleep(9)
        stage.balancers.further = further
        stage.balancers.answers = [LEAVING]
        await asyncio.sleep(20)
        assert stage.shown() == []


@pytest.mark.parametrize("answer", [LEAVING, MOVED], ids=["left", "moved"])
@virtual_time
async def test_who_is_deleted_while_it_leaves_an_address_shows_that_no_more_while_the_cloud_hangs(
    answer: Pending | Ensured,
) -> None:
    async with staged() as stage:
        stage.balancers.seconds, stage.balancers.deletion_takes = 20.0, 500.0
        stage.edit(a="b")
        await asyncio.sleep(10)
        stage.delete()
        stage.balancers.given = answer
        await asyncio.sleep(20)
        assert stage.shown() == []
        await asyncio.sleep(1000)


@virtual_time
async def test_an_address_that_another_controller_shows_is_not_withdrawn() -> None:
    async with staged() as stage:
        stage.balancers.further = Pending(30.0, "its address is withdrawn", withdrawn=True)
        stage.edit(a="b")
        await asyncio.sleep(20)
        stage.balancers.further = ImplementedElsewhere("another controller is asked for")
        stage.edit(a="a")
        await asyncio.sleep(20)
        assert stage.shown() == []
        stage.show(NEXT)
        stage.balancers.further = CloudError("it fails")
        stage.edit(a="c")
        await asyncio.sleep(60)
        assert stage.shown() == [NEXT]
