"""Find the volume that a PersistentVolume names. Pure."""

from collections.abc import Mapping


def handle_of(volume_source: Mapping[str, object], *, in_tree: str, driver: str) -> str:
    """Return the cloud's id of the volume in a PersistentVolume, or "" if it is another cloud's.

    Args:
        volume_source: The spec of a PersistentVolume.
        in_tree: The field of the cloud's in-tree plugin, with a `volumeID`.
        driver: The name of the cloud's CSI driver.
    """
    source = volume_source.get(in_tree)
    if isinstance(source, Mapping):
        return str(source.get("volumeID") or "")
    csi = volume_source.get("csi")
    if isinstance(csi, Mapping) and csi.get("driver") == driver:
        return str(csi.get("volumeHandle") or "")
    return ""
