"""The provider `photon` (VMware Photon Controller): nodes as from the provider in old Kubernetes.

Photon Controller is no longer developed. Every call goes through `api.Api`; what an answer means is
decided in pure functions (`plan`, `machines`, `names`). Load balancers are another provider's, such
as `local`.
"""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.photon.api import Api
from proreus.providers.photon.config import PhotonConfig
from proreus.providers.photon.instances import PhotonInstances
from proreus.providers.photon.lightwave import read_login
from proreus.providers.photon.networks import AddressBook

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["PhotonCloud"]


class PhotonCloud(CloudProvider):
    """A project of Photon Controller as a cloud of Kubernetes."""

    name: ClassVar[str] = "photon"
    config_type: ClassVar[type[msgspec.Struct] | None] = PhotonConfig

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config, and name the files that it depends on.

        Raises:
            ConfigError: There is no such cloud-config.
        """
        super().__init__(config)
        self._config = self.config_as(PhotonConfig)
        files = {self._config.client.ca_file} - {""}
        if self._config.global_.authentication:
            files.add(self._config.client.login_file)
        self.watched_files = tuple(sorted(files))

    async def start(self, context: "Context") -> None:
        """Find the project, and set the capabilities.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
            CloudError: Photon Controller does not answer, or has no such project.
        """
        settings = self._config.global_
        login = read_login(self._config.client.login_file) if settings.authentication else None
        api = self.closing(Api(self._config, login, context))
        await api.place()
        book = self.closing(AddressBook(api.addresses, context.uptime))
        self.instances = PhotonInstances(api, book, override_ip=settings.override_ip)
