"""The provider `local`: machines from an inventory, routes and load balancers in the kernel.

There is no cloud and nothing to log in to: what machines there are, a file says or the Nodes do,
and what traffic needs is in the kernel of the machine that runs the manager.
"""

import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.provider import CloudProvider
from proreus.kube.objects import Node
from proreus.providers.local.bgp.load_balancers import AnnouncedLoadBalancers, forget
from proreus.providers.local.config import GATEWAY_NAME, LocalConfig
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.gateways.standby import LocalStandby
from proreus.providers.local.instances import LocalInstances, owns
from proreus.providers.local.inventory import Defaults, Inventory, InventoryReader
from proreus.providers.local.load_balancers import LocalLoadBalancers
from proreus.providers.local.probes import Prober, ways_of_machine
from proreus.providers.local.routes import LocalRoutes
from proreus.providers.local.usage import NONE, Named, watch_pools

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["LocalCloud"]

READING_SECONDS: Final = 120.0
"""Seconds that reading the inventory may take: 5,000 machines in one file need some."""


class LocalCloud(CloudProvider):
    """A cluster without a cloud: instances, routes and load balancers of this machine."""

    name: ClassVar[str] = "local"
    config_type: ClassVar[type[msgspec.Struct] | None] = LocalConfig
    needs: frozenset[str] = frozenset({"nodes", "services", "board"})
    may_need: ClassVar[frozenset[str]] = frozenset({"namespaces"})
    settled: float = 1.0
    """Seconds between two readings of a changed inventory: somebody may still write it."""

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config; without one there is no inventory and there are no pools.

        Raises:
            ConfigError: The region or zone cannot be the value of a label.
        """
        super().__init__(config)
        self._settings = config if isinstance(config, LocalConfig) else LocalConfig()
        if self._settings.reads_namespaces:
            self.needs |= {"namespaces"}
        self._defaults = Defaults(region=self._settings.region, zone=self._settings.zone)
        self._balancers: LocalLoadBalancers | None = None
        self._named = NONE
        self._room = _room(self._settings)
        # A replica that looks after nodes alone would answer for what its kernel has, too.
        self.one_leads = self._settings.gateway.enabled and bool(self._settings.address_pools)
        if self._room is not None:
            self.standby = LocalStandby(self._settings, self._room, _owns(self._settings))

    async def start(self, context: "Context") -> None:
        """Read the inventory once and set the capabilities.

        Raises:
            ConfigError: The inventory is wrong.
        """
        settings = self._settings
        if settings.instances.enabled:
            self.instances = await self._instances(context)
        if settings.routes.enabled:
            self.routes = LocalRoutes(context, settings.routes)
        if settings.bgp.peers:
            self.load_balancers = AnnouncedLoadBalancers(context, settings, self._named)
        elif settings.gateway.enabled and settings.address_pools:
            balancers = LocalLoadBalancers(context, settings, self._room, named=self._named)
            if self._room is not None:
                self._room.meet(context.board)
            await balancers.start()
            self.load_balancers = self._balancers = balancers
        if not settings.bgp.peers:
            forget(context)
        watch_pools(settings.address_pools, context.listers["services"])

    async def _instances(self, context: "Context") -> LocalInstances:
        """Make the capability `Instances`, and read the inventory once.

        Raises:
            ConfigError: The inventory is wrong.
        """
        settings = self._settings.instances
        read = None
        if settings.inventory:
            reader = InventoryReader(
                settings.inventory, self._defaults, lambda: time.sleep(self.settled)
            )

            async def read() -> Inventory:
                return await context.call(
                    "local",
                    "read_inventory",
                    reader.read,
                    read=True,
                    blocking=True,
                    deadline=READING_SECONDS,
                )

            async def named() -> Mapping[str, str]:
                await attempt(read)  # else as it was read last
                return reader.addresses()

            await read()
            self._named = Named(named)
        probing = settings.probing
        probe = Prober(context, probing).lives if probing.ports else None
        nodes = context.listers["nodes"].all
        ways = partial(ways_of_machine, context)
        return LocalInstances(read, self._defaults, probe, probing, nodes, ways=ways)

    async def close(self) -> None:
        """Stop asking nodes; the kernel keeps its rules and routes.

        The addresses are left to other gateways, if there are any.
        """
        if self._room is not None:
            await self._room.close()
        if self._balancers is not None:
            await self._balancers.close()


def _room(settings: LocalConfig) -> Room | None:
    """Return where this gateway meets others; None if it is alone.

    Raises:
        ConfigError: The machine's name cannot be the name of a gateway.
    """
    gateway = settings.gateway
    if not (gateway.enabled and settings.address_pools and gateway.vrrp.enabled):
        return None
    name = gateway.vrrp.name or socket.gethostname()
    if not GATEWAY_NAME.fullmatch(name):
        raise ConfigError(
            (f"gateway vrrp name: {name!r}, the machine's, is none for a gateway: give another",)
        )
    return Room(gateway, name)


def _owns(settings: LocalConfig) -> Callable[[Node], Ownership]:
    """Return the function that tells whether a node is ours."""
    return owns if settings.instances.enabled else lambda _: Ownership.UNKNOWN
