"""The provider `vsphere` (VMware vSphere): a drop-in for the official manager's nodes.

Instances with zones and regions, of one or more vCenters, and labels of volumes. Every call goes
through `vcenter.Client` (SOAP) or `tags.Tags` (REST); what an answer means is decided in pure
functions (`plan`, `machines`, `addresses`, `zones`, `datastores`). Load balancers and routes are
those of NSX-T (`nsxt`), where the cloud-config has sections for them; else load balancers are
another provider's, such as `local`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.background import Background
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.volumes import per_volume
from proreus.providers.vsphere.addresses import selection
from proreus.providers.vsphere.config import VCenter, VSphereConfig, vcenters
from proreus.providers.vsphere.instances import Place, VSphereInstances
from proreus.providers.vsphere.inventory import Inventory
from proreus.providers.vsphere.names import parsed
from proreus.providers.vsphere.news import News
from proreus.providers.vsphere.nsxt.credentials import secret_files as nsxt_secret_files
from proreus.providers.vsphere.nsxt.network import Network
from proreus.providers.vsphere.secrets import DIRECTORY, mounted, secret_files
from proreus.providers.vsphere.tags import Tags
from proreus.providers.vsphere.trust import Trust
from proreus.providers.vsphere.vcenter import Client
from proreus.providers.vsphere.volumes import VSphereVolumes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["VSphereCloud"]


class VSphereCloud(CloudProvider):
    """One or more vCenters as a cloud of Kubernetes."""

    name: ClassVar[str] = "vsphere"
    machine_of = staticmethod(parsed)
    config_type: ClassVar[type[msgspec.Struct] | None] = VSphereConfig
    needs: frozenset[str] = frozenset({"services"})
    config_environment: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "VSPHERE_VCENTER": "global.server",
            "VSPHERE_VCENTER_PORT": "global.port",
            "VSPHERE_USER": "global.user",
            "VSPHERE_PASSWORD": "global.password",
            "VSPHERE_DATACENTER": "global.datacenters",
            "VSPHERE_INSECURE": "global.insecure-flag",
            "VSPHERE_CAFILE": "global.ca-file",
            "VSPHERE_THUMBPRINT": "global.thumbprint",
            "VSPHERE_SECRET_NAME": "global.secret-name",
            "VSPHERE_SECRET_NAMESPACE": "global.secret-namespace",
            "VSPHERE_SECRETS_DIRECTORY": "global.secrets-directory",
            "VSPHERE_LABEL_ZONE": "labels.zone",
            "VSPHERE_LABEL_REGION": "labels.region",
            "VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR": "nodes.internal-network-subnet-cidr",
            "VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR": "nodes.external-network-subnet-cidr",
            "VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME": "nodes.internal-vm-network-name",
            "VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME": "nodes.external-vm-network-name",
            "NSXT_MANAGER_HOST": "nsxt.host",
            "NSXT_USERNAME": "nsxt.user",
            "NSXT_PASSWORD": "nsxt.password",
            "NSXT_ALLOW_UNVERIFIED_SSL": "nsxt.insecure-flag",
            "NSXT_CLIENT_AUTH_CERT_FILE": "nsxt.client-auth-cert-file",
            "NSXT_CLIENT_AUTH_KEY_FILE": "nsxt.client-auth-key-file",
            "NSXT_CA_FILE": "nsxt.ca-file",
            "NSXT_SECRET_NAME": "nsxt.secret-name",
            "NSXT_SECRET_NAMESPACE": "nsxt.secret-namespace",
        }
    )

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config, and name the files that it depends on.

        Raises:
            ConfigError: There is no such cloud-config.
        """
        super().__init__(config)
        self._config = self.config_as(VSphereConfig)
        self._directory = self._config.global_.secrets_directory or DIRECTORY
        known = vcenters(self._config, {})
        files = {one.ca_file for one in known} - {""}
        if _needs_secret(self._config):
            files |= set(secret_files(self._directory, (one.server for one in known)))
        if self._needs_nsxt:
            nsxt = self._config.nsxt
            files |= {nsxt.ca_file, nsxt.client_auth_cert_file, nsxt.client_auth_key_file}
            files |= set(nsxt_secret_files(nsxt))
        self.watched_files = tuple(sorted(files - {""}))

    @property
    def _needs_nsxt(self) -> bool:
        return self._config.balances or bool(self._config.route.router_path)

    async def start(self, context: "Context") -> None:
        """Log in to all vCenters, and set the capabilities.

        Raises:
            CloudError: No vCenter can be used now.
            ConfigError: A vCenter cannot be used as it is configured.
        """
        config = self._config
        credentials = mounted(self._directory) if _needs_secret(config) else {}
        known = vcenters(config, credentials)
        self._check_credentials(known)
        places = {one.name: self._place(one, context) for one in known}
        self.instances = VSphereInstances(places, selection(config.nodes), config.labels)
        if config.labels:
            tagged = {name: (at.inventory, at.tags) for name, at in places.items() if at.tags}
            self.volumes = per_volume(VSphereVolumes(tagged).labels)
        if self._needs_nsxt:
            network = self.closing(Network(config, context, confirm=self.confirm))
            self.load_balancers, self.routes = network.load_balancers, network.routes
        await self.instances.describe(())
        for name, at in places.items():
            news = News(at.inventory.client, context.hints)
            self.closing(Background(f"vsphere-news-{name}", news.follow))

    def _check_credentials(self, known: tuple[VCenter, ...]) -> None:
        """Refuse vCenters without a user; the error says where it was looked for."""
        of_all = self._config.global_
        problems = []
        for one in known:
            if not one.user:
                own = self._config.sections[one.name]
                secret = own.secret_name or of_all.secret_name or "with the credentials"
                problems.append(
                    f"vCenter {one.name}: has no user: mount the Secret {secret} at"
                    f" {self._directory}, with the keys {one.server}.username and"
                    f" {one.server}.password, or give user and password in the cloud-config"
                )
        if problems:
            raise ConfigError(tuple(problems))

    def _place(self, vcenter: VCenter, context: "Context") -> Place:
        deadline = self._config.client.timeout.total_seconds()
        trust = Trust(vcenter, context, deadline=deadline)
        client = self.closing(Client(vcenter, context, trust, deadline=deadline))
        labels, tags = self._config.labels, None
        if labels:
            tags = self.closing(Tags(vcenter, labels, context, trust, deadline=deadline))
        return Place(Inventory(client), tags, vcenter.families)


def _needs_secret(config: VSphereConfig) -> bool:
    """Tell whether credentials are looked for in a mounted Secret."""
    of_all = config.global_
    given = (of_all, *config.sections.values())
    is_named = bool(of_all.secrets_directory or any(one.secret_name for one in given))
    return is_named or not all(one.user or of_all.user for one in config.sections.values())
