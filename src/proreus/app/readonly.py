"""Read the cluster and the cloud without ever writing, for commands that only look.

Both sides refuse: the client of the API server sends no write, and a provider's call that is
declared to change something is not sent either.
"""

import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from proreus.app.caches import ENDPOINT_SLICES_NEED, NAMESPACES_NEED, config_maps, needed
from proreus.app.clouds import config as clouds
from proreus.app.merging import source_of, with_file
from proreus.app.options import Options
from proreus.app.reload import secret_text
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    Context,
    Lister,
)
from proreus.cloudprovider.calls import CallRecord
from proreus.containment.faults import Faults
from proreus.containment.guard import Guard
from proreus.containment.guarded import guarded
from proreus.controllers.service.intake import SLICES_BY_SERVICE, slices_by_service
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import Forbidden, NotFound, RefusedByGate
from proreus.kube.objects import EndpointSlice, KubeObject, Namespace, Node, Secret, Service, key
from proreus.kube.requests import (
    ENDPOINT_SLICES,
    LABELLED_NAMESPACES,
    NODES,
    SECRETS,
    SERVICES,
)
from proreus.runtime import klog

log = klog.logger(__name__)

T = TypeVar("T", bound=KubeObject)

START_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0


class Listed(Generic[T]):
    """A cache with the objects of one listing."""

    def __init__(self, objects: Iterable[T]) -> None:
        """Hold the objects by key."""
        self._objects = {key(one): one for one in objects}

    def get(self, key: str) -> T | None:
        """Return the object with the key, or None."""
        return self._objects.get(key)

    def all(self) -> Iterable[T]:
        """Return every object."""
        return self._objects.values()

    def by(self, index: str, value: str) -> Iterable[T]:
        """Return EndpointSlices by their Service; there is no other index."""
        if index != SLICES_BY_SERVICE:
            return ()
        return self._by_service.get(value, ())

    @functools.cached_property
    def _by_service(self) -> Mapping[str, Sequence[Any]]:
        every = self._objects.values()
        return slices_by_service(one for one in every if isinstance(one, EndpointSlice))


class NoEvents:
    """A recorder that drops every event."""

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        """Drop the event."""


class _OnlyReads:
    """A hook that refuses the calls that a provider declares as writes."""

    def before(self, service: str, operation: str, *, read: bool) -> None:
        """Refuse a write.

        Raises:
            CloudError: The call is a write.
        """
        if not read:
            raise CloudError(f"{service}.{operation} was not sent: this command only reads")

    def after(self, record: CallRecord) -> None:
        """Ignore the end of a call."""


def listers(
    nodes: Iterable[Node], services: Iterable[Service], slices: Iterable[EndpointSlice]
) -> Mapping[str, Lister[KubeObject]]:
    """Return the caches that a provider may need, by the names of `CloudProvider.needs`.

    The listers have no namespaces: `besides` reads them.
    """
    return {
        "nodes": Listed(nodes),
        "services": Listed(services),
        ENDPOINT_SLICES_NEED: Listed(slices),
        NAMESPACES_NEED: Listed(tuple[Namespace, ...]()),
    }


async def configured(options: Options, client: Client) -> CloudProvider:
    """Make the provider from the file or Secret of its cloud-config, without a cloud call.

    Raises:
        ConfigError: The provider is not known, or its config is wrong.
        KubeError: The Secret cannot be read.
    """
    place = options.cloud_config_secret
    if not place:
        return clouds.configured(options)
    namespace, name, _ = place.split("/")
    secret: Secret | None
    try:
        secret = await client.get(SECRETS, name, namespace)
    except NotFound:
        secret = None
    text = with_file(options, secret_text(secret, place))
    return clouds.from_text(options, text, source=source_of(options))


async def listed(client: Client, needs: Collection[str]) -> Mapping[str, Lister[KubeObject]]:
    """List what a provider needs, and nothing else; by the names of `CloudProvider.needs`.

    Raises:
        KubeError: The API server cannot be asked.
    """
    nodes = (await client.list(NODES)).items if "nodes" in needs else ()
    services = (await client.list(SERVICES)).items if "services" in needs else ()
    slices = (await client.list(ENDPOINT_SLICES)).items if ENDPOINT_SLICES_NEED in needs else ()
    return {**listers(nodes, services, slices), **await besides(client, needs)}


async def besides(client: Client, needs: Collection[str]) -> Mapping[str, Lister[KubeObject]]:
    """Read what a provider needs beside nodes, Services and EndpointSlices.

    Namespaces that may not be read are left out: the provider says for which objects it needs them.

    Raises:
        KubeError: The API server does not answer.
    """
    found: dict[str, Lister[KubeObject]] = dict(await config_maps(client, needs))
    if NAMESPACES_NEED in needs:
        try:
            found[NAMESPACES_NEED] = Listed((await client.list(LABELLED_NAMESPACES)).items)
        except Forbidden as exc:
            message = "Reading namespaces is forbidden; the provider goes without them"
            klog.warning(log, message, err=str(exc))
            found[NAMESPACES_NEED] = Listed(tuple[Namespace, ...]())
    return found


def client(config: ClientConfig, user_agent: str) -> Client:
    """Make a client that refuses to send a write."""
    return Client(config, gate=_refuse, user_agent=user_agent)


def _refuse() -> None:
    raise RefusedByGate("not sent: this command only reads")


@asynccontextmanager
async def started(
    provider: CloudProvider,
    cluster: ClusterIdentity,
    listers: Mapping[str, Lister[KubeObject]],
    *,
    flags: Mapping[str, Any],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncIterator[CloudProvider]:
    """Start a provider that can only read; its faults are raised as CloudError.

    Args:
        provider: The provider, not started yet.
        cluster: Which cluster this is.
        listers: The caches that the provider may read; it gets those that it `needs`.
        flags: The values given for the provider's own flags.
        now: The wall clock.

    Raises:
        CloudError: The provider cannot be started, or needs a cache that does not exist.
    """
    chosen = needed(provider.name, provider.needs, listers)
    events = NoEvents()
    context = Context(
        cluster, now=now, events=events, listers=chosen, flags=flags, hooks=_OnlyReads()
    )
    guard = Guard(Faults(provider.name, events), context.outlasts)
    try:
        await guard.call("start", lambda: provider.start(context), seconds=START_SECONDS)
        yield guarded(provider, guard)
    finally:
        with suppress(CloudError):  # what was read is good
            await guard.call("close", provider.close, seconds=CLOSE_SECONDS)
