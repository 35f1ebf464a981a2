"""The provider `rackspace`: Cloud Servers, Cloud Load Balancers and Cloud Block Storage.

A drop-in for Kubernetes' own provider of that name. Servers are read as those of OpenStack are
(`providers.nova`); what an answer means and what is done next is decided in pure functions
(`machines`, `names`, `identity`, `balancing.desired`, `balancing.plan`).
"""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.rackspace.api import Api
from proreus.providers.rackspace.balancing.load_balancers import RackspaceLoadBalancers
from proreus.providers.rackspace.config import RackspaceConfig
from proreus.providers.rackspace.instances import RackspaceInstances, RackspaceServers
from proreus.providers.rackspace.names import parsed
from proreus.providers.rackspace.volumes import RackspaceVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["RackspaceCloud"]


class RackspaceCloud(CloudProvider):
    """An account in one region of Rackspace, as a cloud of Kubernetes."""

    name: ClassVar[str] = "rackspace"
    machine_of = staticmethod(parsed)
    config_type: ClassVar[type[msgspec.Struct] | None] = RackspaceConfig
    needs: frozenset[str] = frozenset({"endpoint_slices", "nodes", "services"})

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no cloud-config, or it is another provider's.
        """
        super().__init__(config)
        if not isinstance(config, RackspaceConfig):
            raise ConfigError(
                ("--cloud-config: the provider rackspace needs one, with a section [Global]",)
            )
        self._config = config
        self.watched_files = (config.client.ca_file,) if config.client.ca_file else ()

    async def start(self, context: "Context") -> None:
        """Get a token, and set the capabilities.

        Raises:
            ConfigError: The account has no such region.
            CloudError: Identity does not answer, or refuses the credentials.
        """
        api = self.closing(Api(self._config, context))
        await api.connect()
        servers = RackspaceServers(api)
        self.instances = RackspaceInstances(servers, region=api.region)
        self.volumes = per_volume(RackspaceVolumes(api).labels)
        if self._config.cloud_load_balancers.enabled:
            self.load_balancers = from_verbs(
                RackspaceLoadBalancers(
                    api,
                    servers,
                    self._config,
                    context.listers["nodes"],
                    context.listers["services"],
                    confirm=self.confirm,
                )
            )
