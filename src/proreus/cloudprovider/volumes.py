"""Find the volumes that PersistentVolumes name, and make the capability `Volumes`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import each
from proreus.cloudprovider.provider import Volumes
from proreus.kube.objects import PersistentVolume

BETWEEN_ZONES: Final = "__"
"""Stands between the zones of a volume that has several, in its label."""

Labels = Mapping[str, str]

CONCURRENCY: Final = 8
"""How many volumes are looked up at once, unless the provider says otherwise."""


def handle_of(volume: PersistentVolume, *, in_tree: str, driver: str) -> str:
    """Return the cloud's id of the volume in a PersistentVolume, or "" if it is another cloud's.

    Args:
        volume: The PersistentVolume.
        in_tree: The field of the cloud's in-tree plugin, which has a `volumeID`.
        driver: The name of the cloud's CSI driver.
    """
    source = volume.spec.get(in_tree)
    if isinstance(source, Mapping):
        return str(source.get("volumeID") or "")
    csi = volume.spec.get("csi")
    if isinstance(csi, Mapping) and csi.get("driver") == driver:
        return str(csi.get("volumeHandle") or "")
    return ""


def per_volume(
    labels: Callable[[PersistentVolume], Awaitable[Labels]], *, concurrency: int = CONCURRENCY
) -> Volumes:
    """Make the capability `Volumes` for a cloud that shows one volume a call.

    Args:
        labels: Returns the labels of one volume; empty, without a call, for other clouds' volumes.
            An error that it raises is the answer for that volume.
        concurrency: How many volumes are looked up at once.
    """
    return _PerVolume(labels, concurrency)


class _PerVolume:
    def __init__(
        self, labels: Callable[[PersistentVolume], Awaitable[Labels]], concurrency: int
    ) -> None:
        self._labels = labels
        self._concurrency = concurrency

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Labels | CloudError]:
        return await each(
            volumes, lambda volume: volume.metadata.name, self._labels, self._concurrency
        )
