"""The cloud-config of the provider `mesos`: the official provider's file, read unmodified.

It has the one section [mesos-cloud], may be left out altogether, and names that the official
provider does not know it refuses; so they are refused here. [Client] and [Nodes] are ours.
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from typing import Final

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.providers.mesos.masters import FILE, parsed

DEFAULT_MASTER: Final = "localhost:5050"


class AddressSource(Enum):
    """The source of a Node's address."""

    AGENT = "agent"
    DNS = "dns"


class MesosCloudSection(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [mesos-cloud]: which cluster of Mesos, and how patient to be with it.

    Attributes:
        mesos_master: The address of the leading master, or where it is found (`masters.parsed`).
        http_client_timeout: How long to wait for an answer of a master or of ZooKeeper.
        state_cache_ttl: How long agents that were listed need not be listed again, as long as no
            machine is missing among them.
    """

    mesos_master: str = DEFAULT_MASTER
    http_client_timeout: timedelta = timedelta(seconds=10)
    state_cache_ttl: timedelta = timedelta(seconds=5)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not self.mesos_master.startswith(FILE):
            try:
                parsed(self.mesos_master)
            except ConfigError as error:
                yield from (f"mesos-master: {problem}" for problem in error.problems)
        elif not self.mesos_master.removeprefix(FILE).startswith("/"):
            yield "mesos-master: give the whole path of the file, such as file:///etc/mesos/zk"
        if self.http_client_timeout <= timedelta():
            yield "http-client-timeout: must be more than 0, such as 10s"
        if self.state_cache_ttl < timedelta():
            yield "state-cache-ttl: must not be less than 0, such as 5s"

    def __repr__(self) -> str:
        """Show where the master is found without the password that it may hold."""
        place = self.mesos_master
        if "@" in place and "://" in place:
            place = f"{place.partition('://')[0]}://<hidden>@{place.rpartition('@')[2]}"
        return (
            f"MesosCloudSection(mesos_master={place!r},"
            f" http_client_timeout={self.http_client_timeout!r},"
            f" state_cache_ttl={self.state_cache_ttl!r})"
        )


class Client(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Client], of ours: TLS and the credentials of masters that demand them.

    Attributes:
        tls: Whether masters speak HTTPS.
        ca_file: A file of CA certificates, in the place of the system's.
        cert_file: Our own certificate, PEM.
        key_file: The file with its key, where it is in another file.
        principal: The principal that authenticates to masters; without one there are no
            credentials.
        secret_file: The file with the principal's secret.
    """

    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    principal: str = ""
    secret_file: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not self.tls:
            for key in ("ca_file", "cert_file", "key_file"):
                if getattr(self, key):
                    yield f"{key.replace('_', '-')}: needs tls = true"
        if self.key_file and not self.cert_file:
            yield "key-file: needs cert-file"
        if bool(self.principal) != bool(self.secret_file):
            missing = "secret-file" if self.principal else "principal"
            yield f"{missing}: is required: principal and secret-file go together"
        if ":" in self.principal:
            yield "principal: must not contain a colon, which basic authentication cannot send"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        named = (self.ca_file, self.cert_file, self.key_file, self.secret_file)
        return tuple(file for file in named if file)


class Nodes(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Nodes], of ours: what Nodes get of their agents.

    Attributes:
        type_attribute: The attribute of agents that holds the instance type; none without a name.
        label_attribute: The attributes that become labels.
        addresses: The source of Nodes' addresses: what the agent says itself, or, as officially,
            what DNS says of the Node's name.
        registry_max_agent_age: The setting `--registry_max_agent_age` of masters: how long they
            remember an unreachable agent.
    """

    type_attribute: str = ""
    label_attribute: tuple[str, ...] = ()
    addresses: AddressSource = AddressSource.AGENT
    registry_max_agent_age: timedelta = timedelta(weeks=2)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for name in self.label_attribute:
            if not name or not LABEL_VALUE.fits(name):
                yield (
                    f"label-attribute: {name!r} can be no label: only letters, digits, '-', '_'"
                    " and '.' are allowed, at most 63"
                )
        if self.registry_max_agent_age <= timedelta():
            yield "registry-max-agent-age: must be more than 0, such as 336h"


class MesosConfig(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """The whole file."""

    mesos_cloud: MesosCloudSection = msgspec.field(default_factory=MesosCloudSection)
    client: Client = msgspec.field(default_factory=Client)
    nodes: Nodes = msgspec.field(default_factory=Nodes)
