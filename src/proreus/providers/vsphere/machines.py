"""Convert a vCenter's view of virtual machines to Kubernetes' terms. Pure."""

import base64
import binascii
import gzip
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from proreus.cloudprovider.addresses import parsed_address
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.instances import InstanceState
from proreus.providers.vsphere.guests import SHORT_NAMES
from proreus.providers.vsphere.soap import Ref

METADATA: Final = 'config.extraConfig["guestinfo.metadata"]'
ENCODING: Final = 'config.extraConfig["guestinfo.metadata.encoding"]'
PATHS: Final = (
    "name", "config.uuid", "guest.hostName", "guest.ipAddress", "guest.net",
    "runtime.powerState", "runtime.connectionState", "runtime.host", "resourcePool", "parent",
    "parentVApp", "summary.config.numCpu", "summary.config.memorySizeMB", "summary.config.guestId",
    METADATA, ENCODING,
)  # fmt: skip
"""The properties to read. Only leaves: a whole `config` or `guest` is ten times as much."""

CONNECTED: Final = "connected"

_BASE64: Final = frozenset(("base64", "b64"))
_GZIP: Final = frozenset(("gzip+base64", "gz+b64"))
_NO_NIC: Final = -1
_LARGEST: Final = 1 << 20
"""Bytes of a guest's metadata that are unpacked."""


class Nic(msgspec.Struct, frozen=True):
    """A network card as the guest reports it: the name of its network, and its addresses."""

    network: str
    addresses: tuple[str, ...]


class Machine(msgspec.Struct, frozen=True):
    """A virtual machine. An empty text: the vCenter does not tell.

    Attributes:
        ref: Its reference.
        name: Its name in the inventory.
        uuid: Its BIOS UUID in small letters.
        host_name: The guest's host name.
        address: The guest's first address.
        nics: Its network cards, without those that only the guest has.
        power: Its power state.
        connection: The state of the connection to its host.
        places: The host, resource pool and folder, where the search for tags begins.
        cpus: The number of its CPUs; 0 if the vCenter does not say.
        memory: Its memory in MB.
        guest: The id of its operating system.
        metadata: Its cloud-init metadata, in base64.
    """

    ref: Ref
    name: str = ""
    uuid: str = ""
    host_name: str = ""
    address: str = ""
    nics: tuple[Nic, ...] = ()
    power: str = ""
    connection: str = ""
    places: tuple[Ref, ...] = ()
    cpus: int = 0
    memory: int = 0
    guest: str = ""
    metadata: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """The machines and places that a vCenter shows.

    Attributes:
        machines: The virtual machines of the datacenters.
        parents: The parent of each object, for all objects between machines and the root.
    """

    machines: Mapping[Ref, Machine]
    parents: Mapping[Ref, Ref]


class Proof(msgspec.Struct, frozen=True):
    """The answers of a vCenter about BIOS UUIDs that its inventory lacks, each by itself.

    Attributes:
        listed: The UUIDs that a new listing of all machines shows after all.
        found: The UUIDs that the index of the whole vCenter has, with their machines.
        failed: The UUIDs about which the index did not answer.
        unreadable: The machines whose configuration the vCenter cannot read, such as while their
            datastore is away: each may have any UUID, and may run.
    """

    listed: frozenset[str]
    found: Mapping[str, tuple[Ref, ...]]
    failed: Mapping[str, CloudError]
    unreadable: tuple[Machine, ...] = ()


def machine(ref: Ref, properties: Mapping[str, Any]) -> Machine:
    """Make a machine from its properties by path."""

    def text(path: str) -> str:
        found = properties.get(path)
        return found if isinstance(found, str) else ""

    def number(path: str) -> int:
        found = properties.get(path)
        return found if isinstance(found, int) else 0

    places = (properties.get(path) for path in ("runtime.host", "resourcePool"))
    return Machine(
        ref=ref,
        name=text("name"),
        uuid=text("config.uuid").strip().lower(),
        host_name=text("guest.hostName"),
        address=text("guest.ipAddress"),
        nics=tuple(_nics(properties.get("guest.net"))),
        power=text("runtime.powerState"),
        connection=text("runtime.connectionState"),
        places=(*(place for place in places if isinstance(place, Ref)), ref),
        cpus=number("summary.config.numCpu"),
        memory=number("summary.config.memorySizeMB"),
        guest=text("summary.config.guestId"),
        metadata=_option(properties, METADATA) if _option(properties, ENCODING) == "base64" else "",
    )


