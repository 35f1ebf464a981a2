"""What another cluster lacks, whose API server answers by now, is not gone from this one."""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Self
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from proreus.app import manager
from proreus.app.board import PREFIX, lease_name
from proreus.app.cluster_identity import AnotherCluster, SameCluster, read_identity
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.app.reload import SecretOrigin
from proreus.app.standby import StandbyWork
from proreus.app.status.source import Source
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    Context,
    Done,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    Ownership,
)
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.errors import KubeError
from proreus.kube.objects import (
    FINALIZER_LOAD_BALANCER,
    LABEL_ZONE,
    ConfigMap,
    LoadBalancerIngress,
    Node,
    PersistentVolume,
    Service,
)
from proreus.kube.requests import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    SECRETS,
    SERVICES,
)
from proreus.runtime.informer import Informer
from proreus.serving.health import Health
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.objects import service_body

from .leading import EPOCH, Balancers, Cloud, join, leading, until

BOARD: Final = lease_name("cloud-controller-manager")


class Kept(Balancers):
    """A cloud that notes what has a load balancer, and of whom one was deleted."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[str]] = {}
        self.deleted: list[str] = []

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        for one in desired:
            self.hosts[one.ref.key] = [host.node for host in one.hosts]
        ingress = (LoadBalancerIngress(ip="192.0.2.1"),)
        return {one.ref.uid: Ensured(ingress) for one in desired}

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        self.deleted += [one.key for one in gone]
        return {one.uid: Done() for one in gone}


def configure(store: Store, text: str) -> None:
    data = {"config": base64.b64encode(text.encode()).decode()}
    store.create(SECRETS, "kube-system", {"metadata": {"name": "cloud-config"}, "data": data})


def another_cluster() -> Store:
    """Make a cluster that has seen more, so that no watch can go on from an older version."""
    store = Store(lambda: EPOCH)
    for number in range(50):
        join(store, f"other-{number}")
    store.create(SERVICES, "default", service_body("others"))
    configure(store, "theirs")
    store.forget()
    return store


async def answer_by(server: MemoryApiServer, store: Store) -> None:
    await server.stop()
    server.store = store
    await server.start()


@virtual_time
async def test_the_api_server_of_another_cluster_takes_no_load_balancer_and_no_host_away() -> None:
    cloud, store = Kept(), Store(lambda: EPOCH)
    join(store, "n1")
    store.create(SERVICES, "default", service_body("web"))
    async with (
        MemoryApiServer(store) as server,
        leading(server.url, Cloud(cloud), "service-lb-controller"),
    ):
        await until(lambda: cloud.hosts == {"default/web": ["n1"]})
        await asyncio.sleep(60)
        await answer_by(server, another_cluster())
        await asyncio.sleep(600)
        assert (cloud.deleted, cloud.hosts) == ([], {"default/web": ["n1"]})
        join(store, "n2")
        await answer_by(server, store)
        await until(lambda: cloud.hosts == {"default/web": ["n1", "n2"]})
    assert cloud.deleted == []


@virtual_time
async def test_the_cloud_config_in_a_secret_of_another_cluster_is_not_this_one_s() -> None:
    store = Store(lambda: EPOCH)
    configure(store, "ours")
    async with MemoryApiServer(store) as server, Client(ClientConfig(server=server.url)) as client:
        same = SameCluster(client)
        same.begin((await read_identity(client, "")).uid)
        async with SecretOrigin(client, "kube-system/cloud-config/config", same.check) as origin:
            await answer_by(server, another_cluster())
            await asyncio.sleep(600)
            assert origin.read() == "ours"


class Zoned(Cloud):
    """A cloud that has a volume of each name."""

    async def start(self, context: Context) -> None:
        await super().start(context)
        self.volumes: Any = self

    async def labels(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, Mapping[str, str]]:
        return {one.metadata.name: {LABEL_ZONE: "ours"} for one in volumes}


def keep(store: Store) -> None:
    source = {"vsphereVolume": {"volumePath": "[datastore1] kubevols/one.vmdk"}}
    store.create(PERSISTENT_VOLUMES, "", {"metadata": {"name": "one"}, "spec": source})


def zone(store: Store) -> str | None:
    labels = store.get(PERSISTENT_VOLUMES, "", "one").metadata.get("labels") or {}
    return labels.get(LABEL_ZONE)


@virtual_time
async def test_no_volume_of_another_cluster_gets_the_zone_that_this_one_s_cloud_says() -> None:
    """The node affinity that would go with the label could never be changed again."""
    store, another = Store(lambda: EPOCH), another_cluster()
    keep(store)
    keep(another)
    another.forget()
    async with (
        MemoryApiServer(store) as server,
        leading(server.url, Zoned(Kept()), "persistentvolume-label-controller"),
    ):
        await until(lambda: zone(store))
        await answer_by(server, another)
        await asyncio.sleep(600)
        assert zone(another) is None


class Named(Cloud):
    """A cloud whose objects bear a name that a ConfigMap of the cluster tells, as GCE's do."""

    needs = frozenset({"config_maps/ingress-uid"})

    def __init__(self) -> None:
        super().__init__(Kept())
        self.told: list[str] = []

    async def start(self, context: Context) -> None:
        await super().start(context)
        found = context.listers["config_maps/ingress-uid"].get("kube-system/ingress-uid")
        assert isinstance(found, ConfigMap)
        self.told.append(found.data["uid"])


