"""The provider `openstack`: a drop-in for the official openstack-cloud-controller-manager.

Instances, routes, load balancers and volume labels. Every call goes through `api.Api`; what an
answer means and what is done next is decided in pure functions (`machines`, `names`, `hops`,
`octavia.desired`, `octavia.plan`, `octavia.group_rules`).
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.flags import ProviderFlag
from proreus.cloudprovider.lookups import check_shown
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.openstack.api import Api, user_agent_part
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.credentials import CloudOf, login
from proreus.providers.openstack.instances import OpenStackInstances
from proreus.providers.openstack.names import machine_of, servers_of
from proreus.providers.openstack.octavia.load_balancers import OctaviaLoadBalancers
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia
from proreus.providers.openstack.octavia.security_groups import SecurityGroups
from proreus.providers.openstack.reading import Reader
from proreus.providers.openstack.routes import OpenStackRoutes
from proreus.providers.openstack.volumes import OpenStackVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["OpenStackCloud"]

VARIABLE_REGIONAL = "OS_CCM_REGIONAL"
"""The environment variable that lets new provider ids name the region, if it is `true`."""


class OpenStackCloud(CloudProvider):
    """A project in one region of OpenStack, as a cloud of Kubernetes."""

    name: ClassVar[str] = "openstack"
    machine_of = staticmethod(machine_of)
    config_type: ClassVar[type[msgspec.Struct] | None] = OpenStackConfig
    needs: frozenset[str] = frozenset({"nodes", "services"})
    flags: ClassVar[Mapping[str, ProviderFlag]] = MappingProxyType(
        {
            "user-agent": ProviderFlag(
                "Text to add to the User-Agent of requests to OpenStack; repeatable.",
                user_agent_part,
                repeated=True,
            )
        }
    )

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no cloud-config, or it is another provider's.
        """
        super().__init__(config)
        if not isinstance(config, OpenStackConfig):
            raise ConfigError(
                ("--cloud-config: the provider openstack needs one, with a section [Global]",)
            )
        self._config = config
        self._api: Api | None = None
        of = config.global_
        self._cloud_of: CloudOf | None = None
        if of.use_clouds:
            from proreus.providers.openstack.clouds import cloud_of  # noqa: PLC0415 - heavy

            self._cloud_of = cloud_of
        files = (of.clouds_file, of.ca_file, of.cert_file, of.key_file)
        self.watched_files = tuple(file for file in files if file)

    async def start(self, context: "Context") -> None:
        """Get a token, and set the capabilities."""
        found = login(self._config.global_, self._cloud_of)
        regional = os.environ.get(VARIABLE_REGIONAL, "").lower() == "true"
        if regional and not found.region:
            raise ConfigError((f"[Global] region: is required where {VARIABLE_REGIONAL} is true",))
        timeout = self._config.client.timeout.total_seconds()
        self._api = Api(found, context, timeout=timeout)
        await self._api.connect()
        reader = Reader(self._api, self._config.tenants)
        self.instances = OpenStackInstances(
            reader, self._config.networking, region=found.region, regional=regional
        )
        self.volumes = per_volume(OpenStackVolumes(self._api).labels)
        if self._config.load_balancer.enabled:
            services = context.listers["services"]
            networks = Networks(self._api, reader, self._config.tenants, services)
            groups = SecurityGroups(self._api, reader, self._config.load_balancer)
            nodes = context.listers["nodes"]

            async def check() -> None:
                if servers := servers_of(nodes.all(), found.region):
                    await check_shown(servers, reader.by_id)

            octavia = Octavia(self._api)
            balancers = OctaviaLoadBalancers(
                octavia, networks, groups, self._config, check, confirm=self.confirm
            )
            self.load_balancers = from_verbs(balancers)
        if router := self._config.route.router_id:
            self.routes = OpenStackRoutes(self._api, reader, router)

    async def close(self) -> None:
        """Close the session."""
        if self._api is not None:
            await self._api.close()
