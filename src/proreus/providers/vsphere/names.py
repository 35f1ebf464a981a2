"""Read which virtual machine a Node is: by provider id, BIOS UUID, DNS name or address. Pure."""

import re
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import parsed_address
from proreus.cloudprovider.lookups import foreign_id, system_uuids
from proreus.kube.objects import Node

SCHEME: Final = "vsphere://"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Target(msgspec.Struct, frozen=True):
    """The keys by which a Node's virtual machine is looked up, in this order.

    Attributes:
        uuid: The BIOS UUID that the provider id names; if it is given, the other keys find nothing.
        system_uuids: The UUID that the kubelet reports, in both byte orders: the swapped one first,
            as officially. Beside `uuid` those that differ from it.
        dns_name: The Node's name in small letters, which may be the guest's host name.
        address: The Node's name, if it is an IP address.
        problem: Why there is nothing to look it up by.
    """

    uuid: str = ""
    system_uuids: tuple[str, ...] = ()
    dns_name: str = ""
    address: str = ""
    problem: str = ""


def provider_id(uuid: str) -> str:
    """Return the provider id of the machine with this BIOS UUID."""
    return f"{SCHEME}{uuid}"


def parsed(text: str) -> str | None:
    """Return the BIOS UUID in a provider id, in small letters; None if it is not of vSphere."""
    if not text.startswith(SCHEME):
        return None
    uuid = text.removeprefix(SCHEME).strip().lower()
    return uuid if _UUID.fullmatch(uuid) else None


def target(node: Node) -> Target:
    """Return the keys by which a Node's machine is looked up: its provider id, or all others."""
    known = system_uuids(node)
    if node.spec.provider_id:
        uuid = parsed(node.spec.provider_id)
        if uuid is not None:
            others = tuple(one for one in known if one != uuid)
            return Target(uuid=uuid, system_uuids=others)
        example = "vsphere://422e4956-ad22-1139-6d72-59cc8f26bc90"
        return Target(problem=foreign_id(node.spec.provider_id, "vSphere", example))
    name = node.metadata.name
    address = str(ip) if (ip := parsed_address(name)) else ""
    return Target(system_uuids=known, dns_name=name.lower(), address=address)
