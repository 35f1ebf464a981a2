"""Read the address of the leading master: from the cloud-config, ZooKeeper, or a redirect. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError, ConfigError

FILE: Final = "file://"
ZOOKEEPER: Final = "zk://"
ZOOKEEPER_PORT: Final = 2181

_PREFIX: Final = "json.info_"
_OLD_PREFIX: Final = "info_"
_MARKING: Final = (1, 1)
"""The first version of Mesos whose registry has unreachable agents."""
_VERSION = re.compile(r"(\d+)\.(\d+)")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_MOST_PORT: Final = 65535


class Direct(msgspec.Struct, frozen=True):
    """The addresses of masters, `host:port` each; one that does not lead tells who does."""

    addresses: tuple[str, ...]


class Quorum(msgspec.Struct, frozen=True):
    """The servers of ZooKeeper that know the leading master. Its `repr` shows no credentials.

    Attributes:
        hosts: The servers, `host:port` each.
        path: The znode below which masters register.
        credentials: The credentials for ZooKeeper's scheme `digest`, `user:password`, or "".
    """

    hosts: tuple[str, ...]
    path: str
    credentials: str = ""

    def __repr__(self) -> str:
        """Show servers and path."""
        return f"Quorum(hosts={self.hosts!r}, path={self.path!r})"


Place = Direct | Quorum
"""Where the leading master is found."""


def parsed(text: str) -> Place:
    """Read the value of `mesos-master`, or the content of the file that it names.

    One or more masters, `host:port` separated by commas, also as libprocess writes them
    (`master@10.0.0.1:5050`); or `zk://user:password@host1:2181,host2:2181/mesos`.

    Raises:
        ConfigError: The text has none of these forms.
    """
    text = text.strip()
    if text.startswith(ZOOKEEPER):
        return _quorum(text)
    if "://" in text:
        raise ConfigError(
            ("must be host:port, zk://host:port/path or file:///path; HTTPS is tls in [Client]",)
        )
    addresses = tuple(part.strip().rpartition("@")[2] for part in text.split(","))
    problems = tuple(_wrong(addresses))
    if problems and "@" in text:  # a part may be of a password, with a comma in it
        problems = ("must be host:port, or zk://user:password@host:port/path",)
    if problems:
        raise ConfigError(problems)
    return Direct(tuple(dict.fromkeys(addresses)))


def _quorum(text: str) -> Quorum:
    """Parse a ZooKeeper URL; the problems that it reports never quote the password."""
    authority, slash, path = text.removeprefix(ZOOKEEPER).partition("/")
    if "@" in path:  # what stands before is a part of user and password, then
        problem = "user and password in the URL of ZooKeeper must not contain /: change them"
        raise ConfigError((problem,))
    credentials, _, hosts = authority.rpartition("@")
    problems = []
    if not slash or not path.strip("/"):
        problems.append("the URL of ZooKeeper has no path: give zk://host:2181/mesos")
    if credentials and not all(credentials.partition(":")):
        problems.append("what stands before @ in the URL of ZooKeeper must be user:password")
    named = tuple(_with_port(part.strip()) for part in hosts.split(","))
    problems += _wrong(named)
    if problems:
        raise ConfigError(tuple(problems))
    return Quorum(named, f"/{path.strip('/')}", credentials)


def _with_port(host: str) -> str:
    has_port = re.search(r":\d+$", host) is not None and not host.endswith("]")
    return host if has_port else f"{host}:{ZOOKEEPER_PORT}"


def _wrong(addresses: Iterable[str]) -> Iterator[str]:
    for address in addresses:
        if not _is_address(address):
            yield f"{address!r} is not a host:port, such as leader.mesos:5050"


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) <= _MOST_PORT:
        return False
    if host.startswith("[") and host.endswith("]"):
        return is_address(host[1:-1])
    return _HOST.fullmatch(host) is not None


def joined(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def leading(children: Iterable[str]) -> str | None:
    """Return the znode of the leading master, the one with the lowest sequence number, or None.

    Raises:
        CloudError: All masters are too old to write JSON there.
    """
    names = list(children)
    sequences = {
        int(number): name
        for name in names
        if (number := name.removeprefix(_PREFIX)) != name and number.isdecimal()
    }
    if sequences:
        return sequences[min(sequences)]
    if any(name.startswith(_OLD_PREFIX) for name in names):
        raise CloudError("the masters in ZooKeeper are of Mesos before 0.24: 1.0 is needed")
    return None


def address_in(znode: bytes) -> str:
    """Return the address of the master that a znode describes: `MasterInfo` in JSON.

    As officially, its host name goes before its IP address.

    Raises:
        CloudError: The znode cannot be read.
    """
    try:
        info = msgspec.json.decode(znode, type=MasterInfo)
    except msgspec.MsgspecError as error:
        raise CloudError(
            f"what ZooKeeper knows of the leading master cannot be read: {error}"
        ) from error
    address = joined(info.host, info.address.port or info.port)
    if not _is_address(address):
        raise CloudError(f"ZooKeeper names no usable address of the leading master: {address!r}")
    return address


class MasterAddress(msgspec.Struct, frozen=True):
    """`Address` of Mesos."""

    hostname: str = ""
    ip: str = ""
    port: int = 0


class MasterInfo(msgspec.Struct, frozen=True):
    """`MasterInfo` of Mesos, of which `ip` is a number that is not read."""

    id: str
    hostname: str = ""
    port: int = 0
    address: MasterAddress = MasterAddress()
    version: str = ""

    @property
    def marks_unreachable(self) -> bool:
        """Whether its registry marks an agent that it does not reach, and does not lose it.

        Masters before Mesos 1.1 remove it, as if it had been shut down orderly.
        """
        found = _VERSION.match(self.version)
        return found is not None and (int(found[1]), int(found[2])) >= _MARKING

    @property
    def host(self) -> str:
        """The host name, or else the IP address."""
        return self.address.hostname or self.address.ip or self.hostname


def redirected(location: str, *, scheme: str, path: str) -> str:
    """Return the address to which a master that does not lead redirects.

    Args:
        location: The header Location of its answer, such as `//10.0.0.2:5050/api/v1`.
        scheme: The scheme that we use, http or https.
        path: The path that was asked for, which must be the path at the leader, too.

    Raises:
        CloudError: The redirect leads anywhere but to the same path of another master by the same
            scheme: our credentials are not sent there.
    """
    url = urlsplit(location)
    if url.scheme in {"", scheme} and unquote(url.path).rstrip("/") == path and not url.query:
        address = url.netloc.rpartition("@")[2]
        if address == url.netloc and _is_address(address):
            return address
    raise CloudError(
        f"a master redirects to {url.netloc!r}{url.path!r}, which is not followed, since it"
        " is not the same path of another master: correct mesos-master"
    )
