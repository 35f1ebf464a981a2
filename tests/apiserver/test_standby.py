"""What replicas do that do not lead: tell one another by the board, and keep machines ready."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest

from proreus.app.board import LeaseBoard, lease_name
from proreus.app.options import Options
from proreus.app.standby import StandbyWork, problems
from proreus.cloudprovider import CloudError, CloudProvider, HostPolicy, LoadBalancer, Ownership
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.objects import Node, Service
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import LEASES, NODES, SERVICES
from proreus.testing.objects import service_body
from proreus.testing.waiting import until

from .rights import MANAGERS
from .site import Site

NAME = lease_name("cloud-controller-manager")


@asynccontextmanager
async def client_of(site: Site, user: str) -> AsyncIterator[Client]:
    file = site.plane.kubeconfig_for(user, [MANAGERS])
    async with Client(config.load(str(file), env={})) as client:
        yield client


@asynccontextmanager
async def board_of(site: Site, user: str) -> AsyncIterator[LeaseBoard]:
    """A replica's board, with the rights of a manager."""
    async with client_of(site, user) as client:
        board = LeaseBoard(client, "kube-system", NAME)
        task = asyncio.create_task(board.run())
        try:
            yield board
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def boards(site: Site) -> AsyncIterator[tuple[LeaseBoard, LeaseBoard]]:
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(board_of(site, "replica-a")),
            await stack.enter_async_context(board_of(site, "replica-b")),
        )
        await site.client.delete(LEASES, NAME, "kube-system")


def texts(board: LeaseBoard) -> dict[str, str]:
    return {name: notice.text for name, notice in board.notices().items()}


async def test_replicas_read_what_others_post(boards: tuple[LeaseBoard, LeaseBoard]) -> None:
    a, b = boards
    await asyncio.gather(a.post("a", "1"), b.post("b", "1"))
    await until("a has read both", lambda: texts(a) == {"a": "1", "b": "1"})
    await until("b has read both", lambda: texts(b) == {"a": "1", "b": "1"})
    await b.post("b", "2")
    await until("it is read", lambda: texts(a) == {"a": "1", "b": "2"})
    assert a.notices()["b"].age < a.notices()["a"].age, "only what has changed is young again"


async def test_a_board_that_somebody_deletes_is_made_again(
    site: Site, boards: tuple[LeaseBoard, LeaseBoard]
) -> None:
    a, b = boards
    await a.post("a", "1")
    await until("it is read", lambda: texts(b) == {"a": "1"})
    await site.client.delete(LEASES, NAME, "kube-system")
    await until("nothing is there", lambda: texts(b) == {})

    async def is_posted() -> bool:
        try:
            await a.post("a", "2")
        except CloudError:
            return False
        return True

    await until("it is posted", is_posted)
    await until("it is read", lambda: texts(b) == {"a": "2"})


async def test_what_cannot_be_posted_is_an_error(boards: tuple[LeaseBoard, LeaseBoard]) -> None:
    await boards[0].post("a", "1")
    with pytest.raises(CloudError, match="could not be written"):
        await boards[0].post("a", "x" * 300_000)
    await boards[0].post("a", "2")


class Standing(CloudProvider):
    """A provider that notes what it is told as a standby."""

    name = "standing"
    needs = frozenset({"nodes", "services", "board"})

    def __init__(self) -> None:
        super().__init__(None)
        self.standby = self
        self.mirrored: list[dict[str, tuple[str, ...]]] = []
        self.failures = 0
        self.ended = 0

    async def begin(self, context: Any) -> None:
        assert set(context.listers) == {"nodes", "services"}
        assert context.board is not None

    def owns(self, node: Node) -> Ownership:
        return Ownership.NO if node.metadata.name == "foreign" else Ownership.YES

    def host_policy(self, service: Service) -> HostPolicy:
        del service
        return HostPolicy()

    async def mirror(self, desired: Sequence[LoadBalancer]) -> None:
        if self.failures:
            self.failures -= 1
            raise CloudError("not yet")
        self.mirrored.append(
            {one.ref.service_name: tuple(host.node for host in one.hosts) for one in desired}
        )

    async def end(self) -> None:
        self.ended += 1


def test_a_lease_for_each_controller_does_not_go_with_standbys() -> None:
    apart = Options(leader_elect_per_controller=True)
    (problem,) = problems(apart, Standing())
    assert problem.startswith("--leader-elect-per-controller: the cloud-config of standing")
    assert problems(Options(), Standing()) == ()
    alone = Standing()
    alone.standby = None
    assert problems(apart, alone) == ()


@contextmanager
def no_writes(site: Site, user: str) -> Iterator[None]:
    yield
    assert [one for one in site.audit(user) if one.is_write] == []


async def test_a_standby_mirrors_services_with_addresses_and_writes_nothing(site: Site) -> None:
    provider = Standing()
    provider.failures = 1

    def last() -> dict[str, tuple[str, ...]]:
        return provider.mirrored[-1] if provider.mirrored else {}

    async def publish(name: str, *addresses: str) -> None:
        body = {"status": {"loadBalancer": {"ingress": [{"ip": one} for one in addresses]}}}
        patch = Patch(PatchType.MERGE, body)
        await site.client.patch(SERVICES, name, patch, "default", "status")

    async def node(name: str) -> None:
        spec = {"providerID": f"standing://{name}"}
        await site.client.create(NODES, {"metadata": {"name": name}, "spec": spec})

    await node("one")
    await node("foreign")
    for name in ("web", "waiting"):
        await site.client.create(SERVICES, service_body(name), "default")
    other = service_body("other", loadBalancerClass="example.com/other")
    await site.client.create(SERVICES, other, "default")
    await publish("web", "192.0.2.1")
    await publish("other", "192.0.2.2")
    kubeconfig = config.load(str(site.plane.kubeconfig_for("standby", [MANAGERS])), env={})
    async with client_of(site, "electing") as electing:
        with no_writes(site, "standby"):
            async with StandbyWork(Options(), provider, kubeconfig, electing) as work:
                await work.prepared()
                assert last() == {"web": ("one",)}
                await publish("waiting", "192.0.2.3")
                await until("both", lambda: last() == {"web": ("one",), "waiting": ("one",)})
                await node("two")
                both = ("one", "two")
                await until("two hosts", lambda: last() == {"web": both, "waiting": both})
                await site.client.delete(SERVICES, "web", "default")
                await until("one is left", lambda: last() == {"waiting": both})
                await work.end()
                assert provider.ended == 1
                mirrored = len(provider.mirrored)
                await publish("waiting", "192.0.2.4")
                await asyncio.sleep(0.5)
                assert len(provider.mirrored) == mirrored
