"""Match Nodes with hosts of Rancher, by their provider ids and names. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import ownership_by_id
from proreus.kube.objects import Node

Host = Mapping[str, Any]
"""A host as Rancher describes it."""
SCHEME: Final = "rancher://"
"""The prefix of provider ids; behind it is the host's uuid."""
_PROVIDER_ID: Final = re.compile(rf"{SCHEME}/?(?P<uuid>[0-9A-Za-z][0-9A-Za-z_.-]{{0,127}})")
_HOST_ID: Final = re.compile(r"\d+h\d+")
LB_NAME: Final = "lb-"
"""The prefix of names of load balancers; behind it is the Go framework's name."""
_LONGEST: Final = 63


def provider_id(uuid: str) -> str:
    """Return the provider id of a host."""
    return f"{SCHEME}{uuid}"


def parsed(text: str) -> str | None:
    """Return the host's uuid in a provider id; None if it is not of Rancher.

    The id of a host, such as 1h5, is no uuid: no list by uuids shows that host.
    """
    found = _PROVIDER_ID.fullmatch(text)
    uuid = found["uuid"].lower() if found else ""
    return None if not uuid or _HOST_ID.fullmatch(uuid) else uuid


def ownership(node: Node) -> Ownership:
    """Tell whether a Node's machine is a host of Rancher, by its provider id."""
    return ownership_by_id(node, parsed)


def uuid_of(host: Host) -> str:
    """Return the uuid of a host, in small letters."""
    return str(host.get("uuid") or "").lower()


class Index(msgspec.Struct, frozen=True):
    """Hosts by what Nodes are matched with.

    Attributes:
        by_uuid: Hosts by uuid, in small letters.
        by_name: Hosts by host name, in small letters.
        by_label: Hosts by the part of the host name before its first dot.
    """

    by_uuid: Mapping[str, Host]
    by_name: Mapping[str, Sequence[Host]]
    by_label: Mapping[str, Sequence[Host]]


def index(hosts: Iterable[Host]) -> Index:
    """Sort hosts by their uuids and names."""
    by_uuid: dict[str, Host] = {}
    by_name: defaultdict[str, list[Host]] = defaultdict(list)
    by_label: defaultdict[str, list[Host]] = defaultdict(list)
    for host in hosts:
        name = _name_of(host)
        by_uuid[uuid_of(host)] = host
        by_name[name].append(host)
        by_label[name.partition(".")[0]].append(host)
    return Index(by_uuid, by_name, by_label)


def named(name: str, hosts: Index) -> Sequence[Host]:
    """Return the hosts that a Node's name means.

    The host of a Node is the host of this very name. Without one, where only one of the two names
    has a domain, the part before the first dot decides, as officially.
    """
    lower = name.lower()
    if exact := hosts.by_name.get(lower):
        return exact
    alike = hosts.by_label.get(lower.partition(".")[0], ())
    return [host for host in alike if ("." in _name_of(host)) is not ("." in lower)]


def _name_of(host: Host) -> str:
    return str(host.get("hostname") or "").lower()


def external_name(node: str) -> str:
    """Return the official name of a node's external service; two nodes may have the same."""
    cleaned = re.sub(r"[^a-zA-Z0-9-]", "-", node).strip("-")
    return re.sub(r"-+", "-", cleaned)[:_LONGEST].rstrip("-")