def name(store: Store, uid: str) -> None:
    body = {"metadata": {"name": "ingress-uid"}, "data": {"uid": uid}}
    store.create(CONFIG_MAPS, "kube-system", body)


@virtual_time
async def test_a_new_provider_is_told_no_name_that_is_another_cluster_s() -> None:
    store, another, first, second = Store(lambda: EPOCH), another_cluster(), Named(), Named()
    name(store, "ours")
    name(another, "theirs")
    async with (
        MemoryApiServer(store) as server,
        leading(server.url, first, "service-lb-controller") as leader,
    ):
        await until(lambda: first.told)
        await answer_by(server, another)
        replacing = asyncio.create_task(leader.replace_cloud(second))
        await asyncio.sleep(600)
        await answer_by(server, store)
        await replacing
    assert (first.told, second.told) == (["ours"], ["ours"])


class Standing(Cloud):
    """A cloud that works on this machine while another replica leads, and notes for whom."""

    needs = frozenset({"nodes", "services", "board"})

    def __init__(self) -> None:
        super().__init__(Kept())
        self.standby: Any = self
        self.mirrored: dict[str, list[str]] = {}

    async def begin(self, context: Context) -> None:
        assert context.board is not None

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    def host_policy(self, service: Service) -> HostPolicy:
        return HostPolicy()

    async def mirror(
        self, desired: Sequence[LoadBalancer], refused: Sequence[LoadBalancerRef]
    ) -> None:
        assert not refused
        self.mirrored = {one.ref.key: [host.node for host in one.hosts] for one in desired}

    async def end(self) -> None:
        """Nothing is left to end."""


def give(store: Store, service: str, address: str) -> None:
    found = store.get(SERVICES, "default", service)
    status = {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}
    store.update(SERVICES, found, {**found.body, "status": status}, status=True)


@asynccontextmanager
async def standing_by(url: str, cloud: CloudProvider) -> AsyncIterator[StandbyWork]:
    config = ClientConfig(server=url)
    async with (
        Client(config) as electing,
        StandbyWork(Options(cloud_provider="cloud"), cloud, config, electing) as work,
    ):
        await work.prepared()
        yield work


@virtual_time
async def test_a_standby_has_no_load_balancer_of_another_cluster_and_loses_none_of_this_one() -> (
    None
):
    """Where gateways share the addresses, a standby answers for some of them."""
    cloud, store, another = Standing(), Store(lambda: EPOCH), another_cluster()
    join(store, "n1")
    store.create(SERVICES, "default", service_body("web"))
    give(store, "web", "192.0.2.1")
    give(another, "others", "192.0.2.2")
    another.forget()
    async with MemoryApiServer(store) as server, standing_by(server.url, cloud):
        assert cloud.mirrored == {"default/web": ["n1"]}
        await asyncio.sleep(60)
        await answer_by(server, another)
        await asyncio.sleep(600)
        assert cloud.mirrored == {"default/web": ["n1"]}
        join(store, "n2")
        await answer_by(server, store)
        await until(lambda: cloud.mirrored == {"default/web": ["n1", "n2"]})


def note(store: Store, text: str) -> None:
    meta = {"name": BOARD, "annotations": {f"{PREFIX}theirs": text}}
    store.create(LEASES, "kube-system", {"metadata": meta, "spec": {}})


@virtual_time
@pytest.mark.parametrize("has_a_board", [True, False])
async def test_a_standby_leaves_the_board_of_another_cluster_alone(*, has_a_board: bool) -> None:
    """Its gateways would leave addresses to this one, or the other way round."""
    store, another = Store(lambda: EPOCH), another_cluster()
    if has_a_board:
        note(another, "theirs")
        another.forget()
    async with MemoryApiServer(store) as server, standing_by(server.url, Standing()) as work:
        board = work.board
        assert board is not None
        await board.post("ours", "first")
        await until(board.notices)
        await asyncio.sleep(60)
        await answer_by(server, another)
        for _ in range(100):
            with pytest.raises(CloudError, match="another cluster"):
                await board.post("ours", "second")
            await asyncio.sleep(6)
        assert set(board.notices()) == {"ours"}
        assert another.count(LEASES) == has_a_board
        if has_a_board:
            found = another.get(LEASES, "kube-system", BOARD)
            assert found.metadata["annotations"] == {f"{PREFIX}theirs": "theirs"}
        await answer_by(server, store)
        await asyncio.sleep(60)
        await board.post("ours", "third")


