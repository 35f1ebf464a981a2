"""Manage the provider in use: start it, again while the cloud refuses, replace it, close it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ConfigError,
    Context,
    Ownership,
    Unauthenticated,
    scope,
)
from proreus.containment.faults import Faults
from proreus.containment.guard import Guard
from proreus.containment.guarded import guarded
from proreus.kube.objects import Node
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.tasks import supervise

log = klog.logger(__name__)

START_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0
RESTART: Final = Backoff(first=1.0, cap=30.0)


class Cloud:
    """The holder of the provider, from its first start until this replica stops leading."""

    def __init__(
        self,
        provider: CloudProvider,
        faults: Faults,
        *,
        allow_untagged: bool,
        on_crash: Callable[[Exception | None], None],
    ) -> None:
        """Start without a provider.

        Args:
            provider: The provider to begin with.
            faults: Counts and logs the faults of providers.
            allow_untagged: Whether a provider may start although the cluster has no id.
            on_crash: Called with the error of a start that crashed, and with None once a start has
                succeeded.
        """
        self.provider = provider
        self._faults = faults
        self._allow_untagged = allow_untagged
        self._on_crash = on_crash
        self._starting: CloudProvider | None = None
        self._context: Context | None = None

    async def start(self, context: Context) -> CloudProvider:
        """Start the provider, and try again while the cloud refuses.

        Returns:
            The provider's capabilities, guarded, as the controllers may use them.

        Raises:
            ConfigError: The config of the provider is wrong.
        """
        result: list[CloudProvider | ConfigError] = []

        async def attempt() -> None:
            while not result:
                self._starting = tried = self.provider
                try:
                    started = await self._start(tried, context)
                    if tried is self.provider:
                        result.append(started)
                except ConfigError as exc:
                    if tried is self.provider:
                        result.append(exc)
                finally:
                    self._starting = None
                    if tried is not self.provider:  # a newer one has come meanwhile
                        await self._close(tried)

        await supervise("cloud-provider", attempt, backoff=RESTART, on_crash=self._on_crash)
        (started,) = result
        if isinstance(started, ConfigError):
            raise started
        self._context = context
        return started

    async def replace(
        self,
        provider: CloudProvider,
        nodes: Iterable[Node],
        change: Callable[[CloudProvider], Awaitable[None]],
    ) -> None:
        """Start another provider; once it works, switch over with `change` and close the old one.

        Before the first start has succeeded, the next try is with the new provider. Else it is
        asked about one of the `nodes` first: many clouds look at credentials only in a call.

        Raises:
            CloudError: The cloud refuses the new provider; the old one stays.
            ConfigError: The config of the provider is wrong; the old one stays.
        """
        if self._context is None:
            old, self.provider = self.provider, provider
            if old is not self._starting:
                await self._close(old)
            return
        token = scope.set("cloud-config")
        try:
            started = await self._start(provider, self._context)
            await _try(started, nodes)
        except BaseException:
            await self._close(provider)
            raise
        finally:
            scope.reset(token)  # the controllers' tasks are not to have it
        old, self.provider = self.provider, provider
        try:
            await change(started)
        finally:
            await self._close(old)

    async def close(self) -> None:
        """Let the provider release its resources for a short time; ignore its faults."""
        await self._close(self.provider)

    async def _start(self, provider: CloudProvider, context: Context) -> CloudProvider:
        guard = Guard(self._faults, context.outlasts)
        await context.settled(scope.get())  # two starts must not run beside one another
        await guard.call("start", lambda: provider.start(context), seconds=START_SECONDS)
        started = guarded(provider, guard)
        if not started.has_cluster_id and not self._allow_untagged:
            problem = "the cloud has no cluster id; set one, or run with --allow-untagged-cloud"
            raise ConfigError((problem,))
        return started

    async def _close(self, provider: CloudProvider) -> None:
        try:
            await Guard(self._faults).call("close", provider.close, seconds=CLOSE_SECONDS)
        except CloudError as exc:
            klog.warning(log, "The provider could not be closed", err=exc)


async def _try(provider: CloudProvider, nodes: Iterable[Node]) -> None:
    """Ask about one node, to test the credentials; other errors are ignored.

    Raises:
        Unauthenticated: The cloud does not accept the credentials.
    """
    instances = provider.instances
    if instances is None:
        return
    node = next((node for node in nodes if instances.owns(node) is Ownership.YES), None)
    if node is None:
        return
    try:
        async with asyncio.timeout(START_SECONDS):
            answer = (await instances.describe([node])).get(node.metadata.name)
    except Unauthenticated:
        raise
    except (CloudError, TimeoutError) as exc:
        klog.warning(log, "The new provider could not be tested", err=exc)
        return
    if isinstance(answer, Unauthenticated):
        raise answer
