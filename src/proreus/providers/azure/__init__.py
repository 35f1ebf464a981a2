"""The provider `azure`: a drop-in for the official cloud-controller-manager of Azure.

Every call goes through `api.Arm`; what an answer means and what is done next is decided in pure
functions (`names`, `machines`, `balancing.plan`, `balancing.guard`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from proreus.cloudprovider.config_merge import ConfigSource
from proreus.cloudprovider.flags import ProviderFlag
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.azure.api import Arm
from proreus.providers.azure.balancing.load_balancers import AzureLoadBalancers
from proreus.providers.azure.config import AzureConfig
from proreus.providers.azure.flags import FLAGS, config_secret, config_source
from proreus.providers.azure.ids import machine_of
from proreus.providers.azure.instances import AzureInstances
from proreus.providers.azure.routes import AzureRoutes
from proreus.providers.azure.volumes import AzureVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["AzureCloud"]


class AzureCloud(CloudProvider):
    """A subscription of Azure, as a cloud of Kubernetes."""

    name: ClassVar[str] = "azure"
    machine_of = staticmethod(machine_of)
    config_type: ClassVar[type[msgspec.Struct] | None] = AzureConfig
    config_environment: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "AZURE_CLIENT_ID": "aad_client_id",
            "AZURE_FEDERATED_TOKEN_FILE": "aad_federated_token_file",
            "AZURE_TENANT_ID": "tenant_id",
        }
    )
    flags: ClassVar[Mapping[str, ProviderFlag]] = FLAGS
    needs: frozenset[str] = frozenset({"nodes", "services"})
    may_need: ClassVar[frozenset[str]] = frozenset({"endpoint_slices", "namespaces"})
    timeout: ClassVar[float] = 60.0
    """Seconds for an answer of Azure."""

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no such cloud-config.
        """
        super().__init__(config)
        self._config = self.config_as(AzureConfig)
        several = self._config.multiple_standard_load_balancer_configurations
        if several:
            # Services of local traffic have pools of the nodes with their pods.
            self.needs |= {"endpoint_slices"}
        if any(one.reads_namespaces for one in several):
            self.needs |= {"namespaces"}

    @classmethod
    def config_secret(cls, flags: Mapping[str, Any]) -> str:
        """Return the Secret that the official flags name as that of the cloud-config."""
        return config_secret(flags)

    @classmethod
    def config_source(cls, text: str) -> ConfigSource:
        """Return whether the file, the Secret or both count, by `cloudConfigType` in the file."""
        return config_source(text)

    async def start(self, context: "Context") -> None:
        """Get a token, and set the capabilities."""
        arm = self.closing(Arm(self._config, context, timeout=self.timeout))
        await arm.connect()
        self.instances = AzureInstances(arm)
        self.load_balancers = AzureLoadBalancers(arm, confirm=self.confirm)
        self.volumes = per_volume(AzureVolumes(arm).labels)
        if self._config.route_table_name:
            self.routes = AzureRoutes(arm, confirm=self.confirm)
