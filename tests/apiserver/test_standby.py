"""What replicas do that do not lead: tell one another by the board, and keep machines ready."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from proreus.app.board import LeaseBoard, lease_name
from proreus.app.cluster_identity import read_identity
from proreus.app.options import Options
from proreus.app.standby import StandbyWork, problems
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ConfigSection,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    Ownership,
    RegisterCloudProvider,
    with_config,
)
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
IMPOSSIBLE = "standing.example.com/impossible"


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
        board.same.begin((await read_identity(client, "")).uid)
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


class Words(ConfigSection, frozen=True):
    """The cloud-config of `Standing`."""

    word: str = ""
    stands: bool = True


class Standing(CloudProvider):
    """A provider that notes what it is told as a standby."""

    name = "standing"
    needs = frozenset({"nodes", "services", "namespaces", "board"})
    config_type = Words
    made: ClassVar[list["Standing"]] = []
    refused: ClassVar[set[str]] = set()

    def __init__(self, config: msgspec.Struct | None = None) -> None:
        super().__init__(config)
        self.word = config.word if isinstance(config, Words) else ""
        if not isinstance(config, Words) or config.stands:
            self.standby = self
        self.mirrored: list[dict[str, tuple[str, ...]]] = []
        self.impossible: list[str] = []
        self.failures = 0
        self.ended = 0
        self.closed = 0
        self.made.append(self)

    async def begin(self, context: Any) -> None:
        assert set(context.listers) == {"nodes", "services", "namespaces"}
        assert context.listers["namespaces"].get("kube-system") is not None
        assert context.board is not None
        if self.word in self.refused:
            raise CloudError(f"refuses {self.word}")

    def owns(self, node: Node) -> Ownership:
        return Ownership.NO if node.metadata.name == "foreign" else Ownership.YES

    def host_policy(self, service: Service) -> HostPolicy:
        if IMPOSSIBLE in service.metadata.annotations:
            return HostPolicy(families=("IPv6",))  # which the Service has not
        return HostPolicy()

    async def mirror(
        self, desired: Sequence[LoadBalancer], refused: Sequence[LoadBalancerRef]
    ) -> None:
        if self.failures:
            self.failures -= 1
            raise CloudError("not yet")
        self.impossible = [one.service_name for one in refused]
        self.mirrored.append(
            {one.ref.service_name: tuple(host.node for host in one.hosts) for one in desired}
        )

    async def end(self) -> None:
        self.ended += 1

    async def close(self) -> None:
        self.closed += 1


RegisterCloudProvider(Standing.name, Standing)


def test_a_lease_for_each_controller_does_not_go_with_standbys() -> None:
    apart = Options(leader_elect_per_controller=True)
    (problem,) = problems(apart, Standing())
    assert problem.startswith("--leader-elect-per-controller: the cloud-config of standing")
    assert problems(Options(), Standing()) == ()
    alone = Standing()
    alone.standby = None
    assert problems(apart, alone) == ()
    alone.one_leads = True
    assert problems(apart, alone) == (problem,)
    assert problems(Options(), alone) == ()


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
                impossible = {"metadata": {"annotations": {IMPOSSIBLE: "yes"}}}
                patch = Patch(PatchType.MERGE, impossible)
                await site.client.patch(SERVICES, "web", patch, "default")
                await until("it is told so", lambda: provider.impossible == ["web"])
                assert last() == {"waiting": both}
                await site.client.delete(SERVICES, "web", "default")
                await until("it is gone", lambda: provider.impossible == [])
                await until("one is left", lambda: last() == {"waiting": both})
                await work.end()
                assert provider.ended == 1
                mirrored = len(provider.mirrored)
                await publish("waiting", "192.0.2.4")
                await asyncio.sleep(0.5)
                assert len(provider.mirrored) == mirrored


class Replica:
    """A standby whose cloud-config is a file, and a Service for it to mirror."""

    def __init__(self, site: Site, file: Path, work: StandbyWork) -> None:
        self.site = site
        self.file = file
        self.work = work
        self._services = 0

    @property
    def at_work(self) -> list[str]:
        """The words of the providers that have begun, and not ended."""
        return [one.word for one in Standing.made if one.mirrored and not one.ended]

    async def publish(self) -> str:
        """Make a Service with an address; returns its name."""
        self._services += 1
        name = f"web-{self._services}"
        await self.site.client.create(SERVICES, service_body(name), "default")
        body = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
        patch = Patch(PatchType.MERGE, body)
        await self.site.client.patch(SERVICES, name, patch, "default", "status")
        return name

    async def mirrored(self, word: str) -> None:
        """Wait until the provider of that word, and no other, mirrors what is new."""
        name = await self.publish()

        def is_mirrored() -> bool:
            return any(
                one.mirrored and name in one.mirrored[-1]
                for one in Standing.made
                if one.word == word
            )

        await until(f"{word} mirrors {name}", is_mirrored)
        assert self.at_work == [word]


@asynccontextmanager
async def replica(site: Site, tmp_path: Path) -> AsyncIterator[Replica]:
    Standing.made.clear()
    Standing.refused.clear()
    file = tmp_path / "standing.yaml"
    file.write_text("word: first")
    kubeconfig = config.load(str(site.plane.kubeconfig_for("standby", [MANAGERS])), env={})
    provider = with_config("standing", file.read_text(), source=str(file))
    options = Options(cloud_provider="standing", cloud_config=str(file))
    async with (
        client_of(site, "electing") as electing,
        StandbyWork(options, provider, kubeconfig, electing) as work,
    ):
        await work.prepared()
        with no_writes(site, "standby"):
            yield Replica(site, file, work)


async def test_a_standby_follows_a_changed_cloud_config(site: Site, tmp_path: Path) -> None:
    async with replica(site, tmp_path) as one:
        await one.mirrored("first")
        first = one.work.provider
        assert isinstance(first, Standing)
        assert first.word == "first"
        one.file.write_text("word: second")
        await until("the second works", lambda: one.at_work == ["second"])
        await one.mirrored("second")
        assert (first.ended, first.closed) == (1, 1)
        assert one.work.provider is Standing.made[-1]
        one.file.write_text("{word: third, stands: false}")
        await until("nobody works", lambda: one.at_work == [])
        assert isinstance(one.work.provider, Standing)
        assert one.work.provider.word == "third"
        one.file.write_text("word: fourth")
        await until("the fourth works", lambda: one.at_work == ["fourth"])
    fourth = Standing.made[-1]
    assert (fourth.ended, fourth.closed) == (1, 1)


def told(caplog: pytest.LogCaptureFixture) -> str:
    """The problems in the log that keep an old cloud-config in use."""
    return "\n".join(
        str(getattr(one, "klog_fields", {}).get("problem"))
        for one in caplog.records
        if "the old one stays" in one.getMessage()
    )


async def test_a_wrong_cloud_config_leaves_a_standby_as_it_was_and_is_told(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(site, tmp_path) as one:
        one.file.write_text("words: second")
        await until("it is told", lambda: "words" in told(caplog))
        await one.mirrored("first")
        Standing.refused.add("third")
        one.file.write_text("word: third")
        await until("it is told", lambda: "refuses third" in told(caplog))
        await one.mirrored("first")
        assert all(it.closed for it in Standing.made if it.word == "third")
        Standing.refused.clear()  # and it is tried again
        await until("the third works", lambda: one.at_work == ["third"])


async def test_a_replica_leads_with_the_provider_that_it_has_got_ready(
    site: Site, tmp_path: Path
) -> None:
    async with replica(site, tmp_path) as one:
        one.file.write_text("word: second")
        await until("the second works", lambda: one.at_work == ["second"])
        await one.work.end()
        second = one.work.provider
        assert isinstance(second, Standing)
        assert second.word == "second"
    assert (second.ended, second.closed) == (1, 0), "the leader closes it"
