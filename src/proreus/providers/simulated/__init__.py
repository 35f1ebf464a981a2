"""The provider `simulated`: tests the framework, and shows how to write a provider.

The cloud itself is `python -m proreus.testing.simulated`; this package speaks its HTTP API.
"""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.simulated.api import Api
from proreus.providers.simulated.config import SimulatedConfig
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.providers.simulated.load_balancers import SimulatedLoadBalancers
from proreus.providers.simulated.pod_cidrs import SimulatedPodCIDRs
from proreus.providers.simulated.routes import SimulatedRoutes
from proreus.providers.simulated.ssh_keys import SimulatedSSHKeys
from proreus.providers.simulated.volumes import SimulatedVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["SimulatedCloud"]


class SimulatedCloud(CloudProvider):
    """A simulated cloud: instances, load balancers, routes, pod CIDRs, volumes and SSH keys."""

    name: ClassVar[str] = "simulated"
    config_type: ClassVar[type[msgspec.Struct] | None] = SimulatedConfig

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no such cloud-config.
        """
        super().__init__(config)
        self._settings = self.config_as(SimulatedConfig).global_
        self.watched_files = (self._settings.token_file,) if self._settings.token_file else ()

    async def start(self, context: "Context") -> None:
        """Open the session and set the capabilities."""
        settings = self._settings
        api = self.closing(Api(settings, settings.read_token(), context))
        self.instances = SimulatedInstances(api, settings.region, settings.batch_size)
        self.load_balancers = SimulatedLoadBalancers(api, settings.region)
        self.pod_cidrs = SimulatedPodCIDRs(api, settings.region, settings.batch_size)
        self.routes = SimulatedRoutes(api, settings.region)
        self.ssh_keys = SimulatedSSHKeys(api)
        self.volumes = SimulatedVolumes(api, settings.batch_size)
