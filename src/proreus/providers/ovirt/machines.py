"""Read an engine's descriptions of machines, and convert them to Kubernetes' terms. Pure.

Network cards and what guests report are apart: the engine tells which devices a guest has, and
only the MAC address says which of them is a network card and which a bridge of containers.
"""

from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import InstanceState

UP: Final = "up"

_STATES: Final[Mapping[str, InstanceState]] = {
    "down": InstanceState.STOPPED,
    **dict.fromkeys(
        (UP, "powering_up", "powering_down", "reboot_in_progress", "wait_for_launch", "migrating"),
        InstanceState.RUNNING,
    ),
}
"""All others are neither.

A suspended or paused machine may go on as if nothing had been, and write to its volumes; so it is
not shut down. One whose host does not answer is `unknown` or `not_responding`.

That a machine is `down` does not prove that it has no power. Engines say so of one that boots,
where they lost the host while they started it (oVirt/ovirt-engine, pull request 1100), and for a
moment of one that has just migrated (1162).
"""


class Nic(msgspec.Struct, frozen=True):
    """A network card of a machine: its name, such as nic1, and its MAC address."""

    name: str
    mac: str


class Device(msgspec.Struct, frozen=True):
    """A network device as the guest reports it, with its addresses in the guest's order."""

    name: str
    mac: str
    addresses: tuple[str, ...]


class Machine(msgspec.Struct, frozen=True):
    """A virtual machine. An empty text: the engine does not tell.

    Attributes:
        id: Its id, which is its system UUID, too.
        name: Its name in the engine.
        fqdn: The domain name that the guest reports, while it runs.
        status: Its status, such as up.
        cluster: The id of its cluster.
        instance_type: The id of its instance type; "" if its size was chosen freely.
        nics: Its network cards.
        devices: The network devices that the guest reports.
    """

    id: str
    name: str = ""
    fqdn: str = ""
    status: str = ""
    cluster: str = ""
    instance_type: str = ""
    nics: tuple[Nic, ...] = ()
    devices: tuple[Device, ...] = ()


def machines(root: ET.Element) -> list[Machine]:
    """Read a list of virtual machines.

    Raises:
        CloudError: The answer is no such list: then it says nothing about any machine.
    """
    return [machine(one) for one in members(root, "vms", "vm")]


def members(root: ET.Element, plural: str, singular: str) -> list[ET.Element]:
    """Return the objects in a list; all have ids.

    Raises:
        CloudError: The document has another form.
    """
    found = root.findall(singular)
    if root.tag != plural or not all(one.get("id") for one in found):
        raise CloudError(
            f"the answer is not the engine's list of {plural}: is uri in the cloud-config right?"
        )
    return found


def machine(element: ET.Element) -> Machine:
    """Read a virtual machine."""
    return Machine(
        id=_id(element),
        name=_text(element, "name"),
        fqdn=_text(element, "fqdn"),
        status=_text(element, "status"),
        cluster=_id(element.find("cluster")),
        instance_type=_id(element.find("instance_type")),
        nics=tuple(
            Nic(_text(one, "name"), _mac(one)) for one in element.iterfind("nics/nic") if _mac(one)
        ),
        devices=tuple(
            Device(_text(one, "name"), _mac(one), _addresses(one))
            for one in element.iterfind("reported_devices/reported_device")
        ),
    )


def names(root: ET.Element, plural: str, singular: str) -> dict[str, str]:
    """Read the names of objects by their ids, of a list of clusters for instance.

    Raises:
        CloudError: The document has another form.
    """
    return {_id(one): _text(one, "name") for one in members(root, plural, singular)}


def parents(root: ET.Element) -> dict[str, str]:
    """Read the ids of data centers by those of their clusters, of a list of clusters."""
    return {_id(one): _id(one.find("data_center")) for one in members(root, "clusters", "cluster")}


def state_of(found: Machine) -> InstanceState:
    """Return a machine's state."""
    return _STATES.get(found.status, InstanceState.UNKNOWN)


def described(found: Machine) -> str:
    """Return a machine in words, for errors."""
    return f"{found.name or 'a virtual machine'} ({found.id})"


def _id(element: ET.Element | None) -> str:
    return "" if element is None else element.get("id", "").lower()


def _text(element: ET.Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _mac(element: ET.Element) -> str:
    return (element.findtext("mac/address") or "").strip().lower()


def _addresses(element: ET.Element) -> tuple[str, ...]:
    found = (one.findtext("address") or "" for one in element.iterfind("ips/ip"))
    return tuple(address.strip() for address in found if address.strip())
