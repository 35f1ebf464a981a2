"""The provider `baidu`: a drop-in for the official cloud-controller-manager of Baidu AI Cloud.

Instances (BCC), load balancers (BLB with EIP), routes in a VPC, and volume labels (CDS). Every call
goes through `api.Api`; what an answer means and what is done next is decided in pure functions
(`machines`, `names`, `balancing.desired`, `balancing.plan`).
"""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.baidu.api import Api
from proreus.providers.baidu.balancing.load_balancers import BaiduLoadBalancers
from proreus.providers.baidu.config import BaiduConfig
from proreus.providers.baidu.instances import BaiduInstances, Machines
from proreus.providers.baidu.names import parsed
from proreus.providers.baidu.routes import BaiduRoutes
from proreus.providers.baidu.volumes import BaiduVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["BaiduCloud"]


class BaiduCloud(CloudProvider):
    """A region of an account of Baidu AI Cloud, as a cloud of Kubernetes."""

    name: ClassVar[str] = "cce"
    names: ClassVar[tuple[str, ...]] = ("baidu", "baiducloud")
    machine_of = staticmethod(parsed)
    needs: frozenset[str] = frozenset({"endpoint_slices", "nodes", "services"})
    config_type: ClassVar[type[msgspec.Struct] | None] = BaiduConfig

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no cloud-config, or it is another provider's.
        """
        super().__init__(config)
        if not isinstance(config, BaiduConfig):
            raise ConfigError(
                ("--cloud-config: the provider baidu needs one, with ClusterId and Region",)
            )
        self._config = config
        files = (config.ca_file, config.credentials_file)
        self.watched_files = tuple(one for one in files if one)

    async def start(self, context: "Context") -> None:
        """Read the key, and set the capabilities.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
        """
        config = self._config
        api = self.closing(Api(config, context))
        machines = Machines(api, config.vpc_id, bare_metal=config.bare_metal)
        self.instances = BaiduInstances(machines, region=config.region)
        self.load_balancers = from_verbs(
            BaiduLoadBalancers(
                api,
                machines,
                config,
                context.listers["nodes"],
                context.listers["services"],
                confirm=self.confirm,
            )
        )
        self.routes = BaiduRoutes(
            api, machines, context, vpc=config.vpc_id, cluster_id=config.cluster_id
        )
        self.volumes = per_volume(BaiduVolumes(api, region=config.region).labels)
