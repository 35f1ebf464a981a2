"""The tools of rules: a cloud, started providers, nodes and desired load balancers."""

import asyncio
import contextlib
import copy
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from proreus.cloudprovider import (
    CallHooks,
    CallRecord,
    CloudProvider,
    ClusterIdentity,
    Context,
    Done,
    Ensured,
    Instance,
    InstanceAnswer,
    Instances,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    NotSupported,
    Pending,
    Routes,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import (
    KubeObject,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
)
from proreus.runtime.bucket import AdaptiveBucket
from proreus.testing import objects
from proreus.testing.conformance.answers import Violated, expect, instance, mapping
from proreus.testing.conformance.fixture import CloudFixture, NotOffered, NotTried
from proreus.testing.conformance.interruption import Interruption
from proreus.testing.conformance.offers import DECLARED
from proreus.testing.conformance.wire import Wire

CLUSTER = ClusterIdentity("conformance", "7e577e57-0000-4000-8000-000000000001")
OTHER_CLUSTER = ClusterIdentity("conformance", "7e577e57-0000-4000-8000-000000000002")
PORTS = ((8080, 30080),)

_PENDING_POLL = 0.2
_CONFIRM = 0.5
"""Seconds until what was there counts as gone: long enough for a second look, and no longer."""
_MOST_TRIES = 150

T = TypeVar("T")


class _Events:
    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        """Ignore an event, which is the provider's own business."""


class _NoObjects:
    """A lister of a cluster without objects."""

    def get(self, key: str) -> None:
        del key

    def all(self) -> Iterable[KubeObject]:
        return ()

    def by(self, index: str, value: str) -> Iterable[KubeObject]:
        del index, value
        return ()


class Started:
    """A started provider with the context that it was given."""

    def __init__(self, provider: CloudProvider, context: Context) -> None:
        """Keep provider and context."""
        self.provider = provider
        self.context = context

    @property
    def instances(self) -> Instances:
        """The provider's capability `Instances`."""
        if self.provider.instances is None:
            raise NotOffered(DECLARED["instances"], "instances")
        return self.provider.instances

    @property
    def load_balancers(self) -> LoadBalancers:
        """The provider's capability `LoadBalancers`."""
        if self.provider.load_balancers is None:
            raise NotOffered(DECLARED["load_balancers"], "load_balancers")
        return self.provider.load_balancers

    @property
    def routes(self) -> Routes:
        """The provider's capability `Routes`."""
        if self.provider.routes is None:
            raise NotOffered(DECLARED["routes"], "routes")
        return self.provider.routes

    def new_calls(self) -> list[CallRecord]:
        """Return the calls made since `new_calls` was called last."""
        calls = list(self.context.calls)
        self.context.calls.clear()
        return calls


class Site:
    """A fresh cloud with providers for one rule; an async context manager."""

    def __init__(self, cloud: CloudFixture) -> None:
        """Use the entered fixture."""
        self.cloud = cloud
        self._stack = contextlib.AsyncExitStack()
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        """Start no provider yet."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all providers and proxies."""
        await self._stack.aclose()

    async def wire(self) -> Wire:
        """Start a proxy between providers and the cloud."""
        if not self.cloud.endpoint:
            raise NotOffered("the fixture has no endpoint", "endpoint")
        return await self._stack.enter_async_context(
            Wire(self.cloud.endpoint, self.cloud.authority)
        )

    async def start(
        self,
        *,
        wire: Wire | None = None,
        hooks: CallHooks | None = None,
        cluster: ClusterIdentity = CLUSTER,
        bucket: AdaptiveBucket | None = None,
        request_timeout: float | None = None,
    ) -> Started:
        """Make a provider and start it; forget the calls of its start.

        Args:
            wire: The proxy before the cloud.
            hooks: The hooks that see every call.
            cluster: The cluster that the provider is for.
            bucket: The bucket that limits all calls.
            request_timeout: Seconds that the provider waits for an answer, if not those of the
                fixture.
        """
        usual = self.cloud.timeout
        self.cloud.timeout = usual if request_timeout is None else request_timeout
        provider = self.cloud.provider(wire.url if wire else self.cloud.endpoint)
        self.cloud.timeout = usual
        provider.confirm = min(provider.confirm, _CONFIRM)
        started = Started(provider, context(provider, cluster, hooks, bucket))
        self._stack.push_async_callback(provider.close)
        await provider.start(started.context)
        if isinstance(hooks, Interruption):
            hooks.armed = True
        started.new_calls()
        return started

    @property
    def page_size(self) -> int:
        """The number of objects in one page of the cloud's lists."""
        if self.cloud.page_size is None:
            raise NotOffered("the fixture sets no page_size")
        return self.cloud.page_size

    async def objects(self, started: Started) -> Mapping[str, object]:
        """List the parts of load balancers: the fixture's `objects`, else `list_owned`.

        They are copies: what a cloud in this process changes later must not change in them, too.
        """
        try:
            return await self.of_all()
        except NotOffered as without:
            try:
                owned = await started.load_balancers.list_owned(CLUSTER)
            except NotSupported:
                raise NotOffered(str(without), "list_owned") from None
            return {f"{one.kind}/{one.id}": one for one in owned}

    async def of_all(self) -> Mapping[str, object]:
        """List the fixture's `objects`, whoever made them, as copies."""
        return copy.deepcopy(dict(await self.cloud.objects()))

    # Machines

    async def create(self, count: int) -> list[str]:
        """Start machines and return their names."""
        names = [f"machine-{next(self._numbers)}" for _ in range(count)]
        await self.cloud.create_machines(names)
        return names

    async def nodes(self, started: Started, count: int) -> list[Node]:
        """Start machines and return their Nodes, with provider id and addresses."""
        bare = [node(name) for name in await self.create(count)]
        found = await self.describe(started, bare)
        nodes = []
        for one in bare:
            name = one.metadata.name
            machine = instance(name, found)
            nodes.append(node(name, machine.provider_id, machine))
        return nodes

    async def describe(self, started: Started, nodes: Sequence[Node]) -> dict[str, InstanceAnswer]:
        """Ask the provider about nodes, a batch a call; return all its answers."""
        found: dict[str, InstanceAnswer] = {}
        size = max(1, started.instances.batch_size)
        for first in range(0, len(nodes), size):
            found.update(await describe(started, nodes[first : first + size]))
        return found

    # Load balancers

    async def hosts(self, started: Started, count: int) -> list[Node]:
        """Return nodes to balance load on; invented for a provider that knows no machines."""
        if started.provider.instances is not None:
            try:
                return await self.nodes(started, count)
            except NotOffered:
                raise
            except Exception as error:
                raise NotTried(f"machine-found has to hold first: {error}") from error
        return [
            node(
                f"host-{number}",
                f"{started.provider.name}://host-{number}",
                Instance("", addresses=(NodeAddress("InternalIP", f"10.0.0.{number}"),)),
            )
            for number in range(1, count + 1)
        ]

    def service(self, uid: str = "") -> Service:
        """Make a Service of a new name and uid."""
        name = f"service-{next(self._numbers)}"
        return Service(
            metadata=ObjectMeta(
                name=name,
                namespace="default",
                uid=uid or str(uuid.uuid4()),
                annotations=self.cloud.annotations,
            ),
            spec=ServiceSpec(type="LoadBalancer", ip_families=("IPv4",)),
        )

    def desired(
        self,
        started: Started,
        nodes: Sequence[Node],
        *,
        service: Service | None = None,
        ports: Sequence[tuple[int, int]] = PORTS,
        cluster: ClusterIdentity = CLUSTER,
    ) -> LoadBalancer:
        """Compute the desired load balancer of a Service, by default a new one."""
        found = service or self.service()
        spec = msgspec.structs.replace(
            found.spec,
            ports=tuple(
                ServicePort(port, f"port-{port}", node_port=node_port) for port, node_port in ports
            ),
        )
        changed = msgspec.structs.replace(found, spec=spec)
        policy = started.load_balancers.host_policy(changed)
        return desired_load_balancer(changed, nodes, policy, cluster)

    async def ensure(self, started: Started, *desired: LoadBalancer) -> list[Ensured]:
        """Ensure until nothing is pending; anything but `Ensured` violates the rule."""
        verb = started.load_balancers.ensure
        answers = await self._settled("ensure", verb, {one.ref.uid: one for one in desired})
        return [expect(Ensured, answers[one.ref.uid], "ensure") for one in desired]

    async def is_refused(self, started: Started, desired: LoadBalancer) -> bool:
        """Ensure until nothing is pending; tell whether that was refused as impossible."""
        answers = await self._settled(
            "ensure", started.load_balancers.ensure, {desired.ref.uid: desired}
        )
        answer = answers[desired.ref.uid]
        if isinstance(answer, InvalidRequest | NotSupported):
            return True
        expect(Ensured, answer, "ensure")
        return False

    async def update_hosts(self, started: Started, *desired: LoadBalancer) -> list[Ensured]:
        """Update hosts until nothing is pending; anything but `Ensured` violates the rule."""
        verb = started.load_balancers.update_hosts
        answers = await self._settled("update_hosts", verb, {one.ref.uid: one for one in desired})
        return [expect(Ensured, answers[one.ref.uid], "update_hosts") for one in desired]

    async def delete(self, started: Started, *refs: LoadBalancerRef) -> None:
        """Delete until nothing is pending; anything but `Done` violates the rule."""
        withdrawn: set[str] = set()

        async def verb(left: list[LoadBalancerRef]) -> Mapping[str, Any]:
            bare = [
                msgspec.structs.replace(one, last_ingress=()) if one.uid in withdrawn else one
                for one in left
            ]
            answer = await started.load_balancers.delete(bare)
            pending = {uid: one for uid, one in answer.items() if isinstance(one, Pending)}
            withdrawn.update(uid for uid, one in pending.items() if one.withdrawn)
            return answer

        answers = await self._settled("delete", verb, {ref.uid: ref for ref in refs})
        for ref in refs:
            expect(Done, answers[ref.uid], "delete")

    async def _settled(
        self,
        name: str,
        verb: Callable[[list[T]], Awaitable[Mapping[str, Any]]],
        items: dict[str, T],
    ) -> dict[str, object]:
        answers: dict[str, object] = {}
        for _ in range(_MOST_TRIES):
            left = {uid: item for uid, item in items.items() if uid not in answers}
            answer = mapping(name, await verb(list(left.values())))
            if missing := left.keys() - answer.keys():
                raise Violated(f"{name} did not answer for the uids {', '.join(sorted(missing))}")
            answers |= {uid: answer[uid] for uid in left if not isinstance(answer[uid], Pending)}
            if answers.keys() == items.keys():
                return answers
            waits = [one.after for one in answer.values() if isinstance(one, Pending)]
            await asyncio.sleep(min(_PENDING_POLL, *waits))
        raise Violated(f"{name} is still Pending after {_MOST_TRIES} tries")


def context(
    provider: CloudProvider,
    cluster: ClusterIdentity = CLUSTER,
    hooks: CallHooks | None = None,
    bucket: AdaptiveBucket | None = None,
) -> Context:
    """Make the context of a provider in an empty cluster; one `bucket` for all calls."""
    return Context(
        cluster,
        now=lambda: datetime.now(UTC),
        events=_Events(),
        listers={name: _NoObjects() for name in provider.needs},
        hooks=hooks,
        bucket=(lambda: bucket) if bucket else AdaptiveBucket,
    )


def node(name: str, provider_id: str = "", machine: Instance | None = None) -> Node:
    """Make a Node, with the machine's addresses."""
    return objects.node(name, provider_id, addresses=machine.addresses if machine else ())


async def describe(started: Started, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
    """Describe one batch of nodes."""
    return mapping("describe", await started.instances.describe(nodes))
