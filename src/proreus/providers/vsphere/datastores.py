"""Find the datastore of a volume, and write the labels of its zones. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.cloudprovider.volumes import BETWEEN_ZONES, handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.zones import Marks

DRIVER: Final = "csi.vsphere.vmware.com"
"""The CSI driver whose block volumes are first-class disks."""
STORE_PATHS: Final = ("name", "summary.url", "host")
"""The properties of a datastore that are read."""
_PATH: Final = re.compile(r"\[(?P<store>[^\[\]]+)\]\s*\S.*")
_LONGEST: Final = 63
_FILE: Final = "file:"
"""What the handle of a file share begins with: it is reached by network, from any zone."""


class Datastore(msgspec.Struct, frozen=True):
    """A datastore: its reference, name and URL, and the hosts that mount it."""

    ref: Ref
    name: str
    url: str
    hosts: frozenset[Ref] = frozenset()


class Volume(msgspec.Struct, frozen=True):
    """A volume: the name of its datastore, or its id where only the vCenter knows that."""

    store: str = ""
    id: str = ""
    problem: str = ""


def datastore(ref: Ref, properties: Mapping[str, Any]) -> Datastore:
    """Make a datastore of its properties by path."""
    mounts = properties.get("host")
    hosts = (
        key
        for mount in (mounts if isinstance(mounts, Sequence) else ())
        if isinstance(mount, Mapping)
        for key in mount.get("key", ())
    )
    return Datastore(
        ref,
        str(properties.get("name", "")),
        str(properties.get("summary.url", "")),
        frozenset(one for one in hosts if isinstance(one, Ref)),
    )


def named_volume(volume: PersistentVolume) -> Volume | None:
    """Return the volume that a PersistentVolume names; None if it is none of vSphere.

    It is named by `vsphereVolume`, or by `csi` with the driver of vSphere.
    """
    in_tree = volume.spec.get("vsphereVolume")
    if isinstance(in_tree, Mapping):
        path = str(in_tree.get("volumePath") or "")
        found = _PATH.fullmatch(path)
        if found is None:
            problem = f"vsphereVolume.volumePath {path!r} is not of the form [datastore] path"
            return Volume(problem=problem)
        # A path in a cluster of datastores names the cluster, too.
        return Volume(store=found["store"].rpartition("/")[2].strip())
    handle = handle_of(volume, in_tree="", driver=DRIVER)
    return Volume(id=handle) if handle and not handle.startswith(_FILE) else None


def chosen(stores: Sequence[Datastore], *, name: str = "", url: str = "") -> list[Datastore]:
    """Return the datastores of this name, or of this URL, with or without a slash at its end."""
    return [
        one
        for one in stores
        if (name and one.name == name) or (url and one.url.rstrip("/") == url.rstrip("/"))
    ]


def zone_labels(zones: Sequence[Marks]) -> dict[str, str]:
    """Return the labels of a volume that is in these zones, which are sorted by region.

    A label gives several zones with `__` between them, and one region: the first one.

    Raises:
        InvalidRequest: The zones are too many for a label.
    """
    if not zones:
        return {}
    region = zones[0].region
    clean = [LABEL_VALUE.clean(one.zone) for one in zones if one.region == region]
    zone = BETWEEN_ZONES.join(dict.fromkeys(clean))
    if len(zone) > _LONGEST:
        raise InvalidRequest(f"the volume is in {len(clean)} zones: too many for a label")
    return {LABEL_ZONE: zone, LABEL_REGION: LABEL_VALUE.clean(region)}
