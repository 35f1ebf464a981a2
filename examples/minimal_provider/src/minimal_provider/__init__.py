"""The cloud provider `minimal` for Proreus."""

from typing import ClassVar

import msgspec

from minimal_provider import balancers, machines, routes
from minimal_provider.api import Config, client
from proreus.cloudprovider import CloudProvider, Context


class MinimalCloud(CloudProvider):
    """Machines, load balancers and routes of the cloud."""

    name: ClassVar[str] = "minimal"
    config_type: ClassVar[type[msgspec.Struct] | None] = Config

    async def start(self, context: Context) -> None:
        """Open the session and say what this cloud can do."""
        api = self.closing(client(self.config_as(Config), context))
        self.instances = machines.instances(api)
        self.load_balancers = balancers.load_balancers(api)
        self.routes = routes.routes(api)
