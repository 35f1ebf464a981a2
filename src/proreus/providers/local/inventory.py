"""Read the inventory: a YAML file, or a directory of them, that lists the machines.

    defaults: {region: home, zone: rack-1, type: metal}     # of this file; may be left out
    machines:
      - name: node-1                        # the name of its Node
        id: SN-4711                         # never given to another machine; the name if left out
        systemUUID: 4c4c4544-0042-3510-8056-b4c04f4e5131
        addresses: [192.0.2.11, 2001:db8::11]
        externalAddresses: [198.51.100.11]
        labels: {rack: r1}
        state: running                      # or stopped, or gone
      - {name: node-2, id: SN-0815, state: gone}

It is read whenever machines are asked about, and before Services get addresses, and decoded when
its text has changed: once two readings in a row show the same, for a half of it may be valid. One
that is wrong is told in the log and in a metric, and the last good one stays in force. Then, what
it does not name is unknown rather than absent. One without any machine is wrong, too.
"""

import hashlib
import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final

import msgspec
from prometheus_client import Gauge

from proreus.cloudprovider import LABEL_VALUE, ConfigError, ConfigSection, read_config
from proreus.cloudprovider.metrics import REGISTRY

_log = logging.getLogger(__name__)

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_ID: Final = re.compile(r"[^\s/]{1,200}")
_LABEL_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESERVED_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_MOST_SHOWN: Final = 20
_MOST_READINGS: Final = 10

PROBLEMS: Final = Gauge(
    "proreus_local_inventory_problems",
    "Mistakes in the inventory; while there are any, the last good one is used.",
    registry=REGISTRY,
)
MACHINES: Final = Gauge(
    "proreus_local_inventory_machines",
    "Machines in the inventory that is used, by state.",
    ["state"],
    registry=REGISTRY,
)


class MachineState(StrEnum):
    """The state of a machine in the inventory. Only `GONE` lets its Node be deleted at once."""

    RUNNING = "running"
    STOPPED = "stopped"
    GONE = "gone"


def _label(name: str, value: str) -> list[str]:
    """Return the mistake in a label of a machine, if any."""
    domain, slash, rest = name.rpartition("/")
    is_name = rest and LABEL_VALUE.fits(rest) and (not slash or _LABEL_DOMAIN.fullmatch(domain))
    found = [] if is_name else [f"labels: {name!r} is not a name of a label"]
    if f".{domain}".endswith(tuple(f".{one}" for one in _RESERVED_DOMAINS)):
        found.append(
            f"labels: {name} has a domain that is reserved for Kubernetes: use one of your own"
        )
    return [*found, *(f"labels: {one}" for one in _label_values(**{name: value}))]


def _label_values(**values: str) -> list[str]:
    """Return a sentence for each field whose value cannot be a label's value."""
    return [
        f"{name}: {value!r} must be letters, digits, - _ and . (63 at most), a letter or digit at"
        " both ends"
        for name, value in values.items()
        if not LABEL_VALUE.fits(value)
    ]


class Machine(ConfigSection, frozen=True, kw_only=True):
    """A machine of the inventory.

    Attributes:
        name: The name of its Node.
        id: The part of the provider id that names the machine; by default its name.
        system_uuid: Its SMBIOS UUID: a Node with another one is another machine.
        addresses: Its internal addresses, the preferred one first; those of the Node if none.
        external_addresses: Its external addresses.
        hostname: Its host name; by default its name.
        type: Its instance type.
        zone: Its zone.
        region: The machine's region.
        labels: Labels for its Node.
        state: Its state: running, stopped or gone.
    """

    name: str
    id: str = ""
    system_uuid: str = ""
    addresses: tuple[str, ...] = ()
    external_addresses: tuple[str, ...] = ()
    hostname: str = ""
    type: str = ""
    zone: str = ""
    region: str = ""
    labels: Mapping[str, str] = {}
    state: MachineState = MachineState.RUNNING

    def problems(self) -> Iterable[str]:
        """Report values that the fields' types let through but that are wrong."""
        found = []
        if not self.name or not _ID.fullmatch(self.machine_id):
            found.append("name, id: give a name without white space and /")
        for text in (*self.addresses, *self.external_addresses):
            try:
                ipaddress.ip_address(text)
            except ValueError:
                found.append(f"addresses: {text!r} is not an IP address")
        found += [one for name, value in self.labels.items() for one in _label(name, value)]
        found += _label_values(region=self.region, zone=self.zone, type=self.type)
        return [f"machine {self.name}: {one}" for one in found]

    @property
    def machine_id(self) -> str:
        """The id that tells the machine from all others, of all times."""
        return self.id or self.name


