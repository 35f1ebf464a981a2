"""Preview the labels and node affinity of volumes that lack some. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from proreus.app.preview.changes import Change
from proreus.cloudprovider import CloudError
from proreus.controllers.persistent_volume_label import plan as plans
from proreus.controllers.persistent_volume_label.plan import Answer, Place
from proreus.kube.objects import PersistentVolume


def changes(
    volumes: Sequence[PersistentVolume], answers: Mapping[str, Answer]
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Return the changes of volumes, and why some volumes stay as they are.

    Args:
        volumes: All PersistentVolumes.
        answers: The cloud's answers about the volumes of `plan.askable`, by name.
    """
    found: list[Change] = []
    held: list[str] = []
    for volume in volumes:
        if not plans.relevant(volume):
            continue
        about = f"persistentvolume/{volume.metadata.name}"
        known = plans.known(volume)
        answer = answers[volume.metadata.name] if known is None else known
        try:
            if isinstance(answer, CloudError):
                raise answer
            place = plans.desired(volume, answer)
        except (CloudError, ValueError) as error:
            held.append(f"{about} gets no labels: {error}")
            continue
        if described := tuple(_lines(volume, place)):
            found.append(Change(about, "change", described))
    return tuple(found), tuple(held)


def _lines(volume: PersistentVolume, place: Place) -> Iterator[str]:
    for key, value in sorted(place.labels.items()):
        before = volume.metadata.labels.get(key)
        if before is None:
            yield f"+ label {key}={value}"
        elif before != value:
            yield f"~ label {key}={before} -> {value}"
    if place.affinity is not None and plans.is_open(volume):
        for term in place.affinity["required"]["nodeSelectorTerms"]:
            rules = (
                f"{one['key']} in {', '.join(one['values'])}" for one in term["matchExpressions"]
            )
            yield f"+ node affinity: {'; '.join(rules)}"
