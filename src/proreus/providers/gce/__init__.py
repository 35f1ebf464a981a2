"""The provider `gce` (Google Compute Engine): a drop-in for the official manager.

Every call goes through `api.Api`; what an answer means and what is done next is decided in pure
functions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.flags import ProviderFlag
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing.annotations import EXTERNAL_BEFORE, INTERNAL_BEFORE
from proreus.providers.gce.balancing.firewalls import CHECK_RANGES
from proreus.providers.gce.balancing.load_balancers import GCELoadBalancers
from proreus.providers.gce.clusters import GCEClusters
from proreus.providers.gce.config import GCEConfig
from proreus.providers.gce.credentials import TokenSource, key_file_path
from proreus.providers.gce.flags import FLAGS, RANGES, RBS_DEFAULT
from proreus.providers.gce.identity import NEED, ClusterId
from proreus.providers.gce.instances import GCEInstances
from proreus.providers.gce.metadata import TIMEOUT, Metadata
from proreus.providers.gce.names import plain_id
from proreus.providers.gce.place import find_place
from proreus.providers.gce.pod_cidrs import GCEPodCIDRs
from proreus.providers.gce.reading import Reader
from proreus.providers.gce.routes import GCERoutes
from proreus.providers.gce.ssh_keys import GCESSHKeys
from proreus.providers.gce.volumes import GCEVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["GCECloud"]


class GCECloud(CloudProvider):
    """A project of Google Cloud, and one region of it, as a cloud of Kubernetes."""

    name: ClassVar[str] = "gce"
    machine_of = staticmethod(plain_id)
    config_type: ClassVar[type[msgspec.Struct] | None] = GCEConfig
    needs: frozenset[str] = frozenset({NEED, "nodes", "services"})
    may_need: ClassVar[frozenset[str]] = frozenset({"endpoint_slices"})
    left_finalizers: tuple[str, ...] = (INTERNAL_BEFORE, EXTERNAL_BEFORE)
    flags: ClassVar[Mapping[str, ProviderFlag]] = FLAGS

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config; what it leaves out, the metadata server tells.

        Raises:
            ConfigError: The cloud-config is another provider's.
        """
        super().__init__(config)
        if config is not None and not isinstance(config, GCEConfig):
            raise ConfigError(("--cloud-config: is not a cloud-config of the provider gce",))
        self._config = config or GCEConfig()
        if self._config.load_balancer.subsetting:
            # Only nodes with pods serve Services of local traffic.
            self.needs |= {"endpoint_slices"}
        path = key_file_path(self._config.global_)
        self.watched_files = (path,) if path else ()

    async def start(self, context: "Context") -> None:
        """Get a token, find out where the cluster is, and set the capabilities."""
        config = self._config
        timeout = config.client.timeout.total_seconds()
        metadata = self.closing(Metadata(context, timeout=min(timeout, TIMEOUT)))
        tokens = self.closing(TokenSource(context, config.global_, metadata, timeout))
        credential = tokens.credential()
        api = self.closing(Api(context, config, credential))
        await credential.get()
        place = await find_place(config.global_, metadata, api)
        reader = Reader(api, place.project)
        self.instances = GCEInstances(reader, place, context.listers["nodes"])
        self.routes = GCERoutes(api, place)
        self.volumes = per_volume(GCEVolumes(api, place).labels)
        self.pod_cidrs = GCEPodCIDRs(
            api,
            reader,
            place,
            config.global_.secondary_range_name,
            nodes=context.listers["nodes"],
            tenants=config.tenants,
        )
        self.clusters = self.closing(
            GCEClusters(context, credential, place, config.global_.container_api_endpoint)
        )
        self.ssh_keys = GCESSHKeys(api, place.project)
        if config.load_balancer.enabled:
            balancers = GCELoadBalancers(
                api,
                reader,
                place,
                config,
                cluster_id=ClusterId(context, config.load_balancer.cluster_id),
                rbs_default=bool(context.flags.get(RBS_DEFAULT)),
                check_ranges=context.flags.get(RANGES, CHECK_RANGES),
            )
            self.load_balancers = from_verbs(balancers)
