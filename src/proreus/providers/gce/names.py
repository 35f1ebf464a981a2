"""Read and write provider ids, names, paths and URLs of resources. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import ownership_by_id
from proreus.kube.objects import KubeObject, Node

SCHEME: Final = "gce://"
PUBLIC_ENDPOINT: Final = "https://www.googleapis.com/compute/v1/"
"""The beginning of URLs of resources in the official manager's objects."""

_PROVIDER_ID = re.compile(r"gce://(?P<project>[^/]+)/(?P<zone>[^/]+)/(?P<name>[^/]+)")
_IN_URL = re.compile(r"(?:^|/)(projects/[^/]+/.+)$")
_PART = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_ZONE = re.compile(_PART)
_INSTANCE = re.compile(_PART)


class Machine(str):
    """The key of an instance: `ZONE/NAME`, which is unique in a project."""

    __slots__ = ()

    @property
    def zone(self) -> str:
        """The zone."""
        return self.partition("/")[0]

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.partition("/")[2]


def machine(zone: str, name: str) -> Machine:
    """Return the key of an instance."""
    return Machine(f"{zone}/{name}")


def provider_id(project: str, key: Machine) -> str:
    """Return the provider id of an instance."""
    return f"{SCHEME}{project}/{key}"


def parsed(text: str) -> tuple[str, Machine] | None:
    """Return project and instance of a provider id; None if it is not of this form.

    A name may be a host name: what follows its first dot does not count, as officially.
    """
    found = _PROVIDER_ID.fullmatch(text)
    if found is None:
        return None
    name = instance_name(found["name"])
    if not _ZONE.fullmatch(found["zone"]) or "-" not in found["zone"]:
        return None
    return (found["project"], machine(found["zone"], name)) if _INSTANCE.fullmatch(name) else None


def plain_id(text: str) -> str | None:
    """Return a provider id without the domain of its host name; None if it is not of this form."""
    found = parsed(text)
    return None if found is None else provider_id(*found)


def instance_name(node_name: str) -> str:
    """Return the name of a node's instance: up to the first dot."""
    return node_name.partition(".")[0]


def is_instance_name(text: str) -> bool:
    """Tell whether an instance can have this name."""
    return _INSTANCE.fullmatch(text) is not None


def region_of(zone: str) -> str:
    """Return the region of a zone: the zone without what follows the last dash."""
    return zone.rpartition("-")[0]


def ownership(node: Node, project: str) -> Ownership:
    """Tell whether a Node's machine is in this project, by its provider id."""

    def is_here(provider_id: str) -> bool:
        found = parsed(provider_id)
        return found is not None and found[0] == project

    return ownership_by_id(node, is_here)


def is_misnamed(node: Node, nodes: Iterable[KubeObject], zones: Collection[str]) -> bool:
    """Tell whether a Node names an instance of another name or place than most do: see `misnamed`.

    Args:
        node: The Node, which may be gone.
        nodes: All nodes.
        zones: The managed zones.
    """
    found = parsed(node.spec.provider_id)
    if found is None or is_own(found[1], node.metadata.name, zones):
        return False
    others = {one.metadata.uid: one for one in nodes if isinstance(one, Node)}
    every = {**others, node.metadata.uid: node}.values()
    return any(one.metadata.uid == node.metadata.uid for one in misnamed(every, zones))


def misnamed(nodes: Iterable[KubeObject], zones: Collection[str]) -> Sequence[Node]:
    """Return the Nodes that name an instance of another name, or in another zone, than most do.

    A kubelet can name any instance of the project, but it does not choose its Node's name, and
    names are unique in a zone only. Where half of the instances have other names than their Nodes,
    that says nothing; nor does the zone where half of them are in none that is managed.
    """
    known = [
        (one, found[1])
        for one in nodes
        if isinstance(one, Node) and (found := parsed(one.spec.provider_id)) is not None
    ]
    renamed = [one for one, key in known if not is_called(key, one.metadata.name)]
    outside = [one for one, key in known if key.zone not in zones]
    return [one for few in (renamed, outside) if 2 * len(few) < len(known) for one in few]


def is_called(key: Machine, node: str) -> bool:
    """Tell whether an instance has the name of a node, which may have a domain."""
    return key.name == instance_name(node)


def is_own(key: Machine, node: str, zones: Collection[str]) -> bool:
    """Tell whether an instance has the name of a node, and is in a managed zone."""
    return is_called(key, node) and key.zone in zones


def path_in(url: str) -> str:
    """Return the path of the resource that a URL names: from `projects/` on.

    Google writes URLs with one host or another, so paths are what is compared. "" if there is
    none.
    """
    found = _IN_URL.search(url)
    return found[1] if found else ""


def last_part(url: str) -> str:
    """Return what follows the last slash: the name of a resource, a zone or a machine type."""
    return url.rpartition("/")[2]


def machine_in(url: str) -> Machine | None:
    """Return the instance in a URL, or in its end from `zones/` on; None if there is none."""
    found = re.search(r"zones/([^/]+)/instances/([^/]+)$", url)
    return machine(found[1], found[2]) if found else None


def zone_in(url: str) -> str:
    """Return the zone of the resource that a URL names; "" if it is in none."""
    found = re.search(r"/zones/([^/]+)/", url)
    return found[1] if found else ""


def instance_path(project: str, key: Machine) -> str:
    """Return the path of an instance."""
    return f"projects/{project}/zones/{key.zone}/instances/{key.name}"
