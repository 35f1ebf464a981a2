"""The provider `ovirt` (oVirt, Red Hat Virtualization, Oracle Linux Virtualization Manager).

A drop-in for the provider inside old Kubernetes and for `ovirt-cloud-provider`: instances with
zones, regions and instance types. Every call goes through `engine.Engine`; what an answer means is
decided in pure functions (`plan`, `machines`, `addresses`). Load balancers are another provider's,
such as `local`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.ovirt.addresses import selection
from proreus.providers.ovirt.config import OVirtConfig
from proreus.providers.ovirt.engine import Engine
from proreus.providers.ovirt.instances import OVirtInstances
from proreus.providers.ovirt.names import EXTERNAL, IN_TREE, parsed
from proreus.providers.ovirt.places import Places

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["OVirtCloud"]

OLDEST: Final = (4, 2)
"""The first version of the engine that describes machines together with their network cards."""


class OVirtCloud(CloudProvider):
    """An engine of oVirt as a cloud of Kubernetes."""

    name: ClassVar[str] = "ovirt"
    names: ClassVar[tuple[str, ...]] = ("ovirt-cloud-provider",)
    machine_of = staticmethod(parsed)
    config_type: ClassVar[type[msgspec.Struct] | None] = OVirtConfig
    config_environment: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "OVIRT_USERNAME": "connection.username",
            "OVIRT_PASSWORD": "connection.password",
            "OVIRT_CAFILE": "connection.cafile",
            "OVIRT_INSECURE": "connection.insecure",
        }
    )

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config.

        Raises:
            ConfigError: There is no such cloud-config.
        """
        super().__init__(config)
        self._config = self.config_as(OVirtConfig)
        self.watched_files = tuple(filter(None, (self._config.connection.cafile,)))

    async def start(self, context: "Context") -> None:
        """Log in, ask for the engine's version, and set the capabilities.

        Raises:
            ConfigError: The engine is too old.
            CloudError: The engine does not answer, or refuses the user.
        """
        engine = self.closing(Engine(self._config, context))
        version = await engine.version()
        if version < OLDEST:
            shown = ".".join(map(str, version))
            raise ConfigError((f"[connection]: this engine is oVirt {shown}; 4.2 is needed",))
        places = Places(engine)
        await places.known((), ())
        scheme = EXTERNAL if self._config.connection.is_external else IN_TREE
        rules = selection(self._config.addresses)
        self.instances = OVirtInstances(engine, places, rules, scheme)
