"""The cloud provider `minimal` for Proreus."""

from typing import ClassVar

import msgspec

from minimal_provider import balancers, machines, routes
from minimal_provider.api import Config, client
from proreus.cloudprovider import CloudProvider, ConfigError, Context, RestClient


class MinimalCloud(CloudProvider):
    """Machines, load balancers and routes of the cloud."""

    name: ClassVar[str] = "minimal"
    config_type: ClassVar[type[msgspec.Struct] | None] = Config

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Take the cloud-config; no call to the cloud yet."""
        super().__init__(config)
        if not isinstance(config, Config):
            raise ConfigError(("--cloud-config: the provider minimal needs one",))
        self._config = config
        self._api: RestClient | None = None

    async def start(self, context: Context) -> None:
        """Open the session and say what this cloud can do."""
        self._api = client(self._config, context)
        self.instances = machines.instances(self._api)
        self.load_balancers = balancers.load_balancers(self._api)
        self.routes = routes.RouteTable(self._api)

    async def close(self) -> None:
        """Close the session, if `start` came so far."""
        if self._api is not None:
            await self._api.close()