class Slow(MemoryApiServer):
    """An API server whose lists take some time."""

    seconds = 0.0

    async def _answered(self, request: web.Request, verb: str, target: Any) -> tuple[bytes, int]:
        if verb == "list":
            await asyncio.sleep(self.seconds)
        return await super()._answered(request, verb, target)


class Name:
    """A name that leads each new connection to the next API server, and at last all to the last."""

    def __init__(self, *servers: MemoryApiServer) -> None:
        self.servers = [*servers]
        self.url = ""
        self._busy: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._lead, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server, *rest = self.servers
        self.servers = rest or [server]
        port = urlsplit(server.url).port
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        for one, other in ((reader, forth), (back, writer)):
            task = asyncio.create_task(self._pass_on(one, other))
            self._busy.add(task)

    async def _pass_on(self, one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
        try:
            while data := await one.read(1 << 16):
                other.write(data)
                await other.drain()
        finally:
            other.close()


@virtual_time
async def test_no_list_counts_that_came_by_another_connection_than_what_tells_the_cluster() -> None:
    """A name that is moved leads new connections to the other cluster, and kept ones to this one."""
    store = Store(lambda: EPOCH)
    store.create(SERVICES, "default", service_body("web"))
    async with (
        Slow(store) as ours,
        Slow(another_cluster()) as theirs,
        Name(ours) as name,
        Client(ClientConfig(server=name.url)) as client,
    ):
        same = SameCluster(client)
        same.begin((await read_identity(client, "")).uid)
        ours.seconds, theirs.seconds = 5, 10
        other = asyncio.create_task(client.list(NODES))
        await asyncio.sleep(1)
        name.servers = [theirs]
        services = Informer(client, SERVICES, check=same.check)
        following = asyncio.create_task(services.run())
        await asyncio.sleep(60)
        assert (await other).items == ()
        assert not services.synced, [one.metadata.name for one in services.all()]
        name.servers = [ours]
        await until(lambda: services.synced)
        assert [one.metadata.name for one in services.all()] == ["web"]
        following.cancel()


@virtual_time
async def test_no_list_counts_from_before_it_was_known_which_cluster_it_is() -> None:
    """The two first lists are of one cluster, and the UID, as all later on, is of the other one."""
    cloud, store = Kept(), Store(lambda: EPOCH)
    join(store, "n1")
    kept = {"finalizers": [FINALIZER_LOAD_BALANCER]}
    store.create(SERVICES, "default", service_body("web", metadata=kept))
    async with (
        MemoryApiServer(store) as ours,
        MemoryApiServer(another_cluster()) as theirs,
        Name(ours, ours, theirs) as name,
        leading(name.url, Cloud(cloud), "service-lb-controller"),
    ):
        await asyncio.sleep(600)
    assert (list(cloud.hosts), cloud.deleted) == (["default/others"], [])


class Issuing(MemoryApiServer):
    """An API server that gives tokens to controllers' accounts."""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/token"):
            status = {"token": "of-an-account", "expirationTimestamp": "2130-01-01T00:00:00Z"}
            return web.json_response({"status": status}, status=201)
        return await super()._handle(request)


@virtual_time
async def test_an_account_of_its_own_labels_no_volume_of_another_cluster() -> None:
    """The name is moved as the manager starts, whose own connections lead to this cluster still."""
    another = another_cluster()
    keep(another)
    another.forget()
    async with (
        Issuing(Store(lambda: EPOCH)) as ours,
        Issuing(another) as theirs,
        Name(ours, ours, ours, ours, theirs) as name,
        leading(
            name.url,
            Zoned(Kept()),
            "persistentvolume-label-controller",
            use_service_account_credentials=True,
        ),
    ):
        await asyncio.sleep(600)
        assert zone(another) is None


class Electing(MemoryApiServer):
    """An API server that calls a function as soon as somebody has won a lease."""

    won: Callable[[], None]

    async def _answered(self, request: web.Request, verb: str, target: Any) -> tuple[bytes, int]:
        answer = await super()._answered(request, verb, target)
        if verb == "create":
            self.won()
        return answer


@virtual_time
async def test_who_has_the_lease_of_this_cluster_does_not_work_on_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There its own manager is at work. The name is moved as the lease is won, which is kept."""
    monkeypatch.setattr(manager, "_end", lambda reason: pytest.fail(str(reason)))
    cloud, store, stop = Kept(), Store(lambda: EPOCH), asyncio.Event()
    async with (
        Electing(store) as ours,
        MemoryApiServer(another_cluster()) as theirs,
        Name(ours) as name,
    ):
        ours.won = lambda: setattr(name, "servers", [theirs])
        options, state = Options(cloud_provider="cloud"), Source("kubernetes")
        config, shown = ClientConfig(server=name.url), (Health(), state)
        work = asyncio.create_task(manager._lead(options, Cloud(cloud), config, shown, stop))
        await asyncio.sleep(60)
        assert cloud.hosts == {}
        stop.set()
        await work


class Heading(Standing):
    """The same cloud, which keeps the board that it is given as the leader."""

    board: Any = None

    async def start(self, context: Context) -> None:
        await super().start(context)
        self.board = context.board


@virtual_time
async def test_a_leader_reads_no_note_of_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease goes by a connection that is kept, while each watch of the board has a new one."""
    monkeypatch.setattr(manager, "_end", lambda reason: pytest.fail(str(reason)))
    another, store, stop = another_cluster(), Store(lambda: EPOCH), asyncio.Event()
    note(another, "other")
    another.forget()
    async with (
        MemoryApiServer(store) as ours,
        MemoryApiServer(another) as theirs,
        Name(ours) as name,
    ):
        cloud, config = Heading(), ClientConfig(server=name.url)
        shown = (Health(), Source("kubernetes"))
        options = Options(cloud_provider="cloud")
        work = asyncio.create_task(manager._lead(options, cloud, config, shown, stop))
        await until(lambda: cloud.board)
        await cloud.board.post("ours", "first")
        await until(cloud.board.notices)
        name.servers = [theirs]
        await asyncio.sleep(1200)
        assert set(cloud.board.notices()) == {"ours"}
        stop.set()
        await work


@virtual_time
async def test_nobody_waits_for_what_was_written_to_another_cluster() -> None:
    """Who wins one more lease waits for what its last holder has written, which is there soon."""
    async with (
        MemoryApiServer(Store(lambda: EPOCH)) as ours,
        MemoryApiServer(another_cluster()) as theirs,
        Name(ours) as name,
        Client(ClientConfig(server=name.url)) as other,
        Client(ClientConfig(server=name.url)) as client,
    ):
        same = SameCluster(client)
        same.begin((await read_identity(other, "")).uid)
        services = Informer(client, SERVICES, check=same.check)
        following = asyncio.create_task(services.run())
        await services.wait_synced()
        name.servers = [theirs]
        with pytest.raises(AnotherCluster):
            async with asyncio.timeout(60):
                await services.catch_up()
        following.cancel()


class Patched(MemoryApiServer):
    """An API server that notes the conditions which are written to Nodes."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.verbs: list[str] = []

    async def _answered(self, request: web.Request, verb: str, target: Any) -> tuple[bytes, int]:
        if "/nodes/" in request.path:
            self.verbs.append(verb)
        return await super()._answered(request, verb, target)


@virtual_time
async def test_no_node_is_silent_because_another_cluster_has_no_lease_of_it() -> None:
    """No watch goes on then, and a connection that is kept for writes leads to this cluster."""
    store = Store(lambda: EPOCH)
    for name in ("n1", "n2"):
        join(store, name)
        found = store.get(NODES, "", name)
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
        store.update(NODES, found, {**found.body, "status": {"conditions": [ready]}}, status=True)
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
        store.create(LEASES, "kube-node-lease", lease)

    async def live(leader: Leader) -> None:
        for beat in itertools.count():
            for name in ("n1", "n2"):
                found = store.get(LEASES, "kube-node-lease", name)
                at = (EPOCH + timedelta(seconds=10 * beat)).isoformat().replace("+00:00", "Z")
                at = at.replace("Z", ".000000Z")
                spec = {"holderIdentity": name, "renewTime": at}
                store.update(LEASES, found, {**found.body, "spec": spec})
            with contextlib.suppress(KubeError):
                await leader._client.create(EVENTS, {"metadata": {"name": f"e{beat}"}}, "default")
            await asyncio.sleep(10)

    async with (
        Patched(store) as ours,
        MemoryApiServer(another_cluster()) as theirs,
        Name(ours) as moved,
        leading(moved.url, Cloud(Kept()), "node-lifecycle-controller") as leader,
    ):
        living = asyncio.create_task(live(leader))
        await asyncio.sleep(120)
        ours.verbs.clear()
        moved.servers = [theirs]
        await asyncio.sleep(1800)
        assert "patch" not in ours.verbs
        living.cancel()
