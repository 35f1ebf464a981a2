"""Build PersistentVolumes for tests, and ask a provider about one."""

from collections.abc import Mapping
from typing import Any

from proreus.cloudprovider import CloudError, CloudProvider
from proreus.kube.objects import ObjectMeta, PersistentVolume


def persistent_volume(
    spec: Mapping[str, Any] | None = None, name: str = "pv", **metadata: Any
) -> PersistentVolume:
    """Build a PersistentVolume; its uid is `uid-NAME`.

    Args:
        spec: Its spec, such as {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}.
        name: Its name.
        metadata: Further fields of `ObjectMeta`.
    """
    return PersistentVolume(ObjectMeta(name=name, **{"uid": f"uid-{name}", **metadata}), spec or {})


async def labels_of(
    provider: CloudProvider, spec: Mapping[str, Any], **metadata: Any
) -> Mapping[str, str]:
    """Return the labels that a provider has for one volume.

    Raises:
        CloudError: The answer is an error.
    """
    if provider.volumes is None:
        raise AssertionError(f"the provider {provider.name} has no volumes")
    volume = persistent_volume(spec, **metadata)
    (answer,) = (await provider.volumes.labels([volume])).values()
    if isinstance(answer, CloudError):
        raise answer
    return answer
