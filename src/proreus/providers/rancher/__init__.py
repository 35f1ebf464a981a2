"""The provider `rancher`: a drop-in for Rancher's own manager on Rancher 1.x (Cattle).

Instances and load balancers, by the API v2-beta where the server has it and v1 elsewhere. Every
call goes through `api.Api`; what an answer means and what is done next is decided in pure functions
(`machines`, `names`, `balancing.desired`, `balancing.plan`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.rancher.api import Api
from proreus.providers.rancher.balancing.load_balancers import RancherLoadBalancers
from proreus.providers.rancher.config import VARIABLES, RancherConfig
from proreus.providers.rancher.instances import Hosts, RancherInstances
from proreus.providers.rancher.names import parsed

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["RancherCloud"]


class RancherCloud(CloudProvider):
    """An environment of a Rancher server, as a cloud of Kubernetes."""

    name: ClassVar[str] = "rancher"
    machine_of = staticmethod(parsed)
    needs: frozenset[str] = frozenset({"endpoint_slices", "nodes"})
    config_type: ClassVar[type[msgspec.Struct] | None] = RancherConfig
    config_environment: ClassVar[Mapping[str, str]] = VARIABLES

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no cloud-config, or it is another provider's.
        """
        super().__init__(config)
        if not isinstance(config, RancherConfig):
            variables = ", ".join(VARIABLES)
            raise ConfigError(
                (f"--cloud-config: give one with a section [Global], or the variables {variables}",)
            )
        self._config = config
        self.watched_files = (config.client.ca_file,) if config.client.ca_file else ()

    async def start(self, context: "Context") -> None:
        """Choose the version of the API, and set the capabilities.

        Raises:
            ConfigError: The server has no version of the API that is known here.
            CloudError: The server does not answer, or refuses the keys.
        """
        api = self.closing(Api(self._config, context))
        await api.choose_version()
        hosts = Hosts(api)
        self.instances = RancherInstances(hosts)
        self.load_balancers = from_verbs(
            RancherLoadBalancers(api, hosts, context.listers["nodes"], confirm=self.confirm)
        )