class Defaults(ConfigSection, frozen=True, kw_only=True):
    """Section `defaults`: values for machines of the same file that leave them out."""

    region: str = ""
    zone: str = ""
    type: str = ""

    def problems(self) -> Iterable[str]:
        """Report values that the fields' types let through but that are wrong."""
        return _label_values(region=self.region, zone=self.zone, type=self.type)


class InventoryFile(ConfigSection, frozen=True, kw_only=True):
    """A file of the inventory."""

    machines: tuple[Machine, ...]
    defaults: Defaults = Defaults()


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The machines of the inventory, by what they are looked up by.

    Attributes:
        by_id: All machines, by `Machine.machine_id`.
        by_name: The machines that are not gone, by name.
        by_uuid: The machines that are not gone, by their system UUIDs in small letters.
        by_address: The machines that are not gone, by each of their addresses.
        stale: The reason why this is not the newest inventory, or "".
    """

    by_id: Mapping[str, Machine]
    by_name: Mapping[str, Machine]
    by_uuid: Mapping[str, Machine]
    by_address: Mapping[str, Machine] = MappingProxyType({})
    stale: str = ""


def decode(files: Mapping[str, str], defaults: Defaults) -> Inventory:
    """Make the inventory from the texts of its files. Pure.

    Args:
        files: The texts of the files, by path.
        defaults: The defaults for what neither a machine nor its file says.

    Raises:
        ConfigError: The inventory is wrong; names every problem.
    """
    problems: list[str] = []
    found: list[tuple[str, Machine]] = []
    for path, text in sorted(files.items()):
        try:
            content = read_config(text, InventoryFile, source=path, format_="yaml", environment={})
        except ConfigError as error:
            problems += error.problems
            continue
        if not content.machines:
            problems.append(f"{path}: machines: holds no machine; to empty it, delete the file")
        found += [
            (path, _filled(machine, content.defaults, defaults)) for machine in content.machines
        ]
    problems += _twice(found)
    if problems:
        raise ConfigError(tuple(problems))
    live = [one for _, one in found if one.state is not MachineState.GONE]
    return Inventory(
        by_id={one.machine_id: one for _, one in found},
        by_name={one.name: one for one in live},
        by_uuid={one.system_uuid.lower(): one for one in live if one.system_uuid},
        by_address={
            str(ipaddress.ip_address(text)): one
            for one in live
            for text in (*one.addresses, *one.external_addresses)
        },
    )


def _filled(machine: Machine, of_file: Defaults, of_all: Defaults) -> Machine:
    return msgspec.structs.replace(
        machine,
        region=machine.region or of_file.region or of_all.region,
        zone=machine.zone or of_file.zone or of_all.zone,
        type=machine.type or of_file.type or of_all.type,
    )


def _twice(found: Iterable[tuple[str, Machine]]) -> list[str]:
    """Return a sentence for each value that two machines may not both have."""
    problems: list[str] = []
    seen: dict[tuple[str, str], str] = {}
    for path, one in found:
        own = [("id", one.machine_id)]
        if one.state is not MachineState.GONE:
            own.append(("name", one.name))
            own += [("systemUUID", one.system_uuid.lower())] if one.system_uuid else []
            every = dict.fromkeys((*one.addresses, *one.external_addresses))
            own += [("address", str(ipaddress.ip_address(text))) for text in every]
        clashes = {what: seen[what] for what in own if what in seen}
        # Who has the same name has the same id: once is enough.
        if ("name", one.name) in clashes:
            clashes.pop(("id", one.machine_id), None)
        problems += [
            f"{path}: machine {one.name}: another one, in {other}, has the {what} {value}"
            for (what, value), other in clashes.items()
        ]
        seen.update(dict.fromkeys(own, path))
    return problems


class InventoryReader:
    """A reader of the inventory on disk; safe to use from several threads."""

    def __init__(
        self,
        path: str,
        defaults: Defaults,
        pause: Callable[[], None],
    ) -> None:
        """Keep the path; read nothing yet.

        Args:
            path: The path of the file, or of the directory.
            defaults: The defaults for what neither a machine nor its file says.
            pause: Waits between two readings of files that have changed.
        """
        self._path = Path(path)
        self._defaults = defaults
        self._pause = pause
        self._lock = Lock()
        self._digest = b""
        self._last: Inventory | None = None
        self._problems: tuple[str, ...] = ()

    def read(self) -> Inventory:
        """Read the inventory; if it is wrong, return the last good one with `stale` set. Blocks.

        Raises:
            ConfigError: The inventory is wrong and there has been no good one.
        """
        with self._lock:
            try:
                files = self._settled()
            except ConfigError as error:
                self._digest = b""
                return self._kept(error.problems)
            digest = _digest(files)
            if digest != self._digest:
                self._digest = digest
                try:
                    self._take(decode(files, self._defaults))
                except ConfigError as error:
                    return self._kept(error.problems)
            return self._kept(self._problems) if self._problems else self._known()

    def addresses(self) -> Mapping[str, str]:
        """Return the addresses of machines that are not gone, with the machines, as last read."""
        last = self._last
        found = last.by_address.items() if last is not None else ()
        return {address: f"the machine {one.name} of the inventory" for address, one in found}

    def _settled(self) -> Mapping[str, str]:
        """Return the texts of files that nobody writes now.

        Raises:
            ConfigError: Files cannot be read, or change all the time.
        """
        files = read_files(self._path)
        for _ in range(_MOST_READINGS):
            if _digest(files) == self._digest:
                return files
            self._pause()
            before, files = files, read_files(self._path)
            if files == before:
                return files
        raise ConfigError((f"instances.inventory: {self._path} changes all the time",))

    def _known(self) -> Inventory:
        if self._last is None:
            raise ConfigError(self._problems)
        return self._last

    def _take(self, new: Inventory) -> None:
        if self._problems or self._last is None:
            _log.info("The inventory was read: %d machines", len(new.by_id))
        self._last, self._problems = new, ()
        PROBLEMS.set(0)
        for state in MachineState:
            count = sum(one.state is state for one in new.by_id.values())
            MACHINES.labels(state.value).set(count)

    def _kept(self, problems: tuple[str, ...]) -> Inventory:
        """Return the last good inventory, and log once what is wrong with the new one."""
        if problems != self._problems:
            for problem in problems[:_MOST_SHOWN]:
                _log.error(
                    "The inventory has mistakes, the last good one stays in use: %s", problem
                )
            PROBLEMS.set(len(problems))
        self._problems = problems
        return msgspec.structs.replace(self._known(), stale=problems[0])


def read_files(path: Path) -> Mapping[str, str]:
    """Read the inventory's files; return their texts by path.

    Raises:
        ConfigError: Files cannot be read, or there is no inventory.
    """
    problems: list[str] = []
    found: dict[str, str] = {}
    try:
        paths = _files(path)
    except OSError as error:
        raise ConfigError(
            (f"instances.inventory: cannot read {path}: {error.strerror}",)
        ) from error
    for one in paths:
        try:
            found[str(one)] = one.read_text(encoding="utf-8")
        except OSError as error:
            problems.append(f"instances.inventory: cannot read {one}: {error.strerror}")
        except UnicodeDecodeError:
            problems.append(f"instances.inventory: {one} is not UTF-8")
    if not found and not problems:
        problems.append(f"instances.inventory: {path} holds no file {_names()}: there must be one")
    if problems:
        raise ConfigError(tuple(problems))
    return MappingProxyType(found)


def _files(path: Path) -> Sequence[Path]:
    """Return the paths to read: the file, or those of a directory but for hidden ones.

    A link that leads nowhere is read, too, and so a mistake: what it led to may be back.
    """
    if not path.is_dir():
        return [path]
    return sorted(
        one
        for one in path.iterdir()
        if one.suffix in _SUFFIXES
        and not one.name.startswith(".")
        and (one.is_file() or not one.exists())
    )


def _names() -> str:
    return " or ".join(f"*{suffix}" for suffix in sorted(_SUFFIXES))


def _digest(files: Mapping[str, str]) -> bytes:
    digest = hashlib.sha256()
    for path, text in files.items():
        for part in (path, text):
            raw = part.encode()
            digest.update(len(raw).to_bytes(8) + raw)
    return digest.digest()
