"""The provider `aws` (Amazon Web Services): a drop-in for the official manager.

Instances, routes, volume labels and opt-in tagging of machines. Every call goes through
`api.Api`; what stands in a batch and what an answer means is decided in pure functions.
"""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.aws.api import Api
from proreus.providers.aws.config import AWSConfig
from proreus.providers.aws.identity import Place, find_place, find_region
from proreus.providers.aws.instances import AWSInstances
from proreus.providers.aws.load_balancers import load_balancers
from proreus.providers.aws.metadata import Metadata
from proreus.providers.aws.names import last_part
from proreus.providers.aws.routes import AWSRoutes
from proreus.providers.aws.tagging import Tagging
from proreus.providers.aws.volumes import AWSVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["AWSCloud"]


class AWSCloud(CloudProvider):
    """A region of AWS as a cloud of Kubernetes."""

    name: ClassVar[str] = "aws"
    machine_of = staticmethod(last_part)
    config_type: ClassVar[type[msgspec.Struct] | None] = AWSConfig
    needs: frozenset[str] = frozenset({"nodes", "services"})

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config; what it leaves out, this machine's metadata tell.

        Raises:
            ConfigError: The cloud-config is another provider's.
        """
        super().__init__(config)
        if config is not None and not isinstance(config, AWSConfig):
            raise ConfigError(("--cloud-config: is not a cloud-config of the provider aws",))
        self._config = config or AWSConfig()
        self._api: Api | None = None
        self._tagging: Tagging | None = None

    async def start(self, context: "Context") -> None:
        """Find out where the cluster is, and set the capabilities."""
        place = await self._find(context)
        api = self._api
        if api is None:
            raise CloudError("the session with AWS was not opened")
        self.has_cluster_id = bool(place.tags.id)
        self._tagging = Tagging(api, self._config.tagging, context.listers["nodes"], place.tags)
        seen = self._tagging.seen if self._config.tagging.tags else None
        self.instances = AWSInstances(api, place, self._config.global_, seen)
        self.load_balancers = load_balancers(api, place, self._config, confirm=self.confirm)
        self.routes = AWSRoutes(api, place, self._config.global_.route_table_id)
        self.volumes = AWSVolumes(api)
        self._tagging.start()

    async def close(self) -> None:
        """End tagging and close the session."""
        if self._tagging is not None:
            await self._tagging.close()
        if self._api is not None:
            await self._api.close()

    async def _find(self, context: "Context") -> Place:
        settings = self._config.global_
        async with Metadata(context) as metadata:
            region = await find_region(settings, metadata)
            self._api = Api(self._config, region, context)
            return await find_place(settings, self._api, metadata)
