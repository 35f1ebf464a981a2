"""Give a provider the objects that it declares to need (`CloudProvider.needs`)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from proreus.app.board import NEED
from proreus.cloudprovider import ConfigError, Lister
from proreus.controllers.service.intake import SLICES_BY_SERVICE, service_keys
from proreus.kube.client import Client
from proreus.kube.errors import Forbidden, NotFound
from proreus.kube.objects import ConfigMap, EndpointSlice, KubeObject, Namespace
from proreus.kube.requests import CONFIG_MAPS, ENDPOINT_SLICES, LABELLED_NAMESPACES
from proreus.kube.watch import Check, unchecked
from proreus.runtime import klog
from proreus.runtime.informer import Informer

log = klog.logger(__name__)

ENDPOINT_SLICES_NEED: Final = "endpoint_slices"
"""The name of the need for the EndpointSlices of all Services."""
NAMESPACES_NEED: Final = "namespaces"
"""The name of the need for the names and labels of all namespaces."""
SYNC_SECONDS: Final = 10.0
"""Seconds for which a provider's start waits for a cache that no controller waits for."""

CONFIG_MAP: Final = "config_maps/"
"""The prefix of the name of a need for one ConfigMap of kube-system."""
NAMESPACE: Final = "kube-system"


class Caches:
    """The caches of objects that some providers need, besides Nodes and Services.

    Attributes:
        slices: EndpointSlices, by their Service; None while no provider needs them.
        namespaces: The labels of namespaces; None while no provider needs them.
    """

    def __init__(self, client: Client, check: Check = unchecked) -> None:
        """Have no cache yet; `check` is that of each of them."""
        self.slices: Informer[EndpointSlice] | None = None
        self.namespaces: Informer[Namespace] | None = None
        self._client = client
        self._check = check
        self._start: Callable[[str, Callable[[], Awaitable[None]]], object] | None = None

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """The caches that exist."""
        return tuple(one for one in (self.slices, self.namespaces) if one is not None)

    def start(self, start: Callable[[str, Callable[[], Awaitable[None]]], object]) -> None:
        """Start the caches that there are, and later ones when they are made.

        Args:
            start: Starts a task, given its name and its function.
        """
        self._start = start
        for one in self.informers:
            start(one.resource.plural, one.run)

    def need(self, needs: Iterable[str]) -> None:
        """Make the caches that a provider needs, if they are not there yet."""
        before = self.informers
        if ENDPOINT_SLICES_NEED in needs and self.slices is None:
            by_service = {SLICES_BY_SERVICE: service_keys}
            self.slices = Informer(
                self._client, ENDPOINT_SLICES, indexes=by_service, check=self._check
            )
        if NAMESPACES_NEED in needs and self.namespaces is None:
            self.namespaces = Informer(self._client, LABELLED_NAMESPACES, check=self._check)
        for one in self.informers:
            if one not in before and self._start is not None:
                self._start(one.resource.plural, one.run)

    def offered(self) -> dict[str, Lister[KubeObject] | None]:
        """Return the caches by the names of needs; None for those that nobody needs."""
        return {ENDPOINT_SLICES_NEED: self.slices, NAMESPACES_NEED: self.namespaces}

    async def read(self, needs: Iterable[str]) -> None:
        """Wait for the namespaces, if they are needed, but not for long: nodes need none.

        A provider must be able to do without an object that its cache does not have yet.
        """
        if self.namespaces is None or NAMESPACES_NEED not in needs:
            return
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self.namespaces.wait_synced()
        except TimeoutError:
            klog.warning(
                log,
                "The namespaces cannot be read yet; the provider starts without them",
                seconds=SYNC_SECONDS,
            )


class OneConfigMap:
    """A lister of one ConfigMap as it was when it was read, or of none."""

    def __init__(self, found: ConfigMap | None) -> None:
        """Keep the ConfigMap; None if there is none."""
        self._found = {} if found is None else {f"{NAMESPACE}/{found.metadata.name}": found}

    def get(self, key: str) -> ConfigMap | None:
        """Return the object `namespace/name`, or None."""
        return self._found.get(key)

    def all(self) -> Iterable[ConfigMap]:
        """Return every object."""
        return self._found.values()

    def by(self, index: str, value: str) -> Iterable[ConfigMap]:
        """Return nothing: there are no indexes."""
        del index, value
        return ()


def config_map_names(needs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the ConfigMaps that a provider needs."""
    return tuple(
        sorted(one.removeprefix(CONFIG_MAP) for one in needs if one.startswith(CONFIG_MAP))
    )


async def config_maps(client: Client, needs: Iterable[str]) -> dict[str, Lister[KubeObject]]:
    """Read the ConfigMaps that a provider needs, by the names of its needs.

    A ConfigMap that does not exist, or may not be read, is None: the provider does without it.

    Raises:
        KubeError: The API server does not answer.
    """
    found: dict[str, Lister[KubeObject]] = {}
    for name in config_map_names(needs):
        try:
            read: ConfigMap | None = await client.get(CONFIG_MAPS, name, NAMESPACE)
        except NotFound:
            read = None
        except Forbidden as exc:
            place = f"{NAMESPACE}/{name}"
            klog.warning(
                log,
                "Reading a ConfigMap is forbidden; the provider does without it",
                config_map=place,
                err=str(exc),
            )
            read = None
        found[f"{CONFIG_MAP}{name}"] = OneConfigMap(read)
    return found


def needed(
    name: str, needs: frozenset[str], offered: Mapping[str, Lister[KubeObject] | None]
) -> Mapping[str, Lister[KubeObject]]:
    """Return those of the `offered` caches that a provider needs.

    Raises:
        ConfigError: The provider declares to need what the framework does not have.
    """
    unknown = sorted(needs - offered.keys() - {NEED})
    if unknown:
        raise ConfigError((f"the provider {name} needs {', '.join(unknown)}: no such cache",))
    return {one: lister for one, lister in offered.items() if lister is not None and one in needs}
