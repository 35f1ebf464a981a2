"""The provider `cloudstack`: a drop-in for the official CloudStack Kubernetes Provider.

Instances, load balancers, routes in a VPC, and volume labels. Every call goes through `api.Api`;
what an answer means and what is done next is decided in pure functions (`machines`, `names`,
`balancing.desired`, `balancing.plan`).
"""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.cloudstack.api import Api
from proreus.providers.cloudstack.balancing.load_balancers import CloudStackLoadBalancers
from proreus.providers.cloudstack.config import CloudStackConfig
from proreus.providers.cloudstack.instances import CloudStackInstances, Machines
from proreus.providers.cloudstack.names import parsed
from proreus.providers.cloudstack.routes import ROUTES_SINCE, CloudStackRoutes
from proreus.providers.cloudstack.volumes import CloudStackVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["CloudStackCloud"]


class CloudStackCloud(CloudProvider):
    """An account or a project of CloudStack, as a cloud of Kubernetes."""

    name: ClassVar[str] = "cloudstack"
    names: ClassVar[tuple[str, ...]] = ("external-cloudstack",)
    machine_of = staticmethod(parsed)
    needs: frozenset[str] = frozenset({"endpoint_slices", "nodes", "services"})
    config_type: ClassVar[type[msgspec.Struct] | None] = CloudStackConfig

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no cloud-config, or it is another provider's.
        """
        super().__init__(config)
        if not isinstance(config, CloudStackConfig):
            raise ConfigError(
                ("--cloud-config: the provider cloudstack needs one, with a section [Global]",)
            )
        self._config = config
        self.watched_files = (config.client.ca_file,) if config.client.ca_file else ()

    async def start(self, context: "Context") -> None:
        """Ask for CloudStack's version, and set the capabilities.

        Raises:
            ConfigError: This CloudStack is too old for what the cloud-config asks for.
            CloudError: CloudStack does not answer, or refuses the keys.
        """
        api = self.closing(Api(self._config, context))
        version = await api.version()
        machines = Machines(api)
        self.instances = CloudStackInstances(
            machines,
            region=self._config.global_.region,
            dual_stack=self._config.node.dual_stack,
        )
        self.load_balancers = from_verbs(
            CloudStackLoadBalancers(
                api,
                machines,
                self._config,
                context.listers["nodes"],
                context.listers["services"],
                confirm=self.confirm,
            )
        )
        self.volumes = per_volume(CloudStackVolumes(api, region=self._config.global_.region).labels)
        if vpc := self._config.route.vpc_id:
            if version < ROUTES_SINCE:
                shown = ".".join(map(str, version))
                raise ConfigError((f"[Route] vpc-id: needs CloudStack 4.21, this is {shown}",))
            self.routes = CloudStackRoutes(api, vpc)
