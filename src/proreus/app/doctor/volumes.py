"""Find volumes whose pods may be sent to nodes that cannot attach them. Pure."""

from collections.abc import Iterator

from proreus.app.doctor.observed import Finding, Observed, ago, span
from proreus.cloudprovider import CloudError, InvalidRequest
from proreus.controllers.events import scrub
from proreus.controllers.persistent_volume_label import plan as plans


def findings(observed: Observed) -> Iterator[Finding]:
    """Find everything wrong with volumes that the manager is to label."""
    if observed.cloud is None:
        return
    for volume in observed.volumes:
        age = ago(observed.now, volume.metadata.creation_timestamp)
        if age < observed.patience or not plans.relevant(volume):
            continue
        name = volume.metadata.name
        answer = observed.cloud.volumes.get(name, plans.known(volume) or {})
        about = f"persistentvolume/{name}"
        if isinstance(answer, InvalidRequest):
            yield Finding(
                "volume-unknown",
                about,
                "the cloud does not know the volume, so that nobody knows where its pods can run",
                scrub(str(answer)),
                f"`kubectl describe pv {name}`; correct the id by making the PersistentVolume anew",
            )
        elif answer and not isinstance(answer, CloudError):
            place = ", ".join(f"{key}={value}" for key, value in sorted(answer.items()))
            yield Finding(
                "volume-not-labelled",
                about,
                "its labels or node affinity say nothing of its zone: pods may be sent elsewhere",
                f"made {span(age)} ago; the cloud says {place}",
                "check that a manager runs with --controllers=*,pvlabel, and that no replica logs "
                f"errors; `kubectl describe pv {name}`",
            )
