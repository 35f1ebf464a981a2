"""The provider `mesos` (Apache Mesos): a drop-in for the provider inside Kubernetes up to 1.5.

Instances with zones and regions, and clusters. Every call goes through `api.Api` or
`zookeeper.ZooKeeper`; what an answer means is decided in pure functions (`masters`, `agents`,
`plan`). Load balancers are another provider's, such as `local`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.mesos.addresses import Addresses
from proreus.providers.mesos.api import Api, Oracle
from proreus.providers.mesos.clusters import MesosClusters
from proreus.providers.mesos.config import MesosConfig
from proreus.providers.mesos.instances import MesosInstances
from proreus.providers.mesos.masters import FILE, ZOOKEEPER, Place, Quorum, parsed

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

__all__ = ["MesosCloud"]


class MesosCloud(CloudProvider):
    """A cluster of Mesos as a cloud of Kubernetes: its agents are the machines."""

    name: ClassVar[str] = "mesos"
    config_type: ClassVar[type[msgspec.Struct] | None] = MesosConfig

    def __init__(self, config: msgspec.Struct | None) -> None:
        """Keep the cloud-config, which may be left out, and name the files that it depends on.

        Raises:
            ImportError: ZooKeeper is to be asked, and the extra `mesos` is not installed.
        """
        super().__init__(config)
        self._config = config if isinstance(config, MesosConfig) else MesosConfig()
        master = self._config.mesos_cloud.mesos_master
        if master.startswith(ZOOKEEPER):
            import proreus.providers.mesos.zookeeper  # noqa: F401, PLC0415 - kazoo, for these only
        files = (master.removeprefix(FILE),) if master.startswith(FILE) else ()
        self.watched_files = (*files, *self._config.client.files)

    async def start(self, context: "Context") -> None:
        """Find the leading master, ask it for its agents, and set the capabilities.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
            CloudError: No master leads, or it does not answer.
        """
        config = self._config
        timeout = config.mesos_cloud.http_client_timeout.total_seconds()
        place = _place(config)
        oracle: Oracle | None = None
        if isinstance(place, Quorum):
            oracle = _zookeeper(place, context, timeout)
        api = self.closing(Api(config, place, oracle, context))
        addresses = Addresses(config.nodes.addresses, context, timeout=timeout)
        self.instances = MesosInstances(api, config, addresses, clock=context.uptime)
        self.clusters = MesosClusters(api)
        await self.instances.describe(())


def _zookeeper(quorum: Quorum, context: "Context", timeout: float) -> Oracle:
    """Return how to ask ZooKeeper.

    Raises:
        ConfigError: The mesos-master setting names ZooKeeper, and the extra `mesos` is not
            installed.
    """
    try:
        from proreus.providers.mesos.zookeeper import ZooKeeper  # noqa: PLC0415 - imports kazoo
    except ImportError as error:
        raise ConfigError(
            ('[mesos-cloud] mesos-master: ZooKeeper needs kazoo: pip install "proreus[mesos]"',)
        ) from error
    return ZooKeeper(quorum, context, timeout=timeout)


def _place(config: MesosConfig) -> Place:
    """Return where masters are, of the cloud-config or of the file that it names.

    Raises:
        ConfigError: The file cannot be read, or holds something else.
    """
    master = config.mesos_cloud.mesos_master
    if not master.startswith(FILE):
        return parsed(master)
    file = master.removeprefix(FILE)
    try:
        return parsed(Path(file).read_text(encoding="utf-8"))
    except ConfigError as error:
        raise ConfigError(tuple(f"{file}: {problem}" for problem in error.problems)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError((f"[mesos-cloud] mesos-master: {file}: {reason}",)) from error