def _option(properties: Mapping[str, Any], path: str) -> str:
    """Return the value of an entry of `config.extraConfig`, which is a data object."""
    found = properties.get(path)
    values = found.get("value", ()) if isinstance(found, Mapping) else ()
    return next((value for value in values if isinstance(value, str)), "")


def _nics(value: Any) -> list[Nic]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    found = []
    for item in value:
        if not isinstance(item, Mapping):
            continue
        device = next(iter(item.get("deviceConfigId", ())), "")
        if str(device) != str(_NO_NIC):
            networks = [one for one in item.get("network", ()) if isinstance(one, str)]
            addresses = [one for one in item.get("ipAddress", ()) if isinstance(one, str)]
            found.append(Nic("".join(networks[:1]), tuple(addresses)))
    return found


def is_unreadable(found: Machine) -> bool:
    """Tell whether a machine has a UUID that its vCenter cannot read now.

    A machine that is being made shows no UUID either, but its host answers.
    """
    return not found.uuid and found.connection != CONNECTED


def state_of(found: Machine) -> InstanceState:
    """Return a machine's state.

    A suspended machine counts as shut down, as officially. While its host does not answer, the
    vCenter only knows an earlier state.
    """
    if found.connection and found.connection != CONNECTED:
        return InstanceState.UNKNOWN
    states = {
        "poweredOn": InstanceState.RUNNING,
        "poweredOff": InstanceState.STOPPED,
        "suspended": InstanceState.STOPPED,
    }
    return states.get(found.power, InstanceState.UNKNOWN)


def is_powered_off(found: Machine) -> bool:
    """Tell whether a host that the vCenter reaches gives a machine no power."""
    return (found.connection, found.power) == (CONNECTED, "poweredOff")


def type_of(found: Machine) -> str:
    """Return the instance type, as officially; "" as long as the vCenter does not tell the size."""
    if not found.cpus:
        return ""
    system = SHORT_NAMES.get(found.guest, "unknown")
    return f"vsphere-vm.cpu-{found.cpus}.mem-{found.memory // 1024}gb.os-{system}"


def static_addresses(metadata: str) -> tuple[str, ...]:
    """Return the addresses that cloud-init was told to set, in their order.

    Args:
        metadata: `guestinfo.metadata`, in base64; "" for none.

    Raises:
        InvalidRequest: The metadata cannot be read.
    """
    if not metadata:
        return ()
    try:
        content = _mapping(yaml.safe_load(_unpacked(metadata)))
        encoding = content.get("network.encoding")
        network = content.get("network")
        if encoding in _BASE64:
            network = yaml.safe_load(_unpacked(str(network)))
        elif encoding in _GZIP:
            network = yaml.safe_load(_unpacked(str(network), zipped=True))
    except (ValueError, yaml.YAMLError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise InvalidRequest(
            f"guestinfo.metadata of the virtual machine cannot be read ({type(error).__name__}):"
            " correct it, or remove it"
        ) from None
    found = []
    for card in _mapping(_mapping(network).get("ethernets")).values():
        addresses = _mapping(card).get("addresses")
        for address in addresses if isinstance(addresses, list) else ():
            ip = parsed_address(str(address).partition("/")[0])
            if ip is not None:
                found.append(str(ip))
    return tuple(found)


def _unpacked(text: str, *, zipped: bool = False) -> bytes:
    """Decode base64, and decompress it if it is compressed, up to a limit."""
    try:
        data = base64.b64decode(text, validate=False)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    if not zipped:
        return data
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    unpacked = unpacker.decompress(data, _LARGEST)
    if not unpacker.eof:
        raise gzip.BadGzipFile("too large, or cut off")
    return unpacked


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def described(found: Machine) -> str:
    """Return a machine in words, for errors."""
    return f"{found.name or 'a virtual machine'} ({found.ref})"
