"""Ask a provider for labels of volumes behind the guard, and check each answer."""

from collections.abc import Mapping, Sequence
from typing import Final

from proreus.cloudprovider import CloudError, Volumes
from proreus.containment import contract
from proreus.containment.answers import Verb
from proreus.containment.guard import Guard
from proreus.kube.objects import PersistentVolume

LABELS_SECONDS: Final = 50.0
"""Seconds for the labels of a batch."""


class GuardedVolumes:
    """A guard of `Volumes`: every answer is labels or an error, and none is left out."""

    def __init__(self, volumes: Volumes, guard: Guard) -> None:
        """Guard `volumes`."""
        self._volumes = volumes
        self._labels = Verb(guard, "volume_labels", seconds=LABELS_SECONDS)

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        """Call the provider's `labels`, and check each answer.

        Raises:
            CloudError: The call failed as a whole.
        """
        names = [volume.metadata.name for volume in volumes]
        answer = await self._labels.values(lambda: self._volumes.labels(volumes), names)
        return {name: self._checked(name, answer) for name in names}

    def _checked(self, name: str, answer: Mapping[str, object]) -> Mapping[str, str] | CloudError:
        if name not in answer:
            return CloudError("the provider gave no answer for the volume")
        found = answer[name]
        if isinstance(found, CloudError):
            try:
                return contract.error(found)
            except contract.Broken as broken:
                return self._labels.wrong(f"gave an invalid answer for {name}: {broken}")
        if isinstance(found, Mapping) and all(
            isinstance(text, str) for pair in found.items() for text in pair
        ):
            return dict(found)
        return self._labels.wrong(
            f"answered with a {type(found).__name__} for {name}; it must be labels, as texts"
        )
